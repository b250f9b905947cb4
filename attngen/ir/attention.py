"""AttentionIR: *what* is computed, with every default filled in and no word on how.

For each batch element and head h, with kv head h // (heads / kv_heads)::

    dot   = query_scale * (q · k)
    s     = score(dot, h, q, k)                      in units of `base`
    p     = mask(q, k) ? base**(s - row_max) : 0
    out   = sum(p * v) / (sum(p) + sink term)        0 for a row that may attend to nothing
    lse   = ln(base) * (row_max + log_base(sum(p)))  -inf for such a row; the sink is not in it

The sink term is base**(sink[h] - row_max) with a learned logit, base**(0 - row_max) off by one,
and else 0. With an `activation` there is no softmax but ::

    p     = mask(q, k) ? activation(s) : 0
    out   = sum(p * v)                               and no lse

With a `difference` (differential attention) head h has two maps: q heads 2h and 2h + 1 attend to
k heads 2 kv_h and 2 kv_h + 1 and to the one v head kv_h, each with an lse of its own, and ::

    out   = out of the first - difference(h) * out of the second

Positions: query i of q_len stands at kv_len - q_len + i (``bottom_right``) or i (``top_left``);
key j stands at j. `elaborate` produces base ``e`` with the scale in `score`; the passes move
linear factors into `query_scale` and change to base ``2``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from attngen.dtypes import DTYPES, DType
from attngen.ir.expr import DataType, Expr

Alignment: TypeAlias = Literal["bottom_right", "top_left"]
Base: TypeAlias = Literal["e", "2"]
Output: TypeAlias = Literal["out", "lse", "logits", "probabilities"]

OUTPUTS: tuple[Output, ...] = ("out", "lse", "logits", "probabilities")
UNFUSED: frozenset[Output] = frozenset({"logits", "probabilities"})
"""Outputs of q_len · kv_len elements a head, which fused kernels exist not to make."""

SIZES: tuple[str, ...] = ("batch", "heads", "kv_heads", "q_len", "kv_len")
"""The symbols that an axis of a side input may have for its size."""


@dataclass(frozen=True, slots=True)
class SideInput:
    """An array that expressions index.

    Attributes:
        shape: one entry an axis: a number or a symbol of :data:`SIZES`.
        dtype: what it holds; ``float`` is the accumulator's type.
        values: its elements in C order where the spec fixes them (a table), else None: an argument
            of each call.
        origin: the key of the spec it comes from.
    """

    name: str
    shape: tuple[str | int, ...]
    dtype: DataType
    values: tuple[float, ...] | None = None
    origin: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class AttentionIR:
    """One attention layer or core; see the module docstring for its meaning.

    Attributes:
        name: the spec's name, a Python identifier.
        d_model: width of x and of the layer's output; None for a core (q, k, v in, o out).
        head_dim: width of a query or key head; `value_dim`: width of a value head.
        mask: truth value over b, h, kv_h, q, k, q_len, kv_len and side inputs; ``Const(True)``
            where all attend to all.
        sink: whether a learned logit per head joins the softmax denominator.
        off_by_one: whether 1 joins it, as a sink whose logit is 0 would; never beside `sink`.
        activation: the weight of a key alone, over :data:`~attngen.ir.expr.SCORE` and the variables
            of a mask; None is a softmax.
        difference: what the second of a head's two maps is multiplied by before it is subtracted,
            over h, kv_h and side inputs; None is one map a head.
        outputs: what a call returns without being asked: ``out`` and more, in the order of
            :data:`OUTPUTS`; what :data:`UNFUSED` names is for the reference alone.
        inputs: the arrays that `score` and `mask` index, tables included.
    """

    name: str
    dtype: DType
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    d_model: int | None
    query_scale: float
    score: Expr
    mask: Expr
    alignment: Alignment
    sink: bool
    base: Base
    outputs: tuple[Output, ...]
    description: str = ""
    inputs: tuple[SideInput, ...] = ()
    off_by_one: bool = False
    activation: Expr | None = None
    difference: Expr | None = None

    @property
    def maps(self) -> int:
        """Maps of weights that a head has: so many query and key heads it takes."""
        return 1 if self.difference is None else 2

    @property
    def query_heads(self) -> int:
        """Heads of q, and of the LSE."""
        return self.heads * self.maps

    @property
    def key_heads(self) -> int:
        """Heads of k."""
        return self.kv_heads * self.maps

    @property
    def group(self) -> int:
        """Heads that share one kv head."""
        return self.heads // self.kv_heads

    @property
    def largest_term(self) -> float:
        """What larger finite numbers count as that a score adds, so that its units may change."""
        return 1e308 if self.dtype.accumulator == "float64" else 1e38

    @property
    def heads_dtype(self) -> DType:
        """What the attention itself reads and writes.

        In a core that is `dtype`. In a layer, queries, keys, values and the heads' outputs stay in
        the type of the sums, so that only the layer's result is rounded to `dtype`.
        """
        return self.dtype if self.d_model is None else DTYPES[self.dtype.accumulator]

    @property
    def scope(self) -> Literal["layer", "core"]:
        """Whether projections are part of the unit."""
        return "core" if self.d_model is None else "layer"
