"""Expressions over scores and positions: the one language for scores, masks and tile bounds.

Grammar (all nodes immutable)::

    Expr   = Const(value) | Var(name) | Unary(op, operand) | Binary(op, left, right)
           | Select(condition, then, otherwise) | Load(input, indices)
    Unary  : neg abs | not | tanh exp exp2 log log2 sqrt sigmoid floor | float int
    Binary : add sub mul div floordiv mod min max | lt le gt ge eq ne | and or

Variables: ``dot`` (the scaled product q·k), ``b h kv_h`` (indices), ``q k`` (positions),
``q_len kv_len``, and in tile bounds ``q_first q_last k_first k_last h_first h_last`` (inclusive)
beside the bounds of run-time data that :func:`data_bound` names.

``floordiv`` and ``mod`` are of whole numbers and round down, as Python's; ``floor`` gives a real
number; ``int`` cuts the fraction off, gives 0 for NaN and stays within 62 bits. The right side of
``and`` and ``or`` and the branches of a Select read side inputs only where they matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

UnaryOp: TypeAlias = Literal[
    "neg",
    "abs",
    "not",
    "tanh",
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "sigmoid",
    "floor",
    "float",
    "int",
]
BinaryOp: TypeAlias = Literal[
    "add",
    "sub",
    "mul",
    "div",
    "floordiv",
    "mod",
    "min",
    "max",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "and",
    "or",
]
DataType: TypeAlias = Literal["float", "int64", "bool"]
"""What a side input holds; ``float`` is the accumulator's type."""
COMPARISONS: frozenset[str] = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
LOGICAL: frozenset[str] = frozenset({"and", "or", "not"})

FLOAT_VARS: frozenset[str] = frozenset({"dot"})
INT_VARS: frozenset[str] = frozenset(
    {"b", "h", "kv_h", "q", "k", "q_len", "kv_len"}
    | {f"{name}_{end}" for name in ("q", "k", "h") for end in ("first", "last")}
)


@dataclass(frozen=True, slots=True)
class Const:
    """A number or a truth value."""

    value: int | float | bool
    origin: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Var:
    """A variable of :data:`FLOAT_VARS` or :data:`INT_VARS`, or one whose `dtype` is given."""

    name: str
    origin: str = field(default="", compare=False)
    dtype: DataType | None = None


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


@dataclass(frozen=True, slots=True)
class Select:
    """``then if condition else otherwise``."""

    condition: Expr
    then: Expr
    otherwise: Expr
    origin: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Load:
    """``input[indices]``: an element of the side input of that name, which holds `dtype`."""

    input: str
    indices: tuple[Expr, ...]
    origin: str = field(default="", compare=False)
    dtype: DataType = "float"


Expr: TypeAlias = Const | Var | Unary | Binary | Select | Load

SCORE = Var("score", dtype="float")
"""What an activation is a function of."""

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


def children(expr: Expr) -> tuple[Expr, ...]:
    """The operands of `expr`, in order."""
    match expr:
        case Const() | Var():
            return ()
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Select(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case Load(indices=indices):
            return indices


def with_children(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """`expr` with other operands; `expr` itself where each is the one it has."""
    if all(new is old for new, old in zip(operands, children(expr), strict=True)):
        return expr
    match expr:
        case Unary(op=op, origin=origin):
            return Unary(op, operands[0], origin)
        case Binary(op=op, origin=origin):
            return Binary(op, operands[0], operands[1], origin)
        case Select(origin=origin):
            return Select(operands[0], operands[1], operands[2], origin)
        case Load(input=name, origin=origin, dtype=dtype):
            return Load(name, operands, origin, dtype)
        case _:
            return expr


def replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    """`expr` with `new` wherever it has `old`."""
    if expr == old:
        return new
    return with_children(expr, tuple(replaced(child, old, new) for child in children(expr)))


def variables(expr: Expr) -> frozenset[str]:
    """The names of the variables that `expr` reads."""
    if isinstance(expr, Var):
        return frozenset({expr.name})
    return frozenset[str]().union(*map(variables, children(expr)))


def parts(expr: Expr) -> tuple[Expr, ...]:
    """Every node of `expr`, itself first."""
    return (expr, *(part for child in children(expr) for part in parts(child)))


def size(expr: Expr) -> int:
    """The number of nodes of `expr`."""
    return 1 + sum(map(size, children(expr)))


def loads(expr: Expr) -> tuple[Load, ...]:
    """The reads of side inputs in `expr`, each once, inner ones first."""
    found = [load for child in children(expr) for load in loads(child)]
    if isinstance(expr, Load):
        found.append(expr)
    return tuple(dict.fromkeys(found))


def data_bound(load: Load, end: Literal["min", "max"]) -> Var | None:
    """The variable for the least or greatest value of `load` over a tile.

    There is one where the indices are exactly ``(q,)``, ``(k,)``, ``(b, q)`` or ``(b, k)`` and the
    data is exact; NaN has no place in an order.
    """
    match load.indices:
        case (Var(name="q" | "k" as axis),) | (Var(name="b"), Var(name="q" | "k" as axis)):
            if load.dtype != "float":
                return Var(f"{load.input}_{axis}_{end}", load.origin, load.dtype)
    return None
