"""Fold constants: arithmetic on constants is done now, and operations that change nothing go.

Input and output: an AttentionIR. Constant factors meet at the left of a product, so that the score
reads ``factor * f(dot)``. A product with zero stays where its other factor is real: 0 · inf is NaN.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from attngen.ir.attention import AttentionIR
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import Binary, Const, Expr, Unary, conjunction, disjunction
from attngen.ir.kinds import kind_of


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
    match expr:
        case Unary(op=op, operand=operand):
            inner = folded(operand)
            if isinstance(inner, Const):
                return _constant(Unary(op, inner, expr.origin))
            if isinstance(inner, Unary) and inner.op == op and op != "tanh":
                return inner.operand
            return expr if inner is operand else Unary(op, inner, expr.origin)
        case Binary(op=op, left=left, right=right):
            one, two = folded(left), folded(right)
            if one is not left or two is not right:
                expr = Binary(op, one, two, expr.origin)
            if isinstance(one, Const) and isinstance(two, Const):
                return _constant(expr)
            if isinstance(one, Const) or isinstance(two, Const):
                return _with_constant(expr)
            return expr
        case _:
            return expr


def _constant(expr: Expr) -> Expr:
    """The value of an expression of constants, unless it leaves the finite numbers."""
    result: Any = evaluate(expr, {})
    value = result.item() if hasattr(result, "item") else result
    return Const(value, expr.origin) if math.isfinite(value) else expr


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
            if math.isfinite(merged) and not lost:
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
