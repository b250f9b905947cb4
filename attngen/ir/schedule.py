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

    def decisions(self) -> Iterator[tuple[str, Decision[int] | Decision[str]]]:
        """Every (name, decision) in the order of declaration."""
        for f in fields(self):
            yield f.name, getattr(self, f.name)

    @property
    def panel_rows(self) -> int:
        """Query rows in one panel."""
        return self.tile_vectors.value * self.lanes.value
