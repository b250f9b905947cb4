"""Fold constants: arithmetic on constants is done now, and operations that change nothing go.

Input and output: an AttentionIR. Constant factors meet at the left of a product, so that the score
reads ``factor * f(dot)``. A product with zero stays where its other factor is real: 0 · inf is NaN.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

from attngen.ir.attention import AttentionIR
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    children,
    conjunction,
    disjunction,
    with_children,
)
from attngen.ir.kinds import kind_of
from attngen.ir.verify import MAX_INTEGER


@dataclasses.dataclass(frozen=True, slots=True)
class FoldConstants:
    """Folds the score and the mask."""

    def __call__(self, ir: AttentionIR) -> AttentionIR:
        """`ir` with folded expressions; `ir` itself if there was nothing to fold."""
        score, mask = folded(ir.score), folded(ir.mask)
        if score is ir.score and mask is ir.mask:
            return ir
        return dataclasses.replace(ir, score=score, mask=mask)


def folded(expr: Expr) -> Expr:
    """`expr` with its constants folded; `expr` itself if there are none to fold."""
    expr = with_children(expr, tuple(folded(child) for child in children(expr)))
    match expr:
        case Unary(operand=Const()):
            return _constant(expr)
        case Unary():
            return _unary(expr)
        case Binary(left=Const(), right=Const()):
            return _constant(expr)
        case Binary(left=left, right=right) if isinstance(left, Const) or isinstance(right, Const):
            return _with_constant(expr)
        case Select(condition=Const(value=value)):
            return _branch(expr, expr.then if value else expr.otherwise)
        case Select(then=then, otherwise=otherwise) if then == otherwise and _same_kind(
            then, otherwise
        ):
            return then
        case _:
            return expr


def _unary(expr: Unary) -> Expr:
    """A folded function without those that change nothing."""
    operand = expr.operand
    kind = kind_of(operand)
    if (expr.op == "int" and kind == "integer") or (expr.op == "float" and kind == "real"):
        return operand
    if isinstance(operand, Unary) and operand.op == expr.op:
        if expr.op in ("neg", "not"):
            return operand.operand
        if expr.op in ("abs", "floor"):
            return operand
    return expr


def _branch(expr: Select, branch: Expr) -> Expr:
    """The branch that is always taken, of the kind that `expr` has."""
    if _same_kind(expr, branch):
        return branch
    return folded(Unary("float", branch, expr.origin))


_EXACT: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}


def _constant(expr: Expr) -> Expr:
    """The value of an expression of constants, unless it leaves the finite numbers or 62 bits."""
    match expr:
        case Binary(op="floordiv" | "mod", right=Const(value=value)) if value == 0:
            return expr
        case Binary(
            op="add" | "sub" | "mul" as op, left=Const(value=left), right=Const(value=right)
        ) if kind_of(expr) == "integer":
            whole = _EXACT[op](int(left), int(right))
            return Const(whole, expr.origin) if abs(whole) < MAX_INTEGER else expr
    result: Any = evaluate(expr, {})
    value = result.item() if hasattr(result, "item") else result
    inside = isinstance(value, float) or abs(value) < MAX_INTEGER
    return Const(value, expr.origin) if math.isfinite(value) and inside else expr


def _with_constant(expr: Binary) -> Expr:
    """A folded binary operation of which one operand is a constant."""
    match expr:
        case Binary(op="and", left=left, right=right):
            return conjunction(left, right)
        case Binary(op="or", left=left, right=right):
            return disjunction(left, right)
        case Binary(op="add", left=other, right=Const(value=0)) if _same_kind(expr, other):
            return other
        case Binary(op="add", left=Const(value=0), right=other) if _same_kind(expr, other):
            return other
        case Binary(op="sub" | "div", left=other, right=Const(value=value)) if value == (
            0 if expr.op == "sub" else 1
        ) and _same_kind(expr, other):
            return other
        case Binary(op="floordiv", left=other, right=Const(value=1)):
            return other
        case Binary(op="mod", right=Const(value=1 | -1)):
            return Const(0, expr.origin)
        case Binary(op="mul", left=other, right=Const() as factor):
            return _product(factor, other, expr)
        case Binary(op="mul", left=Const() as factor, right=other):
            return _product(factor, other, expr)
        case _:
            return expr


def _same_kind(expr: Expr, other: Expr) -> bool:
    return kind_of(expr) == kind_of(other)


def _product(factor: Const, other: Expr, expr: Binary) -> Expr:
    """``factor * other`` with the factor on the left and merged with one that stands there."""
    if factor.value == 1 and _same_kind(expr, other):
        return other
    if factor.value == 0 and kind_of(expr) == "integer":
        return Const(0, expr.origin)
    match other:
        case Binary(op="mul", left=Const(value=inner) as first, right=rest):
            merged = factor.value * inner
            lost = merged == 0 and 0 not in (factor.value, inner)
            fits = isinstance(merged, float) or abs(merged) < MAX_INTEGER
            if math.isfinite(merged) and fits and not lost:
                constant = Const(merged, first.origin or factor.origin)
                product = Binary("mul", constant, rest, expr.origin)
                return _product(constant, rest, product) if merged == 1 else product
        case Unary(op="neg", operand=rest):
            return _product(Const(-factor.value, factor.origin), rest, expr)
        case _:
            pass
    if expr.left is factor and expr.right is other:
        return expr
    return Binary("mul", factor, other, expr.origin)
