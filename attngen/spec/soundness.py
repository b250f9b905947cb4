"""What an operation must not do whatever its operands hold: divide by zero, or overflow.

Input: one operation over operands that were judged already. Output: the end of a sentence and a
hint, or nothing. Whole numbers that are read from side inputs, or cut from real ones, are
taken to be below 2**31 in size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from attngen.ir.expr import Binary, Const, Expr, Load, Unary
from attngen.ir.kinds import kind_of
from attngen.ir.ranges import ANY_CALL, POSITIONS, Facts, Range, value_range
from attngen.ir.verify import MAX_INTEGER


def _data(load: Load) -> Range:
    if load.dtype == "float":
        return -math.inf, math.inf
    return (0, 1) if load.dtype == "bool" else (-POSITIONS, POSITIONS)


_FACTS = Facts(ANY_CALL.ranges, _data, cut=(-POSITIONS, POSITIONS))


def unsound(expr: Expr, ranges: Mapping[str, Range] | None = None) -> tuple[str, str] | None:
    """Why the outermost operation of `expr` has no good value for some operands.

    Args:
        expr: its operands are sound.
        ranges: of variables other than positions and lengths.
    """
    any_call, facts = ANY_CALL, _FACTS
    if ranges:
        any_call = replace(ANY_CALL, ranges={**ANY_CALL.ranges, **ranges})
        facts = replace(_FACTS, ranges=any_call.ranges)
    match expr:
        case Binary(op="div", right=Const(value=value)) if value == 0:
            return "divides by zero", "leave the division out"
        case Binary(op="floordiv" | "mod" as op, right=right):
            low, high = value_range(right, any_call)
            if low == high == 0:
                return "divides by zero", "leave the division out"
            if low <= 0 <= high:
                sign = "//" if op == "floordiv" else "%"
                message = f"has a right side of '{sign}' that may be zero"
                return message, "write max(x, 1) for one that is positive"
    match expr:
        case Unary(op="neg" | "abs") | Binary() if kind_of(expr) == "integer":
            low, high = value_range(expr, facts)
            if not (low > -MAX_INTEGER and high < MAX_INTEGER):
                hint = "write float(...) around an operand to compute with real numbers"
                return "may be a whole number beyond 64 bits", hint
    return None
