"""Bounds of an expression over a tile, as expressions over the tile's corners.

Input: a number over positions q and k, as an expression or a linear form. Output: its least and
greatest value for q in q_first … q_last and k in k_first … k_last (inclusive), or None where no
bound is known. Bounds of linear forms are exact, those of anything else sound.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attngen.ir.affine import Affine, variable
from attngen.ir.expr import Binary, Const, Expr, Unary, Var

End: TypeAlias = Literal["first", "last"]
Bounds: TypeAlias = tuple[Expr, Expr]
_OTHER: dict[End, End] = {"first": "last", "last": "first"}
_HUGE = 1e30  # constants within 1/_HUGE … _HUGE keep real bounds clear of inf and NaN


def affine_bound(form: Affine, end: End) -> Affine | None:
    """The least (`first`) or greatest (`last`) value of a linear form over the tile."""
    total = Affine((), form.constant)
    for term, coefficient in form.terms:
        at: End = end if coefficient > 0 else _OTHER[end]
        match term:
            case Var(name="q" | "k" as name):
                bound = variable(f"{name}_{at}")
            case Var():
                bound = Affine(((term, 1),), 0)
            case _:
                ends = interval(term)
                if ends is None:
                    return None
                bound = Affine(((ends[at == "last"], 1),), 0)
        total = total.plus(bound.times(coefficient))
    return total


def interval(expr: Expr) -> Bounds | None:
    """Bounds of a number over the tile by interval arithmetic; None where none are known.

    The order of operations is kept and each rounds monotonically, so the bounds hold as computed.
    """
    match expr:
        case Const(value=value):
            if value != 0 and not 1 / _HUGE < abs(value) < _HUGE:
                return None
            return expr, expr
        case Var(name="q" | "k" as name):
            return Var(f"{name}_first"), Var(f"{name}_last")
        case Var(name="dot"):
            return None
        case Var():
            return expr, expr
        case Unary(op="neg", operand=operand):
            inner = interval(operand)
            return None if inner is None else (Unary("neg", inner[1]), Unary("neg", inner[0]))
        case Unary(op="tanh", operand=operand):
            inner = interval(operand)
            return None if inner is None else (Unary("tanh", inner[0]), Unary("tanh", inner[1]))
        case Binary(op=op, left=left, right=right):
            one, two = interval(left), interval(right)
            if one is None or two is None:
                return None
            return _combine(op, one, two)
        case _:
            return None


def _combine(op: str, left: Bounds, right: Bounds) -> Bounds | None:
    match op:
        case "add" | "min" | "max":
            return Binary(op, left[0], right[0]), Binary(op, left[1], right[1])
        case "sub":
            return Binary("sub", left[0], right[1]), Binary("sub", left[1], right[0])
        case "mul":
            return _products(left, right)
        case "div":
            match right[0]:
                case Const(value=divisor) if right[0] is right[1] and divisor != 0:
                    ends = left if divisor > 0 else (left[1], left[0])
                case Var(name="q_len" | "kv_len") if right[0] == right[1]:
                    ends = left  # lengths are positive where there is a tile
                case _:
                    return None
            return Binary("div", ends[0], right[0]), Binary("div", ends[1], right[0])
        case _:
            return None


def _products(left: Bounds, right: Bounds) -> Bounds:
    """Bounds of a product: the extremes of the four products of bounds."""
    corners: list[Expr] = []
    for one in left:
        for two in right:
            corner: Expr = Binary("mul", one, two)
            if corner not in corners:
                corners.append(corner)
    low: Expr = corners[0]
    high: Expr = corners[0]
    for other in corners[1:]:
        low, high = Binary("min", low, other), Binary("max", high, other)
    return low, high
