"""Nodes and models of ONNX: which nodes are attention, and the spec that each of them is.

Input: NodeProtos and ModelProtos of the onnx package. Output: specs, or operators to call. Models
may hold any other operators beside: those are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attngen.interop.onnx.attention import AttentionOperator, attention_spec
from attngen.interop.onnx.attributes import TensorType
from attngen.interop.onnx.flex import FlexOperator, flex_translation
from attngen.interop.onnx.translation import Compiler, Translation, unmapped

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TypeProto

_DOMAINS = {"Attention": ("", "ai.onnx"), "FlexAttention": ("ai.onnx.preview",)}
VERSIONS = {"Attention": (23, 24, 25), "FlexAttention": (1,)}
"""Versions of the operators whose meaning is known here."""


def is_attention(node: NodeProto) -> bool:
    """Whether `node` is one of the two operators."""
    return node.domain in _DOMAINS.get(node.op_type, ())


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """The attributes of `node` by name, as Python values and GraphProtos."""
    from onnx import helper

    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def operator_of(
    node: NodeProto, compiler: Compiler | None = None
) -> AttentionOperator | FlexOperator:
    """`node` as a callable.

    Raises:
        SpecError: it is no attention, or an attribute of it has no meaning.
    """
    if not is_attention(node):
        raise _no_attention(node)
    if node.op_type == "Attention":
        return AttentionOperator(attributes_of(node), compiler=compiler)
    return FlexOperator(attributes_of(node), compiler=compiler)


def from_node(node: NodeProto, types: Mapping[str, TensorType]) -> Translation:
    """The spec that an Attention or FlexAttention node is.

    Args:
        node: the node.
        types: of its inputs, by the names it has for them.

    Raises:
        SpecError: it is no attention, or something of it has no counterpart in a spec.
    """
    if not is_attention(node):
        raise _no_attention(node)
    given = [types.get(name) if name else None for name in node.input]
    for name, role, kind in zip(node.input, ("Q", "K", "V"), given, strict=False):
        if kind is None:
            raise unmapped(role, f"the type of {role}, {name!r}, is not known")
    q, k, v = (kind for kind in given[:3] if kind is not None)
    for role, kind in (("K", k), ("V", v)):
        if kind.dtype != q.dtype:
            raise unmapped(role, f"{role} holds {kind.dtype} and Q {q.dtype}: one type is mapped")
    if node.op_type == "FlexAttention":
        return flex_translation(attributes_of(node), q, k, v)
    past = TensorType(k.dtype, ()) if len(node.input) > 4 and node.input[4] else None
    nonpad = len(node.input) > 6 and bool(node.input[6])
    return Translation(attention_spec(attributes_of(node), q, k, v, past, nonpad_kv_seqlen=nonpad))


def from_model(model: ModelProto) -> dict[str, Translation]:
    """The spec of each attention node of a model, by the node's name or its first output.

    Args:
        model: of any operators; the sizes of heads must follow from its shapes.

    Raises:
        SpecError: something of a node has no counterpart in a spec.
    """
    from onnx import shape_inference

    graph = shape_inference.infer_shapes(model).graph
    types = {
        value.name: found
        for value in (*graph.input, *graph.value_info, *graph.output)
        if (found := type_of(value.type)) is not None
    }
    for tensor in graph.initializer:
        types.setdefault(tensor.name, TensorType(_name_of(tensor.data_type), tuple(tensor.dims)))
    return {
        node.name or node.output[0]: from_node(node, types)
        for node in graph.node
        if is_attention(node)
    }


def type_of(proto: TypeProto) -> TensorType | None:
    """The type of a tensor whose rank is known."""
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return None
    shape = tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim
    )
    return TensorType(_name_of(tensor.elem_type), shape)


def _name_of(element_type: int) -> str:
    from onnx import helper

    return str(helper.tensor_dtype_to_np_dtype(element_type).name)


def _no_attention(node: NodeProto) -> Exception:
    name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return unmapped("op_type", f"{name} is neither Attention nor ai.onnx.preview.FlexAttention")
