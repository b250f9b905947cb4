"""The oracle: AttentionIR interpreted in NumPy float64, one head at a time, as the formulas say.

Input: an AttentionIR (before or after the passes) and arrays of any real dtype. Output: float64
arrays. There are no tiles and no running maxima here; the only concession to size is that query
rows, which do not depend on each other, are taken some at a time, and that a caller may ask for
just a few of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.errors import CallTypeError, CallValueError
from attngen.ir.attention import AttentionIR
from attngen.ir.bounds import Lengths
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import SCORE
from attngen.side_data import arrays_of, with_batch

Array: TypeAlias = npt.NDArray[Any]
Float64: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = Sequence[int] | npt.NDArray[np.integer]

_SCORES_AT_ONCE = 1 << 22  # 32 MiB of float64 scores in one step


def reference_attention(
    ir: AttentionIR,
    q: Array,
    k: Array,
    v: Array,
    sink: Array | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    rows: Rows | None = None,
    lengths: Rows | None = None,
) -> tuple[Float64, Float64]:
    """The core of `ir`: attention of q over k and v.

    Args:
        ir: what to compute; `dtype` and `d_model` have no say here.
        q: (q_len, query_heads, head_dim) or (batch, q_len, query_heads, head_dim).
        k: (.., kv_len, key_heads, head_dim).
        v: (.., kv_len, kv_heads, value_dim).
        sink: (heads,) logits in natural units; exactly where `ir` has a sink.
        inputs: the side inputs that `ir` names and no table gives, in the shapes it gives; without
            the axis of the batch where q has none.
        rows: indices of the query rows to compute; all of them if None.
        lengths: (batch,) how many keys of each batch index there are; all of them if None.

    Returns:
        out (.., rows, heads, value_dim) and the natural-log lse (.., query_heads, rows), both
        float64; the lse is NaN where there is no softmax.

    Raises:
        CallTypeError: a sink or side input is missing or unexpected.
        CallValueError: a shape does not fit, or a pair that attends reads outside a side input.
    """
    if q.ndim == 3:
        batch_of_one = (q[None], k[None], v[None])
        given = with_batch(ir, inputs or {})
        out, lse = reference_attention(ir, *batch_of_one, sink, inputs=given, rows=rows)
        return out[0], lse[0]
    chosen = chosen_rows(q.shape[1], rows)
    out = np.zeros((q.shape[0], chosen.size, ir.heads, ir.value_dim))
    no_sum = -np.inf if ir.activation is None else np.nan
    lse = np.full((q.shape[0], ir.query_heads, chosen.size), no_sum)
    for b, h, part, found in _each_map(ir, q, k, v, sink, inputs or {}, chosen, lengths):
        out[b, part, h // ir.maps] += found.factor * found.out
        lse[b, h, part] = found.lse
    return out, lse


def reference_scores(
    ir: AttentionIR,
    q: Array,
    k: Array,
    v: Array,
    sink: Array | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    rows: Rows | None = None,
    lengths: Rows | None = None,
) -> tuple[Float64, Float64]:
    """What a fused kernel never holds: the logits and the probabilities of every pair.

    Args and errors are those of :func:`reference_attention`.

    Returns:
        The logits (.., query_heads, rows, kv_len): scores after all that `ir` does to them, in
        natural units, -inf where a query does not attend. The probabilities in the same shape: what
        the values are weighted with, 0 in a row that may attend to nothing; where `ir` has a sink
        they add up to less than 1. Both float64.
    """
    if q.ndim == 3:
        batch_of_one = (q[None], k[None], v[None])
        given = with_batch(ir, inputs or {})
        logits, weights = reference_scores(ir, *batch_of_one, sink, inputs=given, rows=rows)
        return logits[0], weights[0]
    chosen = chosen_rows(q.shape[1], rows)
    shape = (q.shape[0], ir.query_heads, chosen.size, k.shape[1])
    logits, probabilities = np.full(shape, -np.inf), np.zeros(shape)
    for b, h, part, found in _each_map(ir, q, k, v, sink, inputs or {}, chosen, lengths):
        valid = slice(found.logits.shape[1])
        logits[b, h, part, valid] = found.logits
        probabilities[b, h, part, valid] = found.probabilities
    return logits, probabilities


@dataclass(frozen=True, slots=True, eq=False)
class _Attended:
    """Some query rows of one map: (rows, kv_len) but for out (rows, value_dim), lse (rows,).

    The output of the head is the sum over its maps of `factor` times `out`.
    """

    factor: float
    out: Float64
    lse: Float64
    logits: Float64
    probabilities: Float64


def chosen_rows(q_len: int, rows: Rows | None) -> npt.NDArray[np.intp]:
    """The indices that `rows` means, from 0; every one if None."""
    every = np.arange(q_len)
    return every if rows is None else every[np.asarray(rows, np.intp)]


def _each_map(
    ir: AttentionIR,
    q: Array,
    k: Array,
    v: Array,
    sink: Array | None,
    inputs: Mapping[str, Array],
    chosen: npt.NDArray[np.intp],
    lengths: Rows | None,
) -> Iterator[tuple[int, int, slice, _Attended]]:
    """Each batch index and query head, with some of the `chosen` rows at a time."""
    _check(ir, q, k, v, sink)
    batch, q_len = q.shape[:2]
    data = arrays_of(ir, inputs, Lengths(batch, q_len, k.shape[1]))
    step = max(1, _SCORES_AT_ONCE // max(1, k.shape[1]))
    for b in range(batch):
        valid = slice(k.shape[1] if lengths is None else int(lengths[b]))
        for query_head in range(ir.query_heads):
            h, which = divmod(query_head, ir.maps)
            kv_h = h // ir.group
            key_head = kv_h * ir.maps + which
            keys, values = float64(k[b, valid, key_head]), float64(v[b, valid, kv_h])
            names = data | {"b": b, "h": h, "kv_h": kv_h, "q_len": q_len}
            factor = 1.0
            if ir.difference is not None and which:
                factor = -float(evaluate(ir.difference, names))
            for start in range(0, chosen.size, step):
                part = slice(start, start + step)
                queries = float64(q[b, chosen[part], query_head])
                logit = None if sink is None else float(sink[h])
                indices = names | {"i": chosen[part, None]}
                found = _attend(ir, factor, queries, keys, values, logit, indices)
                yield b, query_head, part, found


def _attend(
    ir: AttentionIR,
    factor: float,
    queries: Float64,
    keys: Float64,
    values: Float64,
    sink: float | None,
    indices: dict[str, Any],
) -> _Attended:
    kv_len = keys.shape[0]
    shape = (queries.shape[0], kv_len)
    offset = kv_len - indices["q_len"] if ir.alignment == "bottom_right" else 0
    env = indices | {"q": indices["i"] + offset, "k": np.arange(kv_len)[None], "kv_len": kv_len}
    everywhere = np.ones(shape, np.bool_)
    attends = np.broadcast_to(np.asarray(evaluate(ir.mask, env, everywhere), np.bool_), shape)
    log_base = 1.0 if ir.base == "e" else math.log(2)
    with np.errstate(all="ignore"):  # infinities and NaN follow IEEE 754
        dot = ir.query_scale * (queries @ keys.T)
        score = np.broadcast_to(np.asarray(evaluate(ir.score, env | {"dot": dot}, attends)), shape)
        if ir.activation is not None:
            weight = np.asarray(evaluate(ir.activation, env | {SCORE.name: score}))
            weights = np.where(attends, weight, 0.0)
            out, none = _weighted_sum(weights, attends, values), np.full(shape[0], np.nan)
            return _Attended(factor, out, none, np.where(attends, score, -np.inf), weights)
        score = np.where(attends, score, -np.inf)
        row_max = score.max(axis=1, initial=-np.inf)
        # a row without keys has no maximum to take off; its weights are 0 whatever the shift
        shift = np.where(row_max == -np.inf, 0.0, row_max)
        weights = np.exp(log_base * (score - shift[:, None]))
        row_sum = weights.sum(axis=1)
        lse = np.where(row_max == -np.inf, -np.inf, log_base * shift + np.log(row_sum))
        sink = 0.0 if ir.off_by_one else sink
        weights = weights * _share(row_sum, log_base * shift, sink)[:, None]
        out = _weighted_sum(weights, attends, values)
        return _Attended(factor, out, lse, log_base * score, weights)


def _share(row_sum: Float64, shift: Float64, sink: float | None) -> Float64:
    """What a row's weights are multiplied by, so that with the sink's they add up to 1."""
    sink_term = 0.0 if sink is None else np.exp(sink - shift)
    share: Float64 = 1.0 / (row_sum + sink_term)
    return np.where(row_sum == 0.0, 0.0, share)


def _weighted_sum(weights: Float64, attends: npt.NDArray[np.bool_], values: Float64) -> Float64:
    """Σ weight · value over the keys that a row attends to.

    A matrix product would let 0 · NaN into every row, so keys whose value is not finite are added
    one by one, to the rows that attend to them.
    """
    finite = np.isfinite(values).all(axis=1)
    total: Float64 = weights[:, finite] @ values[finite]
    for key in np.flatnonzero(~finite):
        total += np.where(attends[:, key, None], weights[:, key, None] * values[key], 0.0)
    return total


def float64(array: Array) -> Float64:
    """`array` in float64."""
    return np.asarray(array).astype(np.float64)


def _check(ir: AttentionIR, q: Array, k: Array, v: Array, sink: Array | None) -> None:
    batch, q_len = q.shape[:2]
    kv_len = k.shape[1]
    for name, array, expected in (
        ("q", q, (batch, q_len, ir.query_heads, ir.head_dim)),
        ("k", k, (batch, kv_len, ir.key_heads, ir.head_dim)),
        ("v", v, (batch, kv_len, ir.kv_heads, ir.value_dim)),
        ("sink", sink, (ir.heads,)),
    ):
        if array is not None and array.shape != expected:
            raise CallValueError(f"{name!r} must have shape {expected}, and has {array.shape}")
    if ir.sink != (sink is not None):
        raise CallTypeError(
            "'sink' must be given" if ir.sink else "'sink' is not part of this spec"
        )
