"""The fourth output of ONNX's Attention: products, scores or probabilities of all pairs.

Input: the spec of a call and its operands. Output: (batch, heads, q_len, keys) in the type of the
operands. Fused kernels never hold it, so that it comes from the float64 reference.
"""

from __future__ import annotations

import numpy as np

from attngen.driver import interpret
from attngen.interop.onnx.operands import Operands
from attngen.interop.onnx.translation import Array, Spec

_SIZES = ("name", "heads", "kv_heads", "head_dim", "value_dim", "scale")
_KEYS: dict[int, tuple[str, ...]] = {0: _SIZES, 1: (*_SIZES, "softcap")}
"""What of a spec has been applied in a mode; all of it in the others."""


def qk_matmul_output(
    spec: Spec, mode: int, operands: Operands, mask: Array | None, lengths: Array | None
) -> Array:
    """What mode 0 to 3 asks for: scaled products, after the softcap, with masks, after softmax."""
    applied = {key: value for key, value in spec.items() if key in _KEYS.get(mode, spec)}
    wanted = "probabilities" if mode == 3 else "logits"
    inside = interpret(applied | {"dtype": "float64", "outputs": ["out", wanted]})
    arrays = operands.converted(np.dtype(np.float64))
    if mode in _KEYS:
        found = inside(*arrays)
    else:
        if mask is not None and mask.dtype != np.bool_:
            mask = mask.astype(np.float64)
        found = inside(*arrays, mask=mask, lengths=lengths)
    return np.asarray(found[1]).astype(operands.q.dtype)
