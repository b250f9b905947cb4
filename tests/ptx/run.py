"""Running a kernel: which lanes go next, where they meet again, and who waits for whom.

Lanes at the smallest instruction go first, up to where others stand; so lanes that parted at a
branch meet again where their ways join. Threads that spin on memory until others change it are not
served fairly: such a kernel ends at the limit of steps, as a hang.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from ptx.barriers import BlockBarriers
from ptx.copies import drop_copies
from ptx.decode import Operation, decode
from ptx.lanes import WARP, Bools, Mask
from ptx.machine import Machine
from ptx.mbarriers import phase_barriers
from ptx.module import PtxError
from ptx.report import Kind, Report


class Run:
    def __init__(self, machine: Machine, limit: int) -> None:
        self.machine, self.limit = machine, limit
        self.report: Report = machine.report
        self.operations = decode(machine)
        self.end = len(self.operations)
        count = machine.lanes.count
        self.pc = np.zeros(count, np.int64)
        self.at_barrier = np.zeros(count, np.bool_)
        self.gathering = np.zeros(count, np.bool_)  # for the other lanes of their warp
        self.at_phase = np.zeros(count, np.bool_)  # of an mbarrier
        self.barriers = BlockBarriers(machine, self.at_barrier)
        self.executed: npt.NDArray[np.int64] = np.zeros(self.end, np.int64)
        self.watches_products = any(x.instruction.opcode == "wgmma" for x in self.operations)

    def go(self) -> Report:
        with np.errstate(all="ignore"):
            while self.turn():
                if self.report.steps > self.limit:
                    self.report.add(Kind.HANG, -1, f"not done after {self.limit} steps")
                    break
        drop_copies(self.machine)
        for operation, times in zip(self.operations, self.executed, strict=True):
            if times:
                self.report.executed[operation.instruction.opcode] += int(times)
        return self.report

    def turn(self) -> bool:
        """Run one group of lanes until it waits, parts or meets others."""
        waiting = self.at_barrier | self.gathering | self.at_phase
        ready = ~(self.machine.exited | waiting)
        if not ready.any():
            if waiting.any():
                self.explain_deadlock()
            return False
        standing = np.where(ready, self.pc, self.end + 1)
        at = int(standing.min())
        mask = standing == at
        others = standing[~mask]
        border = int(others.min()) if others.size else self.end + 1
        self.advance(at, mask, min(border, self.end + 1))
        return True

    def advance(self, at: int, lanes: Bools, border: int) -> None:
        """Run `lanes` from `at` until they stand at `border`, where others are."""
        mask: Mask = True if lanes.all() else lanes
        count, alone = int(lanes.sum()), border > self.end
        operations, executed = self.operations, self.executed
        while True:
            if at >= self.end:
                raise PtxError("the kernel runs past its last instruction")
            operation = operations[at]
            self.report.steps += 1
            executed[at] += count
            if self.watches_products:
                self.watch(at, operation, mask)
            if operation.special:
                following = self.special(at, operation, mask)
                if following is None:
                    return
                at, mask = following
                count = self.machine.lanes.count if mask is True else int(mask.sum())
                if operation.target >= 0 and not alone:
                    self.pc[mask if mask is not True else slice(None)] = at
                    return
                if self.report.steps > self.limit:
                    self.pc[mask if mask is not True else slice(None)] = at
                    return
            else:
                self.apply(operation, mask)
                at += 1
            if at >= border:
                self.pc[mask if mask is not True else slice(None)] = at
                return

    def guarded(self, operation: Operation, mask: Mask) -> Mask:
        if operation.guard is None:
            return mask
        chosen = ~operation.guard if operation.negated else operation.guard
        return chosen.copy() if mask is True else chosen & mask

    def apply(self, operation: Operation, mask: Mask) -> None:
        if operation.step is None:
            return
        if operation.guard is None:
            operation.step(mask)
        else:
            chosen = self.guarded(operation, mask)
            if np.any(chosen):
                operation.step(chosen)

    def special(self, at: int, operation: Operation, mask: Mask) -> tuple[int, Mask] | None:
        """(next instruction, its lanes), or None if the lanes no longer go together."""
        if operation.target >= 0:
            return self.branch(at, operation, mask)
        if operation.ends:
            return self.exit(at, operation, mask)
        lanes = np.broadcast_to(np.asarray(mask), self.pc.shape)
        left = self.gather(at, operation, lanes) if operation.together else lanes
        chosen = np.broadcast_to(np.asarray(self.guarded(operation, left)), self.pc.shape)
        if operation.blocked is not None and chosen.any():
            left, chosen = self.block(at, operation, left, chosen)
        if operation.barrier is not None:
            self.pc[left] = at + 1
            wait, number, expected = operation.barrier
            active = np.flatnonzero(chosen)
            if active.size:
                self.barriers.arrive(number, expected, active, wait=wait)
            return None
        if chosen.any() and operation.step is not None:
            operation.step(True if chosen.all() else chosen)
        if self.machine.phases is not None and phase_barriers(self.machine).completed:
            self.wake()
            self.pc[left] = at + 1
            return None
        if not left.any():
            return None
        if left.sum() > lanes.sum():  # others have joined, who may stand elsewhere in the order
            self.pc[left] = at + 1
            return None
        return at + 1, True if left.all() else left

    def branch(self, at: int, operation: Operation, mask: Mask) -> tuple[int, Mask] | None:
        if operation.guard is None:
            return operation.target, mask
        chosen = self.guarded(operation, mask)
        if not np.any(chosen):
            return at + 1, mask
        if mask is True:
            if np.all(chosen):
                return operation.target, mask
            self.pc[:] = np.where(chosen, operation.target, at + 1)
            return None
        if np.array_equal(chosen, mask):
            return operation.target, mask
        self.pc[mask] = at + 1
        self.pc[np.asarray(chosen)] = operation.target
        return None

    def exit(self, at: int, operation: Operation, mask: Mask) -> tuple[int, Mask] | None:
        chosen = np.broadcast_to(np.asarray(self.guarded(operation, mask)), self.pc.shape)
        self.pc[np.broadcast_to(np.asarray(mask), self.pc.shape)] = at + 1
        self.machine.exited |= chosen
        self.barriers.ended(np.flatnonzero(chosen))
        return None

    def gather(self, at: int, operation: Operation, lanes: Bools) -> Bools:
        """Of the lanes here, and of those that have waited here, the ones whose warps are whole.

        The rest waits. Lanes that the guard turns away do not take part and go on.
        """
        here: Bools = lanes | (self.gathering & (self.pc == at))
        if operation.guard is None and here.all():
            self.gathering[:] = False
            return here
        taking: Bools = np.broadcast_to(np.asarray(self.guarded(operation, here)), here.shape)
        missing = taking & self.misses_some(at, operation, taking)
        self.gathering[here] = False
        self.gathering[missing] = True
        self.pc[missing] = at
        return here & ~missing

    def misses_some(self, at: int, operation: Operation, taking: Bools) -> Bools:
        """Of the lanes that take part, those whose member mask names one that is not here."""
        present, live = taking.reshape(-1, WARP), ~self.machine.exited.reshape(-1, WARP)
        if operation.members is None:  # the whole warp
            missing: Bools = np.repeat((live & ~present).any(1), WARP)
            return missing
        bits = np.broadcast_to(operation.members, taking.shape).reshape(-1, WARP)
        named = (bits[:, :, None] >> np.arange(WARP, dtype=np.uint32) & 1).astype(np.bool_)
        outside = present & ~named.diagonal(axis1=1, axis2=2)
        if outside.any():
            where = self.machine.lanes.where(int(np.argmax(outside)))
            detail = f"a lane outside of its own member mask, {where}"
            self.report.add(Kind.DIVERGENT, at, detail, int(outside.sum()))
        absent = live & ~present
        return np.asarray((named & absent[:, None, :]).any(2).ravel())

    def block(
        self, at: int, operation: Operation, left: Bools, chosen: Bools
    ) -> tuple[Bools, Bools]:
        assert operation.blocked is not None
        active = np.flatnonzero(chosen)
        held = np.zeros_like(left)
        held[active[~operation.blocked(active)]] = True
        self.at_phase[held] = True
        self.pc[held] = at
        return left & ~held, chosen & ~held

    def wake(self) -> None:
        """A phase is over: those who wait in its block look again."""
        completed = phase_barriers(self.machine).completed
        blocks = np.array(completed)
        completed.clear()
        self.at_phase &= ~np.isin(self.machine.lanes.of_block, blocks)

    def watch(self, at: int, operation: Operation, mask: Mask) -> None:
        """Nobody touches the registers of a wgmma in flight but the next wgmma."""
        if operation.instruction.opcode == "wgmma":
            return
        self.machine.changed_registers |= operation.writes
        for product in self.machine.asynchronous.products:
            both = product.registers & operation.registers
            if both and (mask is True or mask[product.lanes].any()):
                detail = f"{min(both)} belongs to a wgmma that has not been waited for"
                self.report.add(Kind.TENSOR_IN_FLIGHT, at, detail)

    def explain_deadlock(self) -> None:
        for waiting, kind, what in (
            (self.gathering, Kind.DIVERGENT, "waits for lanes of its warp that never come"),
            (self.at_barrier, Kind.DIVERGENT, "waits at a barrier that not all threads reach"),
            (self.at_phase, Kind.HANG, "waits for a phase that is never completed"),
        ):
            lanes = np.flatnonzero(waiting)
            for at in np.unique(self.pc[lanes]):
                here = lanes[self.pc[lanes] == at]
                index = int(at) - (1 if waiting is self.at_barrier else 0)
                detail = f"{what}, {self.machine.lanes.where(int(here[0]))}"
                self.report.add(kind, index, detail, int(here.size))
