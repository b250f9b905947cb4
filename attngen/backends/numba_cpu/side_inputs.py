"""How side inputs reach the kernels: the names they are passed under and the code that reads them.

An input is one flat contiguous array and, for each axis but the last, the elements from one index
to the next (``doc_stride0``). Tables of the spec are inputs that the package holds itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.ir.attention import AttentionIR
from attngen.ir.expr import Binary, Const, Expr, Unary, Var
from attngen.ir.kernel import MaskPlan

# What every section may read of the sequence it works on.
SEQUENCE = ("b", "kv_h", "q_len", "kv_len")


@dataclass(frozen=True, slots=True)
class SideInputs:
    """Names that the kernels pass on, and lines that set them (and the sink) from arguments."""

    names: tuple[str, ...]
    lines: tuple[str, ...]


def side_inputs(ir: AttentionIR, number: int) -> SideInputs:
    """The side inputs of `ir`, where the first further argument has this number."""
    lines: list[str] = []
    if ir.sink:
        lines.append(f"sink = array_at(arguments, {number}, 1)")
    return SideInputs((), tuple(lines))


def is_closed(mask: MaskPlan) -> bool:
    """Whether the bounds of the keys say all: no block between them can be empty."""
    return _is_interval(mask.predicate)


def _is_interval(expr: Expr) -> bool:
    match expr:
        case Binary(op="and", left=left, right=right):
            return _is_interval(left) and _is_interval(right)
        case Binary(op="lt" | "le" | "gt" | "ge", left=left, right=right):
            return _is_affine(left) and _is_affine(right)
        case _:
            return False


def _is_affine(expr: Expr) -> bool:
    match expr:
        case Const() | Var():
            return True
        case Unary(op="neg", operand=operand):
            return _is_affine(operand)
        case Binary(op="add" | "sub", left=left, right=right):
            return _is_affine(left) and _is_affine(right)
        case _:
            return False
