"""Moving, comparing and choosing values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ptx.integers import elementwise
from ptx.lanes import Array, Mask
from ptx.machine import (
    Machine,
    Source,
    Step,
    UnsupportedInstructionError,
    builds,
    second_target,
)
from ptx.module import Instruction, Vector, dtype_of
from ptx.numbers import flushed, from_bfloat16
from ptx.spaces import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_SIZE, space_of


@builds("mov")
def build_mov(machine: Machine, instruction: Instruction, _: int) -> Step:
    to, what = instruction.operands
    type_name = instruction.type
    if isinstance(to, Vector) and not isinstance(what, Vector):
        return unpack(machine, instruction)
    if isinstance(what, Vector) and not isinstance(to, Vector):
        return pack(machine, instruction)
    if isinstance(to, Vector):
        raise UnsupportedInstructionError(instruction)
    target = machine.target(to, type_name, instruction)
    source = machine.source(what, type_name, instruction)

    def step(mask: Mask) -> None:
        np.copyto(target, source, where=mask)

    return step


def unpack(machine: Machine, instruction: Instruction) -> Step:
    """mov.b32 {lo, hi}, x: the lowest part comes first."""
    parts = machine.vector(instruction.operands[0])
    whole = machine.source(instruction.operands[1], instruction.type, instruction)
    width = dtype_of(instruction.type).itemsize // len(parts)
    targets = [machine.target(x, f"b{8 * width}", instruction) for x in parts]

    def step(mask: Mask) -> None:
        pieces = np.ascontiguousarray(whole).view(f"u{width}").reshape(-1, len(parts)).copy()
        for column, target in enumerate(targets):
            np.copyto(target, pieces[:, column], where=mask)

    return step


def pack(machine: Machine, instruction: Instruction) -> Step:
    parts = machine.vector(instruction.operands[1])
    width = dtype_of(instruction.type).itemsize // len(parts)
    target = machine.target(instruction.operands[0], instruction.type, instruction)
    sources = [machine.source(x, f"b{8 * width}", instruction) for x in parts]

    def step(mask: Mask) -> None:
        pieces = np.empty((machine.lanes.count, len(parts)), f"u{width}")
        for column, source in enumerate(sources):
            pieces[:, column] = source
        np.copyto(target, pieces.view(target.dtype).ravel(), where=mask)

    return step


@builds("selp")
def build_selp(machine: Machine, instruction: Instruction, _: int) -> Step:
    type_name = instruction.type
    target = machine.target(instruction.operands[0], type_name, instruction)
    a, b = (machine.source(x, type_name, instruction) for x in instruction.operands[1:3])
    chosen = machine.predicate(instruction.operands[3], instruction)

    def step(mask: Mask) -> None:
        np.copyto(target, np.where(chosen(), a, b), where=mask)

    return step


@builds("slct")
def build_slct(machine: Machine, instruction: Instruction, _: int) -> Step:
    value, sign = instruction.parts[-2:]

    def choose(a: Array, b: Array, c: Array) -> Array:
        return np.where((flushed(c) if instruction.has("ftz") else c) >= 0, a, b)

    return elementwise(machine, instruction, choose, value, value, value, sign)


COMPARISONS: dict[str, np.ufunc] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
JOINS: dict[str, np.ufunc] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def comparison(instruction: Instruction) -> Callable[[Array, Array], Array]:
    """Of setp and set. Ordered comparisons of NaN are false, unordered ones (ltu) true."""
    name, floating = instruction.parts[1], dtype_of(instruction.type).kind == "f"
    brain = instruction.type == "bf16"

    def compare(x: Array, y: Array) -> Array:
        if brain:
            x, y = from_bfloat16(x), from_bfloat16(y)
        if instruction.has("ftz"):
            x, y = flushed(x), flushed(y)
        if name in ("num", "nan"):
            unordered: Array = np.isnan(x) | np.isnan(y)
            return unordered if name == "nan" else ~unordered
        result: Array
        if (floating or brain) and name.endswith("u"):
            result = COMPARISONS[name[:-1]](x, y) | np.isnan(x) | np.isnan(y)
        elif (floating or brain) and name == "ne":  # NumPy's is true for NaN, PTX's is not
            result = (x < y) | (x > y)
        else:
            result = COMPARISONS[UNSIGNED_NAMES.get(name, name)](x, y)
        return result

    return compare


@builds("setp")
def build_setp(machine: Machine, instruction: Instruction, _: int) -> Step:
    type_name, compare = instruction.type, comparison(instruction)
    first, second = second_target(instruction.operands[0])
    targets = [machine.target(x, "pred", instruction) for x in (first, second)]
    a, b = (machine.source(x, type_name, instruction) for x in instruction.operands[1:3])
    join = next((JOINS[x] for x in instruction.parts[2:] if x in JOINS), None)
    other: Source | None = None
    if join is not None:
        other = machine.predicate(instruction.operands[3], instruction)

    def step(mask: Mask) -> None:
        yes = np.asarray(compare(a, b))
        no = ~yes
        if join is not None and other is not None:
            more = other().copy()
            yes, no = join(yes, more), join(no, more)
        np.copyto(targets[0], yes, where=mask)
        np.copyto(targets[1], no, where=mask)

    return step


@builds("set")
def build_set(machine: Machine, instruction: Instruction, _: int) -> Step:
    result, operands = instruction.parts[-2:]
    compare = comparison(instruction)

    def function(x: Array, y: Array) -> Array:
        yes = np.asarray(compare(x, y))
        if result == "f32":
            return yes.astype(np.float32)
        return np.where(yes, ~np.uint32(0), np.uint32(0)).view(dtype_of(result))

    if len(instruction.operands) != 3:
        raise UnsupportedInstructionError(instruction)
    return elementwise(machine, instruction, function, result, operands, operands)


@builds("cvta")
def build_cvta(machine: Machine, instruction: Instruction, _: int) -> Step:
    """Generic addresses of shared and local memory lie in windows of their own."""
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space_of(instruction), 0)
    shift = np.uint64(window)
    if instruction.has("to"):
        return elementwise(machine, instruction, lambda x: x - shift, "u64")
    return elementwise(machine, instruction, lambda x: x + shift, "u64")


@builds("isspacep")
def build_isspacep(machine: Machine, instruction: Instruction, _: int) -> Step:
    windows = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}
    space = space_of(instruction)
    target = machine.target(instruction.operands[0], "pred", instruction)
    source = machine.source(instruction.operands[1], "u64", instruction)

    def within(start: int) -> Array:
        return (source >= np.uint64(start)) & (source < np.uint64(start + WINDOW_SIZE))

    def step(mask: Mask) -> None:
        if space == "global":
            result = ~(within(SHARED_WINDOW) | within(LOCAL_WINDOW))
        else:
            result = within(windows[space])
        np.copyto(target, result, where=mask)

    return step
