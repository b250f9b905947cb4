"""Exchange between the lanes of a warp: shfl, vote, match, redux.

The scheduler (`run`) brings the lanes of the member mask together before a step runs.
"""

from __future__ import annotations

import numpy as np
from ptx.lanes import WARP, Array, Bools, Ints, Mask
from ptx.machine import Machine, Step, UnsupportedInstructionError, builds, second_target
from ptx.module import Instruction
from ptx.report import Kind


def by_warp(values: Array, lanes: int) -> Array:
    """(warps, 32), also of one value for all lanes."""
    return np.broadcast_to(values, lanes).reshape(-1, WARP)


def taking_part(machine: Machine, mask: Mask) -> Bools:
    return np.broadcast_to(np.asarray(mask), machine.lanes.count)


@builds("shfl")
def build_shfl(machine: Machine, instruction: Instruction, index: int) -> Step:
    if "sync" not in instruction.parts:
        raise UnsupportedInstructionError(instruction)
    mode = next(x for x in instruction.parts if x in ("up", "down", "bfly", "idx"))
    to, inside = second_target(instruction.operands[0])
    target = machine.target(to, "b32", instruction)
    told = machine.target(inside, "pred", instruction)
    source, b, c = (machine.source(x, "b32", instruction) for x in instruction.operands[1:4])
    lanes = machine.lanes
    lane = lanes.in_warp
    first = lanes.all - lane

    def partner() -> tuple[Ints, Bools]:
        """The lane that each reads from, and whether that lies within its segment."""
        by, clamp = (b & 31).astype(np.int64), (c & 31).astype(np.int64)
        segment = (c >> 8 & 31).astype(np.int64)
        last = (lane & segment) | (clamp & ~segment)
        if mode == "up":
            from_lane = lane - by
            return from_lane, from_lane >= last
        if mode == "down":
            from_lane = lane + by
        elif mode == "bfly":
            from_lane = lane ^ by
        else:
            from_lane = (lane & segment) | (by & ~segment)
        return from_lane, from_lane <= last

    def step(mask: Mask) -> None:
        from_lane, within = partner()
        at = first + np.where(within, from_lane, lane)
        active = taking_part(machine, mask)
        silent = active & ~active[at]
        if silent.any():
            where = lanes.where(int(np.argmax(silent)))
            detail = f"reads a lane that does not take part, {where}"
            machine.report.add(Kind.DIVERGENT, index, detail, int(silent.sum()))
        values = np.broadcast_to(source, lanes.count)[at]
        np.copyto(target, values, where=mask)
        np.copyto(told, within, where=mask)

    return step


@builds("vote")
def build_vote(machine: Machine, instruction: Instruction, _: int) -> Step:
    mode = next(x for x in instruction.parts if x in ("all", "any", "uni", "ballot"))
    result = "b32" if mode == "ballot" else "pred"
    target = machine.target(instruction.operands[0], result, instruction)
    source = machine.predicate(instruction.operands[1], instruction)
    bits = np.uint32(1) << np.arange(WARP, dtype=np.uint32)

    def step(mask: Mask) -> None:
        active = taking_part(machine, mask).reshape(-1, WARP)
        yes = by_warp(source(), machine.lanes.count) & active
        none, every = np.asarray(~yes.any(1)), np.asarray((yes | ~active).all(1))
        values: Array
        if mode == "ballot":
            values = (yes * bits).sum(1, dtype=np.uint32)
        else:
            values = {"all": every, "any": ~none, "uni": none | every}[mode]
        np.copyto(target, np.repeat(values, WARP), where=mask)

    return step


@builds("activemask")
def build_activemask(machine: Machine, instruction: Instruction, _: int) -> Step:
    target = machine.target(instruction.operands[0], "b32", instruction)
    bits = np.uint32(1) << np.arange(WARP, dtype=np.uint32)

    def step(mask: Mask) -> None:
        active = taking_part(machine, mask).reshape(-1, WARP)
        values = (active * bits).sum(1, dtype=np.uint32)
        np.copyto(target, np.repeat(values, WARP), where=mask)

    return step


@builds("redux")
def build_redux(machine: Machine, instruction: Instruction, _: int) -> Step:
    functions: dict[str, tuple[np.ufunc, int]] = {
        "add": (np.add, 0),
        "and": (np.bitwise_and, -1),
        "or": (np.bitwise_or, 0),
        "xor": (np.bitwise_xor, 0),
        "min": (np.minimum, -1),
        "max": (np.maximum, 0),
    }
    type_name = instruction.type
    name = next((x for x in instruction.parts if x in functions), None)
    if name is None or type_name not in ("u32", "s32", "b32"):
        raise UnsupportedInstructionError(instruction)
    function, neutral = functions[name]
    if type_name == "s32" and name in ("min", "max"):
        neutral = (1 << 31) - 1 if name == "min" else 1 << 31
    target = machine.target(instruction.operands[0], type_name, instruction)
    source = machine.source(instruction.operands[1], type_name, instruction)
    fill = np.array([neutral & 0xFFFF_FFFF], np.uint32).view(source.dtype)

    def step(mask: Mask) -> None:
        active = taking_part(machine, mask).reshape(-1, WARP)
        values = np.where(active, by_warp(source, machine.lanes.count), fill)
        reduced = function.reduce(values, axis=1, dtype=values.dtype)
        np.copyto(target, np.repeat(reduced, WARP), where=mask)

    return step


@builds("match")
def build_match(machine: Machine, instruction: Instruction, _: int) -> Step:
    if not instruction.has("any"):
        raise UnsupportedInstructionError(instruction)
    target = machine.target(instruction.operands[0], "b32", instruction)
    source = machine.source(instruction.operands[1], instruction.type, instruction)
    bits = np.uint32(1) << np.arange(WARP, dtype=np.uint32)

    def step(mask: Mask) -> None:
        active = taking_part(machine, mask).reshape(-1, WARP)
        values = by_warp(source, machine.lanes.count)
        equal = (values[:, :, None] == values[:, None, :]) & active[:, None, :]
        np.copyto(target, (equal * bits).sum(2, dtype=np.uint32).ravel(), where=mask)

    return step
