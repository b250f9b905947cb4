"""Plausible side inputs for a spec: what to run, count and draw with where the caller has none.

Input: an AttentionIR, lengths and a generator. Output: an array for each side input that is no
table, which no expression reads outside its bounds. What an integer means is told from its use:

    compared with others of its own array   labels of runs, such as documents: 0 0 0 1 1 2 2 2 2
    an index, or equal to a position        for each position one before it, as in a tree
    anything else                           a length, within the second half of the keys

Booleans are mostly true, and numbers standard normal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from attngen.errors import CallTypeError
from attngen.ir.attention import AttentionIR, SideInput
from attngen.ir.bounds import Lengths, index_faults, shape_of
from attngen.ir.expr import COMPARISONS, Binary, Expr, K, Load, Q, children, loads

_RUNS = 6  # in a sequence, on average
_STEP = 3  # how far back a position refers, on average
_TRUE = 0.9

Array = npt.NDArray[Any]


def example_inputs(
    ir: AttentionIR, lengths: Lengths, rng: np.random.Generator | None = None
) -> dict[str, Array]:
    """An array for each side input that a call of `ir` brings; the same for the same generator.

    Raises:
        CallTypeError: no such array can be read everywhere, and only the caller knows better.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    found = {
        side.name: _example(ir, side, lengths, rng) for side in ir.inputs if side.values is None
    }
    if faults := index_faults(ir, lengths, found):
        fault = faults[0]
        raise CallTypeError(
            f"no example of the side inputs fits: axis {fault.axis} of {fault.input!r} has "
            f"{fault.size} elements, and {fault.index} may be {fault.low:g} to {fault.high:g}"
        )
    return found


def _example(ir: AttentionIR, side: SideInput, lengths: Lengths, rng: np.random.Generator) -> Array:
    shape = shape_of(ir, side, lengths)
    if side.dtype == "float":
        numbers = rng.standard_normal(shape, dtype=np.float32)
        return numbers.astype(ir.dtype.accumulator, copy=False)
    if side.dtype == "bool":
        return rng.random(shape) < _TRUE
    last = shape[-1]
    uses = {*_uses(ir.mask, side.name), *_uses(ir.score, side.name)}
    if "label" in uses:
        return np.cumsum(rng.random(shape) < _RUNS / max(1, last), axis=-1, dtype=np.int64)
    if "pointer" in uses:
        steps: Array = rng.geometric(1 / _STEP, shape)
        return np.maximum(0, np.arange(last) - steps)
    counts: Array = rng.integers(lengths.kv_len // 2, lengths.kv_len + 1, shape)
    return counts


def _uses(expr: Expr, name: str) -> Iterator[Literal["label", "pointer"]]:
    """What the integers of the side input `name` are in `expr`."""
    match expr:
        case Binary(op=op, left=left, right=right) if op in COMPARISONS:
            sides = [isinstance(side, Load) and side.input == name for side in (left, right)]
            if all(sides):
                yield "label"
            elif any(sides) and op == "eq" and {left, right} & {Q, K}:
                yield "pointer"
        case Load(indices=indices):
            if any(load.input == name for index in indices for load in loads(index)):
                yield "pointer"
    for child in children(expr):
        yield from _uses(child, name)
