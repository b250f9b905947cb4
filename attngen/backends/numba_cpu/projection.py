"""The context of the projection template, from a lowered projection.

Input: a Projection of KernelIR. Output: the typed variables of ``projection.py.jinja``, and the
file that they make.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.backends.numba_cpu.sections import PlacedBuffer, offsets, place
from attngen.ir.kernel import Projection, SourceFile
from attngen.lowering import a_stride, workspace_elements
from attngen.render import render


@dataclass(frozen=True, slots=True)
class MicroKernel:
    """One register tile: its name, its row indices, how many they are, and what it is for."""

    name: str
    rows: tuple[int, ...]
    size: int
    why: str


@dataclass(frozen=True, slots=True)
class ProjectionContext:
    """Variables of ``projection.py.jinja``.

    Attributes:
        tile_rows, tile_vectors: register tile, rows × vectors of columns.
        block_m, block_n, block_k: rows, columns and depth of a cache block.
        kernels: the register tiles, the largest first.
        vectors: the indices (0, 1, …) of a register tile's vectors.
        a_stride: elements between two rows of A in a workspace.
        lane: what to add to an address to get to each vector of a panel.
        a_row: what to add to an address to get to each row of A in a register tile.
        buffers: the parts of a worker's workspace.
        workspace: elements of a worker's workspace.
        stored: whether the matrices are halves, converted where they are read and written.
    """

    tile_rows: int
    tile_vectors: int
    block_m: int
    block_n: int
    block_k: int
    kernels: tuple[MicroKernel, ...]
    vectors: tuple[int, ...]
    a_stride: int
    lane: tuple[str, ...]
    a_row: tuple[str, ...]
    buffers: tuple[PlacedBuffer, ...]
    workspace: int
    stored: bool


def projection_context(kernel: Projection) -> ProjectionContext:
    """Everything the projection template prints."""
    rows = kernel.tile_rows
    kernels = [MicroKernel("tile", tuple(range(rows)), rows, "")]
    if rows > 1:
        kernels.append(MicroKernel("row", (0,), 1, ", for rows left over"))
    stride = a_stride(kernel.block_k, kernel.dtype)
    return ProjectionContext(
        tile_rows=rows,
        tile_vectors=kernel.tile_vectors,
        block_m=kernel.block_m,
        block_n=kernel.block_n,
        block_k=kernel.block_k,
        kernels=tuple(kernels),
        vectors=tuple(range(kernel.tile_vectors)),
        a_stride=stride,
        lane=offsets(kernel.tile_vectors, kernel.lanes),
        a_row=offsets(rows, stride),
        buffers=place(kernel.buffers, kernel.dtype),
        workspace=workspace_elements(kernel.buffers, kernel.dtype),
        stored=kernel.dtype.is_half,
    )


def projection_file(kernel: Projection) -> SourceFile:
    """``projection.py``; it needs ``simd.py`` and ``workers.py`` beside it."""
    text = render("numba_cpu/projection.py.jinja", projection_context(kernel))
    return SourceFile("projection.py", text)
