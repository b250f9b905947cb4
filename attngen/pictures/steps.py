"""What one head does with its scores, step by step, read off the expressions of AttentionIR.

Input: an AttentionIR and a head. Output: :class:`Steps`, for that head: its index and the values
of tables are put in. The score expression is taken apart from the outside: a soft cap, a bias that
does not read the score, any other function of it; what is left is the scaled product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from attngen.ir.attention import AttentionIR
from attngen.ir.expr import (
    SCORE,
    TRUE,
    Binary,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    children,
    replaced,
    variables,
    with_children,
)
from attngen.ir.printer import expression_text

_SCORE = Var("s")
_ONE = Const(1.0)
_SIGNS = (("<=", "≤"), (">=", "≥"), ("!=", "≠"), ("==", "="), (" * ", " · "), (" - ", " − "))


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is done to a score: the text is what is added, or what it becomes."""

    kind: Literal["softcap", "bias", "score"]
    text: str


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition of the mask; `origin` is the key of the spec that it comes from."""

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class Steps:
    """One head from its scores to its softmax.

    Attributes:
        scale: what the product of query and key is multiplied by, such as ``/ √128``; may be empty.
        changes: what happens to the scores then, in order.
        limits: the conditions under which a key is seen; all of them hold.
        mask: the same as one expression, for this head.
        activation: what a score becomes without a softmax; empty with one.
        activation_name: its name in a formula.
    """

    scale: str
    changes: tuple[Change, ...]
    limits: tuple[Limit, ...]
    mask: Expr
    activation: str = ""
    activation_name: str = "softmax"


def steps_of(ir: AttentionIR, head: int | None) -> Steps:
    """What `head` of `ir` does; what every head does, over ``h``, for None."""
    mask = for_head(ir, ir.mask, head)
    scale, changes = _taken_apart(for_head(ir, ir.score, head))
    return Steps(
        _scale_text(scale, ir.query_scale, ir.head_dim),
        tuple(changes),
        tuple(Limit(text_of(part), _origin(part)) for part in _conjuncts(mask)),
        mask,
        *_activation(ir, head),
    )


def _activation(ir: AttentionIR, head: int | None) -> tuple[str, str]:
    """The text of what makes weights of scores, and its name."""
    if ir.activation is None:
        return "", "softmax"
    return text_of(replaced(for_head(ir, ir.activation, head), SCORE, _SCORE)), "φ"


def text_of(expr: Expr) -> str:
    """`expr` as a reader of formulas likes it."""
    text = expression_text(expr)
    for python, sign in _SIGNS:
        text = text.replace(python, sign)
    return text


def for_head(ir: AttentionIR, expr: Expr, head: int | None) -> Expr:
    """`expr` with the index of `head` in place, and the numbers of tables where that fixes them."""
    if head is None:
        return expr
    indices = {"h": head, "kv_h": head // ir.group}
    tables = {given.name: given for given in ir.inputs if given.values is not None}

    def visit(expr: Expr) -> Expr:
        match expr:
            case Var(name=name, origin=origin) if name in indices:
                return Const(indices[name], origin)
        expr = with_children(expr, tuple(map(visit, children(expr))))
        match expr:
            case Load(input=name, indices=(Const(value=index),), origin=origin) if name in tables:
                return Const(_rounded((tables[name].values or ())[int(index)]), origin)
        return expr

    return visit(expr)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _taken_apart(score: Expr) -> tuple[Expr, list[Change]]:
    """The scale of the product, and what is done to it after."""
    match score:
        case Var(name="dot"):
            return _ONE, []
        case Binary(op="mul", left=Var(name="dot"), right=factor) if _is_scale(factor):
            return factor, []
        case Binary(
            op="mul",
            left=Const(value=cap),
            right=Unary(op="tanh", operand=Binary(op="div", left=inner, right=Const(value=same))),
        ) if cap == same:
            scale, changes = _taken_apart(inner)
            return scale, [*changes, Change("softcap", f"{cap:g} · tanh(s / {cap:g})")]
        case Binary(op="add" | "sub" as op, left=inner, right=bias) if _adds(inner, bias):
            scale, changes = _taken_apart(inner)
            text = text_of(bias if op == "add" else Unary("neg", bias))
            return scale, [*changes, Change("bias", text)]
        case Binary(op="add", left=bias, right=inner) if _adds(inner, bias):
            scale, changes = _taken_apart(inner)
            return scale, [*changes, Change("bias", text_of(bias))]
    scale, with_score = _scaled_product(score)
    return scale, [Change("score", text_of(with_score))]


def _adds(inner: Expr, bias: Expr) -> bool:
    return "dot" in variables(inner) and "dot" not in variables(bias)


def _is_scale(factor: Expr) -> bool:
    """Whether the product is multiplied by `factor` because of the key `scale`."""
    return isinstance(factor, Const) or getattr(factor, "origin", "") == "scale"


def _scaled_product(score: Expr) -> tuple[Expr, Expr]:
    """The scale, where the product always stands beside the same one, and `score` over ``s``."""
    scales = set(_scales(score))
    scale = scales.pop() if len(scales) == 1 else _ONE

    def visit(expr: Expr) -> Expr:
        match expr:
            case Binary(op="mul", left=Var(name="dot"), right=factor) if factor == scale:
                return _SCORE
            case Var(name="dot"):
                return _SCORE
        return with_children(expr, tuple(map(visit, children(expr))))

    return scale, visit(score)


def _scales(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Binary(op="mul", left=Var(name="dot"), right=factor, origin="scale"):
            yield factor
        case Var(name="dot"):
            yield _ONE
        case _:
            for child in children(expr):
                yield from _scales(child)


def _scale_text(factor: Expr, more: float, head_dim: int) -> str:
    if not isinstance(factor, Const):
        return f" · {text_of(factor)}" + (f" · {more:.6g}" if more != 1 else "")
    scale = factor.value * more
    if scale == 1:
        return ""
    if math.isclose(scale, head_dim**-0.5, rel_tol=1e-12):
        return f" / √{head_dim}"
    return f" · {scale:.6g}"


def _conjuncts(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Binary(op="and", left=left, right=right):
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _ if expr != TRUE:
            yield expr


def _origin(expr: Expr) -> str:
    """The key that `expr` is from; of several the one that the others are exceptions to it."""
    match expr:
        case Binary(op="or", left=left, right=right):
            return _origin(right) or _origin(left)
    return getattr(expr, "origin", "")
