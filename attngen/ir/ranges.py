"""Which values an expression can take, in numbers: index checks, overflow and divisors of zero.

Input: an expression and the ranges of what it reads. Output: a :data:`Range` that holds every value
the expression can take; an infinite end is an unknown one, and a real number that may be NaN has
an infinite end on both sides. Whole numbers are bounded as linear forms, within linear conditions
that are known to hold (`k <= q`), so that ``q - k`` under a causal mask is not negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from attngen.ir.affine import Affine, Extremum, Lattice, compare, comparison_form, lattice
from attngen.ir.expr import COMPARISONS, Binary, Const, Expr, Load, Select, Unary, Var
from attngen.ir.kinds import kind_of

Range: TypeAlias = tuple[float, float]
"""Least and greatest value, inclusive; ints where they are finite and the expression is whole."""

UNKNOWN: Range = (-math.inf, math.inf)
POSITIONS = (1 << 31) - 1
"""Positions and lengths are at most this in any call that fits a memory."""

_DEPTH = 2  # conditions that are combined to bound one linear form: two axes take two
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known where an expression is evaluated.

    Attributes:
        ranges: of the variables; one that is missing is unknown.
        data: the range of what a side input holds.
        conditions: linear forms that are at most zero.
        cut: what `int` makes of a real number of which nothing is known.
    """

    ranges: Mapping[str, Range]
    data: Callable[[Load], Range]
    conditions: tuple[Affine, ...] = ()
    cut: Range = (-(1 << 62), 1 << 62)

    def given(self, condition: Expr, *, holds: bool) -> Facts:
        """These facts where `condition` holds, or where it does not."""
        forms = linear_conditions(condition, holds=holds)
        return replace(self, conditions=(*self.conditions, *forms)) if forms else self


def _any_data(load: Load) -> Range:
    return (0, 1) if load.dtype == "bool" else UNKNOWN


_INDEX: Range = (0, POSITIONS)
_LENGTH: Range = (1, POSITIONS)
_POSITION: Range = (-POSITIONS, POSITIONS)
ANY_CALL = Facts(
    {
        **dict.fromkeys(("b", "h", "kv_h", "h_first", "h_last", "k", "k_first", "k_last"), _INDEX),
        **dict.fromkeys(("q", "q_first", "q_last"), _POSITION),
        **dict.fromkeys(("q_len", "kv_len"), _LENGTH),
    },
    _any_data,
)
"""What holds in every call."""


def linear_conditions(condition: Expr, *, holds: bool) -> tuple[Affine, ...]:
    """Linear forms that are at most zero where `condition` holds, or where it does not."""
    match condition:
        case Unary(op="not", operand=operand):
            return linear_conditions(operand, holds=not holds)
        case Binary(op="and" | "or" as op, left=left, right=right):
            if (op == "and") != holds:
                return ()
            return (
                *linear_conditions(left, holds=holds),
                *linear_conditions(right, holds=holds),
            )
        case Binary(op=op, left=left, right=right) if op in COMPARISONS:
            if kind_of(left) == "integer" == kind_of(right):
                return _forms(compare(op if holds else _NEGATED[op], left, right))
    return ()


def _forms(comparison: Expr) -> tuple[Affine, ...]:
    match comparison:
        case Binary(op="and", left=left, right=right):
            return (*_forms(left), *_forms(right))
        case Binary(op="le" | "lt" | "eq"):
            known = comparison_form(comparison)
            if known is None:
                return ()
            op, form = known
            return (form, form.times(-1)) if op == "eq" else (form,)
    return ()


def value_range(expr: Expr, facts: Facts) -> Range:
    """The range of `expr`; of a truth value (0, 1)."""
    match kind_of(expr):
        case "boolean":
            return (0, 1)
        case "integer":
            return _lattice_range(lattice(expr), expr, facts)
        case _:
            return _real_range(expr, facts)


def _lattice_range(form: Lattice, expr: Expr, facts: Facts) -> Range:
    if isinstance(form, Extremum):
        ends = [_lattice_range(case, expr, facts) for case in form.cases]
        pick = min if form.op == "min" else max
        return pick(low for low, _ in ends), pick(high for _, high in ends)
    terms = {term: _term_range(term, facts) for term, _ in form.terms}
    bare = replace(facts, conditions=())  # or a condition would be bounded by itself
    for condition in facts.conditions:
        for term, _ in condition.terms:
            if term not in terms:
                terms[term] = _term_range(term, bare)
    high = _upper(form, terms, facts.conditions, _DEPTH)
    low = -_upper(form.times(-1), terms, facts.conditions, _DEPTH)
    return low, high


def _upper(
    form: Affine, terms: Mapping[Expr, Range], conditions: tuple[Affine, ...], depth: int
) -> float:
    """The least upper bound that the terms' ranges and up to `depth` conditions give."""
    best: float = form.constant
    for term, factor in form.terms:
        low, high = terms[term]
        best += factor * (high if factor > 0 else low)
    for number, condition in enumerate(conditions if depth else ()):
        rest = conditions[:number] + conditions[number + 1 :]
        for term, other in condition.terms:
            factor = form.coefficient(term)
            if factor * other > 0:  # the form is at most itself less a multiple of the condition
                times = abs(other)
                less = form.times(times).plus(condition.times(-abs(factor)))
                bound = _upper(less, terms, rest, depth - 1)
                best = min(best, bound // times if math.isfinite(bound) else bound)
    return best


def _term_range(term: Expr, facts: Facts) -> Range:
    """The range of a whole number that is not linear."""
    match term:
        case Var(name=name):
            return facts.ranges.get(name, UNKNOWN)
        case Load():
            return facts.data(term)
        case Unary(op="int", operand=operand):
            low, high = value_range(operand, facts)
            least, most = facts.cut
            return _whole(max(low, least)), _whole(min(high, most))
        case Unary(op="abs", operand=operand):
            return _absolute(value_range(operand, facts))
        case Select():
            return _select_range(term, facts)
        case Binary(op=op, left=left, right=right):
            one, two = value_range(left, facts), value_range(right, facts)
            match op:
                case "add":
                    return one[0] + two[0], one[1] + two[1]
                case "sub":
                    return one[0] - two[1], one[1] - two[0]
                case "mul":
                    return _product(one, two)
                case "floordiv":
                    return _quotient(one, two)
                case "mod":
                    return _remainder(one, two)
                case "min":
                    return min(one[0], two[0]), min(one[1], two[1])
                case "max":
                    return max(one[0], two[0]), max(one[1], two[1])
    return UNKNOWN


def _whole(value: float) -> float:
    return int(value) if math.isfinite(value) else value


def _select_range(expr: Select, facts: Facts) -> Range:
    one = value_range(expr.then, facts.given(expr.condition, holds=True))
    two = value_range(expr.otherwise, facts.given(expr.condition, holds=False))
    return min(one[0], two[0]), max(one[1], two[1])


def _absolute(inner: Range) -> Range:
    low, high = inner
    return max(0, low, -high), max(-low, high)


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _product(one: Range, two: Range) -> Range:
    corners = [_times(a, b) for a in one for b in two]
    return min(corners), max(corners)


def _may_be_zero(divisor: Range) -> bool:
    """Whether a divisor may be 0; so it may where conditions contradict each other, low > high."""
    low, high = divisor
    return not (0 < low <= high or low <= high < 0)


def _quotient(one: Range, two: Range) -> Range:
    if _may_be_zero(two):
        size = max(abs(one[0]), abs(one[1]))
        return -size, size
    corners = [_floor_divided(a, b) for a in one for b in two]
    return min(corners), max(corners)


def _floor_divided(a: float, b: float) -> float:
    if math.isinf(b):
        return 0 if (a >= 0) == (b > 0) else -1
    return _times(a, 1 if b > 0 else -1) if math.isinf(a) else a // b


def _remainder(one: Range, two: Range) -> Range:
    low, high = two
    if low > 0 and one[0] >= 0 and one[1] < low:
        return one
    finite = low == high and low > 0 and math.isfinite(one[0]) and math.isfinite(one[1])
    if finite and one[0] // low == one[1] // low:
        return one[0] % low, one[1] % low
    return min(low + 1, 0), max(high - 1, 0)


def _real_range(expr: Expr, facts: Facts) -> Range:
    """The range of a real number; UNKNOWN wherever it may be NaN or leave the numbers."""
    try:
        low, high = _finite_range(expr, facts)
    except OverflowError:
        return UNKNOWN
    return (low, high) if math.isfinite(low) and math.isfinite(high) else UNKNOWN


def _finite_range(expr: Expr, facts: Facts) -> Range:
    match expr:
        case Const(value=value):
            return float(value), float(value)
        case Load():
            return facts.data(expr)
        case Select():
            return _select_range(expr, facts)
        case Unary(op=op, operand=operand):
            return _function_range(op, value_range(operand, facts))
        case Binary(op=op, left=left, right=right):
            one, two = value_range(left, facts), value_range(right, facts)
            if not all(map(math.isfinite, (*one, *two))):
                return UNKNOWN
            match op:
                case "add":
                    return one[0] + two[0], one[1] + two[1]
                case "sub":
                    return one[0] - two[1], one[1] - two[0]
                case "mul":
                    return _product(one, two)
                case "div" if not _may_be_zero(two):
                    corners = [a / b for a in one for b in two]
                    return min(corners), max(corners)
                case "min":
                    return min(one[0], two[0]), min(one[1], two[1])
                case "max":
                    return max(one[0], two[0]), max(one[1], two[1])
    return UNKNOWN


_ALWAYS_BOUNDED: dict[str, Range] = {"tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0)}
_MONOTONE: dict[str, tuple[Callable[[float], float], float]] = {
    "float": (float, -math.inf),
    "floor": (math.floor, -math.inf),
    "tanh": (math.tanh, -math.inf),
    "exp": (math.exp, -math.inf),
    "exp2": (lambda x: math.exp(x * math.log(2.0)), -math.inf),
    "log": (math.log, 0.0),
    "log2": (math.log2, 0.0),
    "sqrt": (math.sqrt, 0.0),
}


def _function_range(op: str, inner: Range) -> Range:
    low, high = inner
    if not (math.isfinite(low) and math.isfinite(high)):
        return UNKNOWN
    if op == "neg":
        return -high, -low
    if op == "abs":
        return _absolute(inner)
    if op == "sigmoid":
        return _ALWAYS_BOUNDED[op]
    function, least = _MONOTONE[op]
    if low < least or (low == least and op != "sqrt"):
        return UNKNOWN  # NaN below the least argument, and -inf at it
    return float(function(low)), float(function(high))
