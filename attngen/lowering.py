"""AttentionIR × Schedule -> KernelIR: sizes become numbers, masks get their interval forms.

Input: a simplified AttentionIR (base 2), a checked schedule. Output: a program whose kernels hold
all that printing them needs. Nothing is decided here, and no target syntax is produced.
"""

from __future__ import annotations

from attngen.dtypes import DType
from attngen.errors import Diagnostic, SpecError
from attngen.ir.attention import UNFUSED, AttentionIR
from attngen.ir.expr import SCORE, TRUE, Expr, replaced
from attngen.ir.kernel import (
    Buffer,
    FlashForward,
    GridForward,
    Kernel,
    KernelIR,
    MaskPlan,
    Projection,
    SplitKV,
    SplitTile,
)
from attngen.ir.schedule import CpuSchedule, CudaSchedule, Schedule
from attngen.mask_tiles import plan
from attngen.passes.fold_constants import folded

TASK_ROWS = 64  # query rows, over kv heads, that fill a workspace of the split-KV kernel


def round_up(size: int, step: int) -> int:
    """The least multiple of `step` that is not below `size`."""
    return -(-size // step) * step


def lower(ir: AttentionIR, schedule: Schedule) -> KernelIR:
    """The kernels of `ir` under `schedule`.

    On a CPU: prefill, short queries and, in a layer, projections. On a GPU: the attention.

    Raises:
        SpecError: `ir` asks for outputs that a fused kernel never holds.
    """
    if unfused := [name for name in ir.outputs if name in UNFUSED]:
        raise SpecError(
            [
                Diagnostic(
                    "E-OUTPUTS",
                    f"'outputs' lists {' and '.join(unfused)} of all pairs, which fused kernels "
                    "never hold",
                    key="outputs",
                    hint="attngen.interpret(spec) computes them; take them out of 'outputs' to "
                    "compile",
                )
            ]
        )
    mask = None if ir.mask == TRUE else plan(ir.mask)
    if isinstance(schedule, CudaSchedule):
        return KernelIR(ir, (lower_grid(ir, schedule, mask),))
    kernels: list[Kernel] = [lower_flash(ir, schedule, mask), lower_split(ir, schedule, mask)]
    if ir.scope == "layer" and schedule.projection.value == "generated":
        kernels.append(lower_projection(ir.dtype, schedule))
    return KernelIR(ir, tuple(kernels))


def weight_of(ir: AttentionIR) -> Expr | None:
    """The weight of a key as a function of `dot`; None where a softmax makes it of the scores."""
    return None if ir.activation is None else folded(replaced(ir.activation, SCORE, ir.score))


def padded_row(size: int, lanes: int) -> int:
    """Elements of a row in a workspace: whole vectors, and one more against cache aliasing."""
    return round_up(size, lanes) + lanes


def lower_flash(ir: AttentionIR, schedule: CpuSchedule, mask: MaskPlan | None) -> FlashForward:
    """The online-softmax kernel and the workspace of one of its workers."""
    lanes, tile = schedule.lanes.value, schedule.tile_scalars.value
    panel, block_q, block_kv = (
        schedule.panel_rows,
        schedule.block_q.value,
        schedule.block_kv.value,
    )
    query_rows = round_up(ir.head_dim, lanes)
    output_rows = max(round_up(ir.value_dim, lanes), round_up(ir.value_dim, tile))
    running = (
        Buffer("row_max", block_q, "maximum of each row so far, in units of log2"),
        Buffer("row_sum", block_q, "sum of each row's weights so far"),
        Buffer("rescale", panel, "what a panel's outputs shrink by"),
    )
    kept = (Buffer("kept", block_q * output_rows, "panels of Oᵀ of the first of two maps"),)
    buffers = (
        Buffer("queries", block_q * query_rows, "panels of Qᵀ, scaled: [d][row]"),
        Buffer("outputs", block_q * output_rows, "panels of Oᵀ: [value column][row]"),
        Buffer("scores", block_kv * panel, "scores, then weights, of a panel: [key][row]"),
        Buffer("keys", block_kv * padded_row(ir.head_dim, lanes), "a block of K: [key][d]"),
        Buffer("values", block_kv * value_stride(ir.value_dim, lanes, tile), "a block of V"),
        *(running if ir.activation is None else ()),
        *(kept if ir.difference else ()),
        Buffer(
            "staging",
            panel * padded_row(max(ir.head_dim, ir.value_dim), lanes),
            "rows on their way into and out of panels",
        ),
    )
    return FlashForward(
        dtype=ir.heads_dtype,
        lanes=lanes,
        tile_scalars=tile,
        tile_vectors=schedule.tile_vectors.value,
        block_q=block_q,
        block_kv=block_kv,
        head_dim=ir.head_dim,
        value_dim=ir.value_dim,
        query_scale=ir.query_scale,
        score=ir.score,
        mask=mask,
        sink=ir.sink,
        off_by_one=ir.off_by_one,
        weight=weight_of(ir),
        difference=ir.difference,
        buffers=buffers,
    )


def value_stride(value_dim: int, lanes: int, tile: int) -> int:
    """Elements between two rows of V in a workspace; a register tile may read past `value_dim`."""
    return padded_row(max(value_dim, round_up(value_dim, tile)), lanes)


def lower_split(ir: AttentionIR, schedule: CpuSchedule, mask: MaskPlan | None) -> SplitKV:
    """The kernel for few query rows and the workspace of one of its workers."""
    lanes, split = schedule.lanes.value, schedule.split_kv.value
    accumulators = schedule.tile_scalars.value * schedule.tile_vectors.value
    row_tile = min(4, accumulators)
    key_tile = min(4, accumulators // row_tile)
    tiles = tuple(
        SplitTile(rows, largest_divisor(max(1, ir.value_dim // lanes), accumulators // rows))
        for rows in sorted({row_tile, 1}, reverse=True)
    )
    max_rows = schedule.short_rows.value
    task_rows = max(max_rows, TASK_ROWS)
    score_stride = score_row(split, key_tile, lanes)
    merged = (Buffer("merged", 2 * max_rows * ir.value_dim, "both maps of rows: [map][row][d]"),)
    buffers = (
        Buffer("queries", task_rows * padded_row(ir.head_dim, lanes), "scaled queries: [row][d]"),
        Buffer("scores", task_rows * score_stride, "scores, then weights: [row][key]"),
        *(() if ir.activation else (Buffer("lane_max", lanes, "lanes of a maximum"),)),
        *(merged if ir.difference else ()),
    )
    if ir.heads_dtype.is_half and not ir.difference:
        width = round_up(ir.value_dim, lanes)
        buffers = (*buffers, Buffer("merged", width, "a row of the output before it is rounded"))
    return SplitKV(
        dtype=ir.heads_dtype,
        lanes=lanes,
        tiles=tiles,
        key_tile=key_tile,
        max_rows=max_rows,
        task_rows=task_rows,
        split_kv=split,
        head_dim=ir.head_dim,
        value_dim=ir.value_dim,
        query_scale=ir.query_scale,
        score=ir.score,
        mask=mask,
        sink=ir.sink,
        off_by_one=ir.off_by_one,
        weight=weight_of(ir),
        difference=ir.difference,
        buffers=buffers,
    )


def score_row(split_kv: int, key_tile: int, lanes: int) -> int:
    """Elements between two rows of scores of a split; a register tile may write past its end."""
    return padded_row(round_up(split_kv, key_tile), lanes)


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` up to `limit`."""
    return next(d for d in range(min(number, limit), 0, -1) if number % d == 0)


def lower_projection(dtype: DType, schedule: CpuSchedule) -> Projection:
    """The matrix product of a layer's projections and the workspace of one of its workers."""
    block_m, block_n = schedule.gemm_block_m.value, schedule.gemm_block_n.value
    block_k = schedule.gemm_block_k.value
    panel = schedule.gemm_tile_vectors.value * schedule.lanes.value
    return Projection(
        dtype=dtype,
        lanes=schedule.lanes.value,
        tile_rows=schedule.gemm_tile_rows.value,
        tile_vectors=schedule.gemm_tile_vectors.value,
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        buffers=gemm_buffers(dtype, block_m, block_n, block_k, panel),
    )


def gemm_buffers(
    dtype: DType, block_m: int, block_n: int, block_k: int, panel: int
) -> tuple[Buffer, ...]:
    """The workspace of a GEMM worker; W is read in place unless its elements are halves."""
    buffers = (
        Buffer("a_block", block_m * a_stride(block_k, dtype), "a block of A: [row][k]"),
        Buffer("c_block", block_m * block_n, "a block of C: [panel][row][column]"),
    )
    if dtype.is_half:
        return (*buffers, Buffer("w_panel", block_k * panel, "a panel of W: [k][column]"))
    return buffers


def a_stride(block_k: int, dtype: DType) -> int:
    """Elements from a row of a block of A to the next: an odd number of cache lines.

    Then rows fall on different cache sets, whatever power of two `block_k` is.
    """
    line = 64 // (8 if dtype.accumulator == "float64" else 4)
    return (round_up(block_k, line) // line | 1) * line


def workspace_elements(buffers: tuple[Buffer, ...], dtype: DType) -> int:
    """Elements that `buffers` take when each begins on a 64-byte line."""
    line = 64 // (8 if dtype.accumulator == "float64" else 4)
    return sum(round_up(b.size, line) for b in buffers)


def lower_grid(ir: AttentionIR, schedule: CudaSchedule, mask: MaskPlan | None) -> GridForward:
    """The online-softmax kernel of a GPU and the shared memory of one of its blocks."""
    return GridForward(
        dtype=ir.dtype,
        threads=32 * schedule.warps.value,
        block_q=schedule.block_q.value,
        block_kv=schedule.block_kv.value,
        depth=schedule.depth.value,
        value_panel=schedule.value_panel.value,
        head_dim=ir.head_dim,
        value_dim=ir.value_dim,
        query_scale=ir.query_scale,
        score=ir.score,
        mask=mask,
        sink=ir.sink,
        buffers=grid_buffers(schedule, softmax=ir.activation is None),
        off_by_one=ir.off_by_one,
        weight=weight_of(ir),
    )


def grid_buffers(schedule: CudaSchedule, *, softmax: bool) -> tuple[Buffer, ...]:
    """The shared memory of a block, in elements of the sums' type."""
    block_q, block_kv, depth = (
        schedule.block_q.value,
        schedule.block_kv.value,
        schedule.depth.value,
    )
    slices = (block_q + block_kv) * staged_stride(depth)
    running = (
        Buffer("row_max", block_q, "maximum of each row so far, in units of log2"),
        Buffer("row_sum", block_q, "sum of each row's weights so far"),
        Buffer("rescale", block_q, "what a row's outputs shrink by"),
    )
    return (
        Buffer("staged", max(slices, depth * schedule.value_panel.value), "slices of Q, K or V"),
        Buffer("scores", block_q * score_stride(block_kv), "scores, then weights: [row][key]"),
        *(running if softmax else ()),
    )


def staged_stride(depth: int) -> int:
    """Elements between rows of a slice of Q or K: odd, so that rows fall on different banks."""
    return depth + 1 - depth % 2


def score_stride(block_kv: int) -> int:
    """Elements between rows of scores, so that the two rows that a warp works on share no bank."""
    return round_up(block_kv, 32) + 16
