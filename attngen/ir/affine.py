"""Whole-number arithmetic in normal form: linear forms, and minima and maxima of them.

Input: an integer expression. Output: a :data:`Lattice`: a linear form with integer coefficients, or
a minimum or maximum of lattices, with every `min` and `max` pulled to the top. Comparisons become
`and` and `or` over linear comparisons in one canonical direction: positive terms on the left,
negative ones on the right. All of it is exact, as whole numbers are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from attngen.ir.expr import Binary, Const, Expr, Unary, Var, conjunction, disjunction

ZeroTest: TypeAlias = Literal["le", "eq", "ne"]

MAX_CASES = 32
"""A form with more cases than this is left as it is: pulling `min` and `max` up multiplies them."""


@dataclass(frozen=True, slots=True)
class Affine:
    """``Σ coefficient · term + constant``; no coefficient is zero, no term occurs twice.

    A term is a variable or an integer expression that is not linear, such as ``q * k``.
    """

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def plus(self, other: Affine) -> Affine:
        """The sum of two forms."""
        total = dict(self.terms)
        for term, coefficient in other.terms:
            total[term] = total.get(term, 0) + coefficient
        kept = tuple((term, c) for term, c in total.items() if c)
        return Affine(kept, self.constant + other.constant)

    def times(self, factor: int) -> Affine:
        """The form multiplied by a whole number."""
        if factor == 0:
            return Affine((), 0)
        return Affine(tuple((t, c * factor) for t, c in self.terms), self.constant * factor)

    def coefficient(self, term: Expr) -> int:
        """The coefficient of `term`, 0 where it does not occur."""
        return dict(self.terms).get(term, 0)

    def without(self, term: Expr) -> Affine:
        """The form with `term` left out."""
        return Affine(tuple((t, c) for t, c in self.terms if t != term), self.constant)

    @property
    def shape(self) -> frozenset[tuple[Expr, int]]:
        """What two forms that differ by a constant have in common."""
        return frozenset(self.terms)


@dataclass(frozen=True, slots=True)
class Extremum:
    """The minimum or maximum of several lattices."""

    op: Literal["min", "max"]
    cases: tuple[Lattice, ...]


Lattice: TypeAlias = Affine | Extremum


def lattice(expr: Expr) -> Lattice:
    """The normal form of an integer expression."""
    match expr:
        case Const(value=value):
            return Affine((), int(value))
        case Unary(op="neg", operand=operand):
            return scale(lattice(operand), -1)
        case Unary(op="abs", operand=operand):
            inner = lattice(operand)
            if 2 * _cases(inner) > MAX_CASES:
                return Affine(((expr, 1),), 0)
            return Extremum("max", (inner, scale(inner, -1)))
        case Binary(op="add", left=left, right=right):
            return _sum_or_term(expr, lattice(left), lattice(right))
        case Binary(op="sub", left=left, right=right):
            return _sum_or_term(expr, lattice(left), scale(lattice(right), -1))
        case Binary(op="mul", left=left, right=right):
            one, two = lattice(left), lattice(right)
            if isinstance(one, Affine) and not one.terms:
                return scale(two, one.constant)
            if isinstance(two, Affine) and not two.terms:
                return scale(one, two.constant)
            return Affine(((expr, 1),), 0)
        case Binary(op="min" | "max" as op, left=left, right=right):
            extremum = Extremum(op, (lattice(left), lattice(right)))
            return extremum if _cases(extremum) <= MAX_CASES else Affine(((expr, 1),), 0)
        case _:
            return Affine(((expr, 1),), 0)


def add(left: Lattice, right: Lattice) -> Lattice:
    """The sum, with minima and maxima pulled to the top."""
    if isinstance(left, Extremum):
        return Extremum(left.op, tuple(add(case, right) for case in left.cases))
    if isinstance(right, Extremum):
        return Extremum(right.op, tuple(add(left, case) for case in right.cases))
    return left.plus(right)


def scale(form: Lattice, factor: int) -> Lattice:
    """The form times a whole number; a negative one swaps minima and maxima."""
    if isinstance(form, Affine):
        return form.times(factor)
    if factor == 0:
        return Affine((), 0)
    swapped: Literal["min", "max"] = "max" if form.op == "min" else "min"
    return Extremum(
        swapped if factor < 0 else form.op, tuple(scale(case, factor) for case in form.cases)
    )


def _cases(form: Lattice) -> int:
    return 1 if isinstance(form, Affine) else sum(_cases(case) for case in form.cases)


def _sum_or_term(expr: Expr, left: Lattice, right: Lattice) -> Lattice:
    if _cases(left) * _cases(right) > MAX_CASES:
        return Affine(((expr, 1),), 0)
    return add(left, right)


def compare(op: str, left: Expr, right: Expr) -> Expr:
    """``left op right`` of two integer expressions, as canonical linear comparisons."""
    difference = lattice(Binary("sub", left, right))
    opposite = scale(difference, -1)
    one = Affine((), 1)
    match op:
        case "le":
            return _at_most_zero(difference)
        case "lt":
            return _at_most_zero(add(difference, one))
        case "ge":
            return _at_most_zero(opposite)
        case "gt":
            return _at_most_zero(add(opposite, one))
        case "eq":
            if isinstance(difference, Affine):
                return zero_test("eq", difference)
            return conjunction(_at_most_zero(difference), _at_most_zero(opposite))
        case _:
            if isinstance(difference, Affine):
                return zero_test("ne", difference)
            above, below = add(difference, one), add(opposite, one)
            return disjunction(_at_most_zero(above), _at_most_zero(below))


def _at_most_zero(form: Lattice) -> Expr:
    if isinstance(form, Affine):
        return zero_test("le", form)
    join: Callable[[Expr, Expr], Expr] = disjunction if form.op == "min" else conjunction
    result = _at_most_zero(form.cases[0])
    for case in form.cases[1:]:
        result = join(result, _at_most_zero(case))
    return result


def zero_test(op: ZeroTest, form: Affine) -> Expr:
    """``form op 0`` without subtractions: ``q - k - 5 <= 0`` is ``q <= k + 5``."""
    if not form.terms:
        truth = {"le": form.constant <= 0, "eq": form.constant == 0, "ne": form.constant != 0}
        return Const(truth[op])
    negative = all(c < 0 for _, c in form.terms)
    if negative and op != "le":
        form = form.times(-1)
    left = tuple((t, c) for t, c in form.terms if c > 0)
    right = tuple((t, -c) for t, c in form.terms if c < 0)
    # a constant stands alone where there is room, and never with a minus where it has company
    if left and right and op == "le" and form.constant == 1:
        return Binary("lt", linear(Affine(left, 0)), linear(Affine(right, 0)))
    if not left or (form.constant > 0 and right):
        return Binary(op, linear(Affine(left, form.constant)), linear(Affine(right, 0)))
    return Binary(op, linear(Affine(left, 0)), linear(Affine(right, -form.constant)))


def linear(form: Affine) -> Expr:
    """The form as an expression, positive terms first."""
    result: Expr | None = None
    for term, coefficient in sorted(form.terms, key=lambda item: item[1] < 0):
        size = abs(coefficient)
        part: Expr = term if size == 1 else Binary("mul", Const(size), term)
        if result is None:
            result = part if coefficient > 0 else Unary("neg", part)
        else:
            result = Binary("add" if coefficient > 0 else "sub", result, part)
    if result is None:
        return Const(form.constant)
    if form.constant == 0:
        return result
    sign: Literal["add", "sub"] = "add" if form.constant > 0 else "sub"
    return Binary(sign, result, Const(abs(form.constant)))


def comparison_form(expr: Expr) -> tuple[ZeroTest, Affine] | None:
    """``(op, form)`` of a canonical linear comparison ``form op 0``, or None for anything else.

    Only call this on comparisons of integers.
    """
    match expr:
        case Binary(op="le" | "lt" | "eq" | "ne" as op, left=left, right=right):
            form = lattice(Binary("sub", left, right))
        case _:
            return None
    if not isinstance(form, Affine):
        return None
    return ("le", form.plus(Affine((), 1))) if op == "lt" else (op, form)


def variable(name: str) -> Affine:
    """The form that is just a variable."""
    return Affine(((Var(name), 1),), 0)
