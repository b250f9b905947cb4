"""ONNX's Attention (opset 23 to 25): its attributes and inputs as a spec and a call.

Input: attributes, and NumPy arrays in ONNX's layouts: (batch, heads, length, head_size), or
(batch, length, heads · head_size). Output: the operator's outputs, in the layout of its inputs.
Invariant: q, k and v are read where they lie; only a past is concatenated, as the operator says.

Query i stands at ``offset + i``, where offset counts the keys before this block of queries: the
length of the past, or ``nonpad_kv_seqlen - q_len`` for each batch index, or 0. A mask shorter than
the keys ends with keys that nobody attends to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from attngen.attention import CoreAttention
from attngen.errors import CallTypeError, CallValueError
from attngen.interop.onnx import qk_output
from attngen.interop.onnx.attributes import AttentionAttributes, TensorType
from attngen.interop.onnx.operands import Operands, operands_of, sizes_of
from attngen.interop.onnx.translation import (
    Array,
    AttentionOutputs,
    Compiler,
    Kernels,
    Spec,
    computed_dtype,
    unmapped,
)

NAME = "onnx_attention"
_OUTPUTS = frozenset(AttentionOutputs._fields)


def attention_spec(
    attributes: AttentionAttributes | Mapping[str, Any],
    q: TensorType,
    k: TensorType,
    v: TensorType,
    past_key: TensorType | None = None,
    *,
    nonpad_kv_seqlen: bool = False,
) -> Spec:
    """The spec of an Attention node, as ``attngen.compile`` takes it.

    A mask is no part of it: it is an argument of the call. Neither are lengths, but where a past
    comes with as many new keys as there are queries, or not.

    Args:
        attributes: of the node.
        q: type of the input with this name.
        k: likewise.
        v: likewise.
        past_key: its type, if the node has it.
        nonpad_kv_seqlen: whether the node has this input, so that positions count from its end.

    Raises:
        SpecError: an attribute has no meaning, or a size that the spec needs is not known.
    """
    if not isinstance(attributes, AttentionAttributes):
        attributes = AttentionAttributes.of(attributes)
    sizes = sizes_of(attributes, q, k, v)
    spec: Spec = {"name": NAME, "heads": sizes.heads, "head_dim": sizes.head_dim}
    if sizes.kv_heads != sizes.heads:
        spec["kv_heads"] = sizes.kv_heads
    if sizes.value_dim != sizes.head_dim:
        spec["value_dim"] = sizes.value_dim
    if attributes.scale is not None:
        spec["scale"] = attributes.scale
    if attributes.softcap is not None:
        spec["softcap"] = attributes.softcap
    dtype = computed_dtype(q.dtype, attributes.softmax_precision)
    if dtype != "float32":
        spec["dtype"] = dtype
    if attributes.looks_around:
        position = "first"
        if past_key is not None:
            position = _behind_a_past(sizes.q_len, sizes.kv_len)
        elif nonpad_kv_seqlen:
            position = "q"
        spec |= _surroundings(attributes, position)
    return spec


def _behind_a_past(q_len: int | str | None, new_keys: int | str | None) -> str:
    """The position of a query behind a past, by that of a spec's query, at the end of all keys."""
    if q_len == new_keys is not None:
        return "q"
    if not isinstance(q_len, int) or not isinstance(new_keys, int):
        raise unmapped(
            "past_key",
            f"the lengths of Q ({q_len}) and K ({new_keys}) must be known behind a past, or have "
            "one name",
            "positions count from the end of the past, and a spec's from the end of the keys",
        )
    return f"(q {'+' if q_len > new_keys else '-'} {abs(q_len - new_keys)})"


def _surroundings(attributes: AttentionAttributes, position: str) -> Spec:
    """What `is_causal` and the windows are in a spec.

    Args:
        attributes: at least one of them is given.
        position: of a query: ``q``, an expression over it, or ``first`` for its index.
    """
    left, right = attributes.left_window_size, attributes.right_window_size
    window = {side: n for side, n in (("left", left), ("right", right)) if n >= 0}
    if position == "q" or (position == "first" and attributes.is_causal):
        spec: Spec = {"window": window} if window else {}
        if attributes.is_causal:
            spec["causal"] = "bottom_right" if position == "q" else "top_left"
        return spec
    at = "(q - kv_len + q_len)" if position == "first" else position
    clauses = [f"k <= {at}"] if attributes.is_causal else []
    clauses += [f"{at} - k <= {left}"] if left >= 0 else []
    clauses += [f"k - {at} <= {right}"] if right >= 0 else []
    return {"mask": " and ".join(clauses)}


class AttentionOperator:
    """An Attention node as a callable. Kernels are compiled at the first call that needs them."""

    def __init__(
        self,
        attributes: AttentionAttributes | Mapping[str, Any],
        *,
        compiler: Compiler | None = None,
    ) -> None:
        """An operator with these attributes.

        Args:
            attributes: of the node.
            compiler: from a spec to its callable; ``attngen.compile`` if None.

        Raises:
            SpecError: an attribute has no meaning.
        """
        if not isinstance(attributes, AttentionAttributes):
            attributes = AttentionAttributes.of(attributes)
        self.attributes = attributes
        self._kernels = Kernels(compiler)

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        attn_mask: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        nonpad_kv_seqlen: Array | None = None,
        *,
        outputs: Collection[str] = ("Y",),
    ) -> AttentionOutputs:
        """Attend.

        Args:
            q: floats, of three or four axes.
            k: of q's type and axes.
            v: likewise.
            attn_mask: broadcastable to (batch, heads, q_len, keys): True attends, or floats of q's
                type that are added to the scores. Its last axis may be shorter than the keys.
            past_key: (batch, kv_heads, past, head_size), before the keys of `k`.
            past_value: (batch, kv_heads, past, v_head_size), before the values of `v`.
            nonpad_kv_seqlen: (batch,) int64: how many keys of each batch index are valid.
            outputs: the names of the outputs to make. ``qk_matmul_output`` takes the float64
                reference, and memory for all pairs.

        Raises:
            CallTypeError, CallValueError: naming the input, what was expected and what came.
            SpecError: the spec cannot be compiled.
        """
        if unknown := set(outputs) - _OUTPUTS:
            names = ", ".join(AttentionOutputs._fields)
            raise CallTypeError(f"outputs: expected names of {names}, got {sorted(unknown)}")
        operands = operands_of(self.attributes, q, k, v, past_key, past_value)
        types = [TensorType(a.dtype.name, a.shape) for a in (q, k, v)]
        past = None if past_key is None else TensorType(past_key.dtype.name, past_key.shape)
        nonpad = nonpad_kv_seqlen is not None
        spec = attention_spec(
            self.attributes, types[0], types[1], types[2], past, nonpad_kv_seqlen=nonpad
        )
        mask = _whole_mask(attn_mask, operands)
        lengths = _lengths(nonpad_kv_seqlen, operands, has_past=past is not None)
        qk = None
        if "qk_matmul_output" in outputs:
            mode = self.attributes.qk_matmul_output_mode
            qk = qk_output.qk_matmul_output(spec, mode, operands, mask, lengths)
        with_present = {"present_key", "present_value"} & set(outputs)
        return AttentionOutputs(
            self._attend(spec, operands, mask, lengths),
            operands.present_key(past_key) if with_present else None,
            operands.present_value(past_value) if with_present else None,
            qk,
        )

    def _attend(
        self, spec: Spec, operands: Operands, mask: Array | None, lengths: Array | None
    ) -> Array:
        attention = self._kernels.for_spec(spec)
        if not isinstance(attention, CoreAttention):
            raise CallTypeError("compiler: expected the callable of a core")
        dtype = attention.spec.dtype
        if mask is not None and mask.dtype != np.bool_:
            mask = mask.astype(dtype.accumulator, copy=False)
        q, k, v = operands.converted(dtype.numpy)
        result, out = operands.new_output(dtype.numpy)
        attention(q, k, v, mask=mask, lengths=lengths, out=out, return_lse=False)
        return result.astype(operands.q.dtype, copy=False)


def _whole_mask(mask: Array | None, operands: Operands) -> Array | None:
    """The mask with a value for each key: where it ends, nobody attends any more."""
    if mask is None:
        return None
    if not isinstance(mask, np.ndarray):
        raise CallTypeError(f"attn_mask: expected a NumPy array, got {type(mask).__name__}")
    if mask.dtype not in (np.bool_, operands.q.dtype):
        hint = "; say which is meant: attn_mask.astype(bool)" if mask.dtype.kind in "iu" else ""
        raise CallTypeError(
            f"attn_mask: expected bool (True attends) or {operands.q.dtype.name} (added to the "
            f"scores), as Q has, got {mask.dtype.name}{hint}"
        )
    batch, q_len, heads = operands.q.shape[:3]
    full = (batch, heads, q_len, operands.k.shape[1])
    pairs = list(zip(mask.shape[::-1], full[::-1], strict=False))
    fits = 1 <= mask.ndim <= 4 and pairs[0][0] <= full[-1]
    if not fits or any(size not in (1, whole) for size, whole in pairs[1:]):
        raise CallValueError(
            "attn_mask: expected a shape that broadcasts to (batch, heads, q_len, keys) = "
            f"{full}, with as many keys or fewer, got {mask.shape}"
        )
    missing = full[-1] - mask.shape[-1]
    if not missing:
        return mask
    end = np.full((*mask.shape[:-1], missing), False if mask.dtype == np.bool_ else -np.inf)
    return np.concatenate((mask, end.astype(mask.dtype)), axis=-1)


def _lengths(lengths: Array | None, operands: Operands, *, has_past: bool) -> Array | None:
    if lengths is None:
        return None
    if has_past:
        raise CallTypeError("nonpad_kv_seqlen: expected none beside past_key and past_value")
    if not isinstance(lengths, np.ndarray) or lengths.dtype.kind not in "iu":
        raise CallTypeError("nonpad_kv_seqlen: expected an array of integers")
    batch, keys = operands.k.shape[:2]
    if lengths.shape != (batch,) or (
        lengths.size and not 0 <= lengths.min() <= lengths.max() <= keys
    ):
        raise CallValueError(
            f"nonpad_kv_seqlen: expected ({batch},) integers from 0 to {keys}, got {lengths}"
        )
    return lengths


def run_attention(
    attributes: AttentionAttributes | Mapping[str, Any],
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    outputs: Collection[str] = ("Y",),
    compiler: Compiler | None = None,
) -> AttentionOutputs:
    """One call of an Attention node; see :class:`AttentionOperator` for many.

    Args and errors are those of :class:`AttentionOperator` and its calls.
    """
    operator = AttentionOperator(attributes, compiler=compiler)
    return operator(q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen, outputs=outputs)
