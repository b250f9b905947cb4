"""A spec as a callable that nothing is compiled for: the float64 reference, for looking inside.

Input: a spec and the arrays of a call. Output: float64 arrays, as many as the spec's `outputs` or
the call ask for; the logits and probabilities of every pair among them, which fused kernels never
hold. Calls are checked like those of compiled attentions. Scores take memory of q_len · kv_len for
each head, and time to match: this is for debugging and for small models of large ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen import call_checks, call_extras, dense_mask
from attngen.call_checks import Array
from attngen.errors import CallTypeError
from attngen.ir.attention import AttentionIR
from attngen.ir.bounds import Lengths, shape_of
from attngen.layer_reference import LayerWeights, project_heads, reference_layer
from attngen.reference import reference_attention, reference_scores
from attngen.spec.model import Spec
from attngen.weights import Weights

Float64: TypeAlias = npt.NDArray[np.float64]
Result: TypeAlias = Float64 | tuple[Float64, ...]


class Interpreter(ABC):
    """What ``attngen.interpret(spec)`` hands out: :class:`CoreInterpreter` or a layer's."""

    def __init__(self, spec: Spec, ir: AttentionIR) -> None:
        self._spec = spec
        self._ir = ir

    @property
    def spec(self) -> Spec:
        """What was asked for, checked."""
        return self._spec

    @abstractmethod
    def __call__(self, *arrays: Any, **keywords: Any) -> Result:
        """Attend; what the arrays are depends on the scope of the spec."""

    def __repr__(self) -> str:
        return f"<attngen reference of {self._ir.scope} {self._ir.name!r}>"

    def _wanted(self, return_lse: object) -> tuple[str, ...]:
        """The names of what a call returns, in order."""
        outputs: tuple[str, ...] = self._ir.outputs
        if return_lse is None:
            return outputs
        with_lse = call_extras.check_return_lse(self._ir, return_lse)
        rest = tuple(name for name in outputs if name not in ("out", "lse"))
        return ("out", "lse", *rest) if with_lse else ("out", *rest)

    def _with_inputs(
        self, sizes: call_extras.Sizes, mask: Array | None, inputs: Mapping[str, object]
    ) -> tuple[AttentionIR, dict[str, Array]]:
        """The IR for this call, and the arrays that its expressions index."""
        ir, given = self._ir, dict(inputs)
        names = call_extras.input_names(ir)
        if unknown := [name for name in inputs if name not in names]:
            known = ("sink", "mask", "lengths", "return_lse", *names)
            call_checks.unknown_keywords(unknown, known)
        if mask is not None:
            ir = dense_mask.with_dense_mask(ir, call_extras.mask_kind(mask, ir.dtype.accumulator))
            given[dense_mask.NAME] = mask
        arrays = call_extras.check_inputs(ir, given, sizes)
        lengths = Lengths(sizes.batch, sizes.q_len, sizes.kv_len)
        shapes = {side.name: shape_of(ir, side, lengths) for side in ir.inputs}
        spread = {name: np.broadcast_to(a, shapes[name]) for name, a in arrays.items()}
        return ir, spread


class CoreInterpreter(Interpreter):
    """``attention(q, k, v)`` by the reference."""

    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        sink: Array | None = None,
        mask: Array | None = None,
        lengths: Array | None = None,
        return_lse: bool | None = None,
        **inputs: object,
    ) -> Result:
        """Attend.

        The arguments are those of a compiled core, but for `out` and `cu_seqlens`.

        Returns:
            What the spec's `outputs` list, float64: out (q_len, heads, value_dim), lse
            (heads, q_len), logits and probabilities (heads, q_len, kv_len) of the heads of q, with
            the batch in front if q has one; a tuple where they are several.

        Raises:
            CallTypeError, CallValueError: naming the argument, what was expected and what came.
        """
        q, k, v = call_checks.check_core(self._ir, q, k, v)
        wanted = self._wanted(return_lse)
        single = q.ndim == 3
        q4, k4, v4 = (q[None], k[None], v[None]) if single else (q, k, v)
        sizes = call_extras.Sizes(q4.shape[0], q4.shape[1], k4.shape[1])
        ir, arrays = self._with_inputs(sizes, mask, inputs)
        valid = _valid(lengths, sizes, single=single)
        logit = call_extras.check_sink(ir, sink)
        found: dict[str, Float64] = {}
        found["out"], found["lse"] = reference_attention(
            ir, q4, k4, v4, logit, inputs=arrays, lengths=valid
        )
        if {"logits", "probabilities"} & set(wanted):
            found["logits"], found["probabilities"] = reference_scores(
                ir, q4, k4, v4, logit, inputs=arrays, lengths=valid
            )
        return _in_order(found, wanted, single=single)


class LayerInterpreter(Interpreter):
    """``attention(x, weights)`` by the reference."""

    def __call__(
        self,
        x: Array,
        weights: LayerWeights,
        *,
        context: Array | None = None,
        sink: Array | None = None,
        mask: Array | None = None,
        lengths: Array | None = None,
        return_lse: bool | None = None,
        **inputs: object,
    ) -> Result:
        """Attend.

        The arguments are those of a compiled layer, but for `out` and `cu_seqlens`.

        Returns:
            What the spec's `outputs` list, float64: out of x's shape, lse (heads, q_len), logits
            and probabilities (heads, q_len, kv_len), with the batch in front if x has one; a tuple
            where they are several.

        Raises:
            CallTypeError, CallValueError: naming the argument, what was expected and what came.
        """
        x = call_checks.check_sequence("x", x, self._ir)
        if not isinstance(weights, Weights):
            kind = type(weights).__name__
            raise CallTypeError(f"weights: expected attngen.Weights, got {kind}")
        weights.check(self._ir)
        if context is not None:
            context = call_checks.check_context(context, x, self._ir)
        wanted = self._wanted(return_lse)
        single = x.ndim == 2
        x3 = x[None] if single else x
        source = x3 if context is None else context[None] if single else context
        sizes = call_extras.Sizes(x3.shape[0], x3.shape[1], source.shape[1])
        ir, arrays = self._with_inputs(sizes, mask, inputs)
        valid = _valid(lengths, sizes, single=single)
        logit = call_extras.check_sink(ir, sink)
        found: dict[str, Float64] = {}
        found["out"], found["lse"] = reference_layer(
            ir, x3, weights, source, logit, inputs=arrays, lengths=valid
        )
        if {"logits", "probabilities"} & set(wanted):
            heads = project_heads(ir, x3, weights, source)
            found["logits"], found["probabilities"] = reference_scores(
                ir, *heads, logit, inputs=arrays, lengths=valid
            )
        return _in_order(found, wanted, single=single)


def _valid(lengths: object, sizes: call_extras.Sizes, *, single: bool) -> Array | None:
    if lengths is None:
        return None
    return call_extras.check_lengths(lengths, sizes.batch, sizes.kv_len, batched=not single)


def _in_order(found: Mapping[str, Float64], wanted: tuple[str, ...], *, single: bool) -> Result:
    results = tuple(found[name][0] if single else found[name] for name in wanted)
    return results[0] if len(results) == 1 else results
