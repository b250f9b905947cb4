"""What sort of value an expression has: truth, whole number or real number.

Input: an expression. Output: its :data:`Kind`, or an InternalError that names the operation whose
operands do not fit. Positions and lengths are whole numbers, `dot` is real; a division is real.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attngen.errors import InternalError
from attngen.ir.expr import (
    COMPARISONS,
    FLOAT_VARS,
    INT_VARS,
    LOGICAL,
    Binary,
    Const,
    DataType,
    Expr,
    Load,
    Select,
    Unary,
    Var,
)

Kind: TypeAlias = Literal["boolean", "integer", "real"]

KIND_OF_DATA: dict[DataType, Kind] = {"float": "real", "int64": "integer", "bool": "boolean"}
_SAME: frozenset[str] = frozenset({"neg", "abs", "not"})
_WHOLE: frozenset[str] = frozenset({"floordiv", "mod"})


def kind_of(expr: Expr) -> Kind:
    """The kind of `expr`.

    Raises:
        InternalError: an operand has the wrong kind, or a variable is unknown.
    """
    match expr:
        case Const(value=bool()):
            return "boolean"
        case Const(value=int()):
            return "integer"
        case Const():
            return "real"
        case Var(name=name, dtype=dtype):
            if dtype is not None:
                return KIND_OF_DATA[dtype]
            if name in INT_VARS:
                return "integer"
            if name in FLOAT_VARS:
                return "real"
            raise InternalError(f"unknown variable {name!r}")
        case Unary(op=op, operand=operand):
            kind = kind_of(operand)
            if op in ("int", "float"):
                return "integer" if op == "int" else "real"
            if (op in LOGICAL) != (kind == "boolean"):
                raise InternalError(f"{op!r} does not take {kind} operands")
            return kind if op in _SAME else "real"
        case Select(condition=condition, then=then, otherwise=otherwise):
            if kind_of(condition) != "boolean":
                raise InternalError("a condition is a truth value")
            return _branches(kind_of(then), kind_of(otherwise))
        case Load(input=name, indices=indices, dtype=dtype):
            if any(kind_of(index) != "integer" for index in indices):
                raise InternalError(f"an index of {name!r} is no whole number")
            return KIND_OF_DATA[dtype]
        case Binary(op=op, left=left, right=right):
            kinds = {kind_of(left), kind_of(right)}
            both_boolean = kinds == {"boolean"}
            if op in ("eq", "ne") and both_boolean:
                return "boolean"
            fits = "boolean" not in kinds and op not in LOGICAL
            if op in _WHOLE:
                fits = kinds == {"integer"}
            if not fits and not (both_boolean and op in LOGICAL):
                raise InternalError(f"{op!r} does not take {' and '.join(sorted(kinds))} operands")
            if op in LOGICAL or op in COMPARISONS:
                return "boolean"
            return "integer" if kinds == {"integer"} and op != "div" else "real"


def _branches(then: Kind, otherwise: Kind) -> Kind:
    if then == otherwise:
        return then
    if "boolean" in (then, otherwise):
        raise InternalError(f"branches do not fit: {then} and {otherwise}")
    return "real"
