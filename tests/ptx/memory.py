"""Global memory of the device: arrays with guards between them, and what happened to each byte."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ptx.lanes import Array, Bools, Ints
from ptx.report import Kind, Report
from ptx.shadow import Shadow

BASE = 0x7F00_0000_0000
GUARD = 512  # bytes that belong to nobody before, between and after arrays
POISON = 0xFF  # what a read that may not be gives: NaN as float16, bfloat16 and float32


@dataclass(frozen=True, eq=False)
class Region:
    """One array on the device. `address` is that of its first element, as NumPy's data pointer."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    offsets: Ints  # of every element, in bytes from BASE, in C order


class GlobalMemory:
    """Filled before a launch, read after it. `size`: bytes in all."""

    def __init__(self, size: int = 1 << 20) -> None:
        self.data = np.full(size, POISON, np.uint8)
        self.allocated = np.zeros(size, np.bool_)
        self.initialised = np.zeros(size, np.bool_)
        self.writable = np.zeros(size, np.bool_)
        self.written = np.zeros(size, np.bool_)
        self.top = GUARD

    def place(self, array: npt.ArrayLike, *, writable: bool = False, align: int = 256) -> Region:
        """Copy an array to the device with its strides; what lies between elements stays nobody's.

        `align` says where its lowest byte lies: at a multiple of `align`, and of nothing larger.
        """
        values = np.asarray(array)
        region = self._lay_out(values, align)
        at = (region.offsets[:, None] + np.arange(values.itemsize)).ravel()
        self.data[at] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self.initialised[at] = True
        self.writable[at] = writable
        return region

    def reserve(
        self, shape: tuple[int, ...] | int, dtype: npt.DTypeLike, *, align: int = 256
    ) -> Region:
        """An output: nothing is in it, and every element is to be written."""
        region = self._lay_out(np.empty(shape, dtype), align)
        at = (region.offsets[:, None] + np.arange(region.dtype.itemsize)).ravel()
        self.writable[at] = True
        return region

    def reserve_like(self, array: Array, *, align: int = 256) -> Region:
        """An output with the strides of `array`."""
        region = self._lay_out(array, align)
        at = (region.offsets[:, None] + np.arange(region.dtype.itemsize)).ravel()
        self.writable[at] = True
        return region

    def _lay_out(self, array: Array, align: int) -> Region:
        steps = np.zeros(array.shape, np.int64)
        for axis, (length, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
            shape = [1] * array.ndim
            shape[axis] = length
            steps = steps + (np.arange(length, dtype=np.int64) * stride).reshape(shape)
        flat = steps.reshape(-1)
        low = int(flat.min()) if flat.size else 0
        high = int(flat.max()) + array.itemsize if flat.size else 0
        lowest = -(-self.top // (2 * align)) * 2 * align + align
        self._grow(lowest + high - low + GUARD)
        self.top = lowest + high - low + GUARD
        offsets = lowest - low + flat
        self.allocated[(offsets[:, None] + np.arange(array.itemsize)).ravel()] = True
        return Region(BASE + lowest - low, array.shape, array.dtype, offsets)

    def _grow(self, size: int) -> None:
        while size > self.data.size:
            more = self.data.size
            self.data = np.concatenate([self.data, np.full(more, POISON, np.uint8)])
            for name in ("allocated", "initialised", "writable", "written"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(more, np.bool_)]))

    def write(self, address: int, data: Array) -> None:
        """Copy bytes there, as the host does: they are initialised, and nobody has written them."""
        at = slice(address - BASE, address - BASE + data.size)
        if not self.allocated[at].all():
            raise ValueError(f"{data.size} bytes at {address:#x} are not all allocated")
        self.data[at] = data
        self.initialised[at] = True

    @property
    def used(self) -> int:
        """Bytes that accesses may be looked up in: all arrays and the last guard."""
        return -(-self.top // 16) * 16

    def read(self, region: Region) -> Array:
        """The array as it is now, in C order."""
        at = region.offsets[:, None] + np.arange(region.dtype.itemsize)
        elements: Array = self.data[at].reshape(-1).view(region.dtype)
        return elements.reshape(region.shape)

    def unwritten(self, region: Region) -> Bools:
        """The elements that no kernel has written as a whole."""
        at = region.offsets[:, None] + np.arange(region.dtype.itemsize)
        missing: Bools = ~self.written[at].all(-1)
        return missing.reshape(region.shape)


class GlobalAccess:
    """Global memory during one launch: every access is checked."""

    def __init__(self, memory: GlobalMemory, report: Report, shadow: Shadow) -> None:
        self.memory, self.report, self.shadow = memory, report, shadow
        self.size = memory.used
        shadow.initialised[:] = memory.initialised[: self.size]

    def finish(self) -> None:
        """Later launches may read what this one has written."""
        self.memory.initialised[: self.size] = self.shadow.initialised

    def locate(
        self, index: int, lanes: Ints, addresses: Ints, size: int, write: bool
    ) -> tuple[Bools, Ints]:
        """Which accesses may be made, and the offsets of all of them (0 for the others)."""
        memory, lanes_of = self.memory, self.shadow.lanes
        offsets = addresses - BASE
        inside = (offsets >= 0) & (offsets + size <= self.size)
        aligned = offsets % size == 0
        if not aligned.all():
            first = int(np.argmin(aligned))
            self.report.add(
                Kind.MISALIGNED,
                index,
                f"{size} bytes at {int(addresses[first]):#x}, {lanes_of.where(int(lanes[first]))}",
                int((~aligned).sum()),
            )
        good = inside & aligned
        offsets = np.where(good, offsets, 0)
        good &= memory.allocated.reshape(-1, size)[offsets // size].all(-1)
        if not (good | ~aligned).all():
            bad = ~good & aligned
            first = int(np.argmax(bad))
            verb = "writes" if write else "reads"
            self.report.add(
                Kind.OUT_OF_BOUNDS,
                index,
                f"{verb} {size} bytes at {int(addresses[first]):#x} of global memory, "
                f"{lanes_of.where(int(lanes[first]))}",
                int(bad.sum()),
            )
        return good, np.where(good, offsets, 0)

    def load(
        self, index: int, lanes: Ints, addresses: Ints, size: int, atomic: bool = False
    ) -> Array:
        """(k, size) bytes."""
        good, offsets = self.locate(index, lanes, addresses, size, write=False)
        values = self.memory.data.reshape(-1, size)[offsets // size]
        if good.all():
            self.shadow.read(index, lanes, offsets, size, recorded=not atomic)
        else:
            self.shadow.read(index, lanes[good], offsets[good], size, recorded=not atomic)
            values[~good] = POISON
        return values

    def store(
        self, index: int, lanes: Ints, addresses: Ints, values: Array, atomic: bool = False
    ) -> None:
        """Atomic stores are checked against others, and others are not checked against them."""
        size = values.shape[1]
        good, offsets = self.locate(index, lanes, addresses, size, write=True)
        if not good.all():
            lanes, offsets, values = lanes[good], offsets[good], values[good]
        may = self.memory.writable.reshape(-1, size)[offsets // size]
        if not may.all():
            self.shadow.complain(Kind.READ_ONLY, index, ~may, lanes, "writes an input")
        if not atomic:
            self.shadow.write(index, lanes, offsets, size)
            agree(self.shadow, index, lanes, offsets, values)
        self.memory.data.reshape(-1, size)[offsets // size] = values
        self.memory.written.reshape(-1, size)[offsets // size] = True


def agree(shadow: Shadow, index: int, lanes: Ints, offsets: Ints, values: Array) -> None:
    """Complain where lanes of one instruction write different values to one place."""
    order = np.argsort(offsets, kind="stable")
    same = offsets[order][1:] == offsets[order][:-1]
    if same.any():
        bad = same & (values[order][1:] != values[order][:-1]).any(-1)
        shadow.complain(
            Kind.RACE, index, bad[:, None], lanes[order][1:], "several threads write one place"
        )
