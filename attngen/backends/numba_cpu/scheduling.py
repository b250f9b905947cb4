"""Choosing and judging a CPU schedule. Both read the target's facts and nothing else.

`propose` decides field by field, a user's value replacing the heuristic's where there is one, so
that later fields follow from it. `check` judges user and heuristic values alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from attngen.backends.choosing import Chooser, Problem, check_multiple, kib
from attngen.backends.numba_cpu.gemm_schedule import check_gemm, propose_gemm
from attngen.ir.attention import AttentionIR
from attngen.ir.schedule import CpuSchedule, Decision
from attngen.lowering import round_up
from attngen.spec.model import ScheduleOverride
from attngen.targets import CpuTarget

# Register tiles by instruction set, (scalars, vectors): as many accumulators as there are registers
# for, with one left for each vector operand and one for the broadcast scalar.
REGISTER_TILES = {"avx512": (8, 3), "avx2": (4, 3), "neon": (8, 3), "generic": (4, 2)}

SHORT_ROWS = 16


def propose(
    ir: AttentionIR, target: CpuTarget, overrides: Sequence[ScheduleOverride] = ()
) -> CpuSchedule:
    """A legal schedule for `ir` on `target`.

    Raises:
        SpecError: overrides are illegal; each is named with its place and what would be legal.
    """
    chooser = Chooser("cpu", CpuSchedule, overrides)
    schedule = _decide(ir, target, chooser)
    chooser.judge(lambda: check(ir, target, schedule))
    return schedule


def _decide(ir: AttentionIR, target: CpuTarget, chooser: Chooser) -> CpuSchedule:
    itemsize = 8 if ir.dtype.accumulator == "float64" else 4
    most = target.lanes(ir.dtype)
    lanes = chooser.integer(
        "lanes", most, f"one {target.isa} vector holds {most} {ir.dtype.accumulator}"
    )
    scalars, vectors = REGISTER_TILES[target.isa if lanes.value > 1 else "generic"]
    used = scalars * vectors + vectors + 1
    why = f"{scalars}×{vectors} accumulators and operands fill {used} of {target.vector_registers} "
    why += "registers"
    tile_scalars = chooser.integer("tile_scalars", scalars, why)
    tile_vectors = chooser.integer("tile_vectors", vectors, why)
    panel = max(1, tile_vectors.value * lanes.value)

    step = max(1, tile_scalars.value)
    keys = _block_kv(target, panel, step, itemsize)
    block_kv = chooser.integer(
        "block_kv",
        keys,
        f"weights {keys}×{panel}×{itemsize} B = {kib(keys * panel * itemsize)} stay in L1 "
        f"({kib(target.l1_bytes)})",
    )
    rows = _block_q(ir, target, panel, block_kv.value, itemsize)
    block_q = chooser.integer(
        "block_q",
        rows,
        f"Qᵀ, Oᵀ of {rows} rows and a block of K, V fit half of L2 ({kib(target.l2_bytes)})",
    )
    short = chooser.integer(
        "short_rows",
        SHORT_ROWS,
        "so few rows cannot share the work of packing blocks, and their keys must be split to "
        "occupy all threads",
    )
    split = chooser.integer(
        "split_kv",
        round_up(256, max(1, lanes.value)),
        "enough splits for many threads, few enough to merge; fixed, so that results do not "
        "depend on the number of threads",
    )
    gemm = propose_gemm(target, ir.dtype)

    def gemm_field(name: str) -> Decision[int]:
        return chooser.integer(name, gemm[name].value, gemm[name].why)

    return CpuSchedule(
        lanes=lanes,
        tile_scalars=tile_scalars,
        tile_vectors=tile_vectors,
        block_q=block_q,
        block_kv=block_kv,
        short_rows=short,
        split_kv=split,
        projection=chooser.text("projection", *_projection(target)),
        gemm_tile_rows=gemm_field("gemm_tile_rows"),
        gemm_tile_vectors=gemm_field("gemm_tile_vectors"),
        gemm_block_m=gemm_field("gemm_block_m"),
        gemm_block_n=gemm_field("gemm_block_n"),
        gemm_block_k=gemm_field("gemm_block_k"),
    )


def _projection(target: CpuTarget) -> tuple[str, str]:
    if target.isa == "generic":
        return "blas", "without known vector registers NumPy's BLAS is faster than generated code"
    return "generated", f"at BLAS's level with {target.isa} vectors, and under one thread setting"


def _block_kv(target: CpuTarget, panel: int, step: int, itemsize: int) -> int:
    """Keys whose weights for one panel take at most three quarters of L1; a multiple of `step`."""
    keys = target.l1_bytes * 3 // 4 // (panel * itemsize)
    return max(step, min(keys, 128) // step * step)


def _block_q(ir: AttentionIR, target: CpuTarget, panel: int, keys: int, itemsize: int) -> int:
    """Rows whose Qᵀ and Oᵀ share half of L2 with a block of K and V; at least one panel."""
    width = (ir.head_dim + ir.value_dim) * itemsize
    room = target.l2_bytes // 2 - keys * width
    rows = min(max(room // width, 0), 192)
    return max(panel, rows // panel * panel)


def check(ir: AttentionIR, target: CpuTarget, schedule: CpuSchedule) -> tuple[Problem, ...]:
    """Everything that makes `schedule` illegal for `ir` on `target`; empty if it is legal."""
    problems: list[Problem] = []

    def reject(name: str, message: str, hint: str) -> None:
        problems.append(Problem(name, message, hint))

    most = target.lanes(ir.dtype)
    lanes, scalars = schedule.lanes.value, schedule.tile_scalars.value
    vectors = schedule.tile_vectors.value
    legal = [1 << i for i in range(most.bit_length())]
    if lanes not in legal:
        reject("lanes", f"'lanes' is {lanes}, and {target.isa} has vectors of up to {most}",
               "use " + " or ".join(map(str, legal)))  # fmt: skip
    for name in ("tile_scalars", "tile_vectors"):
        value = getattr(schedule, name).value
        if value < 1:
            reject(
                name, f"'{name}' is {value}, and a register tile has at least 1", "use 1 or more"
            )
    if problems:
        return tuple(problems)

    # Vectors beyond the registers ruin the kernel, by spills in its innermost loop.
    used = scalars * vectors + vectors + 1
    if used > target.vector_registers:
        fits = (target.vector_registers - 1 - vectors) // vectors
        most = (target.vector_registers - 1) // 2  # with one scalar
        reject("tile_scalars" if fits > 0 else "tile_vectors",
               f"a {scalars}×{vectors} register tile needs {used} registers, and {target.isa} has "
               f"{target.vector_registers}",
               f"use at most tile_scalars: {fits} with tile_vectors: {vectors}" if fits > 0 else
               f"use at most tile_vectors: {most} with tile_scalars: 1")  # fmt: skip
    check_multiple(reject, "block_q", schedule.block_q.value, schedule.panel_rows,
                    "a panel (tile_vectors × lanes)")  # fmt: skip
    check_multiple(reject, "block_kv", schedule.block_kv.value, scalars, "tile_scalars")
    check_multiple(reject, "split_kv", schedule.split_kv.value, lanes, "lanes")
    short = schedule.short_rows.value
    if not 0 <= short <= 1024:
        reject("short_rows", f"'short_rows' is {short}, and must be from 0 to 1024", "use 16")
    if schedule.projection.value not in ("generated", "blas"):
        reject("projection", f"'projection' is {schedule.projection.value!r}",
               "use generated or blas")  # fmt: skip
    values = {n: int(d.value) for n, d in schedule.decisions() if n.startswith("gemm_")}
    for name, message, hint in check_gemm(target, ir.dtype, {**values, "lanes": lanes}):
        reject(name, message, hint)
    return tuple(problems)
