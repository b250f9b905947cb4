"""Attention of mha_4096: prefill, many query rows at a time.

FlashAttention-2 (Dao, 2023) for CPUs, with query rows in the lanes of a vector:

    for a block of query rows (one task; rows of a kv head, 1 head side by side):
        for a block of keys:
            copy its K and V into the workspace
            for a panel of PANEL rows:
                scores  = K Qᵀ                       a register tile is TILE keys × PANEL rows
                row_max, row_sum and scores → weights       (online softmax, base 2)
                outputs = outputs · rescale + Vᵀ weights    TILE value columns × PANEL rows
        out = outputs / row_sum

Everything is transposed: a row's maximum and sum are taken between registers, never across the
lanes of one, and a row's result does not depend on which rows share its block.
"""

import numpy as np
from numba import njit

from .sequences import find_sequence, numbered, task_count
from .simd import (
    ELEMENT,
    LANES,
    fetch_add,
    prefetch,
    v_add,
    v_div,
    v_eq,
    v_fma,
    v_le,
    v_load,
    v_max,
    v_mul,
    v_ne,
    v_select,
    v_splat,
    v_splat_load,
    v_store,
    v_sub,
    v_sum,
    v_transpose,
    v_weight,
    v_zero,
)
from .workers import (
    WorkspacePool,
    array_at,
    describe,
    integers_at,
    run_workers,
)

HEAD_DIM = 128
VALUE_DIM = 128
GROUP = 1  # query heads that share one kv head
TILE = 8  # keys, or value columns, of a register tile
PANEL = 3 * LANES  # query rows of a register tile
BLOCK_Q = 192  # query rows of a task, at most
BLOCK_KV = 128  # keys of a step
QUERY_SCALE = ELEMENT(0.12751743082459868)  # brings the products into units of log2
NEG_INF = ELEMENT(-np.inf)
LINE = 64 // np.dtype(ELEMENT).itemsize  # elements of a cache line

# Rows are padded to whole vectors, and by one more vector so that rows of a power-of-two length do
# not fall on the same cache sets.
QUERY_ROWS = 128
OUTPUT_ROWS = 128
KEY_STRIDE = 144
VALUE_STRIDE = 144
STAGING_STRIDE = 144

# Where the parts of a worker's workspace begin, in elements; each on a cache line.
QUERIES = 0  # panels of Qᵀ, scaled: [d][row]
OUTPUTS = 24576  # panels of Oᵀ: [value column][row]
SCORES = 49152  # scores, then weights, of a panel: [key][row]
KEYS = 55296  # a block of K: [key][d]
VALUES = 73728  # a block of V
ROW_MAX = 92160  # maximum of each row so far, in units of log2
ROW_SUM = 92352  # sum of each row's weights so far
RESCALE = 92544  # what a panel's outputs shrink by
STAGING = 92592  # rows on their way into and out of panels
WORKSPACE = 99504

OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
# What only other kernels call needs no entry for Python or C, which saves compile time.
INNER = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@njit(**INNER)
def score_tile(work, key, query, scores):
    """scores[TILE × PANEL] = K[TILE × HEAD_DIM] Qᵀ[HEAD_DIM × PANEL]."""
    s0_0 = v_zero()
    s0_1 = v_zero()
    s0_2 = v_zero()
    s1_0 = v_zero()
    s1_1 = v_zero()
    s1_2 = v_zero()
    s2_0 = v_zero()
    s2_1 = v_zero()
    s2_2 = v_zero()
    s3_0 = v_zero()
    s3_1 = v_zero()
    s3_2 = v_zero()
    s4_0 = v_zero()
    s4_1 = v_zero()
    s4_2 = v_zero()
    s5_0 = v_zero()
    s5_1 = v_zero()
    s5_2 = v_zero()
    s6_0 = v_zero()
    s6_1 = v_zero()
    s6_2 = v_zero()
    s7_0 = v_zero()
    s7_1 = v_zero()
    s7_2 = v_zero()
    for d in range(HEAD_DIM):
        row = query + d * PANEL
        q0 = v_load(work, row)
        q1 = v_load(work, row + 16)
        q2 = v_load(work, row + 32)
        column = key + d
        k0 = v_splat_load(work, column)
        s0_0 = v_fma(k0, q0, s0_0)
        s0_1 = v_fma(k0, q1, s0_1)
        s0_2 = v_fma(k0, q2, s0_2)
        k1 = v_splat_load(work, column + 144)
        s1_0 = v_fma(k1, q0, s1_0)
        s1_1 = v_fma(k1, q1, s1_1)
        s1_2 = v_fma(k1, q2, s1_2)
        k2 = v_splat_load(work, column + 288)
        s2_0 = v_fma(k2, q0, s2_0)
        s2_1 = v_fma(k2, q1, s2_1)
        s2_2 = v_fma(k2, q2, s2_2)
        k3 = v_splat_load(work, column + 432)
        s3_0 = v_fma(k3, q0, s3_0)
        s3_1 = v_fma(k3, q1, s3_1)
        s3_2 = v_fma(k3, q2, s3_2)
        k4 = v_splat_load(work, column + 576)
        s4_0 = v_fma(k4, q0, s4_0)
        s4_1 = v_fma(k4, q1, s4_1)
        s4_2 = v_fma(k4, q2, s4_2)
        k5 = v_splat_load(work, column + 720)
        s5_0 = v_fma(k5, q0, s5_0)
        s5_1 = v_fma(k5, q1, s5_1)
        s5_2 = v_fma(k5, q2, s5_2)
        k6 = v_splat_load(work, column + 864)
        s6_0 = v_fma(k6, q0, s6_0)
        s6_1 = v_fma(k6, q1, s6_1)
        s6_2 = v_fma(k6, q2, s6_2)
        k7 = v_splat_load(work, column + 1008)
        s7_0 = v_fma(k7, q0, s7_0)
        s7_1 = v_fma(k7, q1, s7_1)
        s7_2 = v_fma(k7, q2, s7_2)
    row = scores
    v_store(work, row, s0_0)
    v_store(work, row + 16, s0_1)
    v_store(work, row + 32, s0_2)
    row = scores + 48
    v_store(work, row, s1_0)
    v_store(work, row + 16, s1_1)
    v_store(work, row + 32, s1_2)
    row = scores + 96
    v_store(work, row, s2_0)
    v_store(work, row + 16, s2_1)
    v_store(work, row + 32, s2_2)
    row = scores + 144
    v_store(work, row, s3_0)
    v_store(work, row + 16, s3_1)
    v_store(work, row + 32, s3_2)
    row = scores + 192
    v_store(work, row, s4_0)
    v_store(work, row + 16, s4_1)
    v_store(work, row + 32, s4_2)
    row = scores + 240
    v_store(work, row, s5_0)
    v_store(work, row + 16, s5_1)
    v_store(work, row + 32, s5_2)
    row = scores + 288
    v_store(work, row, s6_0)
    v_store(work, row + 16, s6_1)
    v_store(work, row + 32, s6_2)
    row = scores + 336
    v_store(work, row, s7_0)
    v_store(work, row + 16, s7_1)
    v_store(work, row + 32, s7_2)


@njit(**INNER)
def output_tile(work, value, weights, first, last, outputs):
    """outputs[TILE × PANEL] = outputs · rescale + Vᵀ[TILE × keys] weights[keys × PANEL]."""
    rescale0 = v_load(work, RESCALE)
    rescale1 = v_load(work, RESCALE + 16)
    rescale2 = v_load(work, RESCALE + 32)
    row = outputs
    o0_0 = v_mul(rescale0, v_load(work, row))
    o0_1 = v_mul(rescale1, v_load(work, row + 16))
    o0_2 = v_mul(rescale2, v_load(work, row + 32))
    row = outputs + 48
    o1_0 = v_mul(rescale0, v_load(work, row))
    o1_1 = v_mul(rescale1, v_load(work, row + 16))
    o1_2 = v_mul(rescale2, v_load(work, row + 32))
    row = outputs + 96
    o2_0 = v_mul(rescale0, v_load(work, row))
    o2_1 = v_mul(rescale1, v_load(work, row + 16))
    o2_2 = v_mul(rescale2, v_load(work, row + 32))
    row = outputs + 144
    o3_0 = v_mul(rescale0, v_load(work, row))
    o3_1 = v_mul(rescale1, v_load(work, row + 16))
    o3_2 = v_mul(rescale2, v_load(work, row + 32))
    row = outputs + 192
    o4_0 = v_mul(rescale0, v_load(work, row))
    o4_1 = v_mul(rescale1, v_load(work, row + 16))
    o4_2 = v_mul(rescale2, v_load(work, row + 32))
    row = outputs + 240
    o5_0 = v_mul(rescale0, v_load(work, row))
    o5_1 = v_mul(rescale1, v_load(work, row + 16))
    o5_2 = v_mul(rescale2, v_load(work, row + 32))
    row = outputs + 288
    o6_0 = v_mul(rescale0, v_load(work, row))
    o6_1 = v_mul(rescale1, v_load(work, row + 16))
    o6_2 = v_mul(rescale2, v_load(work, row + 32))
    row = outputs + 336
    o7_0 = v_mul(rescale0, v_load(work, row))
    o7_1 = v_mul(rescale1, v_load(work, row + 16))
    o7_2 = v_mul(rescale2, v_load(work, row + 32))
    for key in range(first, last):
        row = weights + key * PANEL
        w0 = v_load(work, row)
        w1 = v_load(work, row + 16)
        w2 = v_load(work, row + 32)
        row = value + key * VALUE_STRIDE
        v0 = v_splat_load(work, row)
        o0_0 = v_fma(v0, w0, o0_0)
        o0_1 = v_fma(v0, w1, o0_1)
        o0_2 = v_fma(v0, w2, o0_2)
        v1 = v_splat_load(work, row + 1)
        o1_0 = v_fma(v1, w0, o1_0)
        o1_1 = v_fma(v1, w1, o1_1)
        o1_2 = v_fma(v1, w2, o1_2)
        v2 = v_splat_load(work, row + 2)
        o2_0 = v_fma(v2, w0, o2_0)
        o2_1 = v_fma(v2, w1, o2_1)
        o2_2 = v_fma(v2, w2, o2_2)
        v3 = v_splat_load(work, row + 3)
        o3_0 = v_fma(v3, w0, o3_0)
        o3_1 = v_fma(v3, w1, o3_1)
        o3_2 = v_fma(v3, w2, o3_2)
        v4 = v_splat_load(work, row + 4)
        o4_0 = v_fma(v4, w0, o4_0)
        o4_1 = v_fma(v4, w1, o4_1)
        o4_2 = v_fma(v4, w2, o4_2)
        v5 = v_splat_load(work, row + 5)
        o5_0 = v_fma(v5, w0, o5_0)
        o5_1 = v_fma(v5, w1, o5_1)
        o5_2 = v_fma(v5, w2, o5_2)
        v6 = v_splat_load(work, row + 6)
        o6_0 = v_fma(v6, w0, o6_0)
        o6_1 = v_fma(v6, w1, o6_1)
        o6_2 = v_fma(v6, w2, o6_2)
        v7 = v_splat_load(work, row + 7)
        o7_0 = v_fma(v7, w0, o7_0)
        o7_1 = v_fma(v7, w1, o7_1)
        o7_2 = v_fma(v7, w2, o7_2)
    row = outputs
    v_store(work, row, o0_0)
    v_store(work, row + 16, o0_1)
    v_store(work, row + 32, o0_2)
    row = outputs + 48
    v_store(work, row, o1_0)
    v_store(work, row + 16, o1_1)
    v_store(work, row + 32, o1_2)
    row = outputs + 96
    v_store(work, row, o2_0)
    v_store(work, row + 16, o2_1)
    v_store(work, row + 32, o2_2)
    row = outputs + 144
    v_store(work, row, o3_0)
    v_store(work, row + 16, o3_1)
    v_store(work, row + 32, o3_2)
    row = outputs + 192
    v_store(work, row, o4_0)
    v_store(work, row + 16, o4_1)
    v_store(work, row + 32, o4_2)
    row = outputs + 240
    v_store(work, row, o5_0)
    v_store(work, row + 16, o5_1)
    v_store(work, row + 32, o5_2)
    row = outputs + 288
    v_store(work, row, o6_0)
    v_store(work, row + 16, o6_1)
    v_store(work, row + 32, o6_2)
    row = outputs + 336
    v_store(work, row, o7_0)
    v_store(work, row + 16, o7_1)
    v_store(work, row + 32, o7_2)


@njit(**INNER)
def output_without_leaks(work, weights, first, last, outputs):
    """What `output_tile` does for all columns, where V holds NaN or infinities.

    Hidden keys have -inf for a weight here, as 0 · NaN must not reach a row that may not see them;
    it reaches those that may, however small their weight.
    """
    for column in range(VALUE_DIM):
        for lane in range(0, PANEL, LANES):
            at = outputs + column * PANEL + lane
            total = v_mul(v_load(work, RESCALE + lane), v_load(work, at))
            for key in range(first, last):
                weight = v_load(work, weights + key * PANEL + lane)
                value = v_splat_load(work, VALUES + key * VALUE_STRIDE + column)
                seen = v_ne(weight, v_splat(NEG_INF))
                total = v_select(seen, v_fma(value, weight, total), total)
            v_store(work, at, total)


@njit(**INNER)
def mask_panel(work, first, last, hidden, positions, panel, k_first):
    """Put `hidden` where a row may not see a key, in place of its score or weight."""
    for lane in range(0, PANEL, LANES):
        q = v_load(positions, panel + lane)
        for key in range(first, last):
            at = SCORES + key * PANEL + lane
            k = k_first + key
            keep = v_le(v_splat(k), q)
            v_store(work, at, v_select(keep, v_load(work, at), v_splat(hidden)))


@njit(**INNER)
def softmax_panel(work, row, first, last):
    """Scores to weights, in place; brings row_max and row_sum up to date and sets RESCALE."""
    maxima = ROW_MAX + row
    sums = ROW_SUM + row
    old_max0 = v_load(work, maxima)
    row_max0 = old_max0
    old_max1 = v_load(work, maxima + 16)
    row_max1 = old_max1
    old_max2 = v_load(work, maxima + 32)
    row_max2 = old_max2
    for key in range(first, last):
        at = SCORES + key * PANEL
        row_max0 = v_max(v_load(work, at), row_max0)
        row_max1 = v_max(v_load(work, at + 16), row_max1)
        row_max2 = v_max(v_load(work, at + 32), row_max2)
    none = v_splat(NEG_INF)
    v_store(work, maxima, row_max0)
    # A row that has seen no key yet has the maximum -inf; 0 in its place gives weights of 0.
    row_max0 = v_select(v_eq(row_max0, none), v_zero(), row_max0)
    # Where the maximum grew, what was summed so far shrinks.
    rescale0 = v_weight(v_sub(old_max0, row_max0))
    v_store(work, RESCALE, rescale0)
    row_sum0 = v_mul(rescale0, v_load(work, sums))
    v_store(work, maxima + 16, row_max1)
    # A row that has seen no key yet has the maximum -inf; 0 in its place gives weights of 0.
    row_max1 = v_select(v_eq(row_max1, none), v_zero(), row_max1)
    # Where the maximum grew, what was summed so far shrinks.
    rescale1 = v_weight(v_sub(old_max1, row_max1))
    v_store(work, RESCALE + 16, rescale1)
    row_sum1 = v_mul(rescale1, v_load(work, sums + 16))
    v_store(work, maxima + 32, row_max2)
    # A row that has seen no key yet has the maximum -inf; 0 in its place gives weights of 0.
    row_max2 = v_select(v_eq(row_max2, none), v_zero(), row_max2)
    # Where the maximum grew, what was summed so far shrinks.
    rescale2 = v_weight(v_sub(old_max2, row_max2))
    v_store(work, RESCALE + 32, rescale2)
    row_sum2 = v_mul(rescale2, v_load(work, sums + 32))
    for key in range(first, last):
        at = SCORES + key * PANEL
        weight0 = v_weight(v_sub(v_load(work, at), row_max0))
        v_store(work, at, weight0)
        row_sum0 = v_add(row_sum0, weight0)
        weight1 = v_weight(v_sub(v_load(work, at + 16), row_max1))
        v_store(work, at + 16, weight1)
        row_sum1 = v_add(row_sum1, weight1)
        weight2 = v_weight(v_sub(v_load(work, at + 32), row_max2))
        v_store(work, at + 32, weight2)
        row_sum2 = v_add(row_sum2, weight2)
    v_store(work, sums, row_sum0)
    v_store(work, sums + 16, row_sum1)
    v_store(work, sums + 32, row_sum2)


@njit(**INNER)
def copy_row(source, work, start, size, factor):
    """Copy one row of any stride to work[start:], times `factor`; True if all of it is finite."""
    probe = v_zero()  # stays 0 for finite data, as x · 0 is NaN for NaN and infinities
    done = 0
    if source.strides[0] == source.itemsize:
        done = size - size % LANES
        for d in range(0, done, LANES):
            x = v_load(source, d)
            probe = v_fma(x, v_zero(), probe)
            v_store(work, start + d, v_mul(x, v_splat(factor)))
    rest = v_sum(probe)
    for d in range(done, size):
        rest += source[d] * ELEMENT(0)
        work[start + d] = source[d] * factor
    return rest == ELEMENT(0)


@njit(**INNER)
def load_queries(q, work, positions, heads, b, start, kv_h, first_row, rows, offset):
    """Pack rows first_row … of a kv head, scaled and transposed, into panels of PANEL rows.

    Row r is query r // GROUP of the head kv_h · GROUP + r % GROUP. The last panel is filled up with
    copies of the last row.
    """
    for panel in range(0, rows, PANEL):
        for lane in range(PANEL):
            row = first_row + min(panel + lane, rows - 1)
            index = row // GROUP
            head = kv_h * GROUP + row % GROUP
            positions[panel + lane] = index + offset
            heads[panel + lane] = head
            source = q[b, start + index, head]
            copy_row(source, work, STAGING + lane * STAGING_STRIDE, HEAD_DIM, QUERY_SCALE)
        at = QUERIES + panel * QUERY_ROWS
        for d in range(0, HEAD_DIM, LANES):
            for lane in range(0, PANEL, LANES):
                tile = STAGING + lane * STAGING_STRIDE + d
                v_transpose(work, tile, STAGING_STRIDE, work, at + d * PANEL + lane, PANEL)


@njit(**INNER)
def prefetch_rows(k, v, b, start, kv_h):
    """Ask for TILE rows of K and V from `start` on."""
    for key in range(start, min(start + TILE, k.shape[1])):
        row = k[b, key, kv_h]
        for d in range(0, HEAD_DIM, LINE):
            prefetch(row, d)
        row = v[b, key, kv_h]
        for d in range(0, VALUE_DIM, LINE):
            prefetch(row, d)


@njit(**INNER)
def load_keys(k, v, work, b, start, kv_h, keys):
    """Copy a block of K and V rows, compactly; True if V is finite."""
    finite = True
    for key in range(keys):
        copy_row(k[b, start + key, kv_h], work, KEYS + key * KEY_STRIDE, HEAD_DIM, ELEMENT(1))
        row = v[b, start + key, kv_h]
        finite &= copy_row(row, work, VALUES + key * VALUE_STRIDE, VALUE_DIM, ELEMENT(1))
    return finite


@njit(**INNER)
def store_outputs(out, lse, work, heads, b, start, first_row, rows):
    """Divide by the softmax denominator, transpose back and write the rows and their LSE."""
    for panel in range(0, rows, PANEL):
        at = OUTPUTS + panel * OUTPUT_ROWS
        for lane in range(0, PANEL, LANES):
            row_sum = v_load(work, ROW_SUM + panel + lane)
            # A row that saw no key has the sum 0 and gives exactly 0.
            inverse = v_div(v_splat(ELEMENT(1)), row_sum)
            scale = v_select(v_eq(row_sum, v_zero()), v_zero(), inverse)
            v_store(work, RESCALE + lane, scale)
        for d in range(VALUE_DIM):
            for lane in range(0, PANEL, LANES):
                output = v_load(work, at + d * PANEL + lane)
                v_store(work, at + d * PANEL + lane, v_mul(output, v_load(work, RESCALE + lane)))
        for d in range(0, VALUE_DIM, LANES):
            for lane in range(0, PANEL, LANES):
                tile = STAGING + lane * STAGING_STRIDE + d
                v_transpose(work, at + d * PANEL + lane, PANEL, work, tile, STAGING_STRIDE)
        for lane in range(min(PANEL, rows - panel)):
            index = start + (first_row + panel + lane) // GROUP
            head = heads[panel + lane]
            target = out[b, index, head]
            staged = STAGING + lane * STAGING_STRIDE
            done = 0
            if target.strides[0] == target.itemsize:
                done = VALUE_DIM - VALUE_DIM % LANES
                for d in range(0, done, LANES):
                    v_store(target, d, v_load(work, staged + d))
            for d in range(done, VALUE_DIM):
                target[d] = work[staged + d]
            if lse.size:
                row_max = work[ROW_MAX + panel + lane]
                row_sum = work[ROW_SUM + panel + lane]
                log2_sum = row_max + np.log2(row_sum) if row_sum != 0 else NEG_INF
                lse[b, head, index] = log2_sum * ELEMENT(0.6931471805599453)


@njit(**INNER)
def attend_block(
    q,
    k,
    v,
    out,
    lse,
    work,
    positions,
    heads,
    sequence,
    b,
    kv_h,
    first_row,
    rows,
):
    """One task: rows first_row … of a kv head against all the keys they may see."""
    batch, q_start, q_len, k_start, kv_len = sequence
    offset = kv_len - q_len  # position of query 0
    load_queries(q, work, positions, heads, batch, q_start, kv_h, first_row, rows, offset)
    panels_end = (rows + PANEL - 1) // PANEL * PANEL
    for at in range(panels_end):
        work[ROW_MAX + at] = NEG_INF
        work[ROW_SUM + at] = ELEMENT(0)
    for at in range(OUTPUTS, OUTPUTS + panels_end * OUTPUT_ROWS):
        work[at] = ELEMENT(0)

    first_key = 0
    end_key = kv_len
    q_last = (first_row + rows - 1) // GROUP + offset
    end_key = min(kv_len, q_last + 1)
    for k_first in range(first_key, end_key, BLOCK_KV):
        keys = min(BLOCK_KV, end_key - k_first)
        k_last = k_first + keys - 1
        finite = load_keys(k, v, work, batch, k_start + k_first, kv_h, keys)
        fetched = False  # the next block is fetched while the first panel is computed
        for panel in range(0, rows, PANEL):
            first = 0
            last = keys
            q_first = (first_row + panel) // GROUP + offset
            q_last = (first_row + min(panel + PANEL, rows) - 1) // GROUP + offset
            if not (k_first <= q_last):
                continue  # no row of the panel may see a key of this block
            last = min(keys, q_last + 1 - k_first)
            query = QUERIES + panel * QUERY_ROWS
            for key in range(first, last, TILE):
                score_tile(work, KEYS + key * KEY_STRIDE, query, SCORES + key * PANEL)
                if not fetched:
                    prefetch_rows(k, v, batch, k_start + k_first + BLOCK_KV + key, kv_h)
            fetched = True
            full = k_last <= q_first
            if not full:
                mask_panel(work, first, last, NEG_INF, positions, panel, k_first)
            softmax_panel(work, panel, first, last)
            outputs = OUTPUTS + panel * OUTPUT_ROWS
            if not full and not finite:
                mask_panel(work, first, last, NEG_INF, positions, panel, k_first)
                output_without_leaks(work, SCORES, first, last, outputs)
                continue
            for d in range(0, VALUE_DIM, TILE):
                output_tile(work, VALUES + d, SCORES, first, last, outputs + d * PANEL)
    store_outputs(out, lse, work, heads, batch, q_start, first_row, rows)


@njit(cache=True, **OPTIONS)
def worker(arguments, index):
    """Take tasks until none is left: kv heads in order, and the longest block of each first.

    Arguments, in the order of `describe`: q (batch, length, heads, HEAD_DIM), k (batch, length,
    kv_heads, HEAD_DIM), v (batch, length, kv_heads, VALUE_DIM), out (batch, length, heads,
    VALUE_DIM), all of any strides; lse (batch, heads, length), of size 0 if it is not wanted;
    workspaces (workers, WORKSPACE), each from a cache line on; plan: the rows of a task, a multiple
    of PANEL up to BLOCK_Q, and 0, which counts tasks; sequences, as `find_sequence` reads them;
    rows (workers · 2 · BLOCK_Q,), for positions and heads.
    """
    q = array_at(arguments, 0, 4)
    k = array_at(arguments, 1, 4)
    v = array_at(arguments, 2, 4)
    out = array_at(arguments, 3, 4)
    lse = array_at(arguments, 4, 3)
    work = array_at(arguments, 5, 2)[index]
    plan = integers_at(arguments, 6)
    sequences = integers_at(arguments, 7)
    rows_of = integers_at(arguments, 8)[index * 2 * BLOCK_Q : (index + 1) * 2 * BLOCK_Q]
    block_q = plan[0]
    tasks = task_count(sequences)
    while True:
        task = fetch_add(plan, 1, 1)
        if task >= tasks:
            break
        sequence, number, task = find_sequence(sequences, task)
        rows = sequence[2] * GROUP
        blocks = (rows + block_q - 1) // block_q
        kv_h = task // blocks
        first_row = (blocks - 1 - task % blocks) * block_q
        attend_block(
            q,
            k,
            v,
            out,
            lse,
            work,
            rows_of[:BLOCK_Q],
            rows_of[BLOCK_Q:],
            sequence,
            number,
            kv_h,
            first_row,
            min(block_q, rows - first_row),
        )


def forward(q, k, v, out, lse, sink, table, workers):
    """Write attention(q, k, v) to `out` and its log-sum-exp to `lse`, with up to `workers` threads.

    Shapes are those of `worker`; `table` has a row for each sequence, each with a query or more.
    """
    rows = table[:, 2] * GROUP
    kv_heads = v.shape[2]
    # At least four tasks a thread where there are that many panels, so that none waits for long.
    panels = -(-rows // PANEL)
    share = int(panels.sum()) * kv_heads // (4 * workers)
    block_q = max(1, min(BLOCK_Q // PANEL, int(panels.max()), share)) * PANEL
    sequences = numbered(table, -(-rows // block_q) * kv_heads)
    workers = min(workers, int(sequences[-1]))
    workspaces = _pool.take(workers)
    plan = np.array([block_q, 0])
    rows_of = np.empty(workers * 2 * BLOCK_Q, np.int64)
    arrays = (q, k, v, out, lse, workspaces, plan, sequences, rows_of)
    run_workers(worker, describe(*arrays), workers)
    _pool.give(workspaces)


_pool = WorkspacePool(WORKSPACE)
