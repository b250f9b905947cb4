"""The GEMM's schedule is legal on every target, says why, and names what is wrong with others."""

from __future__ import annotations

import re
from typing import Any

import pytest

from attngen.backends.numba_cpu.gemm_schedule import check_gemm, propose_gemm
from attngen.dtypes import DTYPES, FLOAT32, DType
from attngen.ir.schedule import Decision
from attngen.targets import AVX2, AVX512, GENERIC, NEON, CpuTarget

TARGETS = {"avx512": AVX512, "avx2": AVX2, "neon": NEON, "generic": GENERIC}
NO_CACHES = CpuTarget("avx2", 32, 16, 0, 0, 0, 1)


def values(decisions: dict[str, Decision[int]], **changes: int) -> dict[str, int]:
    return {name: d.value for name, d in decisions.items()} | changes


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("target", [*TARGETS.values(), NO_CACHES], ids=[*TARGETS, "no_caches"])
def test_a_proposal_is_legal_with_fewer_lanes_too(target: CpuTarget, dtype: DType) -> None:
    proposed = propose_gemm(target, dtype)
    lanes = target.lanes(dtype)
    while lanes:
        assert check_gemm(target, dtype, values(proposed, lanes=lanes)) == ()
        lanes //= 2


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_blocks_fit_the_caches(target: CpuTarget, dtype: DType) -> None:
    v = values(propose_gemm(target, dtype))
    panel = v["gemm_tile_vectors"] * target.lanes(dtype)
    assert panel * v["gemm_block_k"] * dtype.itemsize <= target.l1_bytes
    block_c = v["gemm_block_m"] * v["gemm_block_n"] * dtype.itemsize
    assert block_c <= max(target.l2_bytes, 256 << 10)


def test_reasons_carry_the_figures() -> None:
    proposed = propose_gemm(AVX512, FLOAT32)
    assert proposed["gemm_tile_rows"].why == (
        "6×4 sums and operands fill 29 of 32 registers; a panel is 64 columns wide"
    )
    assert (
        proposed["gemm_block_k"].why
        == "a panel of W, 64×96×4 B = 24 KiB, stays in L1 (32 KiB)"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "field", "fact", "hint"),
    [
        ({"gemm_tile_rows": 0}, "gemm_tile_rows", "is 0", "use 1 or more"),
        ({"gemm_tile_vectors": -3}, "gemm_tile_vectors", "is -3", "use 1 or more"),
        (
            {"gemm_tile_rows": 8, "gemm_block_m": 192},
            "gemm_tile_rows",
            "a 8×4 register tile needs 37 registers, and avx512 has 32",
            "use at most gemm_tile_rows: 6 with gemm_tile_vectors: 4",
        ),
        ({"gemm_block_m": 100}, "gemm_block_m", "multiple of gemm_tile_rows = 6", "use 96 or 102"),
        ({"gemm_block_n": 0}, "gemm_block_n", "is 0", "use 64 or 128"),
        ({"gemm_block_k": 40}, "gemm_block_k", "multiple of lanes = 16", "use 32 or 48"),
        ({"gemm_block_k": 10**30}, "gemm_block_k", "up to 65536", "use 65536"),
        (
            {"gemm_block_m": 65532, "gemm_block_n": 65536},
            "gemm_block_m",
            "a 65532×65536 block takes more than",
            "use a smaller block",
        ),
    ],
)
def test_illegal_values(changes: dict[str, int], field: str, fact: str, hint: str) -> None:
    (problem,) = check_gemm(AVX512, FLOAT32, values(propose_gemm(AVX512, FLOAT32), **changes))
    assert problem[0] == field
    assert fact in problem[1]
    assert hint in problem[2]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("vectors", [1, 2, 4, 14, 15, 16, 31, 32, 100, 10**9])
def test_the_nearest_tile_in_a_hint_is_legal(target: CpuTarget, vectors: int) -> None:
    proposed = values(propose_gemm(target, FLOAT32))
    changes: dict[str, Any] = {"gemm_tile_rows": 1000, "gemm_tile_vectors": vectors}
    message, hint = check_gemm(target, FLOAT32, proposed | changes)[0][1:]
    assert "registers" in message
    rows, wide = (int(n) for n in re.findall(r": (\d+)", hint))
    panel = wide * target.lanes(FLOAT32)
    legal = {
        "gemm_tile_rows": rows,
        "gemm_tile_vectors": wide,
        "gemm_block_m": rows,
        "gemm_block_n": panel,
    }
    assert check_gemm(target, FLOAT32, proposed | legal) == ()
