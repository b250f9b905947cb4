"""Choosing and judging a CUDA schedule. Both read the target's facts and nothing else.

`propose` decides field by field, a user's value replacing the heuristic's where there is one, so
that later fields follow from it. `check` judges user and heuristic values alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from attngen.backends.choosing import Chooser, Problem, check_multiple, kib
from attngen.dtypes import DType
from attngen.errors import Diagnostic, SpecError
from attngen.ir.attention import AttentionIR
from attngen.ir.kernel import GROUP_THREADS
from attngen.ir.schedule import CudaSchedule
from attngen.lowering import grid_buffers, round_up
from attngen.spec.model import ScheduleOverride
from attngen.targets import CudaTarget

# Registers of a thread that hold no part of a tile: addresses, sizes, what is being multiplied.
OTHER_REGISTERS = 80
SUM_REGISTERS = 48  # for a thread's share of the outputs; more, and sm_80 spills
MAX_WARPS = 32
MOST_SCORES = 63  # of a thread in a block of keys: a bit of a whole number for each

_DIFFERENTIAL = Diagnostic(
    code="E-TARGET",
    message="differential attention is not computed on CUDA in this version",
    hint="compile this spec for the CPU",
)


def propose(
    ir: AttentionIR, target: CudaTarget, overrides: Sequence[ScheduleOverride] = ()
) -> CudaSchedule:
    """A legal schedule for `ir` on `target`.

    Raises:
        SpecError: overrides are illegal, or there is no kernel for `ir`; with what would be legal.
    """
    if ir.difference is not None:
        raise SpecError([_DIFFERENTIAL])
    chooser = Chooser("cuda", CudaSchedule, overrides)
    schedule = _decide(ir, target, chooser)
    chooser.judge(lambda: check(ir, target, schedule))
    return schedule


def _decide(ir: AttentionIR, target: CudaTarget, chooser: Chooser) -> CudaSchedule:
    words = words_of(ir.dtype)
    warps = chooser.integer(
        "warps", 4, "enough threads to load together, few enough for each to hold a large tile"
    )
    groups = max(1, warps.value) * 32 // GROUP_THREADS
    widest = 256 // words
    panel = min(round_up(ir.value_dim, GROUP_THREADS), widest)
    why = "every value column" if panel >= ir.value_dim else "more would not fit the registers"
    value_panel = chooser.integer("value_panel", panel, f"{why}; {panel} a block")
    columns = max(1, value_panel.value // GROUP_THREADS)
    rows = max(1, min(8, SUM_REGISTERS // (columns * words)))
    block_q = chooser.integer(
        "block_q",
        rows * groups,
        f"{rows} rows × {columns} value columns a thread are {rows * columns * words} registers "
        f"of outputs",
    )
    deepest = 32 // words
    depth = chooser.integer(
        "depth",
        max(16, min(deepest, 1 << (ir.head_dim - 1).bit_length())),
        "slices of Q, K and V stay small beside the scores in shared memory",
    )
    schedule = CudaSchedule(
        warps=warps,
        block_q=block_q,
        block_kv=chooser.integer("block_kv", 64, ""),
        depth=depth,
        value_panel=value_panel,
    )
    if schedule.block_kv.source != "heuristic":
        return schedule
    size = shared_bytes(schedule, ir.dtype)
    blocks = target.sm_shared_bytes // (size + 1024)
    why = (
        f"{64 // GROUP_THREADS} keys a thread for each of its rows; {blocks} blocks of {kib(size)} "
        f"fit a multiprocessor's shared memory ({kib(target.sm_shared_bytes)})"
    )
    return replace(schedule, block_kv=chooser.integer("block_kv", 64, why))


def words_of(dtype: DType) -> int:
    """Registers that an element of the sums takes."""
    return 2 if dtype.accumulator == "float64" else 1


def shared_bytes(schedule: CudaSchedule, dtype: DType) -> int:
    """Shared memory of a block, at most."""
    return sum(b.size for b in grid_buffers(schedule, softmax=True)) * 4 * words_of(dtype)


def check(ir: AttentionIR, target: CudaTarget, schedule: CudaSchedule) -> tuple[Problem, ...]:
    """Everything that makes `schedule` illegal for `ir` on `target`; empty if it is legal."""
    problems: list[Problem] = []

    def reject(name: str, message: str, hint: str) -> None:
        problems.append(Problem(name, message, hint))

    warps, depth = schedule.warps.value, schedule.depth.value
    if not 1 <= warps <= MAX_WARPS:
        reject(
            "warps",
            f"'warps' is {warps}, and a block has from 1 to {MAX_WARPS}",
            "use 4, or another number in that range",
        )
    if not 1 <= depth <= 256:
        reject("depth", f"'depth' is {depth}, and must be from 1 to 256", "use 32")
    if problems:
        return tuple(problems)
    groups = warps * 32 // GROUP_THREADS
    step = math.lcm(GROUP_THREADS, depth)
    block_q, block_kv = schedule.block_q.value, schedule.block_kv.value
    panel = schedule.value_panel.value
    check_multiple(reject, "block_q", block_q, groups, "the block's half warps")
    check_multiple(reject, "block_kv", block_kv, step, f"{GROUP_THREADS} and of 'depth'")
    check_multiple(reject, "value_panel", panel, GROUP_THREADS, "the threads of a row")
    if problems:
        return tuple(problems)

    rows = block_q // groups
    scores = rows * block_kv // GROUP_THREADS
    if scores > MOST_SCORES:
        reject(
            "block_kv",
            f"a thread would have {scores} scores, and marks at most {MOST_SCORES} as hidden",
            f"use at most block_kv: {MOST_SCORES // rows * GROUP_THREADS // step * step}"
            if MOST_SCORES // rows * GROUP_THREADS >= step
            else "use a smaller block_q",
        )
        return tuple(problems)
    each = max(panel, block_kv) // GROUP_THREADS
    used = rows * each * words_of(ir.dtype) + OTHER_REGISTERS
    if used > target.registers:
        fits = (target.registers - OTHER_REGISTERS) // (each * words_of(ir.dtype)) * groups
        reject(
            "block_q",
            f"{rows} rows × {each} columns or keys of a thread need about {used} registers, and "
            f"{target.arch} has {target.registers}",
            f"use at most block_q: {fits}" if fits else "use a smaller value_panel and block_kv",
        )
    size = shared_bytes(schedule, ir.dtype)
    if size > target.shared_bytes:
        reject(
            "block_kv" if block_kv > block_q else "block_q",
            f"a block needs {kib(size)} of shared memory, and {target.arch} gives it "
            f"{kib(target.shared_bytes)}",
            "use a smaller block_q, block_kv or depth",
        )
    return tuple(problems)
