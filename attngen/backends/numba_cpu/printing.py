"""Expressions as vector code, in two parts: before the loop over keys, and in it.

Vector code is built from the operations of the generated ``simd`` module. A sub-expression that no
vector variable enters stays scalar and is broadcast where it meets one, and a whole number that
meets a real one is converted there. What the inner loop does not change is made once, before it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from attngen.backends.scalar_code import (
    Inputs,
    clamped,
    may_leave,
    number_code,
    scalar_code,
    scalar_steps,
    scaled,
)
from attngen.ir.expr import COMPARISONS, Binary, Const, Expr, Load, Select, Unary, Var, variables
from attngen.ir.kinds import Kind, kind_of

__all__ = ["operations", "scalar_code", "vector_lines", "vector_sections"]

_WIDTH = 72  # a line longer than this is cut into named steps


def vector_sections(
    expr: Expr,
    result: str,
    vectors: AbstractSet[str],
    inner: AbstractSet[str],
    inputs: Inputs = (),
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines that assign `expr` to `result`: those before a loop that sets `inner`, those in it.

    Args:
        expr: what to compute.
        result: the variable to assign; names of intermediate values begin with it.
        vectors: the variables that are vectors; the others are scalars.
        inner: the variables that the inner loop sets.
        inputs: the side inputs, whose shapes save clamping an index that cannot leave its axis.
    """
    printer = _VectorPrinter(result, vectors, frozenset(inner), inputs)
    text = printer.vector(expr, kind_of(expr), root=True)
    lines = printer.lines if variables(expr) & printer.inner else printer.hoisted
    lines.append(f"{result} = {text}")
    return tuple(printer.hoisted), tuple(printer.lines)


def vector_lines(expr: Expr, result: str, vectors: AbstractSet[str]) -> tuple[str, ...]:
    """Lines that assign `expr` to `result`, where the variables in `vectors` are vectors."""
    hoisted, lines = vector_sections(expr, result, vectors, variables(expr))
    return (*hoisted, *lines)


def operations(lines: tuple[str, ...]) -> frozenset[str]:
    """The names of vector operations that `lines` call."""
    words = "".join(c if c.isalnum() or c == "_" else " " for c in "\n".join(lines)).split()
    return frozenset(w for w in words if w.startswith("v_"))


class _VectorPrinter:
    """Prints one expression; sub-expressions that grow too long become named steps."""

    def __init__(
        self, result: str, vectors: AbstractSet[str], inner: frozenset[str], inputs: Inputs
    ) -> None:
        self.result = result
        self.vectors = vectors
        self.inner = inner
        self.inputs = inputs
        self.hoisted: list[str] = []
        self.lines: list[str] = []
        self.named: dict[str, str] = {}
        self.within_fixed = False

    def vector(self, expr: Expr, kind: Kind, *, root: bool = False) -> str:
        """The text of `expr` as a vector of that kind."""
        fixed = not (self.within_fixed or variables(expr) & self.inner)
        if not fixed:
            return self.converted(expr, kind)
        self.within_fixed = True
        text = self.converted(expr, kind)
        self.within_fixed = False
        if root or text.isidentifier() or _is_simple(expr, text):
            return text
        return self.name_for(text, self.hoisted)

    def converted(self, expr: Expr, kind: Kind) -> str:
        """`expr` broadcast where it is a scalar, and made real where `kind` is and it is not."""
        text, is_vector = self.operand(expr)
        real = kind == "real" and kind_of(expr) != "real"
        if is_vector:
            return self.call("v_to_float", text) if real else text
        if kind == "real":
            text = _element(expr, text)
        return f"v_splat({text})"

    def operand(self, expr: Expr) -> tuple[str, bool]:
        """The text of `expr` in its own kind, and whether it is a vector."""
        if not self.is_vector(expr):
            return self.scalar(expr), False
        match expr:
            case Var(name=name):
                return name, True
            case Unary():
                return self.unary(expr), True
            case Binary():
                return self.binary(expr), True
            case Select():
                kind = kind_of(expr)
                condition = self.vector(expr.condition, "boolean")
                then, otherwise = self.vector(expr.then, kind), self.vector(expr.otherwise, kind)
                return self.call("v_select", condition, then, otherwise), True
            case Load():
                # with a name of its own, so that what reads it twice gathers once
                return self.short(self.call("v_gather", expr.input, self.flat_index(expr))), True
            case Const():
                return scalar_code(expr), False

    def scalar(self, expr: Expr) -> str:
        """The text of a scalar, over steps where it is long."""
        prefix = f"{self.result}_{len(self.named)}"
        text, steps = scalar_steps(expr, prefix, self.inputs)
        lines = self.hoisted if self.within_fixed else self.lines
        for name, code in steps.items():
            self.named[code] = name
            lines.append(f"{name} = {code}")
        return text

    def is_vector(self, expr: Expr) -> bool:
        """Whether a vector variable enters `expr`."""
        return bool(variables(expr) & self.vectors)

    def unary(self, expr: Unary) -> str:
        """A function of a vector."""
        kind = kind_of(expr.operand)
        match expr.op:
            case "neg":
                zero = "0" if kind == "integer" else "ELEMENT(0)"
                return self.call("v_sub", f"v_splat({zero})", self.vector(expr.operand, kind))
            case "not" | "abs":
                return self.call(f"v_{expr.op}", self.vector(expr.operand, kind))
            case "int":
                text = self.vector(expr.operand, kind)
                return text if kind == "integer" else self.call("v_to_int", text)
            case "float":
                return self.vector(expr.operand, "real")
            case _:
                return self.call(f"v_{expr.op}", self.vector(expr.operand, "real"))

    def binary(self, expr: Binary) -> str:
        """An operation of which one operand at least is a vector."""
        kinds = {kind_of(expr.left), kind_of(expr.right)}
        if kinds == {"boolean"} and expr.op in COMPARISONS:
            left, right = self.vector(expr.left, "boolean"), self.vector(expr.right, "boolean")
            right = self.short(right)
            pair = (right, f"v_not({right})")
            return self.call("v_select", left, *(pair if expr.op == "eq" else pair[::-1]))
        kind: Kind = "real" if "real" in kinds or expr.op == "div" else "integer"
        if kinds == {"boolean"}:
            kind = "boolean"
        left, right = self.vector(expr.left, kind), self.vector(expr.right, kind)
        return self.call(f"v_{expr.op}", left, right)

    def flat_index(self, load: Load) -> str:
        """The index of each lane's element in the flat array."""
        scalars: list[str] = []
        text = ""
        runs_on = "k" in self.vectors
        for axis, index in enumerate(load.indices):
            below, above = may_leave(load, axis, self.inputs, runs_on=runs_on)
            if not self.is_vector(index):
                part = clamped(load, axis, (below, above), self.inputs)
                scalars.append(scaled(part, load, axis))
                continue
            part = self.vector(index, "integer")
            part = self.call("v_max", part, "v_splat(0)") if below else part
            most = f"v_splat({load.input}_size{axis} - 1)"
            part = self.call("v_min", part, most) if above else part
            if axis < len(load.indices) - 1:
                part = self.call("v_mul", part, f"v_splat({load.input}_stride{axis})")
            text = self.call("v_add", text, part) if text else part
        return self.call("v_add", f"v_splat({' + '.join(scalars)})", text) if scalars else text

    def call(self, function: str, *arguments: str) -> str:
        """A call, of which the longest arguments become steps until it fits a line."""
        parts = list(arguments)
        while len(text := f"{function}({', '.join(parts)})") > _WIDTH:
            longest = max(range(len(parts)), key=lambda i: len(parts[i]))
            if parts[longest].isidentifier():
                break
            parts[longest] = self.short(parts[longest])
        return text

    def short(self, text: str) -> str:
        """The name of a step that has the value of `text`."""
        lines = self.hoisted if self.within_fixed else self.lines
        return text if text.isidentifier() else self.name_for(text, lines)

    def name_for(self, text: str, lines: list[str]) -> str:
        """A name for the value of `text`, assigned in `lines` unless it is already."""
        if text not in self.named:
            self.named[text] = f"{self.result}_{len(self.named)}"
            lines.append(f"{self.named[text]} = {text}")
        return self.named[text]


def _is_simple(expr: Expr, text: str) -> bool:
    """Whether `text` broadcasts a constant or a variable, which costs nothing in a loop."""
    return isinstance(expr, (Const, Var)) and text.startswith("v_splat(")


def _element(expr: Expr, text: str) -> str:
    """The text of a scalar as an ELEMENT."""
    match expr:
        case Const(value=value):
            return f"ELEMENT({number_code(value)})"
        case Select() if text.startswith("("):
            return f"ELEMENT{text}"
        case Load(dtype="float") | Unary(op="float"):
            return text
        case _:
            return f"ELEMENT({text})"
