"""The projections' matrix product: against float64, and bit by bit against itself."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from attngen.backends.numba_cpu import threads
from attngen.backends.numba_cpu.gemm_schedule import propose_gemm
from attngen.backends.numba_cpu.projection import (
    ProjectionContext,
    projection_context,
    projection_file,
)
from attngen.backends.numba_cpu.simd import simd_file
from attngen.backends.numba_cpu.storage import storage_files
from attngen.backends.numba_cpu.workers import WorkersContext, workers_file
from attngen.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, DType
from attngen.ir.kernel import Projection
from attngen.lowering import gemm_buffers
from attngen.render import template_variables
from attngen.targets import AVX2, AVX512, GENERIC, NEON, CpuTarget

Array = np.ndarray[Any, Any]


def lowered(target: CpuTarget, dtype: DType, **changes: int) -> Projection:
    sizes = {name[5:]: d.value for name, d in propose_gemm(target, dtype).items()}
    sizes |= {"lanes": target.lanes(dtype)} | changes
    panel = sizes["tile_vectors"] * sizes["lanes"]
    buffers = gemm_buffers(dtype, *(sizes[f"block_{axis}"] for axis in "mnk"), panel)
    return Projection(dtype, buffers=buffers, **sizes)


SMALL_BLOCKS = {"block_m": 12, "block_n": 128, "block_k": 16}
KERNELS = {
    "avx512": lowered(AVX512, FLOAT32),
    "avx512_small_blocks": lowered(AVX512, FLOAT32, **SMALL_BLOCKS),
    "avx512_float64": lowered(AVX512, FLOAT64, block_k=64),
    "one_row_one_vector": lowered(
        AVX512, FLOAT32, tile_rows=1, tile_vectors=1, block_m=3, block_n=32, block_k=48
    ),
    "avx2": lowered(AVX2, FLOAT32, block_m=20, block_n=48),
    "neon": lowered(NEON, FLOAT32, block_m=24, block_k=60, tile_rows=8, tile_vectors=3, block_n=96),
    "scalar": lowered(GENERIC, FLOAT32, block_m=8, block_n=30, block_k=7),
    "scalar_float64": lowered(
        GENERIC, FLOAT64, tile_rows=1, tile_vectors=1, block_m=1, block_n=1, block_k=1
    ),
}

HALVES = {
    "bfloat16": lowered(AVX512, BFLOAT16, **SMALL_BLOCKS),
    "float16_neon": lowered(NEON, FLOAT16, block_m=24, block_k=20, block_n=96),
    "float16_scalar": lowered(GENERIC, FLOAT16, block_m=8, block_n=30, block_k=7),
}


@pytest.fixture(scope="module", params=KERNELS)
def module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModuleType]:
    """The generated module of one of the KERNELS, compiled for this machine."""
    yield from generated(request.param, KERNELS[request.param], tmp_path_factory.mktemp("made"))


def generated(key: str, kernel: Projection, home: Path) -> Iterator[ModuleType]:
    threads.prepare()
    name = f"projection_{key}"
    (home / name).mkdir()
    (home / name / "__init__.py").touch()
    isa = "vectors" if kernel.lanes > 1 else "scalar"
    for file in (
        simd_file(kernel.dtype, kernel.lanes, isa),
        projection_file(kernel),
        *storage_files(kernel.dtype, kernel.lanes, "neon" if kernel.lanes > 1 else "generic"),
        workers_file(kernel.dtype),
    ):
        (home / name / file.path).write_text(file.text, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(home)
        yield importlib.import_module(f"{name}.projection")
    for loaded in [m for m in sys.modules if m.partition(".")[0] == name]:
        del sys.modules[loaded]


def strided(rng: np.random.Generator, array: Array) -> Array:
    """An array of the same content in some other layout, its surroundings being NaN."""
    rows, columns = array.shape
    match rng.integers(6):
        case 0:
            return np.ascontiguousarray(array)
        case 1:
            return np.asfortranarray(array)
        case 2:
            room = np.full((rows, 2 * columns + 3), np.nan, array.dtype)
            view = room[:, 3::2]
        case 3:
            room = np.full((3 * rows, columns), np.nan, array.dtype)
            view = room[::-3, ::-1]
        case 4:
            room = np.full((rows, columns + 5), np.nan, array.dtype)
            view = room[:, 2 : 2 + columns]
        case _:
            room = np.full((columns, rows), np.nan, array.dtype)
            view = room.T[::-1]
    view[...] = array
    return view


def normal(rng: np.random.Generator, module: ModuleType, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(module.ELEMENT)


def product(module: ModuleType, a: Array, w: Array, bias: Array | None, workers: int = 1) -> Array:
    """a · w + bias in a fresh C-ordered array that held NaN."""
    out = np.full((a.shape[0], w.shape[1]), np.nan, a.dtype)
    module.project(a, module.pack_weight(w), bias, out, workers=workers)
    return out


def assert_close(module: ModuleType, out: Array, a: Array, w: Array, bias: Array | None) -> None:
    """Hold `out` to the bound on rounding errors of sums of BLOCK_K products (Higham, 3.1)."""
    a64, w64 = a.astype(np.float64), w.astype(np.float64)
    start = np.zeros(w.shape[1]) if bias is None else bias.astype(np.float64)
    terms = min(a.shape[1], module.BLOCK_K) + -(-a.shape[1] // module.BLOCK_K) + 2
    unit = 2 * np.finfo(module.ELEMENT).eps  # scalar code rounds products and sums apart
    bound = terms * unit * (np.abs(a64) @ np.abs(w64) + np.abs(start))
    error = np.abs(out.astype(np.float64) - (a64 @ w64 + start))
    assert (error <= bound).all(), f"{error.max()} for {a.shape} · {w.shape}"


def sizes_of(module: ModuleType) -> list[tuple[int, int, int]]:
    """(rows, depth, columns) around every edge of tiles and blocks."""
    m, n, k = module.BLOCK_M, module.BLOCK_N, module.BLOCK_K
    tile, panel = module.TILE_ROWS, module.PANEL
    return [
        (1, 1, 1),
        (1, k, panel),
        (1, k + 1, 2 * panel + 1),
        (2, 2 * k - 1, panel - 1 or 1),
        (tile, k, panel),
        (tile + 1, 3, panel + 1),
        (max(1, tile - 1), 2 * k + 3, 3),
        (m, k - 1 or 1, min(n, 300)),
        (m + 1, 5, min(n, 300) + 1),
        (2 * m + tile - 1, k + 7, panel + 2),
        (7, 3 * k, n + panel + 1),
    ]


@pytest.mark.numba
def test_against_float64_in_every_layout(module: ModuleType) -> None:
    rng = np.random.default_rng(1)
    for rows, depth, columns in sizes_of(module) * 2:
        a, w = normal(rng, module, rows, depth), normal(rng, module, depth, columns)
        bias = normal(rng, module, columns) if rng.integers(2) else None
        out = strided(rng, np.full((rows, columns), np.nan, module.ELEMENT))
        surroundings = out if out.base is None else out.base
        other = surroundings.size - out.size
        source = strided(rng, a)
        source.flags.writeable = False
        packed = module.pack_weight(strided(rng, w))
        module.project(source, packed, bias, out, workers=int(rng.integers(1, 3)))
        assert_close(module, out, a, w, bias)
        assert np.isnan(surroundings).sum() == other  # nothing beside `out` was written
        assert out.tobytes() == product(module, a, w, bias).tobytes()


@pytest.fixture(scope="module", params=HALVES)
def of_halves(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ModuleType, DType]]:
    """The same with weights that are halves."""
    kernel = HALVES[request.param]
    for module in generated(request.param, kernel, tmp_path_factory.mktemp("made")):
        yield module, kernel.dtype


@pytest.mark.numba
@pytest.mark.parametrize("half_in", [True, False])
@pytest.mark.parametrize("half_out", [True, False])
def test_halves_against_float64(
    of_halves: tuple[ModuleType, DType], half_in: bool, half_out: bool
) -> None:
    module, dtype = of_halves
    rng = np.random.default_rng(3)
    share, least = dtype.rounding if half_out else (0.0, 0.0)
    types = [dtype.numpy if half else np.dtype(np.float32) for half in (half_in, half_out)]
    for rows, depth, columns in sizes_of(module):
        a = rng.standard_normal((rows, depth)).astype(types[0])
        w = rng.standard_normal((depth, columns)).astype(dtype.numpy)
        bias = rng.standard_normal(columns).astype(dtype.numpy)
        out = strided(rng, np.full((rows, columns), np.nan, types[1]))
        surroundings = out if out.base is None else out.base
        other = surroundings.size - out.size
        packed = module.pack_weight(strided(rng, w))
        module.project(strided(rng, a), packed, bias, out, workers=int(rng.integers(1, 3)))
        a64, w64, b64 = (x.astype(np.float64) for x in (a, w, bias))
        exact = a64 @ w64 + b64
        terms = min(depth, module.BLOCK_K) + -(-depth // module.BLOCK_K) + 2
        bound = terms * 2.0**-22 * (np.abs(a64) @ np.abs(w64) + np.abs(b64))
        error = np.abs(out.astype(np.float64) - exact)
        assert (error <= bound + share * (np.abs(exact) + bound) + least).all()
        assert np.isnan(surroundings.astype(np.float32)).sum() == other


@pytest.mark.numba
def test_halves_of_another_type_are_refused(of_halves: tuple[ModuleType, DType]) -> None:
    module, dtype = of_halves
    other = (FLOAT16 if dtype == BFLOAT16 else BFLOAT16).numpy
    a, w, out = (np.zeros(s, dtype.numpy) for s in ((3, 4), (4, 5), (3, 5)))
    packed = module.pack_weight(w)
    module.project(a, packed, None, out)
    for wrong in ((a.astype(other), packed, out), (a, packed, out.astype(other))):
        with pytest.raises(ValueError, match="do not belong together"):
            module.project(wrong[0], wrong[1], None, wrong[2])
    with pytest.raises(ValueError, match="do not belong together"):
        module.project(a, packed.astype(np.float32), None, out)


@pytest.mark.numba
def test_neither_threads_nor_row_batches_change_a_bit(module: ModuleType) -> None:
    rng = np.random.default_rng(2)
    rows = 2 * module.TILE_ROWS + 3
    # Enough work for two threads, so that the second is really used.
    columns = 2 * module.PANEL + 5
    depth = 2 * module.SERIAL_WORK // (rows * columns) + 3
    a, w = normal(rng, module, rows, depth), normal(rng, module, depth, columns)
    bias = normal(rng, module, columns)
    whole = product(module, a, w, bias)
    assert_close(module, whole, a, w, bias)
    assert product(module, a, w, bias, workers=2).tobytes() == whole.tobytes()
    assert product(module, a, w, bias, workers=5).tobytes() == whole.tobytes()
    for size in (1, 2, module.TILE_ROWS, module.TILE_ROWS + 1):
        parts = [product(module, a[i : i + size], w, bias) for i in range(0, rows, size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.numba
def test_without_rows_columns_or_depth(module: ModuleType) -> None:
    rng = np.random.default_rng(3)
    bias = normal(rng, module, 5)
    for rows, depth, columns in [(0, 3, 5), (3, 4, 0), (0, 0, 0), (3, 0, 5), (0, 0, 5)]:
        a, w = normal(rng, module, rows, depth), normal(rng, module, depth, columns)
        expected = np.broadcast_to(bias[:columns], (rows, columns))
        assert np.array_equal(product(module, a, w, bias[:columns]), expected)
        assert np.array_equal(product(module, a, w, None), 0 * expected)


@pytest.mark.numba
def test_nan_and_infinity_stay_in_their_rows_and_columns(module: ModuleType) -> None:
    rng = np.random.default_rng(4)
    rows, depth, columns = module.TILE_ROWS + 2, 20, module.PANEL + 3
    a, w = normal(rng, module, rows, depth), normal(rng, module, depth, columns)
    bias = normal(rng, module, columns)
    clean = product(module, a, w, bias)
    a[1, 3], a[0, 4], w[7, columns - 1] = np.nan, np.inf, np.nan
    out = product(module, a, w, bias)
    assert np.isnan(out[1]).all()
    assert np.isnan(out[:, -1]).all()
    assert np.array_equal(out[0, :-1], np.sign(w[4, :-1]) * np.inf)
    assert out[2:, :-1].tobytes() == clean[2:, :-1].tobytes()


@pytest.mark.numba
def test_packed_weights_begin_on_a_cache_line_and_pad_with_zeros(module: ModuleType) -> None:
    rng = np.random.default_rng(5)
    w = normal(rng, module, module.BLOCK_K + 3, module.PANEL + 1)
    packed = module.pack_weight(w)
    assert packed.ctypes.data % 64 == 0
    assert packed.shape == (w.shape[0] * 2 * module.PANEL,)
    assert np.array_equal(np.sort(packed[packed != 0]), np.sort(w[w != 0]))
    first = packed[: module.BLOCK_K * module.PANEL].reshape(module.BLOCK_K, module.PANEL)
    assert np.array_equal(first, w[: module.BLOCK_K, : module.PANEL])
    for other in (np.asfortranarray(w), w[::-1, ::-1][::-1, ::-1], np.repeat(w, 2, axis=1)[:, ::2]):
        assert np.array_equal(module.pack_weight(other), packed)


@pytest.mark.numba
def test_arrays_that_do_not_belong_together_are_refused(module: ModuleType) -> None:
    rng = np.random.default_rng(6)
    a, w, bias = normal(rng, module, 3, 4), normal(rng, module, 4, 5), normal(rng, module, 5)
    packed, out = module.pack_weight(w), normal(rng, module, 3, 5)
    read_only = out.copy()
    read_only.flags.writeable = False
    other = np.float64 if module.ELEMENT is np.float32 else np.float32
    for wrong in [
        (a[:2], packed, bias, out),
        (a[:, :3], packed, bias, out),
        (a, packed[:-1], bias, out),
        (a, packed, bias[:4], out),
        (a.astype(other), packed, bias, out),
        (a, packed, bias, out.astype(other)),
        (a, np.repeat(packed, 2)[::2], bias, out),
        (a, packed, bias, read_only),
    ]:
        with pytest.raises(ValueError, match="do not belong together, or out is read-only"):
            module.project(*wrong)


@pytest.mark.numba
def test_calls_from_several_threads_at_once(module: ModuleType) -> None:
    rng = np.random.default_rng(7)
    w, bias = normal(rng, module, 64, 150), normal(rng, module, 150)
    packed = module.pack_weight(w)
    inputs = [normal(rng, module, 120 + i, 64) for i in range(4)]
    outputs = [np.full((len(a), 150), np.nan, module.ELEMENT) for a in inputs]

    def work(a: Array, out: Array) -> None:
        for _ in range(3):
            with threads.guard():
                module.project(a, packed, bias, out, workers=2)

    started = [
        threading.Thread(target=work, args=pair) for pair in zip(inputs, outputs, strict=True)
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    for a, out in zip(inputs, outputs, strict=True):
        assert out.tobytes() == product(module, a, w, bias).tobytes()


@pytest.mark.parametrize("name", [*KERNELS, *HALVES])
def test_the_text_is_python_of_100_columns(name: str) -> None:
    kernel = {**KERNELS, **HALVES}[name]
    for text in (projection_file(kernel).text, workers_file(kernel.dtype).text):
        ast.parse(text)
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        for line in text.splitlines():
            assert len(line) <= 100, line
            assert line == line.rstrip(), line
    assert text == workers_file(kernel.dtype).text


@pytest.mark.parametrize(
    ("template", "context"),
    [("projection.py.jinja", ProjectionContext), ("workers.py.jinja", WorkersContext)],
)
def test_contexts_are_what_the_templates_read(template: str, context: type[Any]) -> None:
    fields = {f.name for f in dataclasses.fields(context)}
    assert template_variables(f"numba_cpu/{template}") == fields


def test_rows_of_a_fall_on_different_cache_sets() -> None:
    for kernel in KERNELS.values():
        stride = projection_context(kernel).a_stride
        assert stride >= kernel.block_k
        assert stride * kernel.dtype.itemsize % 128 == 64
