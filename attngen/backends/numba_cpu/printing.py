"""Expressions as Python: scalar code for tile bounds, vector operations for scores and masks.

Vector code is built from the operations of the generated ``simd`` module. A sub-expression that no
vector variable enters stays scalar and is broadcast where it meets one.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from attngen.ir.expr import COMPARISONS, Binary, Const, Expr, Load, Select, Unary, Var

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
    "or": ("or", 0),
}
_WIDTH = 72  # a line longer than this is cut into named steps


def scalar_code(expr: Expr, level: int = 0) -> str:
    """`expr` as a Python expression with no more parentheses than it needs."""
    match expr:
        case Const(value=bool() as truth):
            return str(truth)
        case Const(value=float() as number):
            return f"ELEMENT({number!r})"
        case Const(value=value):
            return str(value) if value >= 0 else f"({value})"
        case Var(name=name):
            return name
        case Unary(op="not", operand=operand):
            text = f"not {scalar_code(operand, 2)}"
            return f"({text})" if level > 2 else text
        case Unary(op="neg", operand=operand):
            return f"-{scalar_code(operand, 6)}" if level <= 5 else f"(-{scalar_code(operand, 6)})"
        case Unary(op=op, operand=operand):
            return f"np.{op}({scalar_code(operand)})"
        case Binary(op="min" | "max" as op, left=left, right=right):
            return f"{op}({scalar_code(left)}, {scalar_code(right)})"
        case Select(condition=condition, then=then, otherwise=otherwise):
            text = f"{scalar_code(then, 1)} if {scalar_code(condition, 1)} else "
            text += scalar_code(otherwise)
            return f"({text})"
        case Load(input=name, indices=indices):
            return f"{name}[{', '.join(scalar_code(i) for i in indices)}]"
        case Binary(op=op, left=left, right=right):
            symbol, own = _INFIX[op]
            tight = op in COMPARISONS or op in ("sub", "div", "floordiv", "mod")  # not associative
            text = f"{scalar_code(left, own + (op in COMPARISONS))} {symbol} "
            text += scalar_code(right, own + tight)
            return f"({text})" if own < level else text


def vector_lines(expr: Expr, result: str, vectors: AbstractSet[str]) -> tuple[str, ...]:
    """Lines that assign `expr` to `result`, where the variables in `vectors` are vectors."""
    printer = _VectorPrinter(vectors)
    text, is_vector = printer.operand(expr)
    if not is_vector:
        text = f"v_splat({text})"
    return (*printer.lines, f"{result} = {text}")


def vector_sections(
    expr: Expr, result: str, vectors: AbstractSet[str], inner: AbstractSet[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines that assign `expr` to `result`: those before a loop that sets `inner`, those in it."""
    del inner
    return (), vector_lines(expr, result, vectors)


def operations(lines: tuple[str, ...]) -> frozenset[str]:
    """The names of vector operations that `lines` call."""
    words = "".join(c if c.isalnum() or c == "_" else " " for c in "\n".join(lines)).split()
    return frozenset(w for w in words if w.startswith("v_"))


class _VectorPrinter:
    """Prints one expression; sub-expressions that grow too long become named steps."""

    def __init__(self, vectors: AbstractSet[str]) -> None:
        self.vectors = vectors
        self.lines: list[str] = []

    def operand(self, expr: Expr) -> tuple[str, bool]:
        """The text of `expr`, and whether it is a vector."""
        match expr:
            case Var(name=name) if name in self.vectors:
                return name, True
            case Unary(op=op, operand=operand):
                text, is_vector = self.operand(operand)
                if not is_vector:
                    return scalar_code(expr), False
                if op == "neg":
                    return self.step(f"v_sub(v_splat({_zero(operand)}), {text})"), True
                return self.step(f"v_{op}({text})"), True
            case Binary(op=op, left=left, right=right):
                (left_text, left_vector) = self.operand(left)
                (right_text, right_vector) = self.operand(right)
                if not left_vector and not right_vector:
                    return scalar_code(expr), False
                left_text = left_text if left_vector else f"v_splat({left_text})"
                right_text = right_text if right_vector else f"v_splat({right_text})"
                return self.step(f"v_{op}({left_text}, {right_text})"), True
            case _:
                return scalar_code(expr), False

    def step(self, text: str) -> str:
        if len(text) <= _WIDTH:
            return text
        name = f"step{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name


def _zero(operand: Expr) -> str:
    return "ELEMENT(0)" if _is_float(operand) else "0"


def _is_float(expr: Expr) -> bool:
    match expr:
        case Const(value=value):
            return isinstance(value, float)
        case Var(name=name):
            return name == "dot"
        case Unary(op=op, operand=operand):
            return op == "tanh" or _is_float(operand)
        case Binary(op=op, left=left, right=right):
            return op == "div" or _is_float(left) or _is_float(right)
        case Select(then=then, otherwise=otherwise):
            return _is_float(then) or _is_float(otherwise)
        case Load(dtype=dtype):
            return dtype == "float"
