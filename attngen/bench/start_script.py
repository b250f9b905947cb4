"""Run as a script: get to a first result as a user's program would, and print the time of day.

Argument: ``layer`` (the reference layer), ``core`` (its attention alone), ``torch-sdpa`` or
``torch-flex``. Small inputs throughout, so that what is measured is the way to the result.
"""

from __future__ import annotations

import sys
import time
from typing import Any

S, HEADS, HEAD_DIM, D_MODEL = 64, 32, 128, 4096


def _layer() -> None:
    import numpy as np

    import attngen

    attention: Any = attngen.compile("mha_4096")
    x = np.ones((S, D_MODEL), np.float32)
    q, k, v, o = (np.zeros((D_MODEL, D_MODEL), np.float32) for _ in range(4))
    attention(x, attngen.Weights(q=q, k=k, v=v, o=o))


def _core() -> None:
    import numpy as np

    import attngen

    attention: Any = attngen.compile(
        {"name": "core", "heads": HEADS, "head_dim": HEAD_DIM, "causal": True}
    )
    q = np.ones((S, HEADS, HEAD_DIM), np.float32)
    attention(q, q, q)


def _torch_sdpa() -> None:
    import torch
    import torch.nn.functional as functional

    q = torch.ones(1, HEADS, S, HEAD_DIM)
    functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def _torch_flex() -> None:
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q = torch.ones(1, HEADS, S, HEAD_DIM)
    mask = create_block_mask(lambda _b, _h, i, j: j <= i, None, None, S, S, device="cpu")
    with torch.no_grad():
        torch.compile(flex_attention)(q, q, q, block_mask=mask)


WAYS = {"layer": _layer, "core": _core, "torch-sdpa": _torch_sdpa, "torch-flex": _torch_flex}

if __name__ == "__main__":
    WAYS[sys.argv[1]]()
    print(time.time())  # noqa: T201 - the answer to the parent process
