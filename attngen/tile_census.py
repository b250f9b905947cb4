"""What the prefill kernel decides about its tiles, for many of them at once, and the pairs in them.

Input: the kernel's sizes and mask, one batch element and key and value head of a call, and its
data. Output: codes, an index into :data:`CODES` for each tile. This repeats the decisions of
``flash_forward.py.jinja`` (which keys a task visits, where its last tile is cut, what it tests
before a panel) on arrays of corners; tests count them in kernels that run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.backends.numba_cpu.side_inputs import GRANULE
from attngen.backends.sections import is_closed
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import Expr, variables
from attngen.ir.kernel import FlashForward, MaskPlan
from attngen.mask_tiles import TileClass

Array: TypeAlias = npt.NDArray[Any]
Codes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]

CODES: tuple[TileClass, ...] = (TileClass.EMPTY, TileClass.PARTIAL, TileClass.FULL)
EMPTY, PARTIAL, FULL = range(3)

_TILES_AT_ONCE = 1 << 20
_ANYWHERE = np.False_  # kernels clamp an index that leaves its input, and so may these


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The query rows of one batch element and key and value head, and the keys they stand before.

    Attributes:
        group: query heads of this head; row r is query r // group of head kv_h * group + r % group.
        offset: the position of query 0.
        block_q: rows of a task.
        arrays: side inputs, with the axis of the batch.
    """

    kernel: FlashForward
    group: int
    q_len: int
    kv_len: int
    offset: int
    block_q: int
    b: int
    kv_h: int
    arrays: Mapping[str, Array]

    @property
    def rows(self) -> int:
        """Query rows."""
        return self.q_len * self.group

    @property
    def shape(self) -> tuple[int, int]:
        """Row tiles and key tiles."""
        return -(-self.rows // self.kernel.panel_rows), -(-self.kv_len // self.kernel.block_kv)


@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """The tiles of a part.

    Attributes:
        codes: (row tiles, key tiles).
        ends: (row tiles,), one past the last key that the task of each row tile visits, which cuts
            its tiles.
    """

    codes: Codes
    ends: Integers


def take_census(part: Part) -> Census:
    """What the kernel does with each tile of `part`."""
    panels, blocks = part.shape
    mask = part.kernel.mask
    if mask is None:
        return Census(np.full((panels, blocks), FULL, np.uint8), np.full(panels, part.kv_len))
    codes = np.full((panels, blocks), EMPTY, np.uint8)
    ends = np.zeros(panels, np.int64)
    if not codes.size:
        return Census(codes, ends)
    task = part.block_q // part.kernel.panel_rows  # row tiles
    step = max(1, _TILES_AT_ONCE // max(1, task * blocks)) * task
    for start in range(0, panels, step):
        some = np.arange(start, min(start + step, panels))
        codes[some], ends[some] = _decide(part, mask, some, some // task)
    return Census(codes, ends)


def count_pairs(part: Part, census: Census) -> int:
    """(row, key) pairs of `part` that attend; only partial tiles are looked into."""
    panel, block = part.kernel.panel_rows, part.kernel.block_kv
    firsts = np.arange(census.codes.shape[1]) * block
    total = 0
    for number, (codes, end) in enumerate(zip(census.codes, census.ends, strict=True)):
        rows = np.arange(number * panel, min((number + 1) * panel, part.rows))
        sizes = np.clip(end - firsts, 0, block)
        total += rows.size * int(sizes[codes == FULL].sum())
        if (codes == PARTIAL).any():
            keys = np.arange(firsts.size * block)[np.repeat(codes == PARTIAL, block)]
            total += _attending(part, rows, keys[keys < end])
    return total


def _decide(
    part: Part, mask: MaskPlan, panels: Integers, tasks: Integers
) -> tuple[Codes, Integers]:
    """Codes and cuts of some row tiles, which belong to `tasks`."""
    kernel, kv_len = part.kernel, part.kv_len
    numbers, task_of = np.unique(tasks, return_inverse=True)
    task_rows = _corners(part, mask, numbers * part.block_q, part.block_q)
    panel_rows = _corners(part, mask, panels * kernel.panel_rows, kernel.panel_rows)
    k_first = np.arange(part.shape[1])[None] * kernel.block_kv

    first_key, end_key = _key_range(mask, task_rows, kv_len)
    visited = (k_first >= first_key // kernel.block_kv * kernel.block_kv) & (k_first < end_key)
    keys = np.clip(end_key - k_first, 1, kernel.block_kv)
    tile_keys = _key_corners(part, mask, k_first, k_first + keys - 1)
    if not is_closed(mask):
        visited &= _truth(mask.possible, task_rows | tile_keys, visited.shape)

    keys = keys[task_of]
    tiles = panel_rows | _key_corners(part, mask, k_first, k_first + keys - 1)
    first_key, last = _key_range(mask, panel_rows, kv_len)
    first = np.maximum(0, first_key - k_first) // kernel.tile_scalars * kernel.tile_scalars
    visited = visited[task_of] & _truth(mask.possible, tiles, keys.shape)
    visited &= first < np.minimum(keys, last - k_first)
    full = _truth(mask.always, tiles, keys.shape)
    codes = np.where(visited, np.where(full, FULL, PARTIAL), EMPTY).astype(np.uint8)
    return codes, end_key[task_of, 0]


def _corners(part: Part, mask: MaskPlan, first: Integers, rows: int) -> dict[str, Any]:
    """What the mask's forms read of runs of `rows` rows from `first` on, down a column."""
    last = np.minimum(first + rows, part.rows) - 1
    q_first, q_last = ((row // part.group + part.offset)[:, None] for row in (first, last))
    heads = part.kv_h * part.group
    return {
        **part.arrays,
        "b": part.b,
        "kv_h": part.kv_h,
        "h_first": heads,
        "h_last": heads + part.group - 1,
        "q_len": part.q_len,
        "kv_len": part.kv_len,
        "q_first": q_first,
        "q_last": q_last,
        **_data_bounds(part, mask, "q", q_first, q_last),
    }


def _key_corners(part: Part, mask: MaskPlan, first: Integers, last: Integers) -> dict[str, Any]:
    """What the mask's forms read of the keys first … last."""
    return {"k_first": first, "k_last": last, **_data_bounds(part, mask, "k", first, last)}


def _key_range(mask: MaskPlan, rows: dict[str, Any], kv_len: int) -> tuple[Integers, Integers]:
    """The first key that rows may see, and one past the last."""
    first, end = np.zeros_like(rows["q_first"]), np.full_like(rows["q_first"], kv_len)
    if mask.key_first is not None:
        first = np.maximum(first, evaluate(mask.key_first, rows, _ANYWHERE))
    if mask.key_last is not None:
        end = np.minimum(end, np.asarray(evaluate(mask.key_last, rows, _ANYWHERE)) + 1)
    return first, end


def _truth(form: Expr, corners: dict[str, Any], shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    found = np.asarray(evaluate(form, corners, _ANYWHERE), np.bool_)
    return np.broadcast_to(found, shape)


def _data_bounds(
    part: Part, mask: MaskPlan, axis: str, first: Integers, last: Integers
) -> dict[str, Array]:
    """Bounds of data over first … last, as ``tile_bounds`` has them: of whole granules."""
    found = {}
    for bound in mask.data_bounds:
        if bound.axis != axis:
            continue
        data = part.arrays[bound.input]
        data = data[part.b] if bound.batched else data
        starts = np.arange(0, data.size, GRANULE)
        low, high = (np.clip(at // GRANULE, 0, starts.size - 1) for at in (first, last))
        for end, best in (("min", np.minimum), ("max", np.maximum)):
            granules = best.reduceat(data, starts)
            found[f"{bound.input}_{axis}_{end}"] = _extreme(granules, low, high, best)
    return found


def _extreme(values: Array, low: Integers, high: Integers, best: np.ufunc) -> Array:
    """The best of values[low … high] for each pair, from the best of runs of powers of two."""
    low, high = np.broadcast_arrays(low, np.maximum(low, high))
    levels = np.frexp(high - low + 1)[1] - 1  # of the longest such run that fits
    found = np.empty(low.shape, values.dtype)
    for level in range(int(levels.max(initial=0)) + 1):
        here = levels == level
        found[here] = best(values[low[here]], values[high[here] + 1 - (1 << level)])
        values = best(values[: -(1 << level)], values[1 << level :])
    return found


def _attending(part: Part, rows: Integers, keys: Integers) -> int:
    """(row, key) pairs that attend."""
    assert part.kernel.mask is not None  # noqa: S101 - a tile is partial
    predicate = part.kernel.mask.predicate
    q, h = rows // part.group + part.offset, rows % part.group + part.kv_h * part.group
    weight = np.ones_like(q)
    if "h" not in variables(predicate):  # then a query is the same for all its heads
        q, weight = np.unique(q, return_counts=True)
        h = h[:1]
    env = {
        **part.arrays,
        "b": part.b,
        "kv_h": part.kv_h,
        "h": h[:, None],
        "q": q[:, None],
        "k": keys[None],
        "q_len": part.q_len,
        "kv_len": part.kv_len,
    }
    attends = np.asarray(evaluate(predicate, env, _ANYWHERE), np.bool_)
    return int(np.broadcast_to(attends, (q.size, keys.size)).sum(axis=1) @ weight)
