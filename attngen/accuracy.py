"""How far from the exact result a kernel may be: the bound that ``run`` and ``bench`` hold it to.

Input: an AttentionIR and the sizes of what it is given. Output: an absolute bound on the error of
sums, and from it a bound for each element, with what rounding to the type of the output adds.

With unit roundoff u and ``magnitude`` = slope · max‖q‖ · max‖k‖ + |score of 0|, over a sample of
positions where they matter (no score of this call is much larger):
a rounded dot product moves a score by a few u · magnitude, which moves every weight by that factor;
the sums over n keys add √n · u as rounding errors do that are as often up as down (Higham & Mary,
2019). Outputs are averages of values, so all of it scales with max|v|::

    core:  4 u · (1 + magnitude + √n) · max|v|
    layer: (core + 4 u · √d_model · (1 + magnitude / √head_dim) · max|v|) · max‖W_O column‖
           + 4 u · √(heads · value_dim) · max|out|

Weights without a softmax do not add up to 1. With t the largest sum of a row's weights and t' its
derivative by a shift of all scores, over a sample of rows::

    core:  4 u · (t · (1 + √n) + t' · (magnitude + log n)) · max|v|

The difference of two maps has the errors of both, the second's times its factor.

In a layer the elements of q, k and v have rounding errors of their own, of which a score sees the
mean over head_dim. The factor 4 leaves room for any order of summation; a real mistake is
far larger.

float16 and bfloat16 are read exactly and an output is rounded once, so that it has this error and
half a unit in its own last place::

    element: bound + u_storage · (|element| + bound), and half of the smallest number
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attngen.ir.attention import AttentionIR
from attngen.ir.bounds import Lengths, shape_of
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import Binary, Const, Expr, loads, variables
from attngen.reference import reference_attention

_ROOM = 4.0
_STEP = 1e-4
_ROWS = 32  # of each head, whose weights are summed up


def core_bound(
    ir: AttentionIR,
    q: npt.NDArray[np.floating],
    k: npt.NDArray[np.floating],
    v: npt.NDArray[np.floating],
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
) -> float:
    """The bound for a core whose arrays end in (heads, head_dim) and (kv_len, kv_heads, dim).

    Without its side `inputs` a score is taken to read ones.
    """
    if 0 in (q.size, k.size, v.size):
        return 0.0
    q, k, v = (array.astype(ir.dtype.accumulator, copy=False) for array in (q, k, v))
    size, spread = magnitude(ir, q, k, inputs), math.sqrt(k.shape[-3])
    terms = 1 + size + spread
    if ir.activation is not None:
        total, slope = _weight_sums(ir, q, k, inputs)
        terms = total * (1 + spread) + slope * (size + math.log(1 + k.shape[-3]))
    maps = 1 if ir.difference is None else 1 + _largest_factor(ir, ir.difference, inputs or {})
    return _ROOM * unit_roundoff(ir) * terms * maps * float(np.abs(v).max())


def _largest_factor(
    ir: AttentionIR, difference: Expr, inputs: Mapping[str, npt.NDArray[Any]]
) -> float:
    """What errors of a second map are at most multiplied by."""
    factors = evaluate(difference, _sample(ir, 1, 1, inputs))
    return float(np.abs(factors).max())


def _weight_sums(
    ir: AttentionIR,
    q: npt.NDArray[np.floating],
    k: npt.NDArray[np.floating],
    inputs: Mapping[str, npt.NDArray[Any]] | None,
) -> tuple[float, float]:
    """The largest sum of a row's weights, and by how much it grows with its scores."""
    rows = np.unique(np.linspace(0, q.shape[-3] - 1, _ROWS).astype(np.int64))
    batch = q.shape[0] if q.ndim == 4 else 1
    lengths = Lengths(batch, q.shape[-3], k.shape[-3])
    unknown = {s.name: np.ones(shape_of(ir, s, lengths)) for s in ir.inputs if s.values is None}
    ones = np.ones((*k.shape[:-2], ir.kv_heads, 1))
    both = None if ir.difference is None else Const(-1.0)  # two maps: what they add up to

    def sums(score: Expr) -> npt.NDArray[np.floating]:
        alone = replace(ir, value_dim=1, score=score, difference=both)
        return reference_attention(alone, q, k, ones, inputs=inputs or unknown, rows=rows)[0]

    total, more = sums(ir.score), sums(Binary("add", ir.score, Const(_STEP)))
    return float(total.max(initial=0.0)), float((more - total).max(initial=0.0)) / _STEP


def layer_bound(
    ir: AttentionIR,
    q: npt.NDArray[np.floating],
    k: npt.NDArray[np.floating],
    v: npt.NDArray[np.floating],
    w_o: npt.NDArray[np.floating],
    out: npt.NDArray[np.floating],
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
) -> float:
    """The bound for a layer, from its projected q, k and v and its exact result `out`.

    `w_o` may be in the layer's own dtype; q, k and v are in the type of the sums.
    """
    if 0 in (q.size, k.size, v.size):
        return 0.0
    spread = 1 + magnitude(ir, q, k, inputs) / math.sqrt(ir.head_dim)
    projected = math.sqrt(ir.d_model or 1) * spread * float(np.abs(v).max())
    joined = math.sqrt(ir.heads * ir.value_dim) * float(np.abs(out).max(initial=0.0))
    w_o = w_o.astype(ir.dtype.accumulator, copy=False)
    column = float(np.linalg.norm(w_o, axis=0).max())
    rounding = _ROOM * unit_roundoff(ir)
    return (core_bound(ir, q, k, v) + rounding * projected) * column + rounding * joined


def element_bounds(
    ir: AttentionIR,
    bound: float | npt.NDArray[np.floating],
    expected: npt.NDArray[np.floating],
) -> npt.NDArray[np.float64]:
    """A bound for each of the `expected` elements, whose sums are within `bound` of them."""
    share, least = ir.dtype.rounding
    sizes: npt.NDArray[np.float64] = np.abs(expected).astype(np.float64)
    return bound + share * (sizes + bound) + least


def unit_roundoff(ir: AttentionIR) -> float:
    """The unit roundoff of the type that sums are kept in."""
    return float(np.finfo(np.dtype(ir.dtype.accumulator)).eps) / 2


def magnitude(
    ir: AttentionIR,
    q: npt.NDArray[np.floating],
    k: npt.NDArray[np.floating],
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
) -> float:
    """The largest score that these queries and keys could have, in natural-log units."""
    lengths = np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max()
    if variables(ir.score) <= {"dot"} and not loads(ir.score):
        return score_slope(ir) * float(lengths)
    env = _sample(ir, q.shape[-3], k.shape[-3], inputs or {})
    reach = abs(ir.query_scale) * float(lengths)
    dots = np.linspace(-reach, reach, 9)
    step = max(reach, 1.0) * _STEP
    up, down, flat = (_scores(ir, env, x) for x in (dots + step, dots - step, np.zeros(1)))
    natural = 1.0 if ir.base == "e" else math.log(2)
    slope = float(np.abs(up - down).max()) / (2 * step)
    return (slope * reach + float(np.abs(flat).max())) * natural


def _scores(
    ir: AttentionIR, env: Mapping[str, Any], dots: npt.NDArray[np.floating]
) -> npt.NDArray[np.floating]:
    """The finite scores of a sample of positions, by 0 where they are not."""
    values = evaluate(ir.score, {**env, "dot": dots}, where=np.False_)
    return np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _sample(
    ir: AttentionIR, q_len: int, kv_len: int, inputs: Mapping[str, npt.NDArray[Any]]
) -> dict[str, Any]:
    """Values for the variables of a score: a few positions, every head, one axis each."""
    first = kv_len - q_len if ir.alignment == "bottom_right" else 0
    q = np.unique(np.linspace(first, first + q_len - 1, 9).astype(np.int64))
    k = np.unique(np.linspace(0, kv_len - 1, 9).astype(np.int64))
    h = np.arange(ir.heads)
    arrays = {
        given.name: inputs.get(given.name, np.ones((1,) * len(given.shape), np.int64))
        if given.values is None
        else np.array(given.values).reshape(tuple(_fixed(ir, size) for size in given.shape))
        for given in ir.inputs
    }
    return arrays | {
        "b": np.int64(0),
        "h": h[:, None, None, None],
        "kv_h": (h // ir.group)[:, None, None, None],
        "q": q[:, None, None],
        "k": k[:, None],
        "q_len": q_len,
        "kv_len": kv_len,
    }


def _fixed(ir: AttentionIR, size: str | int) -> int:
    """The size of an axis of a table."""
    return size if isinstance(size, int) else {"heads": ir.heads, "kv_heads": ir.kv_heads}[size]


def score_slope(ir: AttentionIR) -> float:
    """By how much a score grows with q · k, at zero, where a softcap is steepest."""
    up, down = (float(evaluate(ir.score, {"dot": x})) for x in (_STEP, -_STEP))
    natural = 1.0 if ir.base == "e" else math.log(2)
    return abs(up - down) / (2 * _STEP) * abs(ir.query_scale) * natural
