"""Spec to AttentionIR: every default filled in, and every key an expression or a size.

Input: a checked Spec. Output: AttentionIR in base ``e`` with ``query_scale`` 1: the score is
``softcap(score(scale * dot)) + bias`` and the mask the conjunction of all that limits attention.
What weights are made of scores by, if not by a softmax, is an expression of its own.
Each expression says in its origin which key of the spec it comes from.
"""

from __future__ import annotations

import math
from typing import assert_never

from attngen.ir.attention import AttentionIR, SideInput
from attngen.ir.expr import (
    DOT,
    SCORE,
    TRUE,
    Binary,
    Const,
    Expr,
    K,
    Load,
    Q,
    Unary,
    Var,
    conjunction,
    disjunction,
    replaced,
)
from attngen.spec.alibi import alibi_slopes
from attngen.spec.buckets import T5Buckets
from attngen.spec.model import Scale, Spec

ALIBI_SLOPES = "alibi_slopes"
HEAD_LAMBDA = "head_lambda"
HEAD_SCALE = "head_scale"
RELATIVE_BIAS = "relative_bias"
T5_BUCKETS = "t5_buckets"


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
        inputs=inputs_of(spec),
        off_by_one=spec.activation == "softmax_off_by_one",
        activation=activation_of(spec),
        difference=difference_of(spec),
    )


def inputs_of(spec: Spec) -> tuple[SideInput, ...]:
    """The side inputs that are declared, and the tables that other keys bring."""
    more: list[SideInput] = []
    more += _of_heads(HEAD_SCALE, spec.scale, "scale")
    more += _of_heads(HEAD_LAMBDA, spec.differential, "differential")
    if spec.bias == "alibi":
        slopes = alibi_slopes(spec.heads)
        more.append(SideInput(ALIBI_SLOPES, ("heads",), "float", slopes, "bias"))
    if spec.t5 is not None:
        table = spec.t5.table()
        more.append(SideInput(T5_BUCKETS, (len(table),), "int64", table, "t5"))
        shape = ("heads", spec.t5.buckets)
        more.append(SideInput(RELATIVE_BIAS, shape, "float", None, "bias"))
    return (*spec.inputs, *more)


def _of_heads(name: str, value: Scale | None, key: str) -> list[SideInput]:
    """The side input of numbers that differ from head to head."""
    if value is None or isinstance(value, float):
        return []
    numbers = value if isinstance(value, tuple) else None
    return [SideInput(name, ("heads",), "float", numbers, key)]


def difference_of(spec: Spec) -> Expr | None:
    """What the second map of a head is multiplied by."""
    match spec.differential:
        case None:
            return None
        case float(factor):
            return Const(factor, "differential")
        case _:
            return Load(HEAD_LAMBDA, (Var("h", "differential"),), "differential")


def score_of(spec: Spec) -> Expr:
    """The scaled product after `score`, `softcap` and `bias`, in this order."""
    score: Expr = Binary("mul", DOT, _scale(spec), "scale")
    if spec.score is not None:
        score = replaced(spec.score, DOT, score)
    if spec.softcap is not None:
        cap = Const(spec.softcap, "softcap")
        inner = Unary("tanh", Binary("div", score, cap, "softcap"), "softcap")
        score = Binary("mul", cap, inner, "softcap")
    if spec.bias == "alibi":
        slope = Load(ALIBI_SLOPES, (Var("h", "bias"),), "bias")
        bias = Binary("mul", slope, Binary("sub", K, Q, "bias"), "bias")
        score = Binary("add", score, bias, "bias")
    if spec.t5 is not None:
        score = Binary("add", score, _t5_bias(spec.t5), "bias")
    return score


def _scale(spec: Spec) -> Expr:
    match spec.scale:
        case None:
            return Const(1.0 / math.sqrt(spec.head_dim), "scale")
        case float(scale):
            return Const(scale, "scale")
        case _:
            return Load(HEAD_SCALE, (Var("h", "scale"),), "scale")


def _t5_bias(t5: T5Buckets) -> Expr:
    """The learned number for the bucket of a key's distance."""
    most = Const(t5.max_distance, "t5")
    index: Expr
    if t5.bidirectional:
        least = Const(-t5.max_distance, "t5")
        inside = Binary("max", Binary("sub", K, Q, "t5"), least, "t5")
        index = Binary("add", Binary("min", inside, most, "t5"), most, "t5")
    else:
        earlier = Binary("max", Binary("sub", Q, K, "t5"), Const(0, "t5"), "t5")
        index = Binary("min", earlier, most, "t5")
    bucket = Load(T5_BUCKETS, (index,), "t5", "int64")
    return Load(RELATIVE_BIAS, (Var("h", "bias"), bucket), "bias")


def activation_of(spec: Spec) -> Expr | None:
    """The weight of a score where no softmax makes it; n is the number of keys."""
    count = Unary("float", Var("kv_len", "activation"), "activation")
    match spec.activation:
        case "sigmoid":
            shifted = Binary("sub", SCORE, Unary("log", count, "activation"), "activation")
            if spec.activation_bias is not None:
                bias = Const(spec.activation_bias, "activation_bias")
                shifted = Binary("add", SCORE, bias, "activation_bias")
            return Unary("sigmoid", shifted, "activation")
        case "relu":
            # a NaN is in the second operand, which `max` lets through in every kernel
            kept = Binary("max", Const(0.0, "activation"), SCORE, "activation")
            share = Binary("div", Const(1.0, "activation"), count, "activation")
            return Binary("mul", kept, share, "activation")
        case "softmax" | "softmax_off_by_one":
            return None
        case _:
            assert_never(spec.activation)


def mask_of(spec: Spec) -> Expr:
    """Which keys a query may attend to, as a truth value over the positions q and k."""
    mask: Expr = TRUE
    if spec.causal != "none":
        mask = Binary("le", K, Q, "causal")
        if spec.prefix:
            mask = disjunction(mask, Binary("lt", K, Const(spec.prefix, "prefix"), "prefix"))
    near = _neighbourhood(spec)
    if near != TRUE and spec.global_tokens:
        count = Const(spec.global_tokens, "global_tokens")
        for position in (K, Q):
            near = disjunction(near, Binary("lt", position, count, "global_tokens"))
    mask = conjunction(mask, near)
    return mask if spec.mask is None else conjunction(mask, spec.mask)


def _neighbourhood(spec: Spec) -> Expr:
    """What window, chunk and dilation leave of a query's surroundings."""
    near: Expr = TRUE
    if spec.window is not None:
        for name, side, distance in (
            ("window.left", spec.window.left, Binary("sub", Q, K, "window.left")),
            ("window.right", spec.window.right, Binary("sub", K, Q, "window.right")),
        ):
            if side >= 0:
                near = conjunction(near, Binary("le", distance, Const(side, name), name))
    if spec.chunk is not None:
        size = Const(spec.chunk, "chunk")
        own, other = (Binary("floordiv", position, size, "chunk") for position in (Q, K))
        near = conjunction(near, Binary("eq", own, other, "chunk"))
    if spec.dilation > 1:
        step = Const(spec.dilation, "dilation")
        rest = Binary("mod", Binary("sub", Q, K, "dilation"), step, "dilation")
        near = conjunction(near, Binary("eq", rest, Const(0, "dilation"), "dilation"))
    return near
