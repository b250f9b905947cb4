"""``attention(x, weights)``: the callable of a layer.

Input: a sequence, a context to attend to, and weights. Output: the layer's result. Invariant: bound
weights are packed once and are never read from the caller's arrays again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attngen import call_checks, dense_mask, fingerprint
from attngen.attention.base import Attention, Compiled, Recipe, Result, fill_empty
from attngen.call_checks import Array
from attngen.errors import CallTypeError, CallValueError
from attngen.weights import PackedWeights, Weights, pack


class LayerAttention(Attention):
    """``attention(x, weights)``: projections, attention and output projection."""

    def __init__(self, compiled: Compiled, packed: PackedWeights | None = None) -> None:
        super().__init__(compiled)
        self._packed = packed

    def __call__(
        self,
        x: Array,
        weights: Weights | None = None,
        *,
        context: Array | None = None,
        sink: Array | None = None,
        mask: Array | None = None,
        lengths: Array | None = None,
        cu_seqlens: Array | tuple[Array, Array] | None = None,
        out: Array | None = None,
        return_lse: bool | None = None,
        **inputs: object,
    ) -> Result:
        """Attend.

        Args:
            x: (q_len, d_model) or (batch, q_len, d_model), of the spec's dtype.
            weights: the projections; none if they are bound. They are packed in each call:
                `bind` packs them once.
            context: what keys and values are made from, (kv_len, d_model), with the batch if x
                has one; x itself if None.
            sink: (heads,), natural-log units, in the accumulator dtype; where the spec has a sink.
            mask: broadcastable to (batch, heads, q_len, kv_len): where a boolean array is True a
                query attends, and a float array (accumulator dtype) is added to the scores, where
                -inf hides the key. Each of the two kinds is compiled when it first comes.
            lengths: (batch,) integers: only so many positions of each context (or x) are valid
                keys.
            cu_seqlens: (sequences + 1,) cumulative lengths, or a pair for x and context: they hold
                sequences one after the other and have no batch axis.
            out: written to if given; of x's shape.
            return_lse: also return the rows' log-sum-exp; by default as the spec's `outputs` say.
            inputs: the spec's side inputs by name; any other keyword is refused.

        Returns:
            The output, or (output, lse) with lse (heads, q_len) or (batch, heads, q_len).

        Raises:
            CallTypeError, CallValueError: naming the argument, what was expected and what came.
        """
        if mask is not None:
            more = {"sink": sink, "lengths": lengths, "out": out, "return_lse": return_lse}
            if cu_seqlens is not None:
                raise CallTypeError("mask: expected none beside 'cu_seqlens'")
            masked: Any = LayerAttention(self._for_mask(mask)._compiled, self._packed)
            result: Result = masked(
                x, weights, context=context, **more, **inputs, **{dense_mask.NAME: mask}
            )
            return result
        if inputs:
            self._known_keywords(inputs, "context")
        ir = self._compiled.ir
        x = call_checks.check_sequence("x", x, ir)
        if context is not None:
            context = call_checks.check_context(context, x, ir)
        packed = self._weights_to_use(weights)
        with_lse = self._wants_lse(return_lse)
        sink = self._checked_sink(sink)
        if out is None:
            out = target = np.empty(x.shape, self._dtype)
        else:
            read = {"x": x} if context is None else {"x": x, "context": context}
            target = call_checks.check_out(out, self._dtype.name, x.shape, read)
        single = x.ndim == 2
        x3, out3 = (x[None], target[None]) if single else (x, target)
        context3 = x3 if context is None else context[None] if single else context
        batch, q_len = x3.shape[:2]
        lse = np.empty((batch, ir.query_heads, q_len), self._lse_dtype) if with_lse else None
        more = {}
        if self._inputs or lengths is not None or cu_seqlens is not None:
            kv_len = context3.shape[1]
            more = self._extras(q_len, kv_len, batch, single, lengths, cu_seqlens, inputs)
        if target.size and context3.shape[1]:
            self._run("layer", x3, context3, packed, out3, lse, sink, **more)
        else:
            # No key: heads are zero, and the output projection adds its bias to them.
            fill_empty(target, lse)
            if packed.o_bias is not None:
                target += packed.o_bias
        if lse is None:
            return out
        return out, lse[0] if single else lse

    def bind(self, weights: Weights) -> LayerAttention:
        """A callable with `weights` packed once, to be called as ``attention(x)``.

        It keeps packed copies: later changes to the arrays in `weights` have no effect on it.
        """
        return LayerAttention(self._compiled, self._pack(weights))

    def __reduce__(self) -> tuple[Callable[..., Attention], tuple[object, ...]]:
        if self._packed is None:
            return super().__reduce__()
        return _restore_bound, (self._compiled.recipe, self._packed, self._layout)

    @property
    def _layout(self) -> str:
        return fingerprint.digest(self._compiled.schedule)

    def _weights_to_use(self, weights: Weights | None) -> PackedWeights:
        if self._packed is not None:
            if weights is not None:
                raise CallTypeError("weights: expected none, as weights are bound; got some")
            return self._packed
        if weights is None:
            raise CallTypeError(
                "missing argument 'weights': pass attngen.Weights(q=..., k=..., v=..., o=...), "
                "or bind them once: attention = attention.bind(weights)"
            )
        return self._pack(weights)

    def _pack(self, weights: object) -> PackedWeights:
        if not isinstance(weights, Weights):
            raise CallTypeError(
                f"weights: expected attngen.Weights, got {type(weights).__name__}; "
                "make them with attngen.Weights(q=..., k=..., v=..., o=...)"
            )
        weights.check(self._compiled.ir)
        return pack(weights, self._package.pack_weight)


def _restore_bound(recipe: Recipe, packed: PackedWeights, layout: str) -> LayerAttention:
    function, arguments = recipe
    attention = function(*arguments)
    if not isinstance(attention, LayerAttention) or attention._layout != layout:
        raise CallValueError(
            "these bound weights were packed for another machine's schedule; "
            "send the unbound callable and the weights, and bind them there"
        )
    return LayerAttention(attention._compiled, packed)
