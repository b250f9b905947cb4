"""mbarrier: barriers that live in shared memory, with phases and pending bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ptx.copies import land
from ptx.lanes import Array, Bools, Ints, Mask
from ptx.machine import Machine, Step, UnsupportedInstructionError, builds
from ptx.module import Instruction
from ptx.report import Kind

BYTES = 8


@dataclass
class PhaseBarrier:
    expected: int
    pending: int
    row: Array  # vector clock of those who arrived in this phase
    phase: int = 0
    bytes: int = 0  # expected, and not yet arrived


class PhaseBarriers:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.objects: dict[tuple[int, int], PhaseBarrier] = {}
        self.completed: list[int] = []  # blocks where a phase has just ended

    def initialise(self, index: int, lanes: Ints, addresses: Ints, counts: Ints) -> None:
        shared = self.machine.shared
        zeros = np.zeros((lanes.size, BYTES), np.uint8)
        shared.store(index, lanes, addresses, zeros)
        for lane, address, count in zip(lanes, addresses, counts, strict=True):
            row = np.zeros(self.machine.lanes.warps, np.int32)
            key = (int(self.machine.lanes.of_block[lane]), int(address))
            self.objects[key] = PhaseBarrier(int(count), int(count), row)

    def find(self, index: int, lane: int, address: int) -> PhaseBarrier | None:
        """The object at an address, after checking that its initialisation is visible."""
        key = (int(self.machine.lanes.of_block[lane]), address)
        found = self.objects.get(key)
        if found is None:
            detail = f"no mbarrier at {address}, {self.machine.lanes.where(lane)}"
            self.machine.report.add(Kind.BARRIER_STATE, index, detail)
            return None
        shared = self.machine.shared
        _, offsets = shared.locate(
            index, np.array([lane]), np.array([address]), BYTES, "uses an mbarrier of"
        )
        start, n = shared.granules(offsets, BYTES)
        shared.shadow.read(index, np.array([lane]), start, n, recorded=False)
        return found

    def arrive(self, index: int, lane: int, address: int, count: int, expected: int) -> int:
        """The phase that this arrival counts for."""
        found = self.find(index, lane, address)
        if found is None:
            return 0
        phase = found.phase
        warp = np.array([self.machine.lanes.of_warp[lane]])
        found.row = np.maximum(found.row, self.machine.clocks.release(warp))
        found.bytes += expected
        found.pending -= count
        if found.pending < 0:
            detail = f"more arrivals than expected, {self.machine.lanes.where(lane)}"
            self.machine.report.add(Kind.BARRIER_STATE, index, detail)
        if found.pending <= 0 and found.bytes == 0:
            found.phase, found.pending = phase + 1, found.expected
            self.completed.append(int(self.machine.lanes.of_block[lane]))
        return phase

    def passed(self, index: int, lanes: Ints, addresses: Ints, phases: Ints, parity: bool) -> Bools:
        """Whether the phase (or its parity) that each lane names is over."""
        result = np.zeros(lanes.size, np.bool_)
        for i, (lane, address) in enumerate(zip(lanes, addresses, strict=True)):
            if (found := self.find(index, int(lane), int(address))) is not None:
                wanted = int(phases[i])
                result[i] = found.phase & 1 != wanted & 1 if parity else found.phase > wanted
        return result

    def acquire(self, lanes: Ints, addresses: Ints) -> None:
        for lane, address in zip(lanes, addresses, strict=True):
            key = (int(self.machine.lanes.of_block[lane]), int(address))
            if (found := self.objects.get(key)) is not None:
                warp = np.array([self.machine.lanes.of_warp[lane]])
                self.machine.clocks.acquire(warp, found.row)


def phase_barriers(machine: Machine) -> PhaseBarriers:
    if machine.phases is None:
        machine.phases = PhaseBarriers(machine)
    phases: PhaseBarriers = machine.phases
    return phases


def per_lane(source: Array, lanes: Ints) -> Ints:
    values = source if source.size == 1 else source[lanes]
    return np.broadcast_to(values, lanes.size).astype(np.int64)


@builds("mbarrier")
def build_mbarrier(machine: Machine, instruction: Instruction, index: int) -> Step:
    operation = instruction.parts[1]
    state = phase_barriers(machine)
    builders: dict[str, Callable[[Machine, Instruction, int, PhaseBarriers], Step]] = {
        "init": build_init,
        "inval": build_inval,
        "arrive": build_arrive,
        "test_wait": build_wait,
        "try_wait": build_wait,
    }
    if operation not in builders or instruction.has("expect_tx"):
        raise UnsupportedInstructionError(instruction)
    return builders[operation](machine, instruction, index, state)


def build_init(
    machine: Machine, instruction: Instruction, index: int, state: PhaseBarriers
) -> Step:
    addresses = machine.addresses(instruction.operands[0], instruction)
    count = machine.source(instruction.operands[1], "u32", instruction)

    def step(mask: Mask) -> None:
        lanes = machine.lanes.active(mask)
        state.initialise(index, lanes, addresses(lanes), per_lane(count, lanes))

    return step


def build_inval(machine: Machine, instruction: Instruction, _: int, state: PhaseBarriers) -> Step:
    addresses = machine.addresses(instruction.operands[0], instruction)

    def step(mask: Mask) -> None:
        lanes = machine.lanes.active(mask)
        for lane, address in zip(lanes, addresses(lanes), strict=True):
            state.objects.pop((int(machine.lanes.of_block[lane]), int(address)), None)

    return step


def build_arrive(
    machine: Machine, instruction: Instruction, index: int, state: PhaseBarriers
) -> Step:
    operands = list(instruction.operands)
    target = machine.target(operands[0], "b64", instruction)
    addresses = machine.addresses(operands[1], instruction)
    count = None
    if len(operands) > 2:
        count = machine.source(operands[2], "u32", instruction)

    def step(mask: Mask) -> None:
        lanes = machine.lanes.active(mask)
        counts = np.ones(lanes.size, np.int64) if count is None else per_lane(count, lanes)
        for lane, address, many in zip(lanes, addresses(lanes), counts, strict=True):
            target[lane] = state.arrive(index, int(lane), int(address), int(many), 0)

    return step


def build_wait(
    machine: Machine, instruction: Instruction, index: int, state: PhaseBarriers
) -> Step:
    """try_wait holds its thread until the phase is over, as it may; test_wait only asks."""
    target = machine.target(instruction.operands[0], "pred", instruction)
    addresses = machine.addresses(instruction.operands[1], instruction)
    parity = instruction.has("parity")
    kind = "u32" if parity else "b64"
    phase = machine.source(instruction.operands[2], kind, instruction)

    def passed(lanes: Ints) -> Bools:
        return state.passed(index, lanes, addresses(lanes), per_lane(phase, lanes), parity)

    if instruction.has("try_wait"):
        machine.blockers[index] = passed

    def step(mask: Mask) -> None:
        lanes = machine.lanes.active(mask)
        over = passed(lanes)
        state.acquire(lanes[over], addresses(lanes)[over])
        target[lanes] = over

    return step


@builds("cp.async.mbarrier")
def build_copy_arrival(machine: Machine, instruction: Instruction, index: int) -> Step:
    """cp.async.mbarrier.arrive.noinc: arrives once the thread's copies so far have landed.

    They land here and now; whoever looks before waiting for the barrier is caught by its clock.
    """
    if not instruction.has("noinc"):
        raise UnsupportedInstructionError(instruction)
    addresses = machine.addresses(instruction.operands[0], instruction)
    state, copies = phase_barriers(machine), machine.asynchronous.copies

    def step(mask: Mask) -> None:
        lanes = machine.lanes.active(mask)
        left = []
        for copy in copies:
            mine = np.isin(copy.lanes, lanes)
            if mine.any():
                land(machine, copy.select(mine))
            if not mine.all():
                left.append(copy.select(~mine))
        copies[:] = left
        for lane, address in zip(lanes, addresses(lanes), strict=True):
            state.arrive(index, int(lane), int(address), 1, 0)

    return step
