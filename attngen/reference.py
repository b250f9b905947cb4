"""The oracle: AttentionIR interpreted in NumPy float64, one head at a time, as the formulas say.

Input: an AttentionIR (before or after the passes) and arrays of any real dtype. Output: float64
arrays. There are no tiles and no running maxima here; the only concession to size is that query
rows, which do not depend on each other, are taken some at a time, and that a caller may ask for
just a few of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.errors import CallTypeError, CallValueError
from attngen.ir.attention import AttentionIR
from attngen.ir.bounds import Lengths
from attngen.ir.evaluate import evaluate
from attngen.side_data import arrays_of, with_batch

Array: TypeAlias = npt.NDArray[Any]
Float64: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = Sequence[int] | npt.NDArray[np.integer]

_SCORES_AT_ONCE = 1 << 22  # 32 MiB of float64 scores in one step


class LayerWeights(Protocol):
    """The matrices of a layer, each (in, out), and its biases; a plain namespace will do."""

    @property
    def q(self) -> Array:
        """(d_model, heads · head_dim)."""

    @property
    def k(self) -> Array:
        """(d_model, kv_heads · head_dim)."""

    @property
    def v(self) -> Array:
        """(d_model, kv_heads · value_dim)."""

    @property
    def o(self) -> Array:
        """(heads · value_dim, d_model)."""

    @property
    def q_bias(self) -> Array | None:
        """(heads · head_dim,)."""

    @property
    def k_bias(self) -> Array | None:
        """(kv_heads · head_dim,)."""

    @property
    def v_bias(self) -> Array | None:
        """(kv_heads · value_dim,)."""

    @property
    def o_bias(self) -> Array | None:
        """(d_model,)."""


def reference_attention(
    ir: AttentionIR,
    q: Array,
    k: Array,
    v: Array,
    sink: Array | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    rows: Rows | None = None,
) -> tuple[Float64, Float64]:
    """The core of `ir`: attention of q over k and v.

    Args:
        ir: what to compute; `dtype` and `d_model` have no say here.
        q: (q_len, heads, head_dim) or (batch, q_len, heads, head_dim).
        k: (.., kv_len, kv_heads, head_dim).
        v: (.., kv_len, kv_heads, value_dim).
        sink: (heads,) logits in natural units; exactly where `ir` has a sink.
        inputs: the side inputs that `ir` names and no table gives, in the shapes it gives; without
            the axis of the batch where q has none.
        rows: indices of the query rows to compute; all of them if None.

    Returns:
        out (.., rows, heads, value_dim) and the natural-log lse (.., heads, rows), both float64.

    Raises:
        CallTypeError: a sink or side input is missing or unexpected.
        CallValueError: a shape does not fit, or a pair that attends reads outside a side input.
    """
    if q.ndim == 3:
        batch_of_one = (q[None], k[None], v[None])
        given = with_batch(ir, inputs or {})
        out, lse = reference_attention(ir, *batch_of_one, sink, inputs=given, rows=rows)
        return out[0], lse[0]
    _check(ir, q, k, v, sink)
    data = arrays_of(ir, inputs or {}, Lengths(q.shape[0], q.shape[1], k.shape[1]))
    batch, q_len = q.shape[:2]
    chosen = np.arange(q_len) if rows is None else np.arange(q_len)[np.asarray(rows, np.intp)]
    out = np.zeros((batch, chosen.size, ir.heads, ir.value_dim))
    lse = np.full((batch, ir.heads, chosen.size), -np.inf)
    step = max(1, _SCORES_AT_ONCE // max(1, k.shape[1]))
    for b in range(batch):
        for h in range(ir.heads):
            kv_h = h // ir.group
            keys, values = _float64(k[b, :, kv_h]), _float64(v[b, :, kv_h])
            for start in range(0, chosen.size, step):
                part = slice(start, start + step)
                out[b, part, h], lse[b, h, part] = _attend(
                    ir,
                    _float64(q[b, chosen[part], h]),
                    keys,
                    values,
                    None if sink is None else float(sink[h]),
                    data | {"b": b, "h": h, "kv_h": kv_h, "q_len": q_len, "i": chosen[part, None]},
                )
    return out, lse


def _attend(
    ir: AttentionIR,
    queries: Float64,
    keys: Float64,
    values: Float64,
    sink: float | None,
    indices: dict[str, Any],
) -> tuple[Float64, Float64]:
    """Some query rows of one head: (rows, value_dim) and (rows,)."""
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
        score = np.where(attends, score, -np.inf)
        row_max = score.max(axis=1, initial=-np.inf)
        # a row without keys has no maximum to take off; its weights are 0 whatever the shift
        shift = np.where(row_max == -np.inf, 0.0, row_max)
        weights = np.exp(log_base * (score - shift[:, None]))
        row_sum = weights.sum(axis=1)
        lse = np.where(row_max == -np.inf, -np.inf, log_base * shift + np.log(row_sum))
        weights = weights * _share(row_sum, log_base * shift, sink)[:, None]
        return _weighted_sum(weights, attends, values), lse


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


def reference_layer(
    ir: AttentionIR,
    x: Array,
    weights: LayerWeights,
    context: Array | None = None,
    sink: Array | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    rows: Rows | None = None,
) -> tuple[Float64, Float64]:
    """The whole layer of `ir`: projections, attention, output projection.

    Args:
        ir: what to compute; its `d_model` is set.
        x: (q_len, d_model) or (batch, q_len, d_model).
        weights: matrices and biases.
        context: (.., kv_len, d_model) that keys and values come from; `x` if None.
        sink: as for :func:`reference_attention`.
        inputs: as for :func:`reference_attention`.
        rows: indices of the query rows to compute; all of them if None.

    Returns:
        out (.., rows, d_model) and the lse (.., heads, rows), both float64.

    Raises:
        CallTypeError: a sink or side input is missing or unexpected.
        CallValueError: a shape does not fit, or a pair that attends reads outside a side input.
    """
    if x.ndim == 2:
        contexts = None if context is None else context[None]
        given = with_batch(ir, inputs or {})
        out, lse = reference_layer(ir, x[None], weights, contexts, sink, inputs=given, rows=rows)
        return out[0], lse[0]
    source = x if context is None else context
    every = np.arange(x.shape[1])
    chosen = every if rows is None else every[np.asarray(rows, np.intp)]
    q = np.zeros((*x.shape[:2], ir.heads, ir.head_dim))
    q[:, chosen] = _heads(_project(x[:, chosen], weights.q, weights.q_bias), ir.heads)
    k = _heads(_project(source, weights.k, weights.k_bias), ir.kv_heads)
    v = _heads(_project(source, weights.v, weights.v_bias), ir.kv_heads)
    out, lse = reference_attention(ir, q, k, v, sink, inputs=inputs, rows=chosen)
    joined = out.reshape(*out.shape[:2], ir.heads * ir.value_dim)
    return _project(joined, weights.o, weights.o_bias), lse


def _project(x: Array, weight: Array, bias: Array | None) -> Float64:
    if x.shape[-1] != weight.shape[0]:
        raise CallValueError(f"a weight of shape {weight.shape} does not fit {x.shape}")
    with np.errstate(all="ignore"):
        product: Float64 = _float64(x) @ _float64(weight)
        return product if bias is None else product + _float64(bias)


def _heads(x: Float64, heads: int) -> Float64:
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads)


def _float64(array: Array) -> Float64:
    return np.asarray(array).astype(np.float64)


def _check(ir: AttentionIR, q: Array, k: Array, v: Array, sink: Array | None) -> None:
    batch, q_len = q.shape[:2]
    kv_len = k.shape[1]
    for name, array, expected in (
        ("q", q, (batch, q_len, ir.heads, ir.head_dim)),
        ("k", k, (batch, kv_len, ir.kv_heads, ir.head_dim)),
        ("v", v, (batch, kv_len, ir.kv_heads, ir.value_dim)),
        ("sink", sink, (ir.heads,)),
    ):
        if array is not None and array.shape != expected:
            raise CallValueError(f"{name!r} must have shape {expected}, and has {array.shape}")
    if ir.sink != (sink is not None):
        raise CallTypeError(
            "'sink' must be given" if ir.sink else "'sink' is not part of this spec"
        )
