"""C = A · W + bias for the projections of a layer, with W packed once.

The loops of Goto & van de Geijn, "Anatomy of high-performance matrix multiplication" (2008), with
output columns in the lanes of a vector:

    for a block of BLOCK_M rows × BLOCK_N columns of C (one task), kept in the workspace:
        C = bias
        for BLOCK_K of the depth:
            copy those columns of A into the workspace               it stays in L2
            for a panel of PANEL columns of W:                       it stays in L1
                for TILE_ROWS rows:
                    C += A · W                 a register tile is TILE_ROWS rows × PANEL columns
        out = C

An element of C is the bias plus one sum for each BLOCK_K of the depth, in order; a sum is one chain
of multiply-adds. So a result depends neither on the threads nor on the rows computed together.
"""

import numpy as np
from numba import get_num_threads, njit

from .simd import (
    ELEMENT,
    LANES,
    fetch_add,
    v_add,
    v_fma,
    v_load,
    v_load_row,
    v_splat_load,
    v_store,
    v_store_row,
    v_zero,
)
from .workers import WorkspacePool, aligned_empty, array_at, describe, integers_at, run_workers

TILE_ROWS = 6  # rows of a register tile
PANEL = 4 * LANES  # columns of a register tile
BLOCK_M = 192  # rows of a task, at most
BLOCK_N = 1024  # columns of a task, at most
BLOCK_K = 96  # depth of a step
A_STRIDE = 112  # an odd number of cache lines, so that rows fall on different cache sets

# Where the parts of a worker's workspace begin, in elements; each on a cache line.
A_BLOCK = 0  # a block of A: [row][k]
C_BLOCK = 21504  # a block of C: [panel][row][column]
WORKSPACE = 218112

# Fewer multiply-adds than this are not worth waking another thread.
SERIAL_WORK = 1 << 20

OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy"}


@njit(**OPTIONS)
def multiply_tile(work, a, c, packed, w, depth):
    """C[6 × PANEL] += A[6 × depth] · W[depth × PANEL]."""
    c0_0 = v_zero()
    c0_1 = v_zero()
    c0_2 = v_zero()
    c0_3 = v_zero()
    c1_0 = v_zero()
    c1_1 = v_zero()
    c1_2 = v_zero()
    c1_3 = v_zero()
    c2_0 = v_zero()
    c2_1 = v_zero()
    c2_2 = v_zero()
    c2_3 = v_zero()
    c3_0 = v_zero()
    c3_1 = v_zero()
    c3_2 = v_zero()
    c3_3 = v_zero()
    c4_0 = v_zero()
    c4_1 = v_zero()
    c4_2 = v_zero()
    c4_3 = v_zero()
    c5_0 = v_zero()
    c5_1 = v_zero()
    c5_2 = v_zero()
    c5_3 = v_zero()
    for k in range(depth):
        w0 = v_load(packed, w)
        w1 = v_load(packed, w + 16)
        w2 = v_load(packed, w + 32)
        w3 = v_load(packed, w + 48)
        w += PANEL
        a0 = v_splat_load(work, a + k)
        c0_0 = v_fma(a0, w0, c0_0)
        c0_1 = v_fma(a0, w1, c0_1)
        c0_2 = v_fma(a0, w2, c0_2)
        c0_3 = v_fma(a0, w3, c0_3)
        a1 = v_splat_load(work, a + 112 + k)
        c1_0 = v_fma(a1, w0, c1_0)
        c1_1 = v_fma(a1, w1, c1_1)
        c1_2 = v_fma(a1, w2, c1_2)
        c1_3 = v_fma(a1, w3, c1_3)
        a2 = v_splat_load(work, a + 224 + k)
        c2_0 = v_fma(a2, w0, c2_0)
        c2_1 = v_fma(a2, w1, c2_1)
        c2_2 = v_fma(a2, w2, c2_2)
        c2_3 = v_fma(a2, w3, c2_3)
        a3 = v_splat_load(work, a + 336 + k)
        c3_0 = v_fma(a3, w0, c3_0)
        c3_1 = v_fma(a3, w1, c3_1)
        c3_2 = v_fma(a3, w2, c3_2)
        c3_3 = v_fma(a3, w3, c3_3)
        a4 = v_splat_load(work, a + 448 + k)
        c4_0 = v_fma(a4, w0, c4_0)
        c4_1 = v_fma(a4, w1, c4_1)
        c4_2 = v_fma(a4, w2, c4_2)
        c4_3 = v_fma(a4, w3, c4_3)
        a5 = v_splat_load(work, a + 560 + k)
        c5_0 = v_fma(a5, w0, c5_0)
        c5_1 = v_fma(a5, w1, c5_1)
        c5_2 = v_fma(a5, w2, c5_2)
        c5_3 = v_fma(a5, w3, c5_3)
    v_store(work, c, v_add(v_load(work, c), c0_0))
    v_store(work, c + 16, v_add(v_load(work, c + 16), c0_1))
    v_store(work, c + 32, v_add(v_load(work, c + 32), c0_2))
    v_store(work, c + 48, v_add(v_load(work, c + 48), c0_3))
    c += PANEL
    v_store(work, c, v_add(v_load(work, c), c1_0))
    v_store(work, c + 16, v_add(v_load(work, c + 16), c1_1))
    v_store(work, c + 32, v_add(v_load(work, c + 32), c1_2))
    v_store(work, c + 48, v_add(v_load(work, c + 48), c1_3))
    c += PANEL
    v_store(work, c, v_add(v_load(work, c), c2_0))
    v_store(work, c + 16, v_add(v_load(work, c + 16), c2_1))
    v_store(work, c + 32, v_add(v_load(work, c + 32), c2_2))
    v_store(work, c + 48, v_add(v_load(work, c + 48), c2_3))
    c += PANEL
    v_store(work, c, v_add(v_load(work, c), c3_0))
    v_store(work, c + 16, v_add(v_load(work, c + 16), c3_1))
    v_store(work, c + 32, v_add(v_load(work, c + 32), c3_2))
    v_store(work, c + 48, v_add(v_load(work, c + 48), c3_3))
    c += PANEL
    v_store(work, c, v_add(v_load(work, c), c4_0))
    v_store(work, c + 16, v_add(v_load(work, c + 16), c4_1))
    v_store(work, c + 32, v_add(v_load(work, c + 32), c4_2))
    v_store(work, c + 48, v_add(v_load(work, c + 48), c4_3))
    c += PANEL
    v_store(work, c, v_add(v_load(work, c), c5_0))
    v_store(work, c + 16, v_add(v_load(work, c + 16), c5_1))
    v_store(work, c + 32, v_add(v_load(work, c + 32), c5_2))
    v_store(work, c + 48, v_add(v_load(work, c + 48), c5_3))
    c += PANEL


@njit(**OPTIONS)
def multiply_row(work, a, c, packed, w, depth):
    """C[1 × PANEL] += A[1 × depth] · W[depth × PANEL], for rows left over."""
    c0_0 = v_zero()
    c0_1 = v_zero()
    c0_2 = v_zero()
    c0_3 = v_zero()
    for k in range(depth):
        w0 = v_load(packed, w)
        w1 = v_load(packed, w + 16)
        w2 = v_load(packed, w + 32)
        w3 = v_load(packed, w + 48)
        w += PANEL
        a0 = v_splat_load(work, a + k)
        c0_0 = v_fma(a0, w0, c0_0)
        c0_1 = v_fma(a0, w1, c0_1)
        c0_2 = v_fma(a0, w2, c0_2)
        c0_3 = v_fma(a0, w3, c0_3)
    v_store(work, c, v_add(v_load(work, c), c0_0))
    v_store(work, c + 16, v_add(v_load(work, c + 16), c0_1))
    v_store(work, c + 32, v_add(v_load(work, c + 32), c0_2))
    v_store(work, c + 48, v_add(v_load(work, c + 48), c0_3))
    c += PANEL


@njit(cache=True, **OPTIONS)
def worker(arguments, index):
    """Take blocks of C until none is left; rows first, so that threads share a block of W."""
    a = array_at(arguments, 0, 2)
    packed = array_at(arguments, 1, 1)
    bias = array_at(arguments, 2, 1)
    out = array_at(arguments, 3, 2)
    work = array_at(arguments, 4, 2)[index]
    plan = integers_at(arguments, 5)
    block_m = plan[1]
    block_n = plan[2]
    row_blocks = (a.shape[0] + block_m - 1) // block_m
    tasks = row_blocks * ((out.shape[1] + block_n - 1) // block_n)
    while True:
        task = fetch_add(plan, 0, 1)
        if task >= tasks:
            break
        first_row = task % row_blocks * block_m
        first_column = task // row_blocks * block_n
        rows = min(block_m, a.shape[0] - first_row)
        columns = min(block_n, out.shape[1] - first_column)
        # Rows that fill no tile go through W one by one, unless one tile can hold them all: then
        # W is read from memory in one pass, and copies of the last row fill the tile.
        tiled = TILE_ROWS if 1 < rows < TILE_ROWS else rows
        # C is [panel][row][column of the panel], so that a register tile is one piece of memory.
        for j in range(0, columns, LANES):
            start = v_load(bias, first_column + j)
            c = C_BLOCK + j // PANEL * PANEL * BLOCK_M + j % PANEL
            for i in range(tiled):
                v_store(work, c + i * PANEL, start)
        for first_k in range(0, a.shape[1], BLOCK_K):
            depth = min(BLOCK_K, a.shape[1] - first_k)
            for i in range(tiled):
                row = first_row + min(i, rows - 1)
                for k in range(0, depth, LANES):
                    part = v_load_row(a, row, first_k + k, depth - k)
                    v_store(work, A_BLOCK + i * A_STRIDE + k, part)
            for panel in range(0, columns, PANEL):
                w = first_k * bias.shape[0] + (first_column + panel) * depth
                row = 0
                while row + 6 <= tiled:
                    a_tile = A_BLOCK + row * A_STRIDE
                    c_tile = C_BLOCK + panel * BLOCK_M + row * PANEL
                    multiply_tile(work, a_tile, c_tile, packed, w, depth)
                    row += 6
                while row + 1 <= tiled:
                    a_tile = A_BLOCK + row * A_STRIDE
                    c_tile = C_BLOCK + panel * BLOCK_M + row * PANEL
                    multiply_row(work, a_tile, c_tile, packed, w, depth)
                    row += 1
        for j in range(0, columns, LANES):
            c = C_BLOCK + j // PANEL * PANEL * BLOCK_M + j % PANEL
            for i in range(rows):
                part = v_load(work, c + i * PANEL)
                v_store_row(out, first_row + i, first_column + j, columns - j, part)


def padded_columns(columns):
    """Columns of packed weights: whole panels."""
    return -(-columns // PANEL) * PANEL


def pack_weight(w):
    """The (in, out) matrix `w`, of any strides, as `project` reads it.

    The order is [block of BLOCK_K rows][panel of PANEL columns][row][column], so that a task reads
    straight on; the last panel is filled up with zeros.
    """
    depth, columns = w.shape
    packed = aligned_empty(depth * padded_columns(columns), ELEMENT)
    whole = columns // PANEL
    for first in range(0, depth, BLOCK_K):
        rows = w[first : first + BLOCK_K]
        block = packed[first * padded_columns(columns) :][: len(rows) * padded_columns(columns)]
        panels = block.reshape(-1, len(rows), PANEL)
        if abs(w.strides[0]) < abs(w.strides[1]):
            rows = np.ascontiguousarray(rows.T).T  # read whole cache lines of a transposed matrix
        panels[:whole] = rows[:, : whole * PANEL].reshape(len(rows), whole, PANEL).swapaxes(0, 1)
        if whole < len(panels):
            panels[whole, :, : columns - whole * PANEL] = rows[:, whole * PANEL :]
            panels[whole, :, columns - whole * PANEL :] = 0
    return packed


def _block_size(size, limit, step, least):
    """Multiple of `step` up to `limit` that cuts `size` evenly, into `least` blocks if it can."""
    blocks = max(-(-size // limit), min(least, -(-size // step)))
    return -(-size // (blocks * step)) * step


_pool = WorkspacePool(WORKSPACE)


def project(a, packed, bias, out, workers=None):
    """Write a · w + bias to `out`.

    Args:
        a: (rows, in), of any strides.
        packed: what `pack_weight` made of w (in, out).
        bias: (out,), or None.
        out: (rows, out), writable and of any strides; it does not overlap `a`.
        workers: threads to use; Numba's setting if None, 1 stays on the calling thread.

    Raises:
        ValueError: the arrays do not belong together.
    """
    rows, depth = a.shape
    columns = out.shape[1]
    if (
        out.shape[0] != rows
        or packed.shape != (depth * padded_columns(columns),)
        or (bias is not None and bias.shape != (columns,))
        or not a.dtype == packed.dtype == out.dtype == ELEMENT
        or not packed.flags.c_contiguous
        or not out.flags.writeable
    ):
        raise ValueError("a, packed, bias and out do not belong together, or out is read-only")
    if not rows or not columns:
        return
    start = np.zeros(padded_columns(columns), ELEMENT)
    if bias is not None:
        start[:columns] = bias
    workers = get_num_threads() if workers is None else workers
    workers = max(1, min(workers, rows * columns * depth // SERIAL_WORK))
    block_m = _block_size(rows, BLOCK_M, TILE_ROWS, 1)
    # Four tasks a thread, if there are as many, so that none waits for long.
    least = 1 if workers == 1 else -(-4 * workers * block_m // rows)
    block_n = _block_size(columns, BLOCK_N, PANEL, least)
    plan = np.array([0, block_m, block_n], np.int64)  # the next task, and its size
    workspace = _pool.take(workers)
    arguments = describe(a, packed, start, out, workspace, plan)
    run_workers(worker, arguments, workers)
    _pool.give(workspace)
