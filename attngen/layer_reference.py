"""The oracle of whole layers: projections around the core's oracle, in NumPy float64.

Input: an AttentionIR with a `d_model`, sequences and weights. Output: float64 arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from attngen.errors import CallValueError
from attngen.ir.attention import AttentionIR
from attngen.reference import Array, Float64, Rows, chosen_rows, float64, reference_attention
from attngen.side_data import with_batch


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


def reference_layer(
    ir: AttentionIR,
    x: Array,
    weights: LayerWeights,
    context: Array | None = None,
    sink: Array | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    rows: Rows | None = None,
    lengths: Rows | None = None,
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
        lengths: as for :func:`reference_attention`, of the keys made from each context.

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
    chosen = chosen_rows(x.shape[1], rows)
    q, k, v = project_heads(ir, x, weights, context, rows=chosen)
    out, lse = reference_attention(ir, q, k, v, sink, inputs=inputs, rows=chosen, lengths=lengths)
    joined = out.reshape(*out.shape[:2], ir.heads * ir.value_dim)
    return _project(joined, weights.o, weights.o_bias), lse


def project_heads(
    ir: AttentionIR,
    x: Array,
    weights: LayerWeights,
    context: Array | None = None,
    *,
    rows: Rows | None = None,
) -> tuple[Float64, Float64, Float64]:
    """q, k and v of a layer as its core takes them; queries that are not in `rows` stay zero.

    Args:
        ir: a layer.
        x: (batch, q_len, d_model).
        weights: matrices and biases.
        context: (batch, kv_len, d_model) that keys and values come from; `x` if None.
        rows: indices of the query rows to project; all of them if None.
    """
    source = x if context is None else context
    chosen = chosen_rows(x.shape[1], rows)
    q = np.zeros((*x.shape[:2], ir.query_heads, ir.head_dim))
    q[:, chosen] = _heads(_project(x[:, chosen], weights.q, weights.q_bias), ir.query_heads)
    k = _heads(_project(source, weights.k, weights.k_bias), ir.key_heads)
    v = _heads(_project(source, weights.v, weights.v_bias), ir.kv_heads)
    return q, k, v


def _project(x: Array, weight: Array, bias: Array | None) -> Float64:
    if x.shape[-1] != weight.shape[0]:
        raise CallValueError(f"a weight of shape {weight.shape} does not fit {x.shape}")
    with np.errstate(all="ignore"):
        product: Float64 = float64(x) @ float64(weight)
        return product if bias is None else product + float64(bias)


def _heads(x: Float64, heads: int) -> Float64:
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
