"""Expressions as scalar Python: the bounds of tiles, and what is one value for a whole vector.

Input: an expression, the side inputs whose shapes are known, and what precedes functions' names.
Output: a Python expression over the variables, ``ELEMENT``, functions such as ``np.exp``, and for
an input ``doc`` the flat array ``doc`` with ``doc_size0`` … and ``doc_stride0`` …. An index that is
not surely inside its axis is clamped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from attngen.ir.attention import SideInput
from attngen.ir.expr import (
    COMPARISONS,
    Binary,
    BinaryOp,
    Const,
    DataType,
    Expr,
    Load,
    Select,
    Unary,
    Var,
    children,
    with_children,
)
from attngen.ir.kinds import Kind, kind_of
from attngen.ir.ranges import ANY_CALL, Facts, Range, value_range

Inputs = tuple[SideInput, ...]
NUMPY = "np."
"""What stands before the name of a function on the CPU."""

_INFIX = {
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "div": ("/", 5),
    "floordiv": ("//", 5),
    "mod": ("%", 5),
    "lt": ("<", 3),
    "le": ("<=", 3),
    "gt": (">", 3),
    "ge": (">=", 3),
    "eq": ("==", 3),
    "ne": ("!=", 3),
    "and": ("and", 1),
}
_ASSOCIATIVE = frozenset({"add", "mul", "and"})
# A constant stands on the right of a comparison, as readers expect.
_FLIPPED: dict[str, BinaryOp] = {
    "lt": "gt",
    "le": "ge",
    "gt": "lt",
    "ge": "le",
    "eq": "eq",
    "ne": "ne",
}
_LARGE = 1 << 62
_WIDTH = 72  # code longer than this is cut into named steps
_DATA_OF_KIND: dict[Kind, DataType] = {"boolean": "bool", "integer": "int64", "real": "float"}

# The variable that runs over an axis of that size, which it cannot leave.
_RUNS_OVER = {"batch": "b", "heads": "h", "kv_heads": "kv_h", "kv_len": "k"}


def scalar_code(expr: Expr, level: int = 0, inputs: Inputs = (), functions: str = NUMPY) -> str:
    """`expr` as a Python expression with no more parentheses than it needs."""

    def code(part: Expr, level: int = 0) -> str:
        return scalar_code(part, level, inputs, functions)

    match expr:
        case Const(value=bool() as truth):
            return str(truth)
        case Const(value=float() as number):
            return f"ELEMENT({number_code(number)})"
        case Const(value=value):
            return str(value) if value >= 0 or level == 0 else f"({value})"
        case Var(name=name):
            return name
        case Unary(op="not", operand=operand):
            text = f"not {code(operand, 2)}"
            return f"({text})" if level > 2 else text
        case Unary(op="neg", operand=operand):
            text = f"-{code(operand, 6)}"
            return text if level <= 5 else f"({text})"
        case Unary():
            return _function(expr, inputs, functions)
        case Binary(op="min" | "max" as op, left=left, right=right):
            return f"{op}({code(left)}, {code(right)})"
        case Binary(op=op, left=Const() as left, right=right) if op in _FLIPPED and not isinstance(
            right, Const
        ):
            return code(Binary(_FLIPPED[op], right, left), level)
        case Binary(op="or", left=left, right=right):
            sides = (code(side, 2 * _is_and(side)) for side in (left, right))
            text = " or ".join(sides)
            return f"({text})" if level > 0 else text
        case Binary(op=op, left=left, right=right):
            symbol, own = _INFIX[op]
            tight = op not in _ASSOCIATIVE
            if op == "mul" and isinstance(right, Binary):
                tight = right.op in ("div", "floordiv", "mod")
            text = f"{code(left, own + (op in COMPARISONS))} {symbol} "
            text += code(right, own + tight)
            return f"({text})" if own < level else text
        case Select(condition=condition, then=then, otherwise=otherwise):
            text = f"{code(then)} if {code(condition)} else "
            return f"({text}{code(otherwise)})"
        case Load():
            return f"{expr.input}[{_flat_index(expr, inputs, functions)}]"
        case _:
            assert_never(expr)


def number_code(number: float) -> str:
    """A constant as formatters write it: no plus sign in an exponent."""
    return repr(number).replace("e+", "e")


def bare(code: str) -> str:
    """`code` without parentheses around all of it, as it stands on the right of an assignment."""
    if not (code.startswith("(") and code.endswith(")")):
        return code
    depth = 0
    for at, character in enumerate(code):
        depth += (character == "(") - (character == ")")
        if depth == 0 and at < len(code) - 1:
            return code
    return code[1:-1]


def _is_and(expr: Expr) -> bool:
    """Whether `expr` is a conjunction, which gets parentheses inside a disjunction."""
    return isinstance(expr, Binary) and expr.op == "and"


def _function(expr: Unary, inputs: Inputs, functions: str) -> str:
    operand = scalar_code(expr.operand, 0, inputs, functions)
    kind = kind_of(expr.operand)
    match expr.op:
        case "abs":
            return f"abs({operand})"
        case "float":
            return f"ELEMENT({operand})"
        case "int" if kind == "real":
            low, high = value_range(expr.operand, ANY_CALL)
            if low > -_LARGE and high < _LARGE:
                return f"int({operand})"
            inside = f"min(max({operand}, -{_LARGE}.0), {_LARGE}.0)"
            return f"(int({inside}) if {operand} == {operand} else 0)"
        case "int":
            return f"int({operand})"
        case "sigmoid":
            return f"(ELEMENT(1) / (ELEMENT(1) + {functions}exp(-ELEMENT({operand}))))"
        case _:
            return f"{functions}{expr.op}({operand})"


def _flat_index(load: Load, inputs: Inputs, functions: str) -> str:
    axes = range(len(load.indices))
    parts = (clamped(load, axis, may_leave(load, axis, inputs), inputs, functions) for axis in axes)
    return " + ".join(scaled(part, load, axis) for axis, part in enumerate(parts))


def clamped(
    load: Load,
    axis: int,
    leaves: tuple[bool, bool],
    inputs: Inputs,
    functions: str = NUMPY,
) -> str:
    """A scalar index, kept inside its axis where it may leave it below or above."""
    below, above = leaves
    text = scalar_code(load.indices[axis], 0 if below or above else 5, inputs, functions)
    text = f"max({text}, 0)" if below else text
    return f"min({text}, {load.input}_size{axis} - 1)" if above else text


def scaled(index: str, load: Load, axis: int) -> str:
    """`index` times the elements from one index of that axis to the next."""
    last = axis == len(load.indices) - 1
    return index if last else f"{index} * {load.input}_stride{axis}"


def may_leave(load: Load, axis: int, inputs: Inputs, *, runs_on: bool = False) -> tuple[bool, bool]:
    """Whether an index may lie below its axis, and whether above it.

    Where it `runs_on`, k may lie past the end of the sequence: it fills up a vector.
    """
    index = load.indices[axis]
    shapes = {given.name: given.shape for given in inputs}
    size = shapes[load.input][axis] if load.input in shapes else None
    low, high = value_range(index, _facts(inputs))
    below = low < 0
    if isinstance(size, int):
        return below, high >= size
    inside = isinstance(index, Var) and _RUNS_OVER.get(str(size)) == index.name
    return below, not inside or (runs_on and index == Var("k"))


def _facts(inputs: Inputs) -> Facts:
    """What holds in every call: the tables of the spec are known."""
    tables = {given.name: given.values for given in inputs if given.values is not None}

    def data(load: Load) -> Range:
        values = tables.get(load.input)
        return (min(values), max(values)) if values else ANY_CALL.data(load)

    return replace(ANY_CALL, data=data)


def scalar_steps(
    expr: Expr, name: str, inputs: Inputs = (), functions: str = NUMPY
) -> tuple[str, dict[str, str]]:
    """`expr` as code that fits a line, over steps (name -> code) that come before it."""
    steps: dict[str, str] = {}

    def code(part: Expr) -> str:
        return scalar_code(part, 0, inputs, functions)

    def fitted(part: Expr) -> Expr:
        part = with_children(part, tuple(fitted(child) for child in children(part)))
        if isinstance(part, Load) and len(code(part)) > _WIDTH:
            return addressed(part)
        while len(code(part)) > _WIDTH:
            texts = [code(child) for child in children(part)]
            longest = max(range(len(texts)), key=lambda i: len(texts[i]))
            if texts[longest].isidentifier():
                break
            operands = list(children(part))
            operands[longest] = named(operands[longest], texts[longest])
            part = with_children(part, tuple(operands))
        return part

    def named(child: Expr, text: str) -> Expr:
        return Var(step_of(text), dtype=_DATA_OF_KIND[kind_of(child)])

    def step_of(text: str) -> str:
        step = next((step for step, code in steps.items() if code == text), f"{name}_{len(steps)}")
        steps[step] = text
        return step

    def addressed(load: Load) -> Expr:
        """A long read, with the indices that are clamped or long made before it."""
        parts = []
        for axis in range(len(load.indices)):
            leaves = may_leave(load, axis, inputs)
            text = clamped(load, axis, leaves, inputs, functions)
            apart = any(leaves) or len(text) > _WIDTH // 2 - len(load.input)
            parts.append(scaled(step_of(text) if apart else text, load, axis))
        return Var(f"{load.input}[{' + '.join(parts)}]", dtype=load.dtype)

    return code(fitted(expr)), steps
