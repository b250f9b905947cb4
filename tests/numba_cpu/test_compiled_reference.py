"""Compiled kernels against the float64 reference: features × run-time shapes × vector widths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases.cases import FIELD_CASES
from compiling import KERNELS, Kernels, kernels_once

from attngen.backends.numba_cpu.scheduling import REGISTER_TILES

pytestmark = [pytest.mark.numba, pytest.mark.slow]

SPECS = {
    "gqa_causal": {"heads": 6, "kv_heads": 2, "head_dim": 24, "causal": True},
    "band": {
        "heads": 2,
        "head_dim": 9,
        "value_dim": 13,
        "causal": "top_left",
        "window": {"left": 11, "right": 5},
    },
    "double": {
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 33,
        "value_dim": 7,
        "dtype": "float64",
        "window": {"left": 20, "right": 3},
        "scale": -0.3,
    },
    "one_wide": {"heads": 5, "kv_heads": 1, "head_dim": 1, "value_dim": 3, "scale": 0.9},
    "off_by_one": {
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "causal": True,
        "activation": "softmax_off_by_one",
    },
    "differential": {
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 20,
        "causal": True,
        "window": {"left": 40},
        "differential": {"lambda": [0.8, -0.5, 0.0, 1.5]},
    },
    "sigmoid": {
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 20,
        "value_dim": 12,
        "causal": True,
        "bias": "alibi",
        "activation": "sigmoid",
    },
    "relu": {"heads": 3, "head_dim": 18, "activation": "relu", "dtype": "float64"},
    "halves": {"heads": 6, "kv_heads": 2, "head_dim": 24, "causal": True, "dtype": "float16"},
    "mla": {"heads": 4, "kv_heads": 1, "head_dim": 192, "value_dim": 128, "causal": True},
}
HALF_WIDTHS = ("own", "neon", "scalars")
EVERYTHING = {
    "heads": 6,
    "kv_heads": 2,
    "head_dim": 17,
    "value_dim": 11,
    "causal": True,
    "window": {"left": 40, "right": 0},
    "softcap": 2.5,
    "sink": True,
}


def tiles(isa: str, lanes: int) -> dict[str, int]:
    """The schedule that a machine with these vectors gets."""
    scalars, vectors = REGISTER_TILES[isa]
    panel = vectors * lanes
    return {
        "lanes": lanes,
        "tile_scalars": scalars,
        "tile_vectors": vectors,
        "block_q": 2 * panel,
        "block_kv": 4 * scalars,
        "split_kv": 32,
    }


# The same code as for machines with these vectors, run on this one where its vectors are as wide.
WIDTHS = {
    "own": {},
    "avx2": tiles("avx2", 8),
    "neon": tiles("neon", 4),
    "scalars": tiles("generic", 1),
}
SHAPES = [
    (1, 0, 5), (0, 4, 4), (1, 4, 0), (3, 1, 1), (1, 1, 97), (2, 5, 3), (1, 7, 300), (3, 33, 31),
    (1, 50, 20), (1, 129, 257), (2, 97, 0), (1, 200, 200), (1, 61, 400),
]  # fmt: skip


@pytest.fixture(
    scope="module",
    params=[
        *SPECS,
        *(f"everything_{width}" for width in WIDTHS),
        *(f"bfloat16_{width}" for width in HALF_WIDTHS),
    ],
)
def kernels(request: pytest.FixtureRequest, kernel_cache: Path) -> Kernels:
    name = request.param
    if name in SPECS:
        return kernels_once(kernel_cache, {"name": name, **SPECS[name]})
    width = WIDTHS[name.removeprefix("everything_").removeprefix("bfloat16_")]
    most = kernels_once(kernel_cache, {"name": "everything_own", **EVERYTHING}, compiled=())
    if width and width["lanes"] > most.attention.schedule.lanes.value:
        pytest.skip("this machine's vectors are narrower")
    spec = {"name": name, **EVERYTHING}
    if name.startswith("bfloat16_"):
        spec["dtype"] = "bfloat16"
    return kernels_once(kernel_cache, spec, width)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_shape(kernels: Kernels, kernel: str) -> None:
    for seed, (batch, q_len, kv_len) in enumerate(SHAPES):
        if kernel == "split_kv":
            q_len = min(q_len, kernels.short_rows)
        arrays = kernels.arrays(batch, q_len, kv_len, seed)
        out, lse = kernels.run(kernel, *arrays)
        kernels.check(arrays, out, lse, f"batch {batch}, {q_len} queries, {kv_len} keys")


@pytest.mark.parametrize("kernel", KERNELS)
def test_random_shapes(kernels: Kernels, kernel: str) -> None:
    rng = np.random.default_rng(7)
    for seed in range(25):
        q_len, kv_len = rng.integers(0, kernels.short_rows + 1), rng.integers(0, 150)
        if kernel == "flash_forward":
            q_len = rng.integers(0, 150)
        arrays = kernels.arrays(int(rng.integers(1, 3)), q_len, kv_len, seed + 100)
        out, lse = kernels.run(kernel, *arrays)
        kernels.check(arrays, out, lse, f"{q_len} queries, {kv_len} keys")


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_sequence_does_not_depend_on_its_batch(kernels: Kernels, kernel: str) -> None:
    q_len = min(41, kernels.short_rows) if kernel == "split_kv" else 41
    q, k, v, sink = kernels.arrays(3, q_len, 77, 5)
    out, lse = kernels.run(kernel, q, k, v, sink)
    for b in range(3):
        one = slice(b, b + 1)
        alone, alone_lse = kernels.run(kernel, q[one], k[one], v[one], sink)
        np.testing.assert_array_equal(alone, out[one])
        np.testing.assert_array_equal(alone_lse, lse[one])


def test_both_kernels_agree(kernels: Kernels) -> None:
    arrays = kernels.arrays(2, kernels.short_rows, 83, 11)
    out, lse = kernels.run("flash_forward", *arrays)
    kernels.check(arrays, *kernels.run("split_kv", *arrays))
    kernels.check(arrays, out, lse)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["gqa_causal", "everything_own"])
def test_any_number_of_threads_gives_the_same_bits(
    kernel_cache: Path, name: str, kernel: str
) -> None:
    spec = SPECS.get(name, EVERYTHING)
    kernels = kernels_once(kernel_cache, {"name": name, **spec})
    q_len = kernels.short_rows if kernel == "split_kv" else 150
    arrays = kernels.arrays(2, q_len, 700, 3)
    out, lse = kernels.run(kernel, *arrays, workers=1)
    for workers in (2, 3, 7, 64):
        again, again_lse = kernels.run(kernel, *arrays, workers=workers)
        np.testing.assert_array_equal(again, out, err_msg=f"{workers} workers")
        np.testing.assert_array_equal(again_lse, lse, err_msg=f"{workers} workers")


# Those whose sizes compile to something that no spec above does; the emulated kernels take all.
COMPILED_CASES = [
    case
    for case in FIELD_CASES
    if case.name.startswith(
        ("C04", "C07_bidir", "C08", "C14", "C15", "C17", "C26", "C40_scale_minus")
    )
    or case.name in ("C18_d257", "C19_dqk576_dv512", "C20_gqa48_2")
]


@pytest.mark.parametrize("case", COMPILED_CASES, ids=str)
def test_field_cases(case, kernel_cache: Path) -> None:
    arrays = case.load()
    spec = {**case.spec, "name": "field"}  # cases that differ in their arrays share kernels
    short = arrays.q.shape[1] * spec["heads"] <= 16 * spec["kv_heads"]
    kernels = kernels_once(kernel_cache, spec, compiled=(KERNELS[short],))
    case.check(*kernels.attention(arrays.q, arrays.k, arrays.v, return_lse=True))
