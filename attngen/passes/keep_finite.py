"""Keep finite: large numbers that a score adds do not become infinite on the way to its units.

Input: an AttentionIR of base ``e``; output: one whose constants and numbers of side inputs count as
at most 1e38 in size (1e308 in float64). A score in units of log2 is 1.44 times as large, so that
the lowest finite number, which is what many masks hold, would become -inf, and a row of it 0 in
place of a mean. Infinities and NaN stay what they are. An IR without such numbers comes back
unchanged, as does one of base ``2`` or without a softmax, whose scores keep their units.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from attngen.ir.attention import AttentionIR
from attngen.ir.expr import Binary, Const, Expr, Load, Select, Unary, children, with_children


@dataclasses.dataclass(frozen=True, slots=True)
class KeepFinite:
    """Bounds what is added to scores."""

    def __call__(self, ir: AttentionIR) -> AttentionIR:
        """`ir` with bounded numbers in its score."""
        if ir.base == "2" or ir.activation is not None:
            return ir
        small = {
            side.name
            for side in ir.inputs
            if side.values is not None and max(map(abs, side.values), default=0) <= ir.largest_term
        }
        largest = float(np.finfo(ir.dtype.accumulator).max)
        score = bounded(ir.score, ir.largest_term, largest, frozenset(small))
        return ir if score is ir.score else dataclasses.replace(ir, score=score)


def bounded(expr: Expr, most: float, largest: float, small: frozenset[str]) -> Expr:
    """`expr`, whose terms are at most `most` in size where they are finite numbers.

    Terms are constants and side inputs, alone or times a constant: a factor of anything else is
    none.

    Args:
        expr: a score.
        most: what larger ones count as.
        largest: what is larger is infinite.
        small: side inputs that hold no such number.
    """
    match expr:
        case Const(value=float() as value, origin=origin) if most < abs(value) <= largest:
            return Const(most if value > 0 else -most, origin)
        case Load(dtype="float", input=name) if name not in small:
            inside = Binary("max", Const(-most), Binary("min", Const(most), expr))
            return Select(Binary("le", Unary("abs", expr), Const(largest)), inside, expr)
        case Select(condition=condition, then=then, otherwise=otherwise):
            branches = (bounded(term, most, largest, small) for term in (then, otherwise))
            return with_children(expr, (condition, *branches))
        case Unary(op="neg") | Binary(op="add" | "sub" | "min" | "max"):
            pass
        case Binary(op="mul" | "div", left=left, right=right) if Const in (type(left), type(right)):
            pass
        case _:
            return expr
    return with_children(
        expr, tuple(bounded(child, most, largest, small) for child in children(expr))
    )
