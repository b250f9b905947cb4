"""Fold the scale: a constant factor of `dot` moves into `query_scale`, which the kernel multiplies
into the queries once instead of into every score.

Input and output: an AttentionIR. Every occurrence of `dot` must carry the same factor c, inside
other functions too: ``50 * tanh(0.02 * dot)`` becomes ``50 * tanh(dot)``. Sound for any finite c,
zero and negative ones included, as ``c * (query_scale * q·k)`` is ``(c * query_scale) * q·k``.
"""

from __future__ import annotations

import dataclasses
import math

from attngen.ir.attention import AttentionIR
from attngen.ir.expr import DOT, Binary, Const, Expr, Unary, children, with_children


@dataclasses.dataclass(frozen=True, slots=True)
class FoldScale:
    """Moves the factor that all occurrences of `dot` share."""

    def __call__(self, ir: AttentionIR) -> AttentionIR:
        """`ir` with the factor in `query_scale`; `ir` itself if there is none."""
        factors = dot_factors(ir.score)
        if len(factors) != 1 or factors == {1.0}:
            return ir
        (factor,) = factors
        scale = ir.query_scale * factor
        lost = scale == 0 and 0 not in (ir.query_scale, factor)
        if lost or not math.isfinite(scale):
            return ir
        return dataclasses.replace(ir, query_scale=scale, score=without_factor(ir.score))


def factor_of_dot(expr: Expr) -> float | None:
    """The c for which `expr` is ``c * dot`` spelt with constants, `*`, `/` and `-`; else None."""
    match expr:
        case _ if expr == DOT:
            return 1.0
        case Unary(op="neg", operand=operand):
            inner = factor_of_dot(operand)
            return None if inner is None else -inner
        case Binary(op="mul", left=Const(value=factor), right=operand):
            inner = factor_of_dot(operand)
            return None if inner is None else _exact(inner * factor, inner, factor)
        case Binary(op="mul", left=operand, right=Const(value=factor)):
            inner = factor_of_dot(operand)
            return None if inner is None else _exact(inner * factor, inner, factor)
        case Binary(op="div", left=operand, right=Const(value=divisor)) if divisor != 0:
            inner = factor_of_dot(operand)
            return None if inner is None else _exact(inner / divisor, inner)
        case _:
            return None


def _exact(product: float, *parts: float) -> float | None:
    """The product, unless it left the range of numbers on the way."""
    lost = product == 0 and 0 not in parts
    return product if math.isfinite(product) and not lost else None


def dot_factors(expr: Expr) -> frozenset[float]:
    """The factors that the occurrences of `dot` in `expr` carry."""
    factor = factor_of_dot(expr)
    if factor is not None:
        return frozenset({factor})
    return frozenset[float]().union(*map(dot_factors, children(expr)))


def without_factor(expr: Expr) -> Expr:
    """`expr` with each ``c * dot`` replaced by ``dot``."""
    if factor_of_dot(expr) is not None:
        return DOT
    return with_children(expr, tuple(without_factor(child) for child in children(expr)))
