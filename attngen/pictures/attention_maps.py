"""What each head attends to: its probabilities on given input, small enough to be drawn.

Input: an AttentionIR and arrays by name. Output: :class:`AttentionMaps`, computed in float64 by the
reference. Attention to values that say where their key stands is a picture of the attention: a
value is the group of keys that its key belongs to, so that a long sequence costs no more than a
wide head. Of many queries some are taken, evenly spaced; of many keys neighbours are added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.errors import CallTypeError, CallValueError
from attngen.ir.attention import AttentionIR
from attngen.layer_reference import project_heads
from attngen.pictures.limits import require_one_map
from attngen.reference import reference_attention

Array: TypeAlias = npt.NDArray[Any]
Float64: TypeAlias = npt.NDArray[np.float64]

MOST = 192
"""Queries, and groups of keys, that a map shows at most."""
_WEIGHTS = ("w_q", "w_k")
_BIASES = ("q_bias", "k_bias")


@dataclass(frozen=True, slots=True, eq=False)
class AttentionMaps:
    """The maps of all heads.

    Attributes:
        probabilities: (heads, rows, columns); a row adds up to 1, or to less with a sink, or to 0
            where it may attend to nothing. Without a softmax they are weights of any sum.
        queries: (rows,) indices of the queries shown.
        edges: (columns + 1,) where the groups of keys begin and the last ends.
        distance: (heads,) how far before its query a key is, on average by probability.
        sink_share: (heads,) probability that a sink takes, learned or of logit 0, on average.
        kv_heads: (heads,) the key and value head of each.
    """

    name: str
    q_len: int
    kv_len: int
    probabilities: Float64
    queries: npt.NDArray[np.intp]
    edges: npt.NDArray[np.intp]
    distance: Float64
    sink_share: Float64
    kv_heads: tuple[int, ...]


def attention_maps(ir: AttentionIR, arrays: Mapping[str, Array]) -> AttentionMaps:
    """The maps of `ir` for `arrays`.

    Args:
        ir: the attention.
        arrays: ``q`` and ``k``, or for a layer ``x``, ``w_q`` and ``w_k`` (with ``context``,
            ``q_bias`` and ``k_bias`` where there are any), all as a call takes them; ``sink`` and
            the side inputs by name. Of a batch the first element is drawn; ``v`` and the weights
            of values and output change nothing and may stay.

    Raises:
        CallTypeError: an array is missing, or not one of these.
        CallValueError: a shape does not fit.
        SpecError: a head of `ir` has more than one map.
    """
    require_one_map(ir)
    given = {name: np.asarray(array) for name, array in arrays.items()}
    layer = "x" in given
    main = given.get("x" if layer else "q")
    if main is None or (layer and ir.d_model is None):
        wanted = "'q' and 'k'" + (" or 'x', 'w_q' and 'w_k'" if ir.d_model else "")
        raise CallTypeError(f"there must be {wanted} among the arrays, which are {_names(given)}")
    axes = (2, 3) if layer else (3, 4)
    if main.ndim not in axes:
        name = "x" if layer else "q"
        raise CallValueError(f"{name!r} must have {axes[0]} or {axes[1]} axes, not {main.ndim}")
    batched = main.ndim == axes[1]
    q_len = main.shape[1] if batched else main.shape[0]
    rows = np.unique(np.linspace(0, max(0, q_len - 1), min(q_len, MOST)).astype(np.intp))
    q, k = _projected(ir, given, batched, rows) if layer else _given(ir, given, batched)
    kv_len = k.shape[1]
    edges = np.linspace(0, kv_len, min(kv_len, MOST) + 1).astype(np.intp)
    groups = edges.size - 1
    values = np.zeros((1, kv_len, ir.kv_heads, groups + 1))
    keys = np.arange(kv_len)
    values[0, keys, :, np.searchsorted(edges, keys, side="right") - 1] = 1
    values[0, :, :, groups] = keys[:, None]
    inputs = {
        side.name: _first(given[side.name], side.shape, batched)
        for side in ir.inputs
        if side.values is None and side.name in given
    }
    drawn = replace(ir, value_dim=groups + 1)
    out, _ = reference_attention(drawn, q, k, values, given.get("sink"), inputs=inputs, rows=rows)
    probabilities = out[0, :, :, :groups].transpose(1, 0, 2)
    mass = probabilities.sum(axis=2)
    first = kv_len - q_len if ir.alignment == "bottom_right" else 0
    before = (first + rows) * mass - out[0, :, :, groups].T
    total = mass.sum(axis=1)
    some = np.maximum(1, (mass > 0).sum(axis=1))
    return AttentionMaps(
        name=ir.name,
        q_len=q_len,
        kv_len=kv_len,
        probabilities=probabilities,
        queries=rows,
        edges=edges,
        distance=np.divide(before.sum(axis=1), total, out=np.zeros(ir.heads), where=total > 0),
        sink_share=np.where(ir.sink or ir.off_by_one, 1 - total / some, 0.0),
        kv_heads=tuple(head // ir.group for head in range(ir.heads)),
    )


def _given(ir: AttentionIR, given: Mapping[str, Array], batched: bool) -> tuple[Array, Array]:
    """Q and k of the first batch element."""
    _only(ir, given, ("q", "k", "v"))
    if "k" not in given:
        raise CallTypeError(f"'k' must be among the arrays, which are {_names(given)}")
    q, k = given["q"], given["k"]
    if q.ndim != k.ndim:
        raise CallValueError(f"'q' has {q.ndim} axes and 'k' {k.ndim}")
    return (q[:1], k[:1]) if batched else (q[None], k[None])


def _projected(
    ir: AttentionIR, given: Mapping[str, Array], batched: bool, rows: npt.NDArray[np.intp]
) -> tuple[Array, Array]:
    """Q and k that the layer makes of the first batch element of x and context."""
    _only(ir, given, ("x", "context", *_WEIGHTS, *_BIASES, "w_v", "w_o", "v_bias", "o_bias"))
    for name in _WEIGHTS:
        if name not in given:
            raise CallTypeError(f"{name!r} must be among the arrays, which are {_names(given)}")
    x, context = given["x"], given.get("context")
    no_values = {"v": np.zeros((x.shape[-1], ir.kv_heads)), "v_bias": None}
    biases = {name: given.get(name) for name in _BIASES}
    weights: Any = SimpleNamespace(q=given["w_q"], k=given["w_k"], **biases, **no_values)
    x = x[:1] if batched else x[None]
    if context is not None:
        context = context[:1] if batched else context[None]
    q, k, _ = project_heads(ir, x, weights, context, rows=rows)
    return q, k


def _first(array: Array, shape: tuple[str | int, ...], batched: bool) -> Array:
    """`array` for one sequence, with the axis of the batch that its declared `shape` has."""
    axes = tuple(axis for axis, size in enumerate(shape) if size == "batch")
    if not batched and array.ndim == len(shape) - len(axes):
        return np.expand_dims(array, axes)
    for axis in axes:
        array = array.take([0], axis=axis)
    return array


def _only(ir: AttentionIR, given: Mapping[str, Array], names: tuple[str, ...]) -> None:
    known = {*names, "sink", *(side.name for side in ir.inputs if side.values is None)}
    for name in given:
        if name not in known:
            raise CallTypeError(f"{name!r} is not part of this spec, which has {_names(known)}")


def _names(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"
