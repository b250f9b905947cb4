"""KernelIR: what × how, ready to be printed. No decision is left and no target syntax is in it.

A program is a tuple of kernels; each kernel names the algorithm (and so the template), its sizes,
and its sections as expressions. `SourcePackage` is what emission makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from attngen.dtypes import DType
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import Expr

GROUP_THREADS = 16
"""Threads that share the rows of a row group on a GPU."""


@dataclass(frozen=True, slots=True)
class DataBound:
    """Minima and maxima over a tile of a side input that is indexed by positions.

    They are the variables ``<input>_<axis>_min`` and ``<input>_<axis>_max``; `batched` inputs have
    the batch as their first axis.
    """

    input: str
    axis: Literal["q", "k"]
    batched: bool


@dataclass(frozen=True, slots=True)
class MaskPlan:
    """A mask with what interval reasoning knows of it.

    Attributes:
        predicate: attends? over q, k, q_len, kv_len.
        always: true only if every (q, k) of a tile attends; over q_first … k_last (inclusive).
        possible: false only if no (q, k) of a tile attends; over the same variables.
        key_first: a lower bound for the keys that rows q_first … q_last may see, or None.
        key_last: an (inclusive) upper bound for them, or None.
        data_bounds: what `always` and `possible` read of run-time data.
    """

    predicate: Expr
    always: Expr
    possible: Expr
    key_first: Expr | None
    key_last: Expr | None
    data_bounds: tuple[DataBound, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """A part of a worker's workspace: name, elements, and what it holds."""

    name: str
    size: int
    holds: str


@dataclass(frozen=True, slots=True)
class FlashForward:
    """Online-softmax attention over blocks of query rows (Dao, FlashAttention-2, 2023).

    `weight` is the weight of a key, over the variables of `score`, where no softmax makes it.
    With a `difference` a task computes both maps of its head, one after the other.
    """

    dtype: DType
    lanes: int
    tile_scalars: int
    tile_vectors: int
    block_q: int
    block_kv: int
    head_dim: int
    value_dim: int
    query_scale: float
    score: Expr
    mask: MaskPlan | None
    sink: bool
    buffers: tuple[Buffer, ...]
    off_by_one: bool = False
    weight: Expr | None = None
    difference: Expr | None = None

    @property
    def panel_rows(self) -> int:
        """Query rows in one panel: one register tile wide."""
        return self.lanes * self.tile_vectors


@dataclass(frozen=True, slots=True)
class GridForward:
    """FlashForward on a GPU: a block of threads has a block of query rows and of value columns.

    Sixteen threads share the rows of a *row group*, of which a warp has two. In Q Kᵀ a thread has
    `rows` rows × `keys` keys, and in P V `rows` rows × `columns` value columns, in registers.
    `weight` is as in FlashForward.
    """

    dtype: DType
    threads: int
    block_q: int
    block_kv: int
    depth: int
    value_panel: int
    head_dim: int
    value_dim: int
    query_scale: float
    score: Expr
    mask: MaskPlan | None
    sink: bool
    buffers: tuple[Buffer, ...]
    off_by_one: bool = False
    weight: Expr | None = None
    difference: None = None  # two maps are not computed here

    @property
    def rows(self) -> int:
        """Query rows of a thread."""
        return self.block_q // (self.threads // GROUP_THREADS)

    @property
    def keys(self) -> int:
        """Keys of a thread in Q Kᵀ."""
        return self.block_kv // GROUP_THREADS

    @property
    def columns(self) -> int:
        """Value columns of a thread in P V."""
        return self.value_panel // GROUP_THREADS


@dataclass(frozen=True, slots=True)
class SplitTile:
    """Rows that share one load of a key or a value, and how many vectors of value columns each."""

    rows: int
    value_vectors: int


@dataclass(frozen=True, slots=True)
class SplitKV:
    """Attention of few query rows, split over the keys (Flash-Decoding, 2023).

    Up to `max_rows` query rows a kv head are taken, and up to `task_rows` rows of all the kv heads
    whose keys a task reads together. `key_tile` keys share one load of a query; `tiles` are tried
    from the widest to the last, which has one row.
    `weight` is the weight of a key, over the variables of `score`, where no softmax makes it. With
    a `difference` a task computes both maps of its heads.
    """

    dtype: DType
    lanes: int
    tiles: tuple[SplitTile, ...]
    key_tile: int
    max_rows: int
    task_rows: int
    split_kv: int
    head_dim: int
    value_dim: int
    query_scale: float
    score: Expr
    mask: MaskPlan | None
    sink: bool
    buffers: tuple[Buffer, ...]
    off_by_one: bool = False
    weight: Expr | None = None
    difference: Expr | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """C = A · W (+ bias) with W packed once into column panels (Goto & van de Geijn, 2008)."""

    dtype: DType
    lanes: int
    tile_rows: int
    tile_vectors: int
    block_m: int
    block_n: int
    block_k: int
    buffers: tuple[Buffer, ...]


Kernel: TypeAlias = FlashForward | SplitKV | Projection | GridForward


@dataclass(frozen=True, slots=True)
class KernelIR:
    """A whole program: the attention it implements and its kernels."""

    attention: AttentionIR
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One generated file: its path inside the package and its text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class SourcePackage:
    """A generated Python package, complete in itself."""

    name: str
    files: tuple[SourceFile, ...]
