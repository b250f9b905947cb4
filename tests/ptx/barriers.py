"""bar.sync, bar.arrive and bar.warp.sync. Who waits is the scheduler's business (`run`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from ptx.lanes import WARP, Array, Bools, Ints, Mask
from ptx.machine import Machine, Step, UnsupportedInstructionError, builds
from ptx.module import Immediate, Instruction


@dataclass
class Barrier:
    """One of a block's 16 barriers in use: the warps that have arrived, the lanes that wait."""

    expected: int | None  # threads; None: all of the block
    warps: list[int] = field(default_factory=list)
    waiting: list[Ints] = field(default_factory=list)
    row: Array | None = None  # vector clock of those who have arrived


class BlockBarriers:
    """All barriers of all blocks. Lanes stand in `waiting` until theirs completes."""

    def __init__(self, machine: Machine, waiting: Bools) -> None:
        self.machine, self.waiting = machine, waiting
        self.barriers: dict[tuple[int, int], Barrier] = {}

    def arrive(self, number: int, expected: int | None, lanes: Ints, *, wait: bool) -> None:
        of_block = self.machine.lanes.of_block
        for block in np.unique(of_block[lanes]):
            mine = lanes[of_block[lanes] == block]
            barrier = self.barriers.setdefault((int(block), number), Barrier(expected))
            warps = np.unique(self.machine.lanes.of_warp[mine])
            barrier.warps.extend(warps.tolist())
            row = self.machine.clocks.release(warps)
            barrier.row = row if barrier.row is None else np.maximum(barrier.row, row)
            if wait:
                barrier.waiting.append(mine)
                self.waiting[mine] = True
            self._complete(int(block), number)

    def ended(self, lanes: Ints) -> None:
        """Threads that have ended count as arrived."""
        for block in np.unique(self.machine.lanes.of_block[lanes]):
            for owner, number in list(self.barriers):
                if owner == block:
                    self._complete(owner, number)

    def _complete(self, block: int, number: int) -> None:
        """Let everybody go if all have arrived."""
        barrier = self.barriers[block, number]
        arrived = len(barrier.warps)
        if barrier.expected is not None:
            done = arrived * WARP >= barrier.expected
        else:
            per = self.machine.lanes.warps_per_block
            ended = self.machine.exited.reshape(-1, per, WARP)[block].all(1)
            done = arrived + int(ended.sum()) >= per
        if not done or barrier.row is None:
            return
        clocks, of_warp = self.machine.clocks, self.machine.lanes.of_warp
        for lanes in barrier.waiting:
            clocks.acquire(np.unique(of_warp[lanes]), barrier.row)
            self.waiting[lanes] = False
        del self.barriers[block, number]


def barrier_call(instruction: Instruction) -> tuple[bool, int, int | None]:
    """(whether to wait, which barrier, how many threads or None for all)."""
    kind = next((x for x in instruction.parts if x in ("sync", "arrive")), None)
    numbers = [x.value for x in instruction.operands if isinstance(x, Immediate)]
    if kind is None or not numbers or len(numbers) != len(instruction.operands):
        raise UnsupportedInstructionError(instruction)
    return kind == "sync", numbers[0], numbers[1] if len(numbers) > 1 else None


def build_warp_barrier(machine: Machine) -> Step:
    """bar.warp.sync also orders memory between the lanes of the warp."""

    def step(mask: Mask) -> None:
        warps = np.unique(machine.lanes.of_warp[machine.lanes.active(mask)])
        machine.clocks.known[warps, warps] += 1

    return step


@builds("bar", "barrier")
def build_barrier(machine: Machine, instruction: Instruction, _: int) -> Step:
    if instruction.has("warp"):
        return build_warp_barrier(machine)
    raise UnsupportedInstructionError(instruction)
