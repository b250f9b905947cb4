"""Mask arrays of a call as expressions: one more side input, read at each (query, key) pair.

Input: an AttentionIR and what the array holds. Output: the IR that attends only where a boolean
array says so as well, or that adds a float array to the scores, where -inf is a key that is not
attended to: garbage behind it does not reach the row. A call without a mask pays nothing
for this: the variant is compiled when a call first brings such an array.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

import numpy as np

from attngen.ir.attention import AttentionIR, SideInput
from attngen.ir.expr import Binary, Const, Expr, K, Load, Q, Unary, Var, conjunction

MaskKind: TypeAlias = Literal["bool", "float"]

NAME = "mask_array"
"""The side input that holds the array; size 1 on an axis broadcasts along it."""


def with_dense_mask(ir: AttentionIR, kind: MaskKind) -> AttentionIR:
    """`ir` with a (batch, heads, q_len, kv_len) mask array.

    Args:
        ir: before the passes.
        kind: ``bool`` attends where the array is true; ``float`` is added to the scores, but for
            -inf, which does not attend.
    """
    row: Expr = Q
    if ir.alignment == "bottom_right":
        row = Binary("sub", Q, Binary("sub", Var("kv_len"), Var("q_len")))
    load = Load(NAME, (Var("b"), Var("h"), row, K), dtype=kind)
    side = SideInput(NAME, ("batch", "heads", "q_len", "kv_len"), kind, origin="mask")
    inputs = (*ir.inputs, side)
    if kind == "bool":
        return dataclasses.replace(ir, mask=conjunction(ir.mask, load), inputs=inputs)
    lowest = Const(-float(np.finfo(ir.dtype.accumulator).max))
    attends = Unary("not", Binary("lt", load, lowest))  # so does NaN, for all to see
    score = Binary("add", ir.score, load)
    return dataclasses.replace(ir, mask=conjunction(ir.mask, attends), score=score, inputs=inputs)
