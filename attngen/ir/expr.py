"""Expressions over scores and positions: the one language for scores, masks and tile bounds.

Grammar (all nodes immutable)::

    Expr   = Const(value) | Var(name) | Unary(op, operand) | Binary(op, left, right)
    Unary  : neg not tanh
    Binary : add sub mul div min max | lt le gt ge eq ne | and or

Variables: ``dot`` (the scaled product q·k), ``b h kv_h`` (indices), ``q k`` (positions),
``q_len kv_len``, and in tile bounds ``q_first q_last k_first k_last`` (inclusive).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

UnaryOp: TypeAlias = Literal["neg", "not", "tanh"]
BinaryOp: TypeAlias = Literal[
    "add", "sub", "mul", "div", "min", "max", "lt", "le", "gt", "ge", "eq", "ne", "and", "or"
]
COMPARISONS: frozenset[str] = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
LOGICAL: frozenset[str] = frozenset({"and", "or", "not"})

FLOAT_VARS: frozenset[str] = frozenset({"dot"})
INT_VARS: frozenset[str] = frozenset(
    {"b", "h", "kv_h", "q", "k", "q_len", "kv_len", "q_first", "q_last", "k_first", "k_last"}
)


@dataclass(frozen=True, slots=True)
class Const:
    """A number or a truth value."""

    value: int | float | bool
    origin: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Var:
    """A variable of :data:`FLOAT_VARS` or :data:`INT_VARS`."""

    name: str
    origin: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """``op(operand)``."""

    op: UnaryOp
    operand: Expr
    origin: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """``left op right``."""

    op: BinaryOp
    left: Expr
    right: Expr
    origin: str = field(default="", compare=False)


Expr: TypeAlias = Const | Var | Unary | Binary

TRUE = Const(True)
FALSE = Const(False)
DOT = Var("dot")
Q = Var("q")
K = Var("k")


def conjunction(left: Expr, right: Expr) -> Expr:
    """``left and right``, without the trivial cases."""
    if left == TRUE:
        return right
    if right == TRUE:
        return left
    if FALSE in (left, right):
        return FALSE
    return Binary("and", left, right)


def disjunction(left: Expr, right: Expr) -> Expr:
    """``left or right``, without the trivial cases."""
    if left == FALSE:
        return right
    if right == FALSE:
        return left
    if TRUE in (left, right):
        return TRUE
    return Binary("or", left, right)


def variables(expr: Expr) -> frozenset[str]:
    """The names of the variables that `expr` reads."""
    match expr:
        case Const():
            return frozenset()
        case Var(name=name):
            return frozenset({name})
        case Unary(operand=operand):
            return variables(operand)
        case Binary(left=left, right=right):
            return variables(left) | variables(right)
