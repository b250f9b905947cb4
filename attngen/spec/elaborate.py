"""Spec to AttentionIR: every default filled in, and every key an expression or a size.

Input: a checked Spec. Output: AttentionIR in base ``e`` with ``query_scale`` 1: the score is
``softcap(scale * dot)`` and the mask the conjunction of causal and window. Each expression says in
its origin which key of the spec it comes from.
"""

from __future__ import annotations

import math

from attngen.ir.attention import AttentionIR
from attngen.ir.expr import DOT, TRUE, Binary, Const, Expr, K, Q, Unary, conjunction
from attngen.spec.model import Spec


def elaborate(spec: Spec) -> AttentionIR:
    """The meaning of `spec`, with nothing left to default."""
    return AttentionIR(
        name=spec.name,
        dtype=spec.dtype,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        value_dim=spec.value_dim,
        d_model=spec.d_model,
        query_scale=1.0,
        score=score_of(spec),
        mask=mask_of(spec),
        alignment="top_left" if spec.causal == "top_left" else "bottom_right",
        sink=spec.sink,
        base="e",
        outputs=spec.outputs,
        description=spec.description,
    )


def score_of(spec: Spec) -> Expr:
    """``scale * dot``, and ``cap * tanh(that / cap)`` where there is a softcap."""
    scale = 1.0 / math.sqrt(spec.head_dim) if spec.scale is None else spec.scale
    score: Expr = Binary("mul", DOT, Const(scale, "scale"), "scale")
    if spec.softcap is not None:
        cap = Const(spec.softcap, "softcap")
        inner = Unary("tanh", Binary("div", score, cap, "softcap"), "softcap")
        score = Binary("mul", cap, inner, "softcap")
    return score


def mask_of(spec: Spec) -> Expr:
    """Which keys a query may attend to, as a truth value over the positions q and k."""
    mask: Expr = TRUE
    if spec.causal != "none":
        mask = Binary("le", K, Q, "causal")
    if spec.window is None:
        return mask
    for name, side, distance in (
        ("window.left", spec.window.left, Binary("sub", Q, K, "window.left")),
        ("window.right", spec.window.right, Binary("sub", K, Q, "window.right")),
    ):
        if side >= 0:
            mask = conjunction(mask, Binary("le", distance, Const(side, name), name))
    return mask
