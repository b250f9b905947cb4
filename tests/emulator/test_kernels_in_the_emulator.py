"""Whole kernels: compiled by numba.cuda where that is installed, and mutants of one that is kept.

``data/tile_product.ptx`` is `kernels.tile_product` as numba-cuda 0.30.4 compiled it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from emulator.assemble import Array
from ptx.launch import launch
from ptx.memory import GlobalMemory, Region
from ptx.module import PtxError
from ptx.mutants import Mutant, mutants
from ptx.report import Report

KEPT = (Path(__file__).parent / "data" / "tile_product.ptx").read_text("utf-8")
SHARED = 2 * (64 + 32) * 64  # bytes: two stages of both tiles
needs_compiler = pytest.mark.skipif(
    find_spec("numba_cuda") is None, reason="needs numba-cuda: pip install 'attngen[cuda]'"
)


def halves(rng: np.random.Generator, rows: int, k: int) -> Array:
    """(rows, k) float16 in rows of 64, so that 16 bytes are aligned wherever they begin."""
    whole = np.zeros((rows, 64), np.float16)
    whole[:, :k] = rng.standard_normal((rows, k))
    return whole[:, :k]


def tile_product(ptx: str, m: int, n: int, k: int) -> tuple[Report, float]:
    """Run it on a random problem; the largest error of any element."""
    rng = np.random.default_rng(m + n + k)
    a, b = halves(rng, m, k), halves(rng, n, k)
    memory = GlobalMemory()
    c = memory.reserve((m, n), np.float32)
    report = launch(
        ptx,
        memory,
        grid=(-(-m // 64), -(-n // 32)),
        block=(128,),
        arguments=[memory.place(a), memory.place(b), c, m, n, k, 128],
        outputs=[c],
        dynamic_shared=SHARED,
        steps=20_000,
    )
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    error = np.abs(memory.read(c) - exact)
    return report, float(np.where(np.isfinite(error), error, np.inf).max(initial=0.0))


def mistakes(ptx: str, m: int, n: int, k: int) -> set[str]:
    """What is wrong with a kernel for one shape."""
    try:
        report, error = tile_product(ptx, m, n, k)
    except PtxError as failure:
        return {str(failure)}
    found = {str(kind) for kind in report.kinds}
    if not error < 1e-4:
        found.add("wrong result")
    if report.conflicts(in_loops_only=True):
        found.add("bank conflicts")
    if report.dangling_copies:
        found.add("copies that nobody waits for")
    return found


SHAPES = (
    (37, 2, 45),
    (44, 3, 33),
    (12, 10, 64),
    (9, 11, 31),
    (50, 18, 32),
    (61, 19, 1),
    (44, 26, 17),
    (37, 27, 40),
)


@pytest.mark.parametrize("shape", [*SHAPES, (70, 37, 45), (64, 32, 64)])
def test_a_pipelined_product(shape: tuple[int, int, int]) -> None:
    assert mistakes(KEPT, *shape) == set()


def test_its_accesses_without_swizzle_would_conflict() -> None:
    report, _ = tile_product(KEPT, 64, 32, 64)
    assert report.conflicts() == 0
    assert sum(t.phases for t in report.traffic.values()) > 100


# `x > 0 ? x : 0` for `x >= 0 ? x : 0`, and the same of -1: no mistakes at all.
EQUIVALENT = ("setp.gt.s64 %p2, %rd1, -1;", "setp.gt.s64 %p1, %rd2, 0;")
MUTANTS = [x for x in mutants(KEPT) if x.instruction not in EQUIVALENT]


def test_there_are_mutants_of_every_kind() -> None:
    kinds = {x.mistake for x in MUTANTS}
    assert kinds >= {
        "barrier dropped",
        "wait dropped",
        "one group too few waited for",
        "commit dropped",
        "swizzle or for xor",
        "swizzle dropped",
        "tile bound off by one",
    }
    assert len(MUTANTS) + len(EQUIVALENT) == len(list(mutants(KEPT)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_mutant_is_caught(mutant: Mutant) -> None:
    assert any(mistakes(mutant.text, *shape) for shape in SHAPES), f"nothing seen of: {mutant}"


def parameters(memory: GlobalMemory, *arrays: Array | Region) -> list[Region | int]:
    """The parameters that numba.cuda makes of array arguments."""
    made: list[Region | int] = []
    for array in arrays:
        region = array if isinstance(array, Region) else memory.place(array)
        size = region.dtype.itemsize
        strides = [size]
        for length in reversed(region.shape[1:]):
            strides.insert(0, strides[0] * length)
        count = int(np.prod(region.shape))
        made += [0, 0, count, size, region, *region.shape, *strides]
    return made


@needs_compiler
@pytest.mark.numba
@pytest.mark.parametrize("size", [1, 100, 257])
def test_compiled_addition(size: int) -> None:
    from emulator import sample_kernels as kernels
    from numba.cuda import types

    vector = types.float32[::1]
    ptx = kernels.ptx_of(kernels.add, vector, vector, vector, threads=64)
    rng = np.random.default_rng(size)
    x, y = rng.standard_normal((2, size)).astype(np.float32)
    memory = GlobalMemory()
    out = memory.reserve(size, np.float32)
    report = launch(
        ptx, memory, grid=(-(-size // 64),), block=(64,),
        arguments=parameters(memory, x, y, out), outputs=[out],
    )  # fmt: skip
    report.check()
    np.testing.assert_array_equal(memory.read(out), x + y)


@needs_compiler
@pytest.mark.numba
def test_compiled_blocks_in_shared_memory() -> None:
    from emulator import sample_kernels as kernels
    from numba.cuda import types

    matrix = types.float32[:, ::1]
    ptx = kernels.ptx_of(kernels.blocked_product, matrix, matrix, matrix, threads=256)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((19, 35), (35, 33)))

    def run(text: str) -> tuple[Report, Array]:
        memory = GlobalMemory()
        out = memory.reserve((19, 33), np.float32)
        report = launch(
            text, memory, grid=(3, 2), block=(16, 16),
            arguments=parameters(memory, x, y, out), outputs=[out],
        )  # fmt: skip
        return report, memory.read(out)

    report, product = run(ptx)
    report.check()
    assert report.conflicts() == 0
    np.testing.assert_allclose(product, x.astype(np.float64) @ y, rtol=1e-5, atol=1e-5)
    dropped = list(mutants(ptx, "barrier dropped"))
    assert dropped
    for mutant in dropped:
        assert "race" in {str(k) for k in run(mutant.text)[0].kinds}, str(mutant)


@needs_compiler
@pytest.mark.numba
def test_compiled_reduction_in_warps() -> None:
    from emulator import sample_kernels as kernels
    from numba.cuda import types

    ptx = kernels.ptx_of(kernels.row_sums, types.float32[:, ::1], types.float32[::1], threads=128)
    x = np.random.default_rng(0).standard_normal((7, 77)).astype(np.float32)
    memory = GlobalMemory()
    out = memory.reserve(7, np.float32)
    report = launch(
        ptx, memory, grid=(2,), block=(128,), arguments=parameters(memory, x, out), outputs=[out]
    )
    report.check()
    np.testing.assert_allclose(memory.read(out), x.sum(1, dtype=np.float64), rtol=1e-5, atol=1e-5)


@needs_compiler
@pytest.mark.numba
def test_compiled_last_block() -> None:
    from emulator import sample_kernels as kernels
    from numba.cuda import types

    vector = types.float32[::1]
    ptx = kernels.ptx_of(kernels.largest, vector, types.int32[::1], vector, threads=128)
    x = np.random.default_rng(0).standard_normal(3 * 128 - 5).astype(np.float32)

    def run(text: str) -> tuple[Report, Array]:
        memory = GlobalMemory()
        count = memory.place(np.zeros(1, np.int32), writable=True)
        out = memory.reserve(4, np.float32)
        report = launch(
            text, memory, grid=(3,), block=(128,),
            arguments=parameters(memory, x, count, out), outputs=[out],
        )  # fmt: skip
        return report, memory.read(out)

    report, found = run(ptx)
    report.check()
    assert found[0] == x.max()
    for mutant in [*mutants(ptx, "fence dropped"), *mutants(ptx, "barrier dropped")]:
        assert "race" in {str(k) for k in run(mutant.text)[0].kinds}, str(mutant)


@needs_compiler
@pytest.mark.numba
def test_the_kept_kernel_is_what_is_compiled_now() -> None:
    from emulator import sample_kernels as kernels

    ptx = kernels.ptx_of(kernels.tile_product, *kernels.TILE_TYPES, threads=128)
    assert kernels.TILE_SHARED == SHARED
    assert mistakes(ptx, 70, 37, 45) == set()
    now, _ = tile_product(ptx, 70, 37, 45)
    kept, _ = tile_product(KEPT, 70, 37, 45)
    for opcode in ("mma", "ldmatrix", "cp", "bar"):
        assert now.executed[opcode] == kept.executed[opcode]
