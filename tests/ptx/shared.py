"""Shared memory of every block, with bank conflicts counted, and local memory of every thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ptx.lanes import WARP, Array, Bools, Ints, Lanes
from ptx.memory import POISON, agree
from ptx.report import Kind, Report, Traffic
from ptx.shadow import Shadow

FIRST = 1024  # as on sm_90, where the first kilobyte is the system's


class SharedMemory:
    """`size` bytes in each block, from address FIRST on."""

    def __init__(self, report: Report, shadow: Shadow, size: int) -> None:
        self.report, self.shadow, self.size = report, shadow, size
        self.stride = stride_of(size)
        self.data = np.full(self.stride * shadow.lanes.blocks, POISON, np.uint8)
        self.patterns: dict[int, Pattern] = {}  # the last one of each instruction

    def locate(
        self, index: int, lanes: Ints, addresses: Ints, size: int, verb: str
    ) -> tuple[Bools, Ints]:
        """Which accesses may be made, and where in `data` (0 for the others)."""
        offsets = addresses - FIRST
        inside = (offsets >= 0) & (offsets + size <= self.size)
        aligned = addresses % size == 0
        for kind, fine in ((Kind.OUT_OF_BOUNDS, inside), (Kind.MISALIGNED, aligned)):
            if not fine.all():
                first = int(np.argmin(fine))
                self.report.add(
                    kind,
                    index,
                    f"{verb} {size} bytes at {int(addresses[first])} of shared memory, "
                    f"{self.shadow.lanes.where(int(lanes[first]))}",
                    int((~fine).sum()),
                )
        good = inside & aligned
        base = self.shadow.lanes.of_block[lanes] * self.stride
        return good, np.where(good, offsets + base, 0)

    def granules(self, offsets: Ints, size: int) -> tuple[Ints, int]:
        granule = self.shadow.granule
        return offsets // granule, max(size // granule, 1)

    def load(
        self, index: int, lanes: Ints, addresses: Ints, size: int, atomic: bool = False
    ) -> Array:
        """(k, size) bytes."""
        good, offsets = self.locate(index, lanes, addresses, size, "reads")
        if not atomic:
            self.count_banks(index, lanes, addresses, size)
        values = self.data.reshape(-1, size)[offsets // size]
        if good.all():
            self.shadow.read(index, lanes, *self.granules(offsets, size), recorded=not atomic)
        else:
            lanes, offsets = lanes[good], offsets[good]
            self.shadow.read(index, lanes, *self.granules(offsets, size), recorded=not atomic)
            values[~good] = POISON
        return values

    def store(
        self, index: int, lanes: Ints, addresses: Ints, values: Array, atomic: bool = False
    ) -> None:
        size = values.shape[1]
        good, offsets = self.locate(index, lanes, addresses, size, "writes")
        if not atomic:
            self.count_banks(index, lanes, addresses, size)
        if not good.all():
            lanes, offsets, values = lanes[good], offsets[good], values[good]
        if not atomic:
            self.shadow.write(index, lanes, *self.granules(offsets, size))
            agree(self.shadow, index, lanes, offsets, values)
        self.data.reshape(-1, size)[offsets // size] = values

    def count_banks(self, index: int, lanes: Ints, addresses: Ints, size: int) -> None:
        """Count phases: 32 banks of 4 bytes serve 128 bytes of a warp at once.

        A warp is served in groups of lanes that fill the banks (8 lanes of 16 bytes); two lanes of
        a group conflict if they need different words of one bank.
        """
        unit = max(size, 4)  # bytes that a lane reads at once
        pattern, known = addresses - addresses[:1], self.patterns.get(index)
        if (
            known is None
            or (known.start - addresses[0]) % unit
            or not np.array_equal(known.lanes, lanes)
            or not np.array_equal(known.pattern, pattern)
        ):
            phases, extra = bank_phases(lanes, addresses // unit, WARP * 4 // unit)
            known = Pattern(lanes, pattern, int(addresses[0]), phases, extra)
            self.patterns[index] = known
        traffic = self.report.traffic.setdefault(index, Traffic())
        traffic.phases += known.phases
        traffic.extra += known.extra


@dataclass(frozen=True, eq=False, slots=True)
class Pattern:
    """How lanes accessed memory; moved by whole words, it uses the banks alike."""

    lanes: Ints
    pattern: Ints
    start: int
    phases: int
    extra: int


def bank_phases(lanes: Ints, words: Ints, banks: int) -> tuple[int, int]:
    """(phases, how many of them because of conflicts) of one access to `words`."""
    keys = np.unique(lanes // banks * (1 << 32) + words)
    group = keys >> 32
    group -= group[0]
    uses = np.bincount(group * banks + keys % banks, minlength=(int(group[-1]) + 1) * banks)
    degree = uses.reshape(-1, banks).max(-1)
    return int((degree > 0).sum()), int((degree[degree > 0] - 1).sum())


class LocalMemory:
    """`size` bytes for each thread."""

    def __init__(self, report: Report, lanes: Lanes, size: int) -> None:
        self.report, self.lanes, self.size = report, lanes, size
        self.stride = stride_of(size)
        self.data = np.full(self.stride * lanes.count, POISON, np.uint8)
        self.initialised = np.zeros(self.data.size, np.bool_)

    def locate(self, index: int, lanes: Ints, addresses: Ints, size: int) -> tuple[Bools, Ints]:
        good = (addresses >= 0) & (addresses + size <= self.size) & (addresses % size == 0)
        if not good.all():
            where = self.lanes.where(int(lanes[np.argmin(good)]))
            detail = f"{size} bytes of local memory, {where}"
            self.report.add(Kind.OUT_OF_BOUNDS, index, detail, int((~good).sum()))
        return good, np.where(good, addresses + lanes * self.stride, 0) // size

    def load(self, index: int, lanes: Ints, addresses: Ints, size: int) -> Array:
        good, rows = self.locate(index, lanes, addresses, size)
        known = self.initialised.reshape(-1, size)[rows].all(-1) | ~good
        if not known.all():
            where = self.lanes.where(int(lanes[np.argmin(known)]))
            detail = f"reads local memory that nobody wrote, {where}"
            self.report.add(Kind.UNINITIALISED, index, detail, int((~known).sum()))
        values = self.data.reshape(-1, size)[rows]
        values[~good] = POISON
        return values

    def store(self, index: int, lanes: Ints, addresses: Ints, values: Array) -> None:
        size = values.shape[1]
        good, rows = self.locate(index, lanes, addresses, size)
        self.data.reshape(-1, size)[rows[good]] = values[good]
        self.initialised.reshape(-1, size)[rows[good]] = True


def stride_of(size: int) -> int:
    """Room for `size` bytes in whole kilobytes, so that addresses keep their alignment."""
    return max(-(-size // 1024) * 1024, 1024)
