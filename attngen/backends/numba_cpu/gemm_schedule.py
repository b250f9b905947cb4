"""The GEMM's part of a CPU schedule: proposing a register tile and cache blocks, and judging them.

Input: a target's facts and the element type. Output: decisions, each with its reason, or the facts
that make values illegal. The blocks follow Goto & van de Geijn (2008): a panel of W lives in L1, a
block of A and the block of C that it makes in L2.
"""

from __future__ import annotations

from collections.abc import Mapping

from attngen.dtypes import DType
from attngen.ir.schedule import Decision
from attngen.targets import CpuTarget

# Register tiles by instruction set, (rows, vectors): nearly all registers hold sums; the rest are
# for the vectors of W and one broadcast element of A. Four vectors make panels a power of two wide,
# as most widths of layers are. AVX2 has too few registers for that: 4×3 loads 7 operands for 12
# multiply-adds and reaches 95 GFLOP/s on a Zen 4 core, 6×2 loads 8 and reaches 83.
REGISTER_TILES = {"avx512": (6, 4), "avx2": (4, 3), "neon": (6, 4), "generic": (4, 2)}

MAX_BLOCK = 1 << 16  # rows, columns or depth; far beyond what any cache holds
MAX_WORKSPACE = 1 << 28  # elements a worker; so that sizes fit 64 bits whatever the thread count


def propose_gemm(target: CpuTarget, dtype: DType) -> dict[str, Decision[int]]:
    """The ``gemm_*`` fields of a CpuSchedule for `target`."""
    itemsize, lanes = _itemsize(dtype), target.lanes(dtype)
    tile_rows, vectors = REGISTER_TILES[target.isa]
    panel = vectors * lanes
    used = tile_rows * vectors + vectors + 1
    tile_why = (
        f"{tile_rows}×{vectors} sums and operands fill {used} of {target.vector_registers} "
        f"registers; a panel is {panel} columns wide"
    )

    line = 64 // itemsize
    fitting = target.l1_bytes * 3 // 4 // (panel * itemsize)
    block_k = max(line, min(fitting, 256) // line * line)
    block_k_why = (
        f"a panel of W, {panel}×{block_k}×{itemsize} B = {_kib(panel * block_k * itemsize)}, "
        f"stays in L1 ({_kib(target.l1_bytes)})"
    )

    # Many enough that reading a panel of W from memory takes a fraction of its multiply-adds' time.
    block_m = _multiple(192, tile_rows)
    block_m_why = (
        f"a panel of W is used for {block_m} rows; their block of A, "
        f"{_kib(block_m * block_k * itemsize)}, stays in L2 ({_kib(target.l2_bytes)})"
    )

    room = max(target.l2_bytes, 256 << 10) * 3 // 4
    block_n = max(panel, min(room // (block_m * itemsize), 1024) // panel * panel)
    block_n_why = (
        f"a copied block of A is used for {block_n} columns; their C, "
        f"{_kib(block_m * block_n * itemsize)}, fits three quarters of L2"
    )
    return {
        "gemm_tile_rows": Decision(tile_rows, "heuristic", tile_why),
        "gemm_tile_vectors": Decision(vectors, "heuristic", tile_why),
        "gemm_block_m": Decision(block_m, "heuristic", block_m_why),
        "gemm_block_n": Decision(block_n, "heuristic", block_n_why),
        "gemm_block_k": Decision(block_k, "heuristic", block_k_why),
    }


def check_gemm(
    target: CpuTarget, dtype: DType, values: Mapping[str, int]
) -> tuple[tuple[str, str, str], ...]:
    """What makes `values` illegal: (field, message, hint) each; empty if they are legal.

    Args:
        target: the machine.
        dtype: the element type of the matrices.
        values: the ``gemm_*`` fields, and ``lanes``; the target's lanes without it.
    """
    lanes = values.get("lanes", target.lanes(dtype))
    rows, vectors = values["gemm_tile_rows"], values["gemm_tile_vectors"]
    problems = [
        (name, f"'{name}' is {values[name]}, and a register tile has at least 1", "use 1 or more")
        for name in ("gemm_tile_rows", "gemm_tile_vectors")
        if values[name] < 1
    ]
    if problems:
        return tuple(problems)
    used = rows * vectors + vectors + 1
    if used > target.vector_registers:
        wide = max(1, min(vectors, target.vector_registers // 2 - 1))
        fits = (target.vector_registers - 1 - wide) // wide
        message = (
            f"a {rows}×{vectors} register tile needs {used} registers, and {target.isa} has "
            f"{target.vector_registers}"
        )
        hint = f"use at most gemm_tile_rows: {fits} with gemm_tile_vectors: {wide}"
        problems.append(("gemm_tile_rows", message, hint))
    steps = {
        "gemm_block_m": (rows, "gemm_tile_rows"),
        "gemm_block_n": (vectors * lanes, "a panel (gemm_tile_vectors × lanes)"),
        "gemm_block_k": (lanes, "lanes"),
    }
    for name, (step, of) in steps.items():
        problems += _check_multiple(name, values[name], step, of)
    block_m, block_n = values["gemm_block_m"], values["gemm_block_n"]
    if not problems and block_m * (block_n + values["gemm_block_k"]) > MAX_WORKSPACE:
        message = f"a {block_m}×{block_n} block takes more than {MAX_WORKSPACE} elements a thread"
        problems.append(("gemm_block_m", message, "use a smaller block, such as 192×1024"))
    return tuple(problems)


def _check_multiple(name: str, value: int, step: int, of: str) -> list[tuple[str, str, str]]:
    if 1 <= value <= MAX_BLOCK and value % step == 0:
        return []
    most = MAX_BLOCK // step * step
    if most == 0:
        return []  # a tile this large was refused before
    low = min(max(value // step, 1) * step, most)
    high = min(low + step, most)
    nearest = f"{low} or {high}" if low != high else str(low)
    message = f"'{name}' is {value}, and must be a multiple of {of} = {step}, up to {MAX_BLOCK}"
    return [(name, message, f"use {nearest}")]


def _multiple(size: int, step: int) -> int:
    return max(1, size // step) * step


def _itemsize(dtype: DType) -> int:
    return 8 if dtype.accumulator == "float64" else 4


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB"
