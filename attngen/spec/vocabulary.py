"""The names of the expression language, and what people write for them who know another.

Input: none. Output: tables, and the :class:`Scope` of one expression: what it may name and what it
must be.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from attngen.ir.attention import SideInput
from attngen.ir.expr import BinaryOp, DataType, UnaryOp
from attngen.ir.kinds import Kind
from attngen.ir.ranges import Range

VARIABLES: tuple[str, ...] = ("b", "h", "kv_h", "q", "k", "q_len", "kv_len")
_UNARY: tuple[UnaryOp, ...] = (
    "abs",
    "exp",
    "exp2",
    "log",
    "log2",
    "tanh",
    "sqrt",
    "sigmoid",
    "floor",
    "int",
    "float",
)
FUNCTIONS: dict[str, UnaryOp] = {op: op for op in _UNARY}
FOLDS: tuple[Literal["min", "max"], ...] = ("min", "max")
ALL_FUNCTIONS: tuple[str, ...] = (*FUNCTIONS, *FOLDS)

OTHER_NAMES: dict[str, str] = {
    **dict.fromkeys(("q_idx", "query", "row", "i"), "q"),
    **dict.fromkeys(("kv_idx", "k_idx", "kv", "key", "col", "j"), "k"),
    **dict.fromkeys(("head", "head_idx", "h_idx"), "h"),
    **dict.fromkeys(("kv_head", "group"), "kv_h"),
    **dict.fromkeys(("batch", "batch_idx", "b_idx"), "b"),
    **dict.fromkeys(("seq_len", "seqlen", "k_len", "seqlen_k"), "kv_len"),
    **dict.fromkeys(("seqlen_q", "query_len"), "q_len"),
    **dict.fromkeys(("dot", "qk", "s", "scores", "logits"), "score"),
}
OTHER_FUNCTIONS: dict[str, str] = {
    "where": "write a if condition else b",
    "pow": "write x * x, or exp2(y * log2(x))",
    "relu": "write max(x, 0)",
    "clip": "write min(max(x, low), high)",
    "clamp": "write min(max(x, low), high)",
    "round": "write floor(x + 0.5)",
    "ln": "write log(x)",
    "log10": "write log(x) / 2.302585092994046",
    "erf": "write tanh or sigmoid",
    "bool": "write x != 0",
    "divmod": "write // and %",
}
WORDS: dict[Kind, str] = {
    "boolean": "a truth value",
    "integer": "a whole number",
    "real": "a real number",
}
OPERATORS: dict[type[ast.AST], tuple[str, BinaryOp]] = {
    ast.Add: ("+", "add"),
    ast.Sub: ("-", "sub"),
    ast.Mult: ("*", "mul"),
    ast.Div: ("/", "div"),
    ast.FloorDiv: ("//", "floordiv"),
    ast.Mod: ("%", "mod"),
    ast.Lt: ("<", "lt"),
    ast.LtE: ("<=", "le"),
    ast.Gt: (">", "gt"),
    ast.GtE: (">=", "ge"),
    ast.Eq: ("==", "eq"),
    ast.NotEq: ("!=", "ne"),
}
Number: TypeAlias = int | float
_POSITIONS: dict[str, DataType | None] = dict.fromkeys(VARIABLES)


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use beside the functions.

    Attributes:
        key: the key of the spec, which the tree's origins name.
        wants: the kind of the result.
        score: whether the name `score` stands for the scaled product.
        inputs: the side inputs by name.
        parameters: the spec's own numbers by name.
        variables: what it ranges over, each with its type; None is a position or a length.
        ranges: of the variables where more is known than their type.
        noun: what the expression is, in messages.
    """

    key: str
    wants: Literal["truth", "number"]
    score: bool = False
    inputs: Mapping[str, SideInput] = field(default_factory=dict)
    parameters: Mapping[str, Number] = field(default_factory=dict)
    variables: Mapping[str, DataType | None] = field(default_factory=lambda: _POSITIONS)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    noun: str = "mask"

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of a value."""
        score = ("score",) if self.score else ()
        return (*score, *self.variables, *self.parameters, *self.inputs)


def index_hint(given: SideInput) -> str:
    """How to read `given`, as a hint."""
    names = {"batch": "b", "heads": "h", "kv_heads": "kv_h", "q_len": "q", "kv_len": "k"}
    inside = ", ".join(names.get(str(size), "0") for size in given.shape)
    return f"write {given.name}[{inside}]"
