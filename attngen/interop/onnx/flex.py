"""ONNX's FlexAttention (``ai.onnx.preview``): a spec with expressions, and a call.

Input: attributes with their subgraphs, and NumPy arrays of (batch, heads, length, head_size).
Output: the operator's output in the same layout. Invariant: a score_mod becomes the `score` and the
`mask` of a spec, which kernels compute without scores or masks in memory. A row that may attend to
nothing is 0, where the operator's formula has no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attngen.attention import CoreAttention
from attngen.errors import CallTypeError
from attngen.interop.onnx import subgraph
from attngen.interop.onnx.attributes import (
    AttentionAttributes,
    TensorType,
    precision_of,
    scale_of,
)
from attngen.interop.onnx.operands import operands_of, sizes_of
from attngen.interop.onnx.translation import (
    Array,
    Compiler,
    Kernels,
    Spec,
    Translation,
    computed_dtype,
    unmapped,
)

NAME = "onnx_attention"
_NAMES = ("scale", "softmax_precision", "score_mod", "prob_mod")
_NO_ATTRIBUTES = AttentionAttributes()


def flex_translation(
    attributes: Mapping[str, Any], q: TensorType, k: TensorType, v: TensorType
) -> Translation:
    """A FlexAttention node as a spec.

    Args:
        attributes: by name, subgraphs as GraphProtos.
        q: type of the input with this name.
        k: likewise.
        v: likewise.

    Raises:
        SpecError: a subgraph does what no expression says, or a size is not known.
    """
    for name in attributes:
        if name not in _NAMES:
            hint = f"the attributes are {', '.join(_NAMES)}"
            raise unmapped(name, f"FlexAttention has no attribute {name!r}", hint)
    if any(len(t.shape) != 4 for t in (q, k, v)):
        shapes = ", ".join(str(t.shape) for t in (q, k, v))
        raise unmapped("Q", f"Q, K and V must have four axes, not {shapes}")
    sizes = sizes_of(_NO_ATTRIBUTES, q, k, v)
    spec: Spec = {"name": NAME, "heads": sizes.heads, "head_dim": sizes.head_dim}
    if sizes.kv_heads != sizes.heads:
        spec["kv_heads"] = sizes.kv_heads
    if sizes.value_dim != sizes.head_dim:
        spec["value_dim"] = sizes.value_dim
    scale = scale_of(attributes, zero_is_default=False)
    if scale is not None:
        spec["scale"] = scale
    dtype = computed_dtype(q.dtype, precision_of(attributes))
    if dtype != "float32":
        spec["dtype"] = dtype
    inputs: dict[str, Array] = {}
    if (graph := attributes.get("score_mod")) is not None:
        modified = subgraph.score_mod(graph, sizes.heads)
        if modified.score is not None:
            spec["score"] = modified.score
        if modified.mask is not None:
            spec["mask"] = modified.mask
        if modified.constants.inputs:
            spec["inputs"] = dict(modified.constants.declared)
            inputs = modified.constants.inputs
    factor = 1.0
    if (graph := attributes.get("prob_mod")) is not None:
        factor = subgraph.prob_factor(graph, sizes.heads)
    return Translation(spec, inputs, factor)


class FlexOperator:
    """A FlexAttention node as a callable. Kernels are compiled at the first call."""

    def __init__(self, attributes: Mapping[str, Any], *, compiler: Compiler | None = None) -> None:
        """An operator with these attributes.

        Args:
            attributes: by name, subgraphs as GraphProtos.
            compiler: from a spec to its callable; ``attngen.compile`` if None.
        """
        self.attributes = dict(attributes)
        self._kernels = Kernels(compiler)
        self._nodes: dict[tuple[object, ...], Translation] = {}

    def __call__(self, q: Array, k: Array, v: Array) -> Array:
        """Attend.

        Args:
            q: floats, of four axes.
            k: of q's type and axes.
            v: likewise.

        Raises:
            CallTypeError, CallValueError: naming the input, what was expected and what came.
            SpecError: a subgraph does what no expression says.
        """
        operands = operands_of(_NO_ATTRIBUTES, q, k, v)
        key = (q.dtype.name, q.shape[1], k.shape[1], q.shape[3:], v.shape[3:])
        if key not in self._nodes:  # lengths have no say in it
            types = (TensorType(a.dtype.name, a.shape) for a in (q, k, v))
            self._nodes[key] = flex_translation(self.attributes, *types)
        node = self._nodes[key]
        attention = self._kernels.for_spec(node.spec)
        if not isinstance(attention, CoreAttention):
            raise CallTypeError("compiler: expected the callable of a core")
        dtype = attention.spec.dtype
        inputs = {
            name: array.astype(dtype.accumulator) if array.dtype.kind == "f" else array
            for name, array in node.inputs.items()
        }
        result, out = operands.new_output(dtype.numpy)
        attention(*operands.converted(dtype.numpy), out=out, return_lse=False, **inputs)
        if node.factor != 1.0:
            np.multiply(result, result.dtype.type(node.factor), out=result)
        return result.astype(q.dtype, copy=False)
