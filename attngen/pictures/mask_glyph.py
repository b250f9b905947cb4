"""A mask as a small grid: which share of each cell's pairs attends, and what only data decides.

Input: a mask expression for one head. Output: shares of a `CELLS` × `CELLS` grid, queries down and
keys to the right, for a sequence as long as the mask's own numbers ask for. Conditions on side
inputs are taken once as true and once as false: between the two is what depends on a call's data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from attngen.ir.evaluate import evaluate
from attngen.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    children,
    conjunction,
    disjunction,
    loads,
)
from attngen.pictures.shapes import Cells

CELLS = 24
_SAMPLES = 12  # positions looked at, in each cell and direction
_LEVELS = (0.25, 0.5, 0.75, 1.0)
_LONGEST = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class MaskGrid:
    """What a mask lets through.

    Attributes:
        length: of the sequence that was looked at.
        certain: (CELLS, CELLS), share of the pairs that attend whatever the data.
        possible: the same for pairs that attend with some data.
    """

    length: int
    certain: npt.NDArray[np.float64]
    possible: npt.NDArray[np.float64]


def mask_grid(mask: Expr) -> MaskGrid:
    """The grid of `mask`, an expression over q, k, q_len, kv_len and b."""
    length = _length_for(mask)
    edges = np.arange(CELLS + 1) * length / CELLS
    rng = np.random.default_rng(0)  # regular steps would resonate with chunks and dilations
    positions = np.concatenate(
        [
            np.sort(rng.permutation(np.arange(math.ceil(a), math.ceil(b)))[:_SAMPLES])
            if b - a < 1 << 16
            else np.sort(rng.integers(math.ceil(a), math.ceil(b), _SAMPLES))
            for a, b in pairwise(edges)
        ]
    )
    cells = np.searchsorted(edges, positions, side="right") - 1
    env: dict[str, Any] = {"q": positions[:, None], "k": positions[None, :]}
    env |= {"q_len": length, "kv_len": length, "b": 0}

    def shares(decided: bool) -> npt.NDArray[np.float64]:
        truth = np.asarray(evaluate(_decided(mask, decided), env), np.float64)
        full = np.broadcast_to(truth, (positions.size, positions.size))
        rows = np.add.reduceat(full, np.searchsorted(cells, np.arange(CELLS)), axis=0)
        sums = np.add.reduceat(rows, np.searchsorted(cells, np.arange(CELLS)), axis=1)
        counts = np.bincount(cells, minlength=CELLS)
        return np.asarray(sums / np.outer(counts, counts))

    return MaskGrid(length, shares(False), shares(True))


def glyph(grid: MaskGrid, x: float, y: float, cell: float) -> tuple[Cells, ...]:
    """`grid` drawn with its corner at (x, y) and cells of `cell`."""
    size = cell * CELLS
    unknown = grid.possible - grid.certain > grid.certain
    layers = [Cells(f"M{x:g} {y:g}h{size:g}v{size:g}h{-size:g}z", "frame")]
    level = np.searchsorted(_LEVELS, grid.certain - 1e-9)
    for i, alpha in enumerate(_LEVELS):
        wanted = ~unknown & (grid.certain > 0) & (level == i)
        if wanted.any():
            layers.append(Cells(_path(wanted, x, y, cell), "mask", alpha))
    if unknown.any():
        layers.append(Cells(_path(unknown, x, y, cell), "unknown"))
    return tuple(layers)


def _path(wanted: npt.NDArray[np.bool_], x: float, y: float, cell: float) -> str:
    """The cells that are wanted, neighbours in a row as one rectangle."""
    parts = []
    for row, line in enumerate(wanted):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], line, [False]]).astype(np.int8)))
        for start, stop in edges.reshape(-1, 2):
            left, width = x + start * cell, (stop - start) * cell
            parts.append(f"M{left:g} {y + row * cell:g}h{width:g}v{cell:g}h{-width:g}z")
    return "".join(parts)


def _length_for(mask: Expr) -> int:
    """Three times what the mask's largest number spans, or one position a cell without one."""
    largest = max((n for n in _numbers(mask) if n > 1), default=0)
    # a window of W - 1 neighbours or up to position P - 1 reads best at a multiple of W or P
    whole = largest + 1 if largest % 2 else largest
    return max(CELLS, min(3 * whole, _LONGEST)) if whole else CELLS


def _numbers(expr: Expr) -> list[int]:
    """The whole numbers in `expr`."""
    if isinstance(expr, Const):
        whole = isinstance(expr.value, int) and not isinstance(expr.value, bool)
        return [abs(int(expr.value))] if whole else []
    return [number for child in children(expr) for number in _numbers(child)]


def _decided(expr: Expr, truth: bool) -> Expr:
    """`expr` with each condition that reads a side input replaced by `truth` of the whole."""
    if not loads(expr):
        return expr
    match expr:
        case Binary(op="and", left=left, right=right):
            return conjunction(_decided(left, truth), _decided(right, truth))
        case Binary(op="or", left=left, right=right):
            return disjunction(_decided(left, truth), _decided(right, truth))
        case Unary(op="not", operand=operand):
            return Unary("not", _decided(operand, not truth))
        case Select(condition=condition, then=then, otherwise=otherwise) if not loads(condition):
            return Select(condition, _decided(then, truth), _decided(otherwise, truth))
        case _:
            return Const(truth)
