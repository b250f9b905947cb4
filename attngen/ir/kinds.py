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
    Expr,
    Unary,
    Var,
)

Kind: TypeAlias = Literal["boolean", "integer", "real"]


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
        case Var(name=name):
            if name in INT_VARS:
                return "integer"
            if name in FLOAT_VARS:
                return "real"
            raise InternalError(f"unknown variable {name!r}")
        case Unary(op=op, operand=operand):
            kind = kind_of(operand)
            if (op in LOGICAL) != (kind == "boolean"):
                raise InternalError(f"{op!r} does not take {kind} operands")
            return "real" if op == "tanh" else kind
        case Binary(op=op, left=left, right=right):
            kinds = {kind_of(left), kind_of(right)}
            both_boolean = kinds == {"boolean"}
            if op in ("eq", "ne") and both_boolean:
                return "boolean"
            if ("boolean" in kinds or op in LOGICAL) and not (both_boolean and op in LOGICAL):
                raise InternalError(f"{op!r} does not take {' and '.join(sorted(kinds))} operands")
            if op in LOGICAL or op in COMPARISONS:
                return "boolean"
            return "integer" if kinds == {"integer"} and op != "div" else "real"
