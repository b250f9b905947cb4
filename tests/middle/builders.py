"""Small IRs and expressions for the tests of the middle end."""

from __future__ import annotations

import dataclasses
from typing import Any

from attngen.dtypes import FLOAT32
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import DOT, TRUE, Binary, Const, Expr, K, Q, Unary, conjunction
from attngen.ir.kernel import Buffer, FlashForward, SplitKV, SplitTile
from attngen.mask_tiles import plan

CAUSAL = Binary("le", K, Q)

PLAIN = AttentionIR(
    name="plain",
    dtype=FLOAT32,
    heads=4,
    kv_heads=2,
    head_dim=8,
    value_dim=6,
    d_model=None,
    query_scale=1.0,
    score=Binary("mul", DOT, Const(0.125)),
    mask=TRUE,
    alignment="bottom_right",
    sink=False,
    base="e",
    outputs=("out",),
)


def attention(**changes: Any) -> AttentionIR:
    return dataclasses.replace(PLAIN, **changes)


def window(left: int = -1, right: int = -1, *, causal: bool = False) -> Expr:
    mask: Expr = CAUSAL if causal else TRUE
    if left >= 0:
        mask = conjunction(mask, Binary("le", Binary("sub", Q, K), Const(left)))
    if right >= 0:
        mask = conjunction(mask, Binary("le", Binary("sub", K, Q), Const(right)))
    return mask


def softcapped(scale: float, cap: float) -> Expr:
    scaled = Binary("mul", DOT, Const(scale))
    return Binary("mul", Const(cap), Unary("tanh", Binary("div", scaled, Const(cap))))


BUFFERS = (Buffer("queries", 128, "Qᵀ"), Buffer("row_max", 16, "maxima"))


def flash(**changes: object) -> FlashForward:
    values: dict[str, object] = {
        "dtype": FLOAT32,
        "lanes": 8,
        "tile_scalars": 6,
        "tile_vectors": 2,
        "block_q": 64,
        "block_kv": 48,
        "head_dim": 8,
        "value_dim": 6,
        "query_scale": 0.5,
        "score": DOT,
        "mask": plan(CAUSAL),
        "sink": True,
        "buffers": BUFFERS,
    }
    return FlashForward(**values | changes)  # type: ignore[arg-type]


def split(**changes: object) -> SplitKV:
    values: dict[str, object] = {
        "dtype": FLOAT32,
        "lanes": 8,
        "tiles": (SplitTile(2, 1), SplitTile(1, 1)),
        "key_tile": 4,
        "max_rows": 8,
        "task_rows": 16,
        "split_kv": 256,
        "head_dim": 8,
        "value_dim": 6,
        "query_scale": 0.5,
        "score": DOT,
        "mask": None,
        "sink": False,
        "buffers": (),
    }
    return SplitKV(**values | changes)  # type: ignore[arg-type]
