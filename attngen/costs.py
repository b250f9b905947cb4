"""How much work an attention is at given lengths: floating-point operations, and bytes to move.

Input: an AttentionIR (before or after the passes) and lengths. Output: :class:`Cost`, one
:class:`Step` a part (projections, attention). Only (query, key) pairs that attend are counted, so
a rate computed from it is one of useful work. Counts are exact: in closed form from each row's key
range where the mask is a conjunction of linear comparisons, by evaluating the mask otherwise, with
the call's side inputs where it reads any.

FLOP: 2 · head_dim a pair for the scores and 2 · value_dim for the weighted sum, as the field counts
them, twice where a head has two maps; a multiply-add is two, and weights are reported apart as
`exponentials`. Bytes: every array of a step read or written once, keys and values that no row sees
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.ir import affine, bounds
from attngen.ir.attention import AttentionIR
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import (
    COMPARISONS,
    TRUE,
    Binary,
    Const,
    Expr,
    K,
    Q,
    Unary,
    Var,
    parts,
    variables,
)
from attngen.side_data import mask_arrays

Array: TypeAlias = npt.NDArray[Any]

_PAIRS_AT_ONCE = 1 << 22  # evaluated in one step for masks that have no closed form
_Q_LEN, _KV_LEN = Var("q_len"), Var("kv_len")
_VARIABLES = (Q, K, _Q_LEN, _KV_LEN)


@dataclass(frozen=True, slots=True)
class Lengths:
    """The run-time sizes of a call."""

    q_len: int
    kv_len: int
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Visits:
    """What a mask lets through in a call.

    Attributes:
        pairs: (query, key) pairs that attend, of all heads and batch elements.
        keys: keys that at least one query attends to, of all key and value heads and batch
            elements.
    """

    pairs: int
    keys: int


@dataclass(frozen=True, slots=True)
class Step:
    """One part of the work."""

    name: str
    flop: int
    bytes: int

    def seconds(self, flop_per_s: float, bytes_per_s: float) -> float:
        """The roofline: whichever of arithmetic and memory takes longer."""
        return max(self.flop / flop_per_s, self.bytes / bytes_per_s)


@dataclass(frozen=True, slots=True)
class Cost:
    """The work of one call.

    Attributes:
        pairs: (query, key) pairs of all heads and batch elements, whether they attend or not.
        visits: what the mask leaves of them.
        exponentials: those of the softmax or the sigmoid.
    """

    lengths: Lengths
    pairs: int
    visits: Visits
    steps: tuple[Step, ...]
    exponentials: int

    @property
    def share(self) -> float:
        """The share of (query, key) pairs that attend; 0 where there is none."""
        return self.visits.pairs / self.pairs if self.pairs else 0.0

    @property
    def flop(self) -> int:
        """Floating-point operations of all steps."""
        return sum(step.flop for step in self.steps)

    @property
    def bytes(self) -> int:
        """Bytes that all steps move."""
        return sum(step.bytes for step in self.steps)

    def seconds(self, flop_per_s: float, bytes_per_s: float) -> float:
        """Predicted time: each step on the roofline, one after the other."""
        return sum(step.seconds(flop_per_s, bytes_per_s) for step in self.steps)


def cost(ir: AttentionIR, lengths: Lengths, inputs: Mapping[str, Array] | None = None) -> Cost:
    """The work of `ir` at `lengths`.

    Args:
        ir: what is computed.
        lengths: of the call.
        inputs: the side inputs of the call; only those that the mask reads matter.

    Raises:
        CallTypeError, CallValueError: the mask reads a side input that is missing or does not fit.
    """
    visits = count_visits(ir, lengths, inputs)
    attend = _attend_step(ir, lengths, visits)
    steps: tuple[Step, ...] = (attend,)
    if ir.d_model is not None:
        steps = _layer_steps(ir, ir.d_model, lengths, attend)
    pairs = lengths.batch * ir.heads * lengths.q_len * lengths.kv_len
    exponentials = ir.maps * visits.pairs if _has_exponential(ir) else 0
    return Cost(lengths, pairs, visits, steps, exponentials)


def _has_exponential(ir: AttentionIR) -> bool:
    """Whether a weight takes an exponential, as all but those of ReLU do."""
    return ir.activation is None or any(
        isinstance(part, Unary) and part.op == "sigmoid" for part in parts(ir.activation)
    )


def _attend_step(ir: AttentionIR, lengths: Lengths, visits: Visits) -> Step:
    flop = 2 * ir.maps * visits.pairs * (ir.head_dim + ir.value_dim)
    query_rows = lengths.batch * lengths.q_len * ir.heads
    elements = (query_rows + visits.keys) * (ir.maps * ir.head_dim + ir.value_dim)
    moved = elements * ir.heads_dtype.itemsize
    if "lse" in ir.outputs:
        moved += ir.maps * query_rows * np.dtype(ir.dtype.accumulator).itemsize
    return Step("attention", flop, moved)


def _layer_steps(ir: AttentionIR, d_model: int, lengths: Lengths, attend: Step) -> tuple[Step, ...]:
    q_rows = lengths.batch * lengths.q_len
    kv_rows = lengths.batch * lengths.kv_len

    def projection(name: str, rows: int, outer: int, heads: int) -> Step:
        """Between `rows` of the layer's own width and `rows` of heads, which are not rounded."""
        moved = (rows + heads) * outer * ir.dtype.itemsize + rows * heads * ir.heads_dtype.itemsize
        return Step(name, 2 * rows * outer * heads, moved)

    return (
        projection("q projection", q_rows, d_model, ir.query_heads * ir.head_dim),
        projection("k projection", kv_rows, d_model, ir.key_heads * ir.head_dim),
        projection("v projection", kv_rows, d_model, ir.kv_heads * ir.value_dim),
        attend,
        projection("output projection", q_rows, d_model, ir.heads * ir.value_dim),
    )


def count_visits(
    ir: AttentionIR, lengths: Lengths, inputs: Mapping[str, Array] | None = None
) -> Visits:
    """What the mask of `ir` lets through at these lengths; exact. Arguments as for :func:`cost`."""
    q_len, kv_len, batch = lengths.q_len, lengths.kv_len, lengths.batch
    if 0 in (q_len, kv_len, batch):
        return Visits(0, 0)
    heads, kv_heads = batch * ir.heads, batch * ir.kv_heads
    if ir.mask == TRUE:
        return Visits(heads * q_len * kv_len, kv_heads * kv_len)
    first = kv_len - q_len if ir.alignment == "bottom_right" else 0
    positions = np.arange(first, first + q_len, dtype=np.int64)
    ranges = key_ranges(ir.mask, positions, q_len, kv_len)
    if ranges is None:
        return _enumerate(ir, positions, lengths, inputs or {})
    low, high = ranges
    some = low <= high
    edges = np.zeros(kv_len + 1, dtype=np.int64)
    np.add.at(edges, low[some], 1)
    np.add.at(edges, high[some] + 1, -1)
    pairs = int((high[some] - low[some] + 1).sum())
    return Visits(heads * pairs, kv_heads * int(np.count_nonzero(np.cumsum(edges[:-1]))))


def key_ranges(
    mask: Expr, positions: npt.NDArray[np.int64], q_len: int, kv_len: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """First and last (inclusive) key of each row, or None where the mask has no such form.

    A row whose first key is past its last attends to nothing.
    """
    low = np.zeros(positions.size, dtype=np.int64)
    high = np.full(positions.size, kv_len - 1, dtype=np.int64)
    terms = [term for part in _conjuncts(mask) for term in _conjuncts(_canonical(part))]
    for term in terms:
        if isinstance(term, Const):
            if not term.value:
                high[:] = -1
            continue
        comparison = affine.comparison_form(term)
        if comparison is None or comparison[0] == "ne":
            return None
        op, form = comparison
        if any(part not in _VARIABLES for part, _ in form.terms):
            return None
        rest = form.coefficient(Q) * positions + form.constant
        rest += form.coefficient(_Q_LEN) * q_len + form.coefficient(_KV_LEN) * kv_len
        _at_most_zero(low, high, form.coefficient(K), rest)
        if op == "eq":
            _at_most_zero(low, high, -form.coefficient(K), -rest)
    return low, high


def _conjuncts(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Binary(op="and", left=left, right=right):
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield expr


def _canonical(term: Expr) -> Expr:
    if isinstance(term, Binary) and term.op in COMPARISONS:
        return affine.compare(term.op, term.left, term.right)
    return term


def _at_most_zero(
    low: npt.NDArray[np.int64],
    high: npt.NDArray[np.int64],
    factor: int,
    rest: npt.NDArray[np.int64],
) -> None:
    """Narrow the ranges by ``factor * key + rest <= 0``."""
    if factor == 0:
        high[rest > 0] = -1
    elif factor > 0:
        np.minimum(high, -rest // factor, out=high)
    else:
        np.maximum(low, -(-rest // -factor), out=low)


def _enumerate(
    ir: AttentionIR,
    positions: npt.NDArray[np.int64],
    lengths: Lengths,
    inputs: Mapping[str, Array],
) -> Visits:
    """Look at each pair, of as many batch elements and heads as the mask tells apart."""
    sizes = bounds.Lengths(lengths.batch, lengths.q_len, lengths.kv_len)
    data, read = mask_arrays(ir, inputs, sizes), variables(ir.mask)
    batches = lengths.batch if "b" in read else 1
    kv_heads = ir.kv_heads if read & {"h", "kv_h"} else 1
    group = ir.group if "h" in read else 1
    pairs = keys = 0
    for b in range(batches):
        for kv_h in range(kv_heads):
            seen = np.zeros(lengths.kv_len, dtype=np.bool_)
            for h in range(kv_h * group, (kv_h + 1) * group):
                env = {**data, "b": b, "h": h, "kv_h": kv_h}
                for attends in _rows(ir.mask, positions, lengths, env):
                    pairs += int(np.count_nonzero(attends))
                    seen |= attends.any(axis=0)
            keys += int(np.count_nonzero(seen))
    same = lengths.batch // batches * (ir.kv_heads // kv_heads)
    return Visits(pairs * same * (ir.group // group), keys * same)


def _rows(
    mask: Expr, positions: npt.NDArray[np.int64], lengths: Lengths, env: Mapping[str, Any]
) -> Iterator[npt.NDArray[np.bool_]]:
    """(rows, keys) truth values, some rows at a time."""
    keys = np.arange(lengths.kv_len, dtype=np.int64)[None]
    step = max(1, _PAIRS_AT_ONCE // lengths.kv_len)
    for start in range(0, lengths.q_len, step):
        rows = positions[start : start + step, None]
        here = {**env, "q": rows, "k": keys, "q_len": lengths.q_len, "kv_len": lengths.kv_len}
        attends = np.asarray(evaluate(mask, here, np.False_), bool)
        yield np.broadcast_to(attends, (rows.size, lengths.kv_len))
