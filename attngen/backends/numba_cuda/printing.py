"""Expressions as code for one (query, key) pair, before the loop over keys and in it.

Everything is scalar on a GPU: a thread works on one pair after the other. Whole numbers are int64
and real ones ELEMENT, so that no mixed operation is done in float64: they are converted where they
meet. What the loop over keys does not change is made once, before it. Truths lie in memory as
bytes.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace

from attngen.backends.scalar_code import Inputs, bare, scalar_steps
from attngen.backends.sections import Printer
from attngen.ir.expr import (
    LOGICAL,
    Binary,
    Const,
    DataType,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    children,
    loads,
    variables,
    with_children,
)
from attngen.ir.kernel import MaskPlan
from attngen.ir.kinds import Kind, kind_of

FUNCTIONS = ""
"""What stands before the name of a function: they are imported under their own names."""

_SAME_KIND = frozenset({"neg", "abs", "not", "int", "float"})
_DATA_OF_KIND: dict[Kind, DataType] = {"boolean": "bool", "integer": "int64", "real": "float"}


def element_printer(inner: AbstractSet[str], inputs: Inputs) -> Printer:
    """Prints expressions for a loop over keys that sets `inner` and dot."""

    def lines(expr: Expr, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return element_sections(expr, name, inner | {"dot"}, inputs)

    return lines


def element_sections(
    expr: Expr, result: str, inner: AbstractSet[str], inputs: Inputs = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines that assign `expr` to `result`: those before a loop that sets `inner`, those in it."""
    before: list[str] = []
    named: dict[Expr, Var] = {}

    def hoisted(part: Expr) -> Expr:
        if isinstance(part, (Const, Var)):
            return part
        if variables(part) & inner:
            return with_children(part, tuple(hoisted(child) for child in children(part)))
        # What is read to find what is read has a name of its own, which others may use.
        part = with_children(
            part, tuple(hoisted(child) if loads(child) else child for child in children(part))
        )
        if part not in named:
            name = f"{result}_{len(named)}"
            before.extend(_assignments(part, name, inputs))
            named[part] = Var(name, dtype=_DATA_OF_KIND[kind_of(part)])
        return named[part]

    whole = converted(expr)
    if kind_of(whole) == "integer":
        whole = _real(whole)  # a score is a real number
    if not variables(whole) & inner:
        return _assignments(whole, result, inputs), ()
    remaining = hoisted(whole)
    code, steps = scalar_steps(remaining, f"{result}_{len(named)}", inputs, FUNCTIONS)
    return tuple(before), _lines({**steps, result: code})


def _assignments(expr: Expr, name: str, inputs: Inputs) -> tuple[str, ...]:
    code, steps = scalar_steps(expr, name, inputs, FUNCTIONS)
    return _lines({**steps, name: code})


def _lines(code: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name} = {bare(text)}" for name, text in code.items())


def converted_forms(mask: MaskPlan | None) -> MaskPlan | None:
    """`mask` with its closed forms as the printer needs them."""
    if mask is None:
        return None

    def form(expr: Expr | None) -> Expr | None:
        return None if expr is None else converted(expr)

    return replace(
        mask,
        always=converted(mask.always),
        possible=converted(mask.possible),
        key_first=form(mask.key_first),
        key_last=form(mask.key_last),
    )


def converted(expr: Expr) -> Expr:
    """`expr` in which whole numbers become real ones where they meet those, in so many words."""
    parts = tuple(converted(child) for child in children(expr))
    expr = with_children(expr, parts)
    match expr:
        case Load(dtype="bool"):
            return Binary("ne", replace(expr, dtype="int64"), Const(0))
        case Unary(op=op, operand=operand) if op not in _SAME_KIND:
            return with_children(expr, (_real(operand),))
        case Binary(op=op) if op not in LOGICAL and _is_mixed(parts, op):
            return with_children(expr, tuple(_real(part) for part in parts))
        case Select(condition=condition, then=then, otherwise=otherwise):
            if _is_mixed((then, otherwise), "min"):
                return with_children(expr, (condition, _real(then), _real(otherwise)))
        case _:
            pass
    return expr


def _is_mixed(parts: tuple[Expr, ...], op: str) -> bool:
    kinds = {kind_of(part) for part in parts}
    return "real" in kinds or op == "div"


def _real(expr: Expr) -> Expr:
    """`expr`, or what makes a real number of it."""
    match expr:
        case Const(value=bool()):
            return expr
        case Const(value=int() as value):
            return Const(float(value))
        case _:
            return Unary("float", expr) if kind_of(expr) == "integer" else expr
