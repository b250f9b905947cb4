"""Schedule: *how* it is computed. Each field is a decision that can say why it is what it is.

A decision's source is the strongest that spoke: default < heuristic < tuned < spec < call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Generic, Literal, TypeAlias, TypeVar

Source: TypeAlias = Literal["default", "heuristic", "tuned", "spec", "call"]
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[T_co]):
    """A value, who chose it, and why; only the value counts for equality and digests."""

    value: T_co
    source: Source = field(compare=False)
    why: str = field(compare=False)


NamedDecision: TypeAlias = tuple[str, Decision[int] | Decision[str]]


@dataclass(frozen=True, slots=True)
class CpuSchedule:
    """How the Numba CPU kernels run.

    In the flash kernel the lanes of a vector are query rows: a *panel* holds ``tile_vectors``
    vectors of rows, and a register tile is ``tile_scalars`` keys (or value columns) × one panel.

    Attributes:
        lanes: elements in a vector; 1 means plain scalars.
        tile_scalars: keys (in QKᵀ) or value columns (in PV) of a register tile.
        tile_vectors: vectors of query rows of a register tile.
        block_q: query rows a task works on; a multiple of the panel.
        block_kv: keys in one step of the online softmax; a multiple of `tile_scalars`.
        short_rows: up to this many query rows a kv head, the split-KV kernel runs instead.
        split_kv: keys in one split of that kernel.
        projection: ``generated`` (our GEMM) or ``blas`` (NumPy's).
        gemm_tile_rows, gemm_tile_vectors: register tile of the GEMM, rows × vectors of columns.
        gemm_block_m, gemm_block_n, gemm_block_k: rows, columns and depth of its cache block.
    """

    lanes: Decision[int]
    tile_scalars: Decision[int]
    tile_vectors: Decision[int]
    block_q: Decision[int]
    block_kv: Decision[int]
    short_rows: Decision[int]
    split_kv: Decision[int]
    projection: Decision[str]
    gemm_tile_rows: Decision[int]
    gemm_tile_vectors: Decision[int]
    gemm_block_m: Decision[int]
    gemm_block_n: Decision[int]
    gemm_block_k: Decision[int]

    def decisions(self) -> Iterator[NamedDecision]:
        """Every (name, decision) in the order of declaration."""
        return _decisions(self)

    @property
    def panel_rows(self) -> int:
        """Query rows in one panel."""
        return self.tile_vectors.value * self.lanes.value


@dataclass(frozen=True, slots=True)
class CudaSchedule:
    """How the CUDA kernels run: what a block of threads works on, and with how many.

    Attributes:
        warps: warps of a block, of 32 threads each.
        block_q: query rows of a block; each half warp has as many of them.
        block_kv: keys in one step of the online softmax; a multiple of 16 and of `depth`.
        depth: elements of the head dimension, or keys of V, that are staged at a time.
        value_panel: value columns of a block; a multiple of 16.
    """

    warps: Decision[int]
    block_q: Decision[int]
    block_kv: Decision[int]
    depth: Decision[int]
    value_panel: Decision[int]

    def decisions(self) -> Iterator[NamedDecision]:
        """Every (name, decision) in the order of declaration."""
        return _decisions(self)


Schedule: TypeAlias = CpuSchedule | CudaSchedule

SCHEDULES: dict[str, type[Schedule]] = {"cpu": CpuSchedule, "cuda": CudaSchedule}
"""By the name of their target family in specs and on the command line."""


def _decisions(schedule: Schedule) -> Iterator[NamedDecision]:
    for f in fields(schedule):
        yield f.name, getattr(schedule, f.name)
