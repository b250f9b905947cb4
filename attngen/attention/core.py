"""``attention(q, k, v)``: the callable of a core.

Input: q, k and v as they lie in memory. Output: the attention, and the rows' log-sum-exp on
request. Invariant: a good call costs a few microseconds here, as decoding makes many of them.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from attngen import call_checks, dense_mask
from attngen.attention.base import Attention, Compiled, Result, fill_empty
from attngen.call_checks import Array
from attngen.errors import CallTypeError
from attngen.weights import Weights


class CoreAttention(Attention):
    """``attention(q, k, v)``: attention over heads that are there already."""

    def __init__(self, compiled: Compiled) -> None:
        super().__init__(compiled)
        ir = compiled.ir
        self._q_tail = (ir.query_heads, ir.head_dim)
        self._k_tail = (ir.key_heads, ir.head_dim)
        self._v_tail = (ir.kv_heads, ir.value_dim)

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
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
            q: (q_len, heads, head_dim) or (batch, q_len, heads, head_dim), of the spec's dtype;
                of 2 · heads heads where the spec is differential.
            k: (kv_len, kv_heads, head_dim), with the batch if q has one; with 2 · kv_heads heads
                where the spec is differential.
            v: (kv_len, kv_heads, value_dim), with the batch if q has one.
            sink: (heads,), natural-log units, in the accumulator dtype; where the spec has a sink.
            mask: broadcastable to (batch, heads, q_len, kv_len): where a boolean array is True a
                query attends, and a float array (accumulator dtype) is added to the scores, where
                -inf hides the key. Each of the two kinds is compiled when it first comes.
            lengths: (batch,) integers: only so many keys of each batch index are valid. What lies
                behind them is never read, and positions count from the last valid key.
            cu_seqlens: (sequences + 1,) cumulative lengths, or a pair for queries and keys: the
                arrays hold sequences one after the other and have no batch axis.
            out: written to if given: (q_len, heads, value_dim), with the batch if q has one.
            return_lse: also return the rows' log-sum-exp; by default as the spec's `outputs` say.
            inputs: the spec's side inputs by name; any other keyword is refused.

        Returns:
            The output, or (output, lse) with lse (heads, q_len) or (batch, heads, q_len); the heads
            of an lse are those of q.

        Raises:
            CallTypeError, CallValueError: naming the argument, what was expected and what came.
        """
        if mask is not None:
            more = {"sink": sink, "lengths": lengths, "out": out, "return_lse": return_lse}
            if cu_seqlens is not None:
                raise CallTypeError("mask: expected none beside 'cu_seqlens'")
            masked: Any = self._for_mask(mask)
            result: Result = masked(q, k, v, **more, **inputs, **{dense_mask.NAME: mask})
            return result
        if inputs:
            self._known_keywords(inputs)
        if not self._fits(q, k, v):
            q, k, v = call_checks.check_core(self._compiled.ir, q, k, v)
        with_lse = self._wants_lse(return_lse)
        sink = self._checked_sink(sink)
        q_shape = q.shape
        out_shape = (*q_shape[:-2], self._heads, self._v_tail[1])
        if out is None:
            out = target = np.empty(out_shape, self._dtype)
        else:
            read = {"q": q, "k": k, "v": v}
            target = call_checks.check_out(out, self._dtype.name, out_shape, read)
        single = len(q_shape) == 3
        batch, q_len = (1, q_shape[0]) if single else q_shape[:2]
        lse = np.empty((batch, self._q_tail[0], q_len), self._lse_dtype) if with_lse else None
        more = {}
        if self._inputs or lengths is not None or cu_seqlens is not None:
            more = self._extras(q_len, k.shape[-3], batch, single, lengths, cu_seqlens, inputs)
        if target.size and k.shape[-3]:
            arrays = (q, k, v, target)
            if single:
                arrays = (q[None], k[None], v[None], target[None])
            self._run("attend", *arrays, lse, sink, **more)
        else:
            fill_empty(target, lse)
        if lse is None:
            return out
        return out, lse[0] if single else lse

    def _fits(self, q: Array, k: Array, v: Array) -> bool:
        """Whether all is well: the short way through every good call."""
        if not (type(q) is type(k) is type(v) is np.ndarray):
            return False
        q_shape, k_shape, v_shape = q.shape, k.shape, v.shape
        rank, dtype = len(q_shape), self._dtype
        return (
            (rank == 4 or rank == 3)
            and q_shape[-2:] == self._q_tail
            and k_shape[-2:] == self._k_tail
            and v_shape[-2:] == self._v_tail
            and len(k_shape) == rank
            and k_shape[:-2] == v_shape[:-2]
            and q_shape[:-3] == k_shape[:-3]
            and q.dtype == dtype
            and k.dtype == dtype
            and v.dtype == dtype
            and q.flags.aligned
            and k.flags.aligned
            and v.flags.aligned
        )

    def bind(self, weights: Weights) -> NoReturn:
        """A core has no weights: always an error."""
        del weights
        raise CallTypeError(
            f"{self.spec.name} is a core, which has no weights; say 'd_model' in the spec for a "
            "layer with projections"
        )
