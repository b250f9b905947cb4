"""Bounds of an expression over a tile, as expressions over the tile's corners.

Input: a number over positions q and k and heads h, as an expression or a linear form. Output: its
least and greatest value for q in q_first … q_last, k in k_first … k_last and h in h_first … h_last
(inclusive), or None where no bound is known. Bounds of linear forms are exact, those of anything
else sound. Real numbers have bounds only where they can be neither NaN nor infinite, nor so large
or small that rounding loses them.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attngen.ir.affine import Affine, variable
from attngen.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    data_bound,
    size,
    variables,
)
from attngen.ir.kinds import kind_of
from attngen.ir.ranges import ANY_CALL, value_range

End: TypeAlias = Literal["first", "last"]
Bounds: TypeAlias = tuple[Expr, Expr]
_OTHER: dict[End, End] = {"first": "last", "last": "first"}
_HUGE = 1e30
_MAX_SIZE = 64  # nodes of a bound: products and remainders name the bounds of their operands twice

_PER_TASK = frozenset({"b", "kv_h", "q_len", "kv_len"})
"""What is one value for a whole tile."""


def affine_bound(form: Affine, end: End) -> Affine | None:
    """The least (`first`) or greatest (`last`) value of a linear form over the tile."""
    total = Affine((), form.constant)
    for term, coefficient in form.terms:
        at: End = end if coefficient > 0 else _OTHER[end]
        match term:
            case Var(name="q" | "k" | "h" as name):
                bound = variable(f"{name}_{at}")
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
    if kind_of(expr) == "real" and not _is_tame(expr):
        return None
    ends = _interval(expr)
    if ends is None or max(map(size, ends)) > _MAX_SIZE:
        return None
    return ends


def _is_tame(expr: Expr) -> bool:
    """Whether a real number is always finite, and no constant too small to be told from 0."""
    if isinstance(expr, Const):
        return expr.value == 0 or 1 / _HUGE < abs(expr.value) < _HUGE
    low, high = value_range(expr, ANY_CALL)
    return low > -_HUGE and high < _HUGE


def _interval(expr: Expr) -> Bounds | None:
    match expr:
        case Const():
            return expr, expr
        case Var(name="q" | "k" | "h" as name):
            return Var(f"{name}_first"), Var(f"{name}_last")
        case Var(name="dot"):
            return None
        case Var():
            return expr, expr
        case Load():
            return _load(expr)
        case Unary(op=op, operand=operand):
            inner = interval(operand)
            return None if inner is None else _function(expr, op, inner)
        case Select(then=then, otherwise=otherwise):
            return _either(interval(then), interval(otherwise))
        case Binary(op=op, left=left, right=right):
            one, two = interval(left), interval(right)
            if one is None or two is None:
                return None
            return _combine(expr, op, one, two)


def _load(expr: Load) -> Bounds | None:
    """Data of a task is its own bound; that of a position has bounds which the kernel takes."""
    if expr.dtype == "float":
        return None
    if variables(expr) <= _PER_TASK:
        return expr, expr
    low, high = data_bound(expr, "min"), data_bound(expr, "max")
    return None if low is None or high is None else (low, high)


def _either(one: Bounds | None, two: Bounds | None) -> Bounds | None:
    if one is None or two is None:
        return None
    low = one[0] if one[0] == two[0] else Binary("min", one[0], two[0])
    return low, one[1] if one[1] == two[1] else Binary("max", one[1], two[1])


def _function(expr: Unary, op: str, inner: Bounds) -> Bounds | None:
    low, high = inner
    match op:
        case "neg":
            return Unary("neg", high), Unary("neg", low)
        case "abs":
            zero = Const(0)
            least = Binary("max", zero, Binary("max", low, Unary("neg", high)))
            return least, Binary("max", Unary("neg", low), high)
        case "not":
            return None
        case _:  # every other function is monotone where it has a value
            return Unary(expr.op, low), Unary(expr.op, high)


def _combine(expr: Binary, op: str, left: Bounds, right: Bounds) -> Bounds | None:
    match op:
        case "add" | "min" | "max":
            return Binary(op, left[0], right[0]), Binary(op, left[1], right[1])
        case "sub":
            return Binary("sub", left[0], right[1]), Binary("sub", left[1], right[0])
        case "mul":
            return _corners("mul", left, right)
        case "div" | "floordiv":
            return _quotient(op, expr.right, left, right)
        case "mod":
            return _remainder(expr.right, left, right)
        case _:
            return None


def _quotient(
    op: Literal["div", "floordiv"], divisor: Expr, left: Bounds, right: Bounds
) -> Bounds | None:
    low, high = value_range(divisor, ANY_CALL)
    if low <= 0 <= high:
        return None
    if right[0] != right[1]:
        return _corners(op, left, right)
    ends = left if low > 0 else (left[1], left[0])
    return Binary(op, ends[0], right[0]), Binary(op, ends[1], right[0])


def _remainder(divisor: Expr, left: Bounds, right: Bounds) -> Bounds | None:
    """Between 0 and the divisor, and more closely where no multiple of it lies in between."""
    low, high = value_range(divisor, ANY_CALL)
    one = Const(1)
    if low <= 0 <= high:
        return None
    if high < 0:
        return Binary("add", right[0], one), Const(0)
    most = Binary("sub", right[1], one)
    if right[0] != right[1]:
        return Const(0), most
    size_of = right[0]
    same = Binary("eq", Binary("floordiv", left[0], size_of), Binary("floordiv", left[1], size_of))
    return (
        Select(same, Binary("mod", left[0], size_of), Const(0)),
        Select(same, Binary("mod", left[1], size_of), most),
    )


def _corners(op: Literal["mul", "div", "floordiv"], left: Bounds, right: Bounds) -> Bounds:
    """The extremes of what the four pairs of bounds give."""
    corners: list[Expr] = []
    for one in left:
        for two in right:
            corner: Expr = Binary(op, one, two)
            if corner not in corners:
                corners.append(corner)
    low: Expr = corners[0]
    high: Expr = corners[0]
    for other in corners[1:]:
        low, high = Binary("min", low, other), Binary("max", high, other)
    return low, high
