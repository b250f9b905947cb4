"""Random input for an attention, as ``run`` and ``bench`` give it.

Input: an AttentionIR, lengths and a seed. Output: arrays of standard normal numbers, the same for
the same seed; weights are scaled so that a layer keeps the magnitude of what it is given, and side
inputs hold examples of what the spec reads in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.costs import Lengths
from attngen.example_inputs import example_inputs
from attngen.ir import bounds
from attngen.ir.attention import AttentionIR
from attngen.weights import Weights

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class CoreInputs:
    """q (B, q_len, heads, head_dim), k and v (B, kv_len, kv_heads, ·), sink (heads,) or None, and
    the spec's own arrays by name.
    """

    q: Array
    k: Array
    v: Array
    sink: Array | None = None
    side: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class LayerInputs:
    """x (B, q_len, d_model), weights, context (B, kv_len, d_model) if it is not x, and the rest as
    for a core.
    """

    x: Array
    weights: Weights
    context: Array | None = None
    sink: Array | None = None
    side: Mapping[str, Array] = field(default_factory=dict)


Inputs: TypeAlias = CoreInputs | LayerInputs


def random_inputs(ir: AttentionIR, lengths: Lengths, seed: int = 0) -> Inputs:
    """Inputs for a call of `ir` at `lengths`; no context where queries and keys are as many.

    Raises:
        CallTypeError: nobody but its author knows what a side input of `ir` may hold.
    """
    rng = np.random.default_rng(seed)
    sizes = bounds.Lengths(lengths.batch, lengths.q_len, lengths.kv_len)

    def normal(*shape: int, dtype: npt.DTypeLike = ir.dtype.numpy) -> Array:
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype, copy=False)

    sink = normal(ir.heads, dtype=ir.dtype.accumulator) if ir.sink else None
    if ir.d_model is None:
        return CoreInputs(
            normal(lengths.batch, lengths.q_len, ir.query_heads, ir.head_dim),
            normal(lengths.batch, lengths.kv_len, ir.key_heads, ir.head_dim),
            normal(lengths.batch, lengths.kv_len, ir.kv_heads, ir.value_dim),
            sink,
            example_inputs(ir, sizes, rng),
        )
    x = normal(lengths.batch, lengths.q_len, ir.d_model)
    context = None
    if lengths.q_len != lengths.kv_len:
        context = normal(lengths.batch, lengths.kv_len, ir.d_model)
    weights = Weights.random(ir, rng)
    return LayerInputs(x, weights, context, sink, example_inputs(ir, sizes, rng))
