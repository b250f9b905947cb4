"""Normalise the mask: one spelling for masks that mean the same.

Input and output: an AttentionIR. Negations are pushed down to what they deny, integer comparisons
read ``positive terms <= positive terms`` (``q - k < 256`` becomes ``q <= k + 255``), `min` and
`max` in them become `and` and `or`, as does a choice between truth values, and a comparison that
another one implies goes, as does one that is always or never true. Comparisons of real numbers keep
their order of operations, as rounding and NaN allow no other.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from attngen.ir.affine import Affine, compare, comparison_form, zero_test
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import (
    COMPARISONS,
    FALSE,
    TRUE,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Select,
    Unary,
    conjunction,
    disjunction,
    size,
)
from attngen.ir.kinds import kind_of
from attngen.passes.fold_constants import folded

_NEGATED: dict[str, BinaryOp] = {
    "lt": "ge",
    "le": "gt",
    "gt": "le",
    "ge": "lt",
    "eq": "ne",
    "ne": "eq",
}

_MAX_SELECT = (
    100  # nodes of a choice that is spelt with `and` and `or`, which doubles its condition
)


@dataclasses.dataclass(frozen=True, slots=True)
class NormaliseMask:
    """Brings the mask into its canonical form."""

    def __call__(self, ir: AttentionIR) -> AttentionIR:
        """`ir` with a canonical mask; `ir` itself if it has one."""
        mask = normalised(ir.mask)
        return ir if mask == ir.mask else dataclasses.replace(ir, mask=mask)


def normalised(mask: Expr) -> Expr:
    """The canonical form of a boolean expression."""
    return _normal(folded(mask), negate=False)


def _normal(expr: Expr, *, negate: bool) -> Expr:
    """The canonical form of `expr`, or of its negation."""
    match expr:
        case Const(value=value):
            return Const(bool(value) != negate)
        case Unary(op="not", operand=operand):
            return _normal(operand, negate=not negate)
        case Binary(op="and" | "or" as op, left=left, right=right):
            joined: Literal["and", "or"] = op
            if negate:
                joined = "or" if op == "and" else "and"
            return join(joined, _normal(left, negate=negate), _normal(right, negate=negate))
        case Select() if size(expr) <= _MAX_SELECT:
            chosen = Binary("and", expr.condition, _negated(expr.then, negate=negate))
            other = Binary(
                "and", Unary("not", expr.condition), _negated(expr.otherwise, negate=negate)
            )
            return _normal(Binary("or", chosen, other), negate=False)
        case Binary(op=op, left=left, right=right) if op in COMPARISONS:
            return _comparison(expr, left, right, negate=negate)
        case _:
            return Unary("not", expr) if negate else expr


def _negated(expr: Expr, *, negate: bool) -> Expr:
    return Unary("not", expr) if negate else expr


def _comparison(expr: Binary, left: Expr, right: Expr, *, negate: bool) -> Expr:
    kinds = {kind_of(left), kind_of(right)}
    if kinds == {"integer"}:
        result = _reduced(compare(_NEGATED[expr.op] if negate else expr.op, left, right))
        if isinstance(result, Binary) and result.op in COMPARISONS:
            return dataclasses.replace(result, origin=expr.origin)
        return result
    if kinds == {"boolean"}:
        return _equality(expr, equal=(expr.op == "eq") != negate)
    if expr.op in ("gt", "ge"):
        expr = Binary("lt" if expr.op == "gt" else "le", right, left, expr.origin)
    # not (a < b) is no b <= a where one of them is NaN
    return Unary("not", expr) if negate else expr


def _equality(expr: Binary, *, equal: bool) -> Expr:
    """Whether two truth values are equal, or whether they differ."""
    left, right = _normal(expr.left, negate=False), _normal(expr.right, negate=False)
    for known, other in ((left, right), (right, left)):
        if isinstance(known, Const):
            return _normal(other, negate=bool(known.value) != equal)
    return Binary("eq" if equal else "ne", left, right, expr.origin)


def _reduced(expr: Expr) -> Expr:
    """Canonical comparisons joined by `and` and `or`, in lowest terms and without redundancy."""
    match expr:
        case Binary(op="and" | "or" as joined, left=left, right=right):
            return join(joined, _reduced(left), _reduced(right))
        case _:
            pass
    known = comparison_form(expr)
    if known is None:
        return expr
    op, form = known
    divisor = math.gcd(*(c for _, c in form.terms))
    if divisor <= 1:
        return expr
    terms = tuple((t, c // divisor) for t, c in form.terms)
    if op == "le":
        return zero_test("le", Affine(terms, -(-form.constant // divisor)))
    if form.constant % divisor:
        return Const(op == "ne")
    return zero_test(op, Affine(terms, form.constant // divisor))


def join(op: Literal["and", "or"], left: Expr, right: Expr) -> Expr:
    """``left op right`` in canonical form, each operand being canonical already.

    Of two linear comparisons of the same terms the one that decides is kept, and two that exclude
    each other (or leave nothing out) become a constant.
    """
    kept: list[Expr] = []
    for item in (*_items(op, left), *_items(op, right)):
        if item == (TRUE if op == "and" else FALSE):
            continue
        if not _absorb(op, kept, item):
            return FALSE if op == "and" else TRUE
    joined: Expr = TRUE if op == "and" else FALSE
    for item in kept:
        joined = conjunction(joined, item) if op == "and" else disjunction(joined, item)
    return joined


def _items(op: str, expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Binary) and expr.op == op:
        return (*_items(op, expr.left), *_items(op, expr.right))
    return (expr,)


def _absorb(op: str, kept: list[Expr], item: Expr) -> bool:
    """Add `item` to `kept`, dropping what is implied; False if the whole is decided by it."""
    if item == (FALSE if op == "and" else TRUE):
        return False
    form = _bound(item)
    place = len(kept)
    for index, other in enumerate(kept):
        if other == item:
            return True
        known = _bound(other)
        if form is None or known is None:
            continue
        if known.shape == form.shape:
            # form <= 0 is the stronger the larger its constant
            if (form.constant > known.constant) != (op == "and"):
                return True
            place = index
        elif known.shape == form.times(-1).shape:
            # t <= -a and t >= b: no t is left if b > -a; or: every t is in if b <= -a + 1
            gap = form.constant + known.constant
            if (op == "and" and gap > 0) or (op == "or" and gap <= 1):
                return False
    kept[place : place + 1] = [item]
    return True


def _bound(expr: Expr) -> Affine | None:
    if not (isinstance(expr, Binary) and expr.op in ("le", "lt")):
        return None
    if {kind_of(expr.left), kind_of(expr.right)} != {"integer"}:
        return None
    known = comparison_form(expr)
    return None if known is None else known[1]
