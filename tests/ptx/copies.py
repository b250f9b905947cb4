"""cp.async: copies to shared memory that may land at any moment until they are waited for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ptx.lanes import Array, Ints, Mask
from ptx.machine import BUILDERS, Machine, Step, UnsupportedInstructionError, builds
from ptx.memory import POISON
from ptx.module import Immediate, Instruction


@dataclass
class Copy:
    """One instruction's copies: for each lane the bytes, where they go, and their group."""

    lanes: Ints
    offsets: Ints  # in the data of shared memory
    values: Array  # (k, size)
    groups: Ints

    def select(self, which: Array) -> Copy:
        return Copy(self.lanes[which], self.offsets[which], self.values[which], self.groups[which])


@builds("cp")
def build_cp(machine: Machine, instruction: Instruction, index: int) -> Step:
    if instruction.parts[1] != "async" or instruction.has("bulk"):
        raise UnsupportedInstructionError(instruction)
    if instruction.has("mbarrier"):
        return BUILDERS["cp.async.mbarrier"](machine, instruction, index)
    if instruction.has("commit_group"):
        return build_commit(machine)
    if instruction.has("wait_group", "wait_all"):
        return build_wait(machine, instruction)
    return build_copy(machine, instruction, index)


def build_copy(machine: Machine, instruction: Instruction, index: int) -> Step:
    to, came = (machine.addresses(x, instruction) for x in instruction.operands[:2])
    size_operand = instruction.operands[2]
    if not isinstance(size_operand, Immediate) or len(instruction.operands) > 4:
        raise UnsupportedInstructionError(instruction)
    size = size_operand.value
    if size not in (4, 8, 16) or (instruction.has("cg") and size != 16):
        raise UnsupportedInstructionError(instruction)
    if instruction.has("L2::cache_hint"):
        raise UnsupportedInstructionError(instruction)
    given = None
    if len(instruction.operands) == 4:
        given = machine.source(instruction.operands[3], "u32", instruction)
    state = machine.asynchronous

    def step(mask: Mask) -> None:
        lanes = machine.lanes.active(mask)
        counts = np.full(lanes.size, size, np.int64)
        if given is not None:
            counts[:] = given if given.size == 1 else given[lanes]
        values = read_source(machine, index, lanes, came(lanes), size, counts)
        shared, addresses = machine.shared, to(lanes)
        good, offsets = shared.locate(index, lanes, addresses, size, "copies")
        shared.count_banks(index, lanes, addresses, size)
        copy = Copy(lanes, offsets, values, state.groups[lanes]).select(good)
        shared.shadow.begin_copy(index, copy.lanes, *shared.granules(copy.offsets, size))
        shared.data.reshape(-1, size)[copy.offsets // size] = POISON
        state.copies.append(copy)

    return step


def read_source(
    machine: Machine, index: int, lanes: Ints, addresses: Ints, size: int, counts: Ints
) -> Array:
    """(k, size): the first `counts` bytes of each source, then zeros.

    Only those bytes are read, so only they need to exist.
    """
    values = np.zeros((lanes.size, size), np.uint8)
    whole = counts >= size
    if whole.any():
        values[whole] = machine.memory.load(index, lanes[whole], addresses[whole], size)
    for which in np.flatnonzero(~whole & (counts > 0)):
        n = int(counts[which])
        for byte in range(n):
            one = slice(which, which + 1)
            at = addresses[one] + byte
            values[which, byte] = machine.memory.load(index, lanes[one], at, 1)[0, 0]
    return values


def build_commit(machine: Machine) -> Step:
    def step(mask: Mask) -> None:
        machine.asynchronous.groups[machine.lanes.active(mask)] += 1

    return step


def build_wait(machine: Machine, instruction: Instruction) -> Step:
    """wait_group n: all but the lane's last n groups have landed. wait_all: everything has."""
    state = machine.asynchronous
    every = instruction.has("wait_all")
    operand = instruction.operands[0] if instruction.operands else None
    newest = operand.value if isinstance(operand, Immediate) else 0

    def step(mask: Mask) -> None:
        if every:
            state.groups[machine.lanes.active(mask)] += 1
        left = []
        for copy in state.copies:
            due = copy.groups < state.groups[copy.lanes] - newest
            if mask is not True:
                due &= mask[copy.lanes]
            if due.any():
                land(machine, copy.select(due))
            if not due.all():
                left.append(copy.select(~due))
        state.copies[:] = left

    return step


def land(machine: Machine, copy: Copy) -> None:
    shared, size = machine.shared, copy.values.shape[1]
    shared.data.reshape(-1, size)[copy.offsets // size] = copy.values
    shared.shadow.end_copy(copy.lanes, *shared.granules(copy.offsets, size))


def drop_copies(machine: Machine) -> None:
    """At the end: copies that nobody waited for are counted; they harm nobody."""
    left = machine.asynchronous.copies
    machine.report.dangling_copies += sum(copy.lanes.size for copy in left)
    left.clear()
