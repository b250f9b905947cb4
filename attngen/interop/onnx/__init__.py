"""ONNX's Attention and FlexAttention operators, by attngen's kernels.

    run_attention({"is_causal": 1}, q, k, v)       # the operator as a function, in ONNX's layout
    from_model(onnx.load("model.onnx"))            # a spec for each attention node of a model
    AttngenBackend.prepare(model).run(inputs)      # an ONNX backend, for models of these nodes

Input: attributes, nodes or models of opset 23 to 25 (Attention) and of ``ai.onnx.preview``
(FlexAttention), and NumPy arrays. Output: specs, and the operators' outputs. The onnx package is
imported when a node, a model or the backend is first used; `run_attention` does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attngen.interop.onnx.attention import AttentionOperator, attention_spec, run_attention
from attngen.interop.onnx.attributes import AttentionAttributes, TensorType
from attngen.interop.onnx.flex import FlexOperator, flex_translation
from attngen.interop.onnx.nodes import from_model, from_node
from attngen.interop.onnx.translation import AttentionOutputs, Translation

if TYPE_CHECKING:
    from attngen.interop.onnx.backend import AttngenBackend

__all__ = [
    "AttentionAttributes",
    "AttentionOperator",
    "AttentionOutputs",
    "AttngenBackend",
    "FlexOperator",
    "TensorType",
    "Translation",
    "attention_spec",
    "flex_translation",
    "from_model",
    "from_node",
    "run_attention",
]


def __getattr__(name: str) -> Any:
    """Import the backend when it is first used: its base class is onnx's."""
    if name == "AttngenBackend":
        from attngen.interop.onnx.backend import AttngenBackend

        return AttngenBackend
    raise AttributeError(f"module 'attngen.interop.onnx' has no attribute {name!r}")
