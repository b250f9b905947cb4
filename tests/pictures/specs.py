"""The specs that pictures are tested with: all that ship, and what none of them has."""

from __future__ import annotations

from functools import cache
from typing import Any

from repo.generated import FEATURES, SHIPPED

from attngen.ir.attention import AttentionIR
from attngen.spec.elaborate import elaborate
from attngen.spec.reader import read_spec

EXTREMES: dict[str, dict[str, Any]] = {
    "one_head": {"heads": 1, "head_dim": 8, "sink": True},
    "two_heads": {
        "heads": 2,
        "head_dim": 8,
        "score": "score * 2 if k < q else tanh(score) + h",
        "mask": "k % 2 == h or k < 3",
    },
    "three_heads": {
        "heads": 3,
        "head_dim": 8,
        "bias": "alibi",
        "scale": 0.3,
        "outputs": ["out", "lse", "logits", "probabilities"],
    },
    "large": {
        "name": "x" * 60,
        "description": "A long description of everything that can be wide at once. " * 5,
        "d_model": 1 << 17,
        "heads": 1024,
        "kv_heads": 4,
        "head_dim": 2048,
        "causal": True,
        "window": {"left": 3, "right": 5},
        "chunk": 1 << 29,
        "dilation": 3,
        "softcap": 3.25,
        "bias": "alibi",
        "sink": True,
        "outputs": ["out", "lse"],
    },
    "long_mask": {
        "heads": 4,
        "head_dim": 8,
        "mask": " or ".join(f"q - k == {i}" for i in range(10, 90, 5)),
    },
    "markup": {
        "heads": 2,
        "head_dim": 8,
        "description": "a < b & \"c\" > 'd' ]]> 你好",
        "mask": "k <= q and q - k < 5 and not k == 3",
    },
}
NOT_DRAWN = ["diff_transformer_3b", "differential", "halves_apart"]
DRAWN = sorted({*SHIPPED, *FEATURES, *EXTREMES}.difference(NOT_DRAWN))


@cache
def ir_of(name: str) -> AttentionIR:
    """A spec of DRAWN, elaborated."""
    source = {**FEATURES, **EXTREMES}.get(name)
    return elaborate(read_spec(name if source is None else {"name": name, **source}))
