"""Exp2 form: scores in units of log2, so that the softmax needs 2**x and no e**x.

Input: an AttentionIR of base ``e``; output: one of base ``2`` whose score is log2(e) times as large
(a base ``2`` IR comes back unchanged, and so does one without a softmax), since softmax(s) is
2**(log2(e)·s - max) / Σ 2**(log2(e)·s - max).
The factor goes to every term of a sum, where it meets other constants.
"""

from __future__ import annotations

import dataclasses
import math

from attngen.ir.attention import AttentionIR
from attngen.ir.expr import Binary, Const, Expr, Select, Unary, variables

LOG2E = math.log2(math.e)


@dataclasses.dataclass(frozen=True, slots=True)
class Exp2Form:
    """Changes the softmax to base 2."""

    def __call__(self, ir: AttentionIR) -> AttentionIR:
        """`ir` in base 2; `ir` itself if it already is, or has no softmax."""
        if ir.base == "2" or ir.activation is not None:
            return ir
        return dataclasses.replace(ir, base="2", score=times(ir.score, LOG2E))


def times(expr: Expr, factor: float) -> Expr:
    """``factor * expr`` for a positive factor, which is carried inside where that is exact."""
    match expr:
        case Const(value=value, origin=origin) if math.isfinite(value * factor):
            return Const(value * factor, origin)
        case Unary(op="neg", operand=operand, origin=origin):
            return Unary("neg", times(operand, factor), origin)
        case Binary(op="add" | "sub" | "min" | "max" as op, left=left, right=right, origin=origin):
            return Binary(op, times(left, factor), times(right, factor), origin)
        case Binary(op="mul", left=Const() as left, right=right, origin=origin):
            return Binary("mul", times(left, factor), right, origin)
        case Binary(op="mul", left=left, right=Const() as right, origin=origin):
            return Binary("mul", left, times(right, factor), origin)
        case Binary(op="div", left=left, right=Const() as right, origin=origin):
            return Binary("div", times(left, factor), right, origin)
        case Unary(op="abs", operand=operand, origin=origin):
            return Unary("abs", times(operand, factor), origin)
        case Select(condition=condition, then=then, otherwise=otherwise, origin=origin):
            return Select(condition, times(then, factor), times(otherwise, factor), origin)
        case Binary(op="mul", left=left, right=right, origin=origin) if _is_fixed(left):
            return Binary("mul", times(left, factor), right, origin)
        case Binary(op="mul", left=left, right=right, origin=origin) if _is_fixed(right):
            return Binary("mul", left, times(right, factor), origin)
        case _:
            return Binary("mul", Const(factor), expr)


def _is_fixed(expr: Expr) -> bool:
    """Whether `expr` is the same for every pair of a head, so that a factor of it costs nothing."""
    return not variables(expr) & {"dot", "q", "k"}
