"""Hold a result against the float64 reference, on enough rows to catch any mistake of a kernel.

Input: an AttentionIR, its inputs and a result. Output: a :class:`Verdict`: the largest error, and
the bound it has to keep (:mod:`attngen.accuracy`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attngen.accuracy import core_bound, element_bounds, layer_bound
from attngen.inputs import Array, CoreInputs, Inputs, LayerInputs
from attngen.ir.attention import AttentionIR
from attngen.layer_reference import reference_layer
from attngen.reference import reference_attention

ROWS = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """How right a result is.

    Attributes:
        error: absolute error of the element that takes the largest share of its bound: the
            largest, where all have one bound; infinity where a NaN came that should not.
        bound: what it must not be above.
        rows: query rows that were checked, in every head and batch element.
    """

    error: float
    bound: float
    rows: int

    @property
    def good(self) -> bool:
        """Whether the error keeps its bound."""
        return self.error <= self.bound


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What a result has to be at the chosen query `rows`: `values`, each within its `bounds`."""

    rows: npt.NDArray[np.intp]
    values: Array
    bounds: Array

    @property
    def bound(self) -> float:
        """The largest of the bounds."""
        return float(self.bounds.max(initial=0.0))

    def judge(self, result: Array) -> Verdict:
        """Check `result`, (B, q_len, …)."""
        errors = np.abs(result[:, self.rows].astype(np.float64) - self.values)
        if not errors.size:
            return Verdict(0.0, 0.0, self.rows.size)
        errors[~np.isfinite(errors)] = np.inf
        shares = errors / np.maximum(self.bounds, np.finfo(np.float64).tiny)
        worst = np.unravel_index(np.argmax(shares), errors.shape)
        return Verdict(float(errors[worst]), float(self.bounds[worst]), self.rows.size)


def expect(ir: AttentionIR, inputs: Inputs, *, rows: int = ROWS) -> Expected:
    """The reference's result at up to `rows` query rows."""
    match inputs:
        case CoreInputs(q=q, k=k, v=v, sink=sink, side=side):
            chosen = pick_rows(q.shape[1], rows)
            values, _ = reference_attention(ir, q, k, v, sink, inputs=side, rows=chosen)
            bound = core_bound(ir, q, k, v, side)
        case LayerInputs(x=x, weights=weights, context=context, sink=sink, side=side):
            chosen = pick_rows(x.shape[1], rows)
            values, _ = reference_layer(ir, x, weights, context, sink, inputs=side, rows=chosen)
            bound = _layer_bound(ir, inputs, values)
    return Expected(chosen, values, element_bounds(ir, bound, values))


def pick_rows(q_len: int, count: int) -> npt.NDArray[np.intp]:
    """At most `count` rows: the first and last, where masks begin and end, and some between."""
    if q_len <= count:
        return np.arange(q_len)
    ends = count // 4
    rng = np.random.default_rng(q_len)
    middle = rng.choice(np.arange(ends, q_len - ends), count - 2 * ends, replace=False)
    return np.concatenate([np.arange(ends), np.sort(middle), np.arange(q_len - ends, q_len)])


def _layer_bound(ir: AttentionIR, inputs: LayerInputs, expected: Array) -> float:
    weights = inputs.weights
    source = inputs.x if inputs.context is None else inputs.context

    def heads(x: Array, matrix: Array, bias: Array | None, count: int) -> Array:
        x, matrix = (a.astype(ir.dtype.accumulator, copy=False) for a in (x, matrix))
        projected = x @ matrix if bias is None else x @ matrix + bias
        return projected.reshape(*x.shape[:2], count, matrix.shape[1] // count)

    return layer_bound(
        ir,
        heads(inputs.x, weights.q, weights.q_bias, ir.query_heads),
        heads(source, weights.k, weights.k_bias, ir.key_heads),
        heads(source, weights.v, weights.v_bias, ir.kv_heads),
        weights.o,
        expected,
        inputs.side,
    )
