"""How far from the exact result a kernel may be: the bound that ``run`` and ``bench`` hold it to.

Input: an AttentionIR and the sizes of what it is given. Output: an absolute bound for each element.

With unit roundoff u and ``magnitude`` = slope · max‖q‖ · max‖k‖ (no score of this call is larger):
a rounded dot product moves a score by a few u · magnitude, which moves every weight by that factor;
the sums over n keys add √n · u as rounding errors do that are as often up as down (Higham & Mary,
2019). Outputs are averages of values, so all of it scales with max|v|::

    core:  4 u · (1 + magnitude + √n) · max|v|
    layer: (core + 4 u · √d_model · (1 + magnitude / √head_dim) · max|v|) · max‖W_O column‖
           + 4 u · √(heads · value_dim) · max|out|

In a layer the elements of q, k and v have rounding errors of their own, of which a score sees the
mean over head_dim. The factor 4 leaves room for any order of summation; a real mistake is
far larger.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from attngen.ir.attention import AttentionIR
from attngen.ir.evaluate import evaluate

_ROOM = 4.0
_STEP = 1e-4


def core_bound(
    ir: AttentionIR,
    q: npt.NDArray[np.floating],
    k: npt.NDArray[np.floating],
    v: npt.NDArray[np.floating],
) -> float:
    """The bound for a core whose arrays end in (heads, head_dim) and (kv_len, kv_heads, dim)."""
    if 0 in (q.size, k.size, v.size):
        return 0.0
    terms = 1 + magnitude(ir, q, k) + math.sqrt(k.shape[-3])
    return _ROOM * unit_roundoff(ir) * terms * float(np.abs(v).max())


def layer_bound(
    ir: AttentionIR,
    q: npt.NDArray[np.floating],
    k: npt.NDArray[np.floating],
    v: npt.NDArray[np.floating],
    w_o: npt.NDArray[np.floating],
    out: npt.NDArray[np.floating],
) -> float:
    """The bound for a layer, from its projected q, k and v and its exact result `out`."""
    if 0 in (q.size, k.size, v.size):
        return 0.0
    spread = 1 + magnitude(ir, q, k) / math.sqrt(ir.head_dim)
    projected = math.sqrt(ir.d_model or 1) * spread * float(np.abs(v).max())
    joined = math.sqrt(ir.heads * ir.value_dim) * float(np.abs(out).max(initial=0.0))
    column = float(np.linalg.norm(w_o, axis=0).max())
    rounding = _ROOM * unit_roundoff(ir)
    return (core_bound(ir, q, k, v) + rounding * projected) * column + rounding * joined


def unit_roundoff(ir: AttentionIR) -> float:
    """The unit roundoff of the type that sums are kept in."""
    return float(np.finfo(np.dtype(ir.dtype.accumulator)).eps) / 2


def magnitude(ir: AttentionIR, q: npt.NDArray[np.floating], k: npt.NDArray[np.floating]) -> float:
    """The largest score that these queries and keys could have, in natural-log units."""
    lengths = np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max()
    return score_slope(ir) * float(lengths)


def score_slope(ir: AttentionIR) -> float:
    """By how much a score grows with q · k, at zero, where a softcap is steepest."""
    up, down = (float(evaluate(ir.score, {"dot": x})) for x in (_STEP, -_STEP))
    natural = 1.0 if ir.base == "e" else math.log(2)
    return abs(up - down) / (2 * _STEP) * abs(ir.query_scale) * natural
