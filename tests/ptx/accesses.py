"""Loads, stores and atomics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ptx.control import nothing
from ptx.lanes import Array, Ints, Mask
from ptx.machine import (
    Machine,
    Step,
    UnsupportedInstructionError,
    builds,
)
from ptx.module import Address, Instruction, Symbol, dtype_of
from ptx.spaces import space_of, spaces

ATOMIC = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@builds("ld", "ldu")
def build_load(machine: Machine, instruction: Instruction, index: int) -> Step:
    space, type_name = space_of(instruction), instruction.type
    if space == "param":
        return build_parameter(machine, instruction)
    item = dtype_of(type_name)
    names = machine.vector(instruction.operands[0])
    targets = [machine.target(x, type_name, instruction) for x in names]
    addresses = machine.addresses(instruction.operands[1], instruction)
    size = item.itemsize * len(names)
    acquires = instruction.has("acquire")

    def step(mask: Mask) -> None:
        lanes = machine.lanes.active(mask)
        where = addresses(lanes)
        if acquires:
            acquire(machine, lanes, where)
        values = machine.load(space, index, lanes, where, size).view(item)
        for column, target in enumerate(targets):
            target[lanes] = values[:, column]

    return step


def build_parameter(machine: Machine, instruction: Instruction) -> Step:
    to, what = instruction.operands
    if not (isinstance(what, Address) and isinstance(what.base, Symbol)):
        raise UnsupportedInstructionError(instruction)
    type_name = instruction.type
    value = machine.arguments[what.base.name]
    start, item = what.offset, dtype_of(type_name)
    names = machine.vector(to)
    data = np.frombuffer(value.tobytes(), item, len(names), start)
    targets = [machine.target(x, type_name, instruction) for x in names]

    def step(mask: Mask) -> None:
        for number, target in zip(data, targets, strict=True):
            np.copyto(target, number, where=mask)

    return step


@builds("st")
def build_store(machine: Machine, instruction: Instruction, index: int) -> Step:
    space, type_name = space_of(instruction), instruction.type
    item = dtype_of(type_name)
    sources = [
        machine.source(x, type_name, instruction) for x in machine.vector(instruction.operands[1])
    ]
    addresses = machine.addresses(instruction.operands[0], instruction)
    releases = instruction.has("release")

    def step(mask: Mask) -> None:
        lanes = machine.lanes.active(mask)
        values = np.empty((lanes.size, len(sources)), item)
        for column, source in enumerate(sources):
            values[:, column] = source if source.size == 1 else source[lanes]
        where = addresses(lanes)
        if releases:
            release(machine, lanes, where)
        machine.store(space, index, lanes, where, values.view(np.uint8))

    return step


# What atomics and fences order. Each address has a vector clock: what was released to it.


def release(machine: Machine, lanes: Ints, addresses: Ints) -> None:
    clocks = machine.clocks
    warps = np.unique(machine.lanes.of_warp[lanes])
    clocks.fence(warps)
    signal(machine, lanes, addresses)


def acquire(machine: Machine, lanes: Ints, addresses: Ints) -> None:
    observe(machine, lanes, addresses)
    machine.clocks.fence(np.unique(machine.lanes.of_warp[lanes]))


def signal(machine: Machine, lanes: Ints, addresses: Ints) -> None:
    """Others who see these addresses change see what was fenced before."""
    for lane, address in zip(lanes, addresses, strict=True):
        row = machine.clocks.fenced[machine.lanes.of_warp[lane]]
        known = machine.released.get(int(address))
        machine.released[int(address)] = row.copy() if known is None else np.maximum(known, row)


def observe(machine: Machine, lanes: Ints, addresses: Ints) -> None:
    seen = machine.clocks.seen
    for lane, address in zip(lanes, addresses, strict=True):
        if (row := machine.released.get(int(address))) is not None:
            warp = machine.lanes.of_warp[lane]
            seen[warp] = np.maximum(seen[warp], row)


@builds("membar", "fence")
def build_fence(machine: Machine, instruction: Instruction, _: int) -> Step:
    if instruction.has("proxy"):
        if not any(x.startswith("async") for x in instruction.parts):
            return nothing

        def fence_proxy(mask: Mask) -> None:
            lanes = machine.lanes
            stride = machine.shared.stride // machine.shared.shadow.granule
            active = lanes.active(mask)
            for block in np.unique(lanes.of_block[active]):
                warps = np.unique(lanes.of_warp[active[lanes.of_block[active] == block]])
                first = int(block) * stride
                machine.shared.shadow.fence_async_proxy(warps, first, first + stride)

        return fence_proxy

    def fence(mask: Mask) -> None:
        machine.clocks.fence(np.unique(machine.lanes.of_warp[machine.lanes.active(mask)]))

    return fence


@builds("atom", "red")
def build_atomic(machine: Machine, instruction: Instruction, index: int) -> Step:
    space, type_name = space_of(instruction), instruction.type
    operation = next((x for x in instruction.parts[1:] if x in (*ATOMIC, *OTHERS)), None)
    operands = list(instruction.operands)
    target = machine.target(None, type_name, instruction)
    if instruction.opcode == "atom":
        target = machine.target(operands.pop(0), type_name, instruction)
    if operation is None or type_name in ("f16x2", "bf16x2", "bf16", "f16"):
        raise UnsupportedInstructionError(instruction)
    addresses = machine.addresses(operands[0], instruction)
    sources = [machine.source(x, type_name, instruction) for x in operands[1:]]
    function: Callable[..., Array] = ATOMIC.get(operation) or OTHERS[operation]

    def step(mask: Mask) -> None:
        """One lane after the other, in order of lanes; any order is as good."""
        lanes = machine.lanes.active(mask)
        where = addresses(lanes)
        if instruction.has("release", "acq_rel"):
            machine.clocks.fence(np.unique(machine.lanes.of_warp[lanes]))
        name_of = {"": None}.get(space, space)
        for position, lane in enumerate(lanes):
            one, at = lanes[position : position + 1], where[position : position + 1]
            name, start = name_of, 0
            if name is None:
                ((name, start, _),) = spaces(at)
            values = [x if x.size == 1 else x[lane : lane + 1] for x in sources]
            old = machine.atomic(name, index, one, at - start, function, values)
            target[lane] = old[0]
            observe(machine, one, at)
            signal(machine, one, at)
        if instruction.has("acquire", "acq_rel"):
            machine.clocks.fence(np.unique(machine.lanes.of_warp[lanes]))

    return step


def compare_and_swap(old: Array, expected: Array, value: Array) -> Array:
    return np.where(old == expected, value, old)


OTHERS: dict[str, Callable[..., Array]] = {
    "exch": lambda _, value: value,
    "cas": compare_and_swap,
    "inc": lambda old, limit: np.where(old >= limit, 0, old + 1).astype(old.dtype),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1).astype(
        old.dtype
    ),
}
