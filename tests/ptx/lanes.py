"""Where every thread of a launch sits, and what it knows of the others.

All threads of all blocks run side by side: thread t of block b is lane ``b * padded + t`` of every
array, with blocks padded to whole warps. Lanes that pad never run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Mask = Bools | Literal[True]  # True: every lane takes part
Size = tuple[int, int, int]
WARP = 32


@dataclass(frozen=True, eq=False)
class Lanes:
    grid: Size
    block: Size

    @property
    def threads(self) -> int:
        return int(np.prod(self.block))

    @cached_property
    def warps_per_block(self) -> int:
        return -(-self.threads // WARP)

    @property
    def per_block(self) -> int:
        return self.warps_per_block * WARP

    @property
    def blocks(self) -> int:
        return int(np.prod(self.grid))

    @property
    def warps(self) -> int:
        return self.blocks * self.warps_per_block

    @property
    def count(self) -> int:
        return self.blocks * self.per_block

    @cached_property
    def all(self) -> Ints:
        return np.arange(self.count, dtype=np.int64)

    @cached_property
    def thread(self) -> Ints:
        return self.all % self.per_block

    @cached_property
    def of_block(self) -> Ints:
        return self.all // self.per_block

    @cached_property
    def of_warp(self) -> Ints:
        return self.all // WARP

    @cached_property
    def in_warp(self) -> Ints:
        return self.all % WARP

    @cached_property
    def exists(self) -> Bools:
        return self.thread < self.threads

    def active(self, mask: Mask) -> Ints:
        """The lanes of `mask` by number."""
        return self.all if mask is True else np.flatnonzero(mask)

    def where(self, lane: int) -> str:
        x, y, _ = self.block
        t, b = int(self.thread[lane]), int(self.of_block[lane])
        gx, gy, _ = self.grid
        return (
            f"block ({b % gx}, {b // gx % gy}, {b // (gx * gy)}) "
            f"thread ({t % x}, {t // x % y}, {t // (x * y)})"
        )

    def special(self, name: str) -> Array:
        """The value of a special register in every lane, as uint32."""
        register, _, axis = name[1:].partition(".")
        if axis and register in ("tid", "ctaid", "ntid", "nctaid"):
            size = self.block if register in ("tid", "ntid") else self.grid
            at = "xyz".index(axis)
            if register in ("ntid", "nctaid"):
                return self._same(size[at])
            number = self.thread if register == "tid" else self.of_block
            return (number // int(np.prod(size[:at])) % size[at]).astype(np.uint32)
        lane = self.in_warp.astype(np.uint32)
        one = np.uint32(1) << lane
        match register:
            case "laneid":
                return lane
            case "warpid":
                return (self.thread // WARP).astype(np.uint32)
            case "nwarpid":
                return self._same(self.warps_per_block)
            case "lanemask_eq":
                return one
            case "lanemask_lt":
                return one - np.uint32(1)
            case "lanemask_le":
                return one | (one - np.uint32(1))
            case "lanemask_gt":
                return ~(one | (one - np.uint32(1)))
            case "lanemask_ge":
                return ~(one - np.uint32(1))
            case "clock" | "clock_hi" | "smid" | "gridid":
                return self._same(0)
        raise KeyError(name)

    def _same(self, value: int) -> Array:
        return np.full(self.count, value, np.uint32)


class Clocks:
    """Vector clocks, one component for each warp: what happened before what.

    ``known[r, w]`` is the last step of warp w that warp r has synchronised with; ``known[w, w]`` is
    the step that w is in. An access that w made in step c happened before what r does now if
    c <= known[r, w]; for another lane of the same warp, if c < known[w, w].
    """

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.known = np.zeros((lanes.warps, lanes.warps), np.int32)
        np.fill_diagonal(self.known, 1)
        self.fenced = np.zeros_like(self.known)  # what a warp's last fence released
        self.seen = np.zeros_like(self.known)  # what its atomics saw; its next fence acquires it

    def now(self, lanes: Ints) -> npt.NDArray[np.int32]:
        warps = self.lanes.of_warp[lanes]
        return self.known[warps, warps]

    def release(self, warps: Ints) -> npt.NDArray[np.int32]:
        """What these warps know together, themselves included; each begins a new step."""
        row: npt.NDArray[np.int32] = self.known[warps].max(0)
        self.known[warps, warps] += 1
        return row

    def acquire(self, warps: Ints, row: npt.NDArray[np.int32]) -> None:
        self.known[warps] = np.maximum(self.known[warps], row)

    def fence(self, warps: Ints) -> None:
        """membar and fence.acq_rel: both halves of a pattern with atomics."""
        self.acquire(warps, self.seen[warps])
        self.fenced[warps] = self.known[warps]
        self.known[warps, warps] += 1

    def unordered(self, lanes: Array, other: Array, warp: Array, step: Array) -> Bools:
        """Where an access by lane `other` (of `warp`, -1: nobody) did not happen before now."""
        mine = self.lanes.of_warp[lanes]
        same = mine == warp
        known = self.known[mine, warp]
        unordered: Bools = (step > known - same) & (other != lanes) & (warp >= 0)
        return unordered
