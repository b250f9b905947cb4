"""Which tiles of the score matrix a mask empties, fills or cuts, by interval reasoning.

Input: a mask over positions q and k. Output: a :class:`MaskPlan`: closed forms over a tile's
corners q_first, q_last, k_first, k_last (inclusive, not empty) that say whether all of it may
attend and whether any of it may, and bounds for the keys a range of rows sees. They read as well b,
kv_h, the heads h_first … h_last of the tile's rows, and the least and greatest values over the tile
of side inputs indexed by q or k, so that documents and segments are told apart. The forms are sound
for every mask of the grammar (`always` implies all, not `possible` implies none) and exact for a
linear comparison and for causal and window masks: they bound ``q - k`` as a whole, not q and k
apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Literal

from attngen.ir.affine import Affine, comparison_form, lattice, linear, variable, zero_test
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import (
    COMPARISONS,
    FALSE,
    TRUE,
    Binary,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    conjunction,
    data_bound,
    disjunction,
    loads,
    size,
    variables,
)
from attngen.ir.intervals import Bounds, affine_bound, interval
from attngen.ir.kernel import DataBound, MaskPlan
from attngen.ir.kinds import kind_of
from attngen.passes.fold_constants import folded
from attngen.passes.normalise_mask import normalised

_MAX_EQUALITY = 40  # nodes of truth values that are compared, which names each of them twice


class TileClass(Enum):
    """What a mask does to a tile."""

    EMPTY = "empty"
    FULL = "full"
    PARTIAL = "partial"


def plan(mask: Expr) -> MaskPlan:
    """The mask with its closed forms.

    `key_first` and `key_last` hold for the rows q_first … q_last and are not clipped: they may lie
    below 0 or past the last key, and `key_first` past `key_last` where no row sees a key.
    """
    canonical = normalised(mask)
    first, last = _key_bounds(canonical)
    always, possible = normalised(_always(canonical)), normalised(_possible(canonical))
    return MaskPlan(
        predicate=mask,
        always=always,
        possible=possible,
        key_first=first,
        key_last=last,
        data_bounds=_data_bounds(mask, always, possible, first, last),
    )


def _data_bounds(mask: Expr, *forms: Expr | None) -> tuple[DataBound, ...]:
    """The minima and maxima of run-time data that `forms` read."""
    read = frozenset[str]().union(*(variables(form) for form in forms if form is not None))
    found: dict[DataBound, None] = {}
    for load in loads(mask):
        ends = [data_bound(load, "min"), data_bound(load, "max")]
        if any(end is not None and end.name in read for end in ends):
            axis = load.indices[-1]
            assert isinstance(axis, Var)  # noqa: S101 data_bound names no others
            place: Literal["q", "k"] = "q" if axis.name == "q" else "k"
            found[DataBound(load.input, place, len(load.indices) == 2)] = None
    return tuple(found)


def classify(
    mask: Expr,
    q_first: int,
    q_last: int,
    k_first: int,
    k_last: int,
    q_len: int,
    kv_len: int,
    more: Mapping[str, Any] | None = None,
) -> TileClass:
    """The class of the tile q_first … q_last × k_first … k_last (positions, inclusive).

    `more` has what else the mask's forms read: b, kv_h, h_first, h_last, side inputs and the bounds
    of their data.
    """
    tile = dict(more or {}) | {
        "q_first": q_first,
        "q_last": q_last,
        "k_first": k_first,
        "k_last": k_last,
        "q_len": q_len,
        "kv_len": kv_len,
    }
    always, possible = _forms(mask)
    if not evaluate(possible, tile):
        return TileClass.EMPTY
    return TileClass.FULL if evaluate(always, tile) else TileClass.PARTIAL


@lru_cache(maxsize=256)
def _forms(mask: Expr) -> tuple[Expr, Expr]:
    forms = plan(mask)
    return forms.always, forms.possible


def _always(expr: Expr) -> Expr:
    """True only if `expr` holds everywhere in the tile."""
    match expr:
        case Unary(op="not", operand=operand):
            return Unary("not", _possible(operand))
        case Binary(op="and", left=left, right=right):
            return conjunction(_always(left), _always(right))
        case Binary(op="or", left=left, right=right):
            return disjunction(_always(left), _always(right))
        case Binary(op=op, left=left, right=right) if op in COMPARISONS:
            if kind_of(left) == "boolean":
                equal, unequal = _equality(left, right)
                return equal if op == "eq" else unequal
            return _comparison(expr)[0]
        case Select(condition=condition, then=then, otherwise=otherwise):
            taken = conjunction(_always(condition), _always(then))
            other = conjunction(Unary("not", _possible(condition)), _always(otherwise))
            return disjunction(taken, other)
        case Load():
            ends = interval(expr)
            return FALSE if ends is None else ends[0]
        case _:
            return expr


def _possible(expr: Expr) -> Expr:
    """False only if `expr` holds nowhere in the tile."""
    match expr:
        case Unary(op="not", operand=operand):
            return Unary("not", _always(operand))
        case Binary(op="and", left=left, right=right):
            return conjunction(_possible(left), _possible(right))
        case Binary(op="or", left=left, right=right):
            return disjunction(_possible(left), _possible(right))
        case Binary(op=op, left=left, right=right) if op in COMPARISONS:
            if kind_of(left) == "boolean":
                equal, unequal = _equality(left, right)
                return Unary("not", unequal if op == "eq" else equal)
            return _comparison(expr)[1]
        case Select(condition=condition, then=then, otherwise=otherwise):
            taken = conjunction(_possible(condition), _possible(then))
            other = conjunction(Unary("not", _always(condition)), _possible(otherwise))
            return disjunction(taken, other)
        case Load():
            ends = interval(expr)
            return TRUE if ends is None else ends[1]
        case _:
            return expr


def _equality(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Where two truth values surely agree, and where they surely differ."""
    if size(left) + size(right) > _MAX_EQUALITY:
        return FALSE, FALSE
    left_never, right_never = Unary("not", _possible(left)), Unary("not", _possible(right))
    left_always, right_always = _always(left), _always(right)
    return (
        disjunction(conjunction(left_always, right_always), conjunction(left_never, right_never)),
        disjunction(conjunction(left_always, right_never), conjunction(left_never, right_always)),
    )


def _comparison(expr: Binary) -> tuple[Expr, Expr]:
    """(always, possible) of a comparison of numbers."""
    known = None
    if {kind_of(expr.left), kind_of(expr.right)} == {"integer"}:
        known = comparison_form(expr)
    if known is not None:
        op, form = known
        low, high = affine_bound(form, "first"), affine_bound(form, "last")
        if low is None or high is None:
            return FALSE, TRUE
        return _sign_test(op, low, high)
    left, right = interval(expr.left), interval(expr.right)
    if left is None or right is None:
        return FALSE, TRUE
    return _order_test(expr.op, left, right)


def _sign_test(op: str, low: Affine, high: Affine) -> tuple[Expr, Expr]:
    """(always, possible) of ``form op 0`` for a form between `low` and `high`."""
    if op == "le":
        return zero_test("le", high), zero_test("le", low)
    reaches = conjunction(zero_test("le", low), zero_test("le", high.times(-1)))
    settled = conjunction(zero_test("le", high), zero_test("le", low.times(-1)))
    if op == "eq":
        return settled, reaches
    return Unary("not", reaches), Unary("not", settled)


def _order_test(op: str, left: Bounds, right: Bounds) -> tuple[Expr, Expr]:
    """(always, possible) of ``left op right`` for real numbers within bounds."""
    match op:
        case "lt" | "le":
            always: Expr = Binary(op, left[1], right[0])
            return always, Binary(op, left[0], right[1])
        case "gt" | "ge":
            always = Binary(op, left[0], right[1])
            return always, Binary(op, left[1], right[0])
        case _:
            reaches = conjunction(Binary("le", left[0], right[1]), Binary("le", right[0], left[1]))
            settled = conjunction(Binary("le", left[1], right[0]), Binary("le", right[1], left[0]))
            if op == "eq":
                return settled, reaches
            return Unary("not", reaches), Unary("not", settled)


def _key_bounds(expr: Expr) -> tuple[Expr | None, Expr | None]:
    """Bounds of the keys for which `expr` can hold, as functions of q_first and q_last."""
    match expr:
        case Const(value=False):
            return None, Const(-1)
        case Binary(op="and" | "or" as op, left=left, right=right):
            left_first, left_last = _key_bounds(left)
            right_first, right_last = _key_bounds(right)
            tighter = op == "and"
            return (
                _join_bounds("max" if tighter else "min", left_first, right_first, tighter=tighter),
                _join_bounds("min" if tighter else "max", left_last, right_last, tighter=tighter),
            )
        case Binary(op="le" | "lt" | "eq", left=left, right=right) if {
            kind_of(left),
            kind_of(right),
        } == {"integer"}:
            known = comparison_form(expr)
            return (None, None) if known is None else _solve_for_key(*known)
        case _:
            return None, None


def _join_bounds(
    op: Literal["min", "max"], left: Expr | None, right: Expr | None, *, tighter: bool
) -> Expr | None:
    if left is None or right is None:
        return (left or right) if tighter else None
    return left if left == right else Binary(op, left, right)


def _solve_for_key(op: str, form: Affine) -> tuple[Expr | None, Expr | None]:
    """Bounds of k from ``form <= 0`` or ``form == 0`` where k stands alone, or in ``k // size``."""
    found = [(term, factor) for term, factor in form.terms if "k" in variables(term)]
    if len(found) != 1 or abs(found[0][1]) != 1:
        return None, None
    term, factor = found[0]
    solved = form.without(term).times(-factor)
    low, high = affine_bound(solved, "first"), affine_bound(solved, "last")
    if op != "eq":
        low, high = (None, high) if factor > 0 else (low, None)
    return _keys_between(term, low, high)


def _keys_between(
    term: Expr, low: Affine | None, high: Affine | None
) -> tuple[Expr | None, Expr | None]:
    """Bounds of k where `term` lies between `low` and `high`."""
    match term:
        case Var(name="k"):
            pass
        case Binary(op="floordiv", left=left, right=Const(value=int() as chunk)) if chunk > 0:
            form = lattice(left)
            if not isinstance(form, Affine) or form.shape != variable("k").shape:
                return None, None
            first = Affine((), -form.constant)
            low = None if low is None else low.times(chunk).plus(first)
            high = None if high is None else high.times(chunk).plus(first)
            high = None if high is None else high.plus(Affine((), chunk - 1))
        case _:
            return None, None
    return (
        None if low is None else folded(linear(low)),
        None if high is None else folded(linear(high)),
    )
