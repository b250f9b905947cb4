"""What is known of every byte of a memory: initialised, who wrote, who read, what is in flight.

Kept in granules of 1 to 16 bytes, the smallest access that the kernel makes. Accesses are given as
the lanes that make them (k,), and the granules that each touches (k, n) as one start and a count.
"""

from __future__ import annotations

import numpy as np
from ptx.lanes import WARP, Array, Bools, Clocks, Ints
from ptx.report import Kind, Report

NOBODY = -1


class Shadow:
    """`rows`: how many readers of a granule are remembered, one for each warp of its block.

    With 0 rows it is the last reader only, of whatever warp.
    """

    def __init__(self, report: Report, clocks: Clocks, size: int, granule: int, rows: int) -> None:
        self.report, self.clocks, self.lanes = report, clocks, clocks.lanes
        self.granule, self.exact, self.rows = granule, rows > 0, max(rows, 1)
        count = -(-size // 16) * 16 // granule
        self.initialised = np.zeros(count, np.bool_)
        self.writer = np.full(count, NOBODY, np.int32)
        self.written_in = np.zeros(count, np.int32)
        self.reader = np.full((self.rows, count), NOBODY, np.int32)  # -2 - warp: several
        self.read_in = np.zeros((self.rows, count), np.int32)
        self.copying = np.zeros(count, np.int16)  # cp.async that may write at any moment
        self.multiplying = np.zeros(count, np.int16)  # wgmma that may read at any moment
        self.generic = np.zeros(count, np.bool_)  # written, and not fenced for the async proxy

    def rows_of(self, array: Array, start: Ints, n: int) -> Array:
        """(k, n): the granules of every access; accesses are aligned, so this is a row gather."""
        return array.reshape(-1, n)[start // n]

    def put(self, array: Array, start: Ints, n: int, value: Array | int | bool) -> None:
        array.reshape(-1, n)[start // n] = value

    def complain(self, kind: Kind, index: int, bad: Bools, lanes: Ints, what: str) -> None:
        accesses = bad.any(-1)
        if accesses.any():
            first = int(lanes[np.argmax(accesses)])
            detail = f"{what}, first by {self.lanes.where(first)}"
            self.report.add(kind, index, detail, int(accesses.sum()))

    def read(self, index: int, lanes: Ints, start: Ints, n: int, recorded: bool = True) -> None:
        """Check a read, and remember it."""
        known = self.rows_of(self.initialised, start, n)
        if not known.all():
            self.complain(Kind.UNINITIALISED, index, ~known, lanes, "reads what nobody wrote")
        self.not_copying(index, lanes, start, n, "reads")
        self.written_before(index, lanes, start, n, "reads what another thread wrote")
        if recorded:
            self.remember_read(lanes, start, n)

    def remember_read(self, lanes: Ints, start: Ints, n: int) -> None:
        row = self.lanes.of_warp[lanes] % self.rows
        now = self.clocks.now(lanes)
        reader = self.reader.reshape(self.rows, -1, n)
        read_in = self.read_in.reshape(self.rows, -1, n)
        at = start // n
        others = np.zeros(0, np.bool_)
        if self.exact:
            before = reader[row, at]
            others = (before != NOBODY) & (before != lanes[:, None])
            others &= read_in[row, at] == now[:, None]
        reader[row, at] = lanes[:, None]
        if self.exact:  # the last of several lanes that read it now is not all who did
            several = (others | (reader[row, at] != lanes[:, None])).any(-1)
            if several.any():
                warps = -2 - self.lanes.of_warp[lanes]
                reader[row[several], at[several]] = warps[several, None]
        read_in[row, at] = now[:, None]

    def not_copying(self, index: int, lanes: Ints, start: Ints, n: int, verb: str) -> None:
        copying = self.rows_of(self.copying, start, n)
        if copying.any():
            what = f"{verb} the target of a cp.async in flight"
            self.complain(Kind.PENDING_COPY, index, copying > 0, lanes, what)

    def written_before(self, index: int, lanes: Ints, start: Ints, n: int, what: str) -> None:
        writer = self.rows_of(self.writer, start, n)
        step = self.rows_of(self.written_in, start, n)
        bad = self.clocks.unordered(lanes[:, None], writer, writer // WARP, step)
        if bad.any():
            self.complain(Kind.RACE, index, bad, lanes, what + " without a barrier between")

    def write(self, index: int, lanes: Ints, start: Ints, n: int, initialised: bool = True) -> None:
        """Check a write, and remember it."""
        self.not_copying(index, lanes, start, n, "writes")
        self.may_write(index, lanes, start, n)
        self.remember_write(lanes, start, n)
        if initialised:
            self.put(self.initialised, start, n, True)

    def may_write(self, index: int, lanes: Ints, start: Ints, n: int) -> None:
        if self.rows_of(self.multiplying, start, n).any():
            bad = self.rows_of(self.multiplying, start, n) > 0
            self.complain(Kind.RACE, index, bad, lanes, "writes what a wgmma in flight reads")
        self.written_before(index, lanes, start, n, "writes what another thread wrote")
        for row in range(self.rows):
            reader = self.rows_of(self.reader[row], start, n)
            if (reader == NOBODY).all():
                continue
            step = self.rows_of(self.read_in[row], start, n)
            warp = np.where(reader < NOBODY, -2 - reader, reader // WARP)
            bad = self.clocks.unordered(lanes[:, None], reader, warp, step)
            what = "writes what another thread read without a barrier between"
            if bad.any():
                self.complain(Kind.RACE, index, bad, lanes, what)

    def remember_write(self, lanes: Ints, start: Ints, n: int) -> None:
        self.put(self.writer, start, n, lanes[:, None])
        self.put(self.written_in, start, n, self.clocks.now(lanes)[:, None])
        self.put(self.generic, start, n, True)

    def begin_copy(self, index: int, lanes: Ints, start: Ints, n: int) -> None:
        """A cp.async may write from now on."""
        self.not_copying(index, lanes, start, n, "copies into")
        self.may_write(index, lanes, start, n)
        np.add.at(self.copying.reshape(-1, n), start // n, 1)

    def end_copy(self, lanes: Ints, start: Ints, n: int) -> None:
        """It has written: to its own thread now, to others after a barrier."""
        np.subtract.at(self.copying.reshape(-1, n), start // n, 1)
        self.remember_write(lanes, start, n)
        self.put(self.initialised, start, n, True)

    def fence_async_proxy(self, warps: Ints, first: int, last: int) -> None:
        """Writes that happened before these warps' fence become visible to the async proxy."""
        dirty = first + np.flatnonzero(self.generic[first:last])
        writer = self.writer[dirty] // WARP
        done = (self.written_in[dirty] <= self.clocks.known[warps][:, writer].max(0)) & (
            writer >= 0
        )
        self.generic[dirty[done]] = False
