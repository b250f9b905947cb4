"""Spec: what a YAML file says, checked and typed, with every default still visible as a default.

A value of None means "not given": `elaborate` fills it in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from attngen.dtypes import FLOAT32, DType
from attngen.ir.attention import Output, SideInput
from attngen.ir.expr import Expr
from attngen.source import Span
from attngen.spec.buckets import T5Buckets

Causal: TypeAlias = Literal["none", "bottom_right", "top_left"]
Bias: TypeAlias = Literal["alibi", "t5"]
Activation: TypeAlias = Literal["softmax", "softmax_off_by_one", "sigmoid", "relu"]
Scale: TypeAlias = float | tuple[float, ...] | Literal["per_head"]
Scope: TypeAlias = Literal["layer", "core"]


@dataclass(frozen=True, slots=True)
class Window:
    """Keys kept on each side of a query, both inclusive counts of neighbours; -1 is open."""

    left: int = -1
    right: int = -1


@dataclass(frozen=True, slots=True)
class ScheduleOverride:
    """One ``schedule.<target>.<name>: value`` of a spec, or one given in a call, and its place."""

    target: str
    name: str
    value: int | str
    span: Span | None = field(default=None, compare=False)
    source: Literal["spec", "call"] = field(default="spec", compare=False)


@dataclass(frozen=True, slots=True)
class Spec:
    """A checked spec. Sizes are positive and consistent with each other.

    Attributes:
        name: a Python identifier; the file's stem where the spec gives none.
        d_model: width of the layer; None in a core.
        kv_heads: divides `heads`.
        window: counted from the query's position; None is no window.
        scale: multiplies q·k: a number, one for each head, or an argument of calls; None means
            1/sqrt(head_dim).
        softcap: cap·tanh(s/cap) after the scale; None is off.
        score: what becomes of the scaled product, which is ``dot`` in it; None leaves it.
        bias: added after the softcap; `t5` are its buckets where it is that.
        mask: a truth value that joins causal, window and the like; None is no condition.
        prefix: keys at the start that every query sees, in spite of `causal`.
        chunk: positions in a chunk that sees itself alone.
        dilation: distances must be multiples of it.
        global_tokens: positions at the start to which window, chunk and dilation do not apply.
        inputs: what `score` and `mask` index.
        parameters: the numbers that the texts of `score` and `mask` named.
        sink: a learned logit per head joins the softmax denominator.
        activation: what makes weights of scores; `activation_bias` is added to those of a sigmoid,
            and None means -log(kv_len).
        differential: lambda, where heads are differences of two maps: a number, one for each head,
            or an argument of calls.
        schedule: overrides in file order, at most one per target and name.
    """

    name: str
    scope: Scope
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    d_model: int | None = None
    description: str = ""
    causal: Causal = "none"
    window: Window | None = None
    scale: Scale | None = None
    softcap: float | None = None
    score: Expr | None = None
    bias: Bias | None = None
    t5: T5Buckets | None = None
    mask: Expr | None = None
    prefix: int | None = None
    chunk: int | None = None
    dilation: int = 1
    global_tokens: int = 0
    inputs: tuple[SideInput, ...] = ()
    parameters: tuple[tuple[str, int | float], ...] = ()
    sink: bool = False
    activation: Activation = "softmax"
    activation_bias: float | None = None
    differential: Scale | None = None
    dtype: DType = FLOAT32
    outputs: tuple[Output, ...] = ("out",)
    schedule: tuple[ScheduleOverride, ...] = ()

    @property
    def query_heads(self) -> int:
        """Heads of q: two for each head where that is a difference."""
        return self.heads * (1 if self.differential is None else 2)

    @property
    def key_heads(self) -> int:
        """Heads of k."""
        return self.kv_heads * (1 if self.differential is None else 2)
