"""Attention of mha_4096: decoding, few query rows against many keys.

Split-KV attention (Flash-Decoding, Dao et al., 2023): with few query rows the time is that of
reading K and V once. The keys are split into tasks of SPLIT keys, for any number of threads. Where
the kv heads of a key lie side by side, a task takes several and reads memory in its order:

    for a split of the keys of some kv heads (one task):
        scores  = K q                   from K in place, a tile of keys against a tile of rows
        weights = exp2(scores - max)
        output  = Σ weight · V          from V in place, kept with the maximum and the sum
    who finishes the last split of these heads merges their partial results, in the splits' order
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
    v_fma,
    v_iota,
    v_le,
    v_load,
    v_max,
    v_select,
    v_splat,
    v_splat_load,
    v_store,
    v_sub,
    v_sum,
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
MAX_ROWS = 16  # query rows of a kv head, at most
TASK_ROWS = 64  # rows of all kv heads of a task, at most
KEY_TILE = 4  # keys that share one load of a query
SPLIT = 256  # keys of a task
QUERY_SCALE = ELEMENT(0.12751743082459868)  # brings the products into units of log2
NEG_INF = ELEMENT(-np.inf)

WHOLE_HEAD = HEAD_DIM - HEAD_DIM % LANES  # what whole vectors cover
WHOLE_VALUE = VALUE_DIM - VALUE_DIM % LANES
KEY_BLOCK = 8  # keys whose values are summed up in registers
AHEAD = 16  # keys between what is read and what is prefetched
LINE = 64 // ELEMENT(0).itemsize  # elements in a cache line

# Where the parts of a worker's workspace begin, in elements; each on a cache line.
QUERY_STRIDE = 144
SCORE_STRIDE = 272
QUERIES = 0  # scaled queries: [row][d]
SCORES = 9216  # scores, then weights: [row][key]
LANE_MAX = 26624  # lanes of a maximum
WORKSPACE = 26640

# A partial result of one row: its output, then its maximum and its sum.
OUTPUT_STRIDE = 144
ROW_MAX = VALUE_DIM
ROW_SUM = VALUE_DIM + 1

OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
# What only other kernels call needs no entry for Python or C, which saves compile time.
INNER = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@njit(**INNER)
def load_queries(q, work, b, start, kv_h, heads, rows):
    """Copy the rows of a task, scaled.

    Row r of a kv head is query r // GROUP of its head r % GROUP.
    """
    slot = 0
    for head in range(kv_h, kv_h + heads):
        for row in range(rows):
            source = q[b, start + row // GROUP, head * GROUP + row % GROUP]
            for d in range(HEAD_DIM):
                work[QUERIES + slot * QUERY_STRIDE + d] = source[d] * QUERY_SCALE
            slot += 1


@njit(**INNER)
def prefetch_row(row):
    """Ask for a row of K or V."""
    for d in range(0, row.size, LINE):
        prefetch(row, d)


@njit(**INNER)
def prefetch_first(rows, b, start, keys, kv_h, heads):
    """Ask for the rows of K or V that a task reads first."""
    for key in range(start, start + min(keys, AHEAD)):
        for head in range(kv_h, kv_h + heads):
            prefetch_row(rows[b, key, head])


@njit(**INNER)
def score_tile_rows(k, work, b, first, last, kv_h, query, scores):
    """scores[row, key] of 4 rows against KEY_TILE keys; past `last`, it is that key again."""
    key0 = k[b, min(first, last), kv_h]
    key1 = k[b, min(first + 1, last), kv_h]
    key2 = k[b, min(first + 2, last), kv_h]
    key3 = k[b, min(first + 3, last), kv_h]
    dot0_0 = v_zero()
    dot0_1 = v_zero()
    dot0_2 = v_zero()
    dot0_3 = v_zero()
    dot1_0 = v_zero()
    dot1_1 = v_zero()
    dot1_2 = v_zero()
    dot1_3 = v_zero()
    dot2_0 = v_zero()
    dot2_1 = v_zero()
    dot2_2 = v_zero()
    dot2_3 = v_zero()
    dot3_0 = v_zero()
    dot3_1 = v_zero()
    dot3_2 = v_zero()
    dot3_3 = v_zero()
    for d in range(0, WHOLE_HEAD, LANES):
        k0 = v_load(key0, d)
        k1 = v_load(key1, d)
        k2 = v_load(key2, d)
        k3 = v_load(key3, d)
        q0 = v_load(work, query + d)
        dot0_0 = v_fma(k0, q0, dot0_0)
        dot0_1 = v_fma(k1, q0, dot0_1)
        dot0_2 = v_fma(k2, q0, dot0_2)
        dot0_3 = v_fma(k3, q0, dot0_3)
        q1 = v_load(work, query + 144 + d)
        dot1_0 = v_fma(k0, q1, dot1_0)
        dot1_1 = v_fma(k1, q1, dot1_1)
        dot1_2 = v_fma(k2, q1, dot1_2)
        dot1_3 = v_fma(k3, q1, dot1_3)
        q2 = v_load(work, query + 288 + d)
        dot2_0 = v_fma(k0, q2, dot2_0)
        dot2_1 = v_fma(k1, q2, dot2_1)
        dot2_2 = v_fma(k2, q2, dot2_2)
        dot2_3 = v_fma(k3, q2, dot2_3)
        q3 = v_load(work, query + 432 + d)
        dot3_0 = v_fma(k0, q3, dot3_0)
        dot3_1 = v_fma(k1, q3, dot3_1)
        dot3_2 = v_fma(k2, q3, dot3_2)
        dot3_3 = v_fma(k3, q3, dot3_3)
    rest0_0 = v_sum(dot0_0)
    rest0_1 = v_sum(dot0_1)
    rest0_2 = v_sum(dot0_2)
    rest0_3 = v_sum(dot0_3)
    rest1_0 = v_sum(dot1_0)
    rest1_1 = v_sum(dot1_1)
    rest1_2 = v_sum(dot1_2)
    rest1_3 = v_sum(dot1_3)
    rest2_0 = v_sum(dot2_0)
    rest2_1 = v_sum(dot2_1)
    rest2_2 = v_sum(dot2_2)
    rest2_3 = v_sum(dot2_3)
    rest3_0 = v_sum(dot3_0)
    rest3_1 = v_sum(dot3_1)
    rest3_2 = v_sum(dot3_2)
    rest3_3 = v_sum(dot3_3)
    for d in range(WHOLE_HEAD, HEAD_DIM):
        q0 = work[query + d]
        rest0_0 += key0[d] * q0
        rest0_1 += key1[d] * q0
        rest0_2 += key2[d] * q0
        rest0_3 += key3[d] * q0
        q1 = work[query + 144 + d]
        rest1_0 += key0[d] * q1
        rest1_1 += key1[d] * q1
        rest1_2 += key2[d] * q1
        rest1_3 += key3[d] * q1
        q2 = work[query + 288 + d]
        rest2_0 += key0[d] * q2
        rest2_1 += key1[d] * q2
        rest2_2 += key2[d] * q2
        rest2_3 += key3[d] * q2
        q3 = work[query + 432 + d]
        rest3_0 += key0[d] * q3
        rest3_1 += key1[d] * q3
        rest3_2 += key2[d] * q3
        rest3_3 += key3[d] * q3
    at = scores
    work[at] = rest0_0
    work[at + 1] = rest0_1
    work[at + 2] = rest0_2
    work[at + 3] = rest0_3
    at = scores + 272
    work[at] = rest1_0
    work[at + 1] = rest1_1
    work[at + 2] = rest1_2
    work[at + 3] = rest1_3
    at = scores + 544
    work[at] = rest2_0
    work[at + 1] = rest2_1
    work[at + 2] = rest2_2
    work[at + 3] = rest2_3
    at = scores + 816
    work[at] = rest3_0
    work[at + 1] = rest3_1
    work[at + 2] = rest3_2
    work[at + 3] = rest3_3


@njit(**INNER)
def score_tile_row(k, work, b, first, last, kv_h, query, scores):
    """scores[row, key] of a row against KEY_TILE keys; past `last`, it is that key again."""
    key0 = k[b, min(first, last), kv_h]
    key1 = k[b, min(first + 1, last), kv_h]
    key2 = k[b, min(first + 2, last), kv_h]
    key3 = k[b, min(first + 3, last), kv_h]
    dot0_0 = v_zero()
    dot0_1 = v_zero()
    dot0_2 = v_zero()
    dot0_3 = v_zero()
    for d in range(0, WHOLE_HEAD, LANES):
        k0 = v_load(key0, d)
        k1 = v_load(key1, d)
        k2 = v_load(key2, d)
        k3 = v_load(key3, d)
        q0 = v_load(work, query + d)
        dot0_0 = v_fma(k0, q0, dot0_0)
        dot0_1 = v_fma(k1, q0, dot0_1)
        dot0_2 = v_fma(k2, q0, dot0_2)
        dot0_3 = v_fma(k3, q0, dot0_3)
    rest0_0 = v_sum(dot0_0)
    rest0_1 = v_sum(dot0_1)
    rest0_2 = v_sum(dot0_2)
    rest0_3 = v_sum(dot0_3)
    for d in range(WHOLE_HEAD, HEAD_DIM):
        q0 = work[query + d]
        rest0_0 += key0[d] * q0
        rest0_1 += key1[d] * q0
        rest0_2 += key2[d] * q0
        rest0_3 += key3[d] * q0
    at = scores
    work[at] = rest0_0
    work[at + 1] = rest0_1
    work[at + 2] = rest0_2
    work[at + 3] = rest0_3


@njit(**INNER)
def score_keys(k, work, b, start, keys, kv_h, heads, rows):
    """scores[row, key] = q[row] · k[start + key], read in place, in the order of memory."""
    last = start + keys - 1
    for key in range(0, keys, KEY_TILE):
        for head in range(heads):
            for i in range(KEY_TILE):
                prefetch_row(k[b, min(start + key + i + AHEAD, last), kv_h + head])
            query = QUERIES + head * rows * QUERY_STRIDE
            at = SCORES + head * rows * SCORE_STRIDE + key
            row = 0
            while row + 4 <= rows:
                score_tile_rows(k, work, b, start + key, last, kv_h + head, query, at)
                query += 4 * QUERY_STRIDE
                at += 4 * SCORE_STRIDE
                row += 4
            while row + 1 <= rows:
                score_tile_row(k, work, b, start + key, last, kv_h + head, query, at)
                query += QUERY_STRIDE
                at += SCORE_STRIDE
                row += 1


@njit(**INNER)
def mask_row(work, row, keys, hidden, q, first):
    """Put `hidden` where a row may not see a key, in place of its score or weight."""
    for lane in range(0, keys, LANES):
        at = SCORES + row * SCORE_STRIDE + lane
        k = v_iota(first + lane)
        keep = v_le(k, v_splat(q))
        v_store(work, at, v_select(keep, v_load(work, at), v_splat(hidden)))


@njit(**INNER)
def softmax_row(work, row, keys, partial, at):
    """Scores of a row to weights, in place; stores its maximum and its sum."""
    start = SCORES + row * SCORE_STRIDE
    for key in range(keys, (keys + LANES - 1) // LANES * LANES):
        work[start + key] = NEG_INF
    highest = v_splat(NEG_INF)
    for lane in range(0, keys, LANES):
        highest = v_max(v_load(work, start + lane), highest)
    v_store(work, LANE_MAX, highest)
    row_max = NEG_INF
    for lane in range(LANES):
        row_max = max(row_max, work[LANE_MAX + lane])
    shift = v_splat(row_max if row_max != NEG_INF else ELEMENT(0))
    row_sum = v_zero()
    for lane in range(0, keys, LANES):
        weight = v_weight(v_sub(v_load(work, start + lane), shift))
        v_store(work, start + lane, weight)
        row_sum = v_add(row_sum, weight)
    partial[at + ROW_MAX] = row_max
    partial[at + ROW_SUM] = v_sum(row_sum)


@njit(**INNER)
def weigh_tile_rows(v, work, partial, b, start, keys, kv_h, column, weights, outputs):
    """output[row] += Σ weight[row, key] · v[start + key], for 4 rows and 64 columns."""
    at = outputs + column
    out0_0 = v_load(partial, at)
    out0_1 = v_load(partial, at + 16)
    out0_2 = v_load(partial, at + 32)
    out0_3 = v_load(partial, at + 48)
    at = outputs + 144 + column
    out1_0 = v_load(partial, at)
    out1_1 = v_load(partial, at + 16)
    out1_2 = v_load(partial, at + 32)
    out1_3 = v_load(partial, at + 48)
    at = outputs + 288 + column
    out2_0 = v_load(partial, at)
    out2_1 = v_load(partial, at + 16)
    out2_2 = v_load(partial, at + 32)
    out2_3 = v_load(partial, at + 48)
    at = outputs + 432 + column
    out3_0 = v_load(partial, at)
    out3_1 = v_load(partial, at + 16)
    out3_2 = v_load(partial, at + 32)
    out3_3 = v_load(partial, at + 48)
    for key in range(keys):
        source = v[b, start + key, kv_h]
        w0 = v_splat_load(work, weights + key)
        w1 = v_splat_load(work, weights + 272 + key)
        w2 = v_splat_load(work, weights + 544 + key)
        w3 = v_splat_load(work, weights + 816 + key)
        x = v_load(source, column)
        out0_0 = v_fma(x, w0, out0_0)
        out1_0 = v_fma(x, w1, out1_0)
        out2_0 = v_fma(x, w2, out2_0)
        out3_0 = v_fma(x, w3, out3_0)
        x = v_load(source, column + 16)
        out0_1 = v_fma(x, w0, out0_1)
        out1_1 = v_fma(x, w1, out1_1)
        out2_1 = v_fma(x, w2, out2_1)
        out3_1 = v_fma(x, w3, out3_1)
        x = v_load(source, column + 32)
        out0_2 = v_fma(x, w0, out0_2)
        out1_2 = v_fma(x, w1, out1_2)
        out2_2 = v_fma(x, w2, out2_2)
        out3_2 = v_fma(x, w3, out3_2)
        x = v_load(source, column + 48)
        out0_3 = v_fma(x, w0, out0_3)
        out1_3 = v_fma(x, w1, out1_3)
        out2_3 = v_fma(x, w2, out2_3)
        out3_3 = v_fma(x, w3, out3_3)
    at = outputs + column
    v_store(partial, at, out0_0)
    v_store(partial, at + 16, out0_1)
    v_store(partial, at + 32, out0_2)
    v_store(partial, at + 48, out0_3)
    at = outputs + 144 + column
    v_store(partial, at, out1_0)
    v_store(partial, at + 16, out1_1)
    v_store(partial, at + 32, out1_2)
    v_store(partial, at + 48, out1_3)
    at = outputs + 288 + column
    v_store(partial, at, out2_0)
    v_store(partial, at + 16, out2_1)
    v_store(partial, at + 32, out2_2)
    v_store(partial, at + 48, out2_3)
    at = outputs + 432 + column
    v_store(partial, at, out3_0)
    v_store(partial, at + 16, out3_1)
    v_store(partial, at + 32, out3_2)
    v_store(partial, at + 48, out3_3)


@njit(**INNER)
def weigh_tile_row(v, work, partial, b, start, keys, kv_h, column, weights, outputs):
    """output[row] += Σ weight[row, key] · v[start + key], for a row and 128 columns."""
    at = outputs + column
    out0_0 = v_load(partial, at)
    out0_1 = v_load(partial, at + 16)
    out0_2 = v_load(partial, at + 32)
    out0_3 = v_load(partial, at + 48)
    out0_4 = v_load(partial, at + 64)
    out0_5 = v_load(partial, at + 80)
    out0_6 = v_load(partial, at + 96)
    out0_7 = v_load(partial, at + 112)
    for key in range(keys):
        source = v[b, start + key, kv_h]
        w0 = v_splat_load(work, weights + key)
        x = v_load(source, column)
        out0_0 = v_fma(x, w0, out0_0)
        x = v_load(source, column + 16)
        out0_1 = v_fma(x, w0, out0_1)
        x = v_load(source, column + 32)
        out0_2 = v_fma(x, w0, out0_2)
        x = v_load(source, column + 48)
        out0_3 = v_fma(x, w0, out0_3)
        x = v_load(source, column + 64)
        out0_4 = v_fma(x, w0, out0_4)
        x = v_load(source, column + 80)
        out0_5 = v_fma(x, w0, out0_5)
        x = v_load(source, column + 96)
        out0_6 = v_fma(x, w0, out0_6)
        x = v_load(source, column + 112)
        out0_7 = v_fma(x, w0, out0_7)
    at = outputs + column
    v_store(partial, at, out0_0)
    v_store(partial, at + 16, out0_1)
    v_store(partial, at + 32, out0_2)
    v_store(partial, at + 48, out0_3)
    v_store(partial, at + 64, out0_4)
    v_store(partial, at + 80, out0_5)
    v_store(partial, at + 96, out0_6)
    v_store(partial, at + 112, out0_7)


@njit(**INNER)
def weigh_values(v, work, partial, at, head_step, b, start, keys, kv_h, heads, rows):
    """output[row] = Σ weight[row, key] · v[start + key], read in place, in the order of memory."""
    for head in range(heads):
        for row in range(rows):
            output = at + head * head_step + row * OUTPUT_STRIDE
            for d in range(VALUE_DIM):
                partial[output + d] = ELEMENT(0)
    last = start + keys - 1
    for first in range(0, keys, KEY_BLOCK):
        key = start + first
        count = min(KEY_BLOCK, keys - first)
        for head in range(heads):
            kv = kv_h + head
            for i in range(count):
                prefetch_row(v[b, min(key + i + AHEAD, last), kv])
            weights = SCORES + head * rows * SCORE_STRIDE + first
            output = at + head * head_step
            row = 0
            while row + 4 <= rows:
                for column in range(0, WHOLE_VALUE, 64):
                    weigh_tile_rows(v, work, partial, b, key, count, kv, column, weights, output)
                weights += 4 * SCORE_STRIDE
                output += 4 * OUTPUT_STRIDE
                row += 4
            while row + 1 <= rows:
                for column in range(0, WHOLE_VALUE, 128):
                    weigh_tile_row(v, work, partial, b, key, count, kv, column, weights, output)
                weights += SCORE_STRIDE
                output += OUTPUT_STRIDE
                row += 1


@njit(**INNER)
def is_finite(partial, output):
    """Whether a row of outputs holds neither NaN nor infinities."""
    probe = v_zero()  # stays 0 for finite data, as x · 0 is NaN for NaN and infinities
    for d in range(0, WHOLE_VALUE, LANES):
        probe = v_fma(v_load(partial, output + d), v_zero(), probe)
    rest = v_sum(probe)
    for d in range(WHOLE_VALUE, VALUE_DIM):
        rest += partial[output + d] * ELEMENT(0)
    return rest == ELEMENT(0)


@njit(**INNER)
def weigh_without_leaks(v, work, partial, output, b, start, keys, kv_h, weights):
    """What `weigh_values` does, for one row whose keys may have NaN or infinities as values.

    Hidden keys have -inf for a weight here, as 0 · NaN must not reach a row that may not see them;
    it reaches those that may, however small their weight.
    """
    for d in range(VALUE_DIM):
        partial[output + d] = ELEMENT(0)
    for key in range(keys):
        weight = work[weights + key]
        if weight == NEG_INF:
            continue
        source = v[b, start + key, kv_h]
        for d in range(0, WHOLE_VALUE, LANES):
            total = v_fma(v_load(source, d), v_splat(weight), v_load(partial, output + d))
            v_store(partial, output + d, total)
        for d in range(WHOLE_VALUE, VALUE_DIM):
            partial[output + d] += weight * source[d]


@njit(**INNER)
def merge(out, lse, partial, start, splits, b, q_start, kv_h, rows):
    """Add up the partial results of a kv head, each shrunk to the common maximum."""
    for row in range(rows):
        head = kv_h * GROUP + row % GROUP
        index = q_start + row // GROUP
        at = start + row * OUTPUT_STRIDE
        step = rows * OUTPUT_STRIDE
        row_max = NEG_INF
        for split in range(splits):
            row_max = max(row_max, partial[at + split * step + ROW_MAX])
        shift = row_max if row_max != NEG_INF else ELEMENT(0)
        row_sum = ELEMENT(0)
        for split in range(splits):
            shrink = np.exp2(partial[at + split * step + ROW_MAX] - shift)
            row_sum += partial[at + split * step + ROW_SUM] * shrink
        share = ELEMENT(1) / row_sum
        target = out[b, index, head]
        for d in range(VALUE_DIM):
            target[d] = ELEMENT(0)
        # A row that saw no key has the sum 0 and gives exactly 0.
        if row_sum != ELEMENT(0):
            for split in range(splits):
                shrink = np.exp2(partial[at + split * step + ROW_MAX] - shift) * share
                for d in range(VALUE_DIM):
                    target[d] += partial[at + split * step + d] * shrink
        if lse.size:
            log2_sum = shift + np.log2(row_sum) if row_sum != ELEMENT(0) else NEG_INF
            lse[b, head, index] = log2_sum * ELEMENT(0.6931471805599453)


@njit(**INNER)
def attend_split(
    q,
    k,
    v,
    work,
    partial,
    at,
    head_step,
    sequence,
    b,
    first_head,
    heads,
    first,
    last,
):
    """One task: all rows of some kv heads against keys first … last - 1, into partial[at:]."""
    batch, q_start, q_len, k_start, kv_len = sequence
    rows = q_len * GROUP
    keys = last - first
    start = k_start + first
    prefetch_first(k, batch, start, keys, first_head, heads)
    load_queries(q, work, batch, q_start, first_head, heads, rows)
    score_keys(k, work, batch, start, keys, first_head, heads, rows)
    prefetch_first(v, batch, start, keys, first_head, heads)
    offset = kv_len - q_len  # position of query 0
    for kv_h in range(first_head, first_head + heads):
        output = at + (kv_h - first_head) * head_step
        q_first = offset
        k_last = last - 1
        full = k_last <= q_first
        for row in range(rows):
            slot = (kv_h - first_head) * rows + row
            q = row // GROUP + offset
            if not full:
                mask_row(work, slot, keys, NEG_INF, q, first)
            softmax_row(work, slot, keys, partial, output + row * OUTPUT_STRIDE)
    weigh_values(v, work, partial, at, head_step, batch, start, keys, first_head, heads, rows)
    for kv_h in range(first_head, first_head + heads):
        for row in range(rows):
            slot = (kv_h - first_head) * rows + row
            output = at + (kv_h - first_head) * head_step + row * OUTPUT_STRIDE
            if not is_finite(partial, output):
                q = row // GROUP + offset
                mask_row(work, slot, keys, NEG_INF, q, first)
                weights = SCORES + slot * SCORE_STRIDE
                weigh_without_leaks(v, work, partial, output, batch, start, keys, kv_h, weights)


@njit(**INNER)
def key_range(q_len, kv_len):
    """The keys that any query of a sequence may see: the first, and one past the last."""
    first = 0
    end = kv_len
    offset = kv_len - q_len  # position of query 0
    q_last = offset + q_len - 1
    end = max(0, min(end, q_last + 1))
    return first, end


@njit(cache=True, **OPTIONS)
def worker(arguments, index):
    """Take splits until none is left.

    Arguments, in the order of `describe`: q (batch, length, heads, HEAD_DIM), k (batch, length,
    kv_heads, HEAD_DIM) and v (batch, length, kv_heads, VALUE_DIM), whose last axes are contiguous,
    out (batch, length, heads, VALUE_DIM); lse (batch, heads, length), of size 0 if it is not
    wanted; workspaces (workers, WORKSPACE), each from a cache line on; counters: of tasks, and of
    finished splits for the kv heads of each sequence, all 0; sequences, as `find_sequence` reads
    them; places: how many kv heads a task takes, and where each sequence's partial results begin;
    partial.
    """
    q = array_at(arguments, 0, 4)
    k = array_at(arguments, 1, 4)
    v = array_at(arguments, 2, 4)
    out = array_at(arguments, 3, 4)
    lse = array_at(arguments, 4, 3)
    work = array_at(arguments, 5, 2)[index]
    counters = integers_at(arguments, 6)
    sequences = integers_at(arguments, 7)
    places = integers_at(arguments, 8)
    partial = array_at(arguments, 9, 1)
    kv_heads = v.shape[2]
    tasks = task_count(sequences)
    while True:
        task = fetch_add(counters, 0, 1)
        if task >= tasks:
            break
        sequence, number, task = find_sequence(sequences, task)
        batch, q_start, q_len, _, kv_len = sequence
        splits = max(1, (kv_len + SPLIT - 1) // SPLIT)  # of the whole sequence, seen or not
        first_head, split = divmod(task, splits)
        first_head *= places[0]
        heads = min(places[0], kv_heads - first_head)
        first_key, end_key = key_range(q_len, kv_len)
        first = min(max(split * SPLIT, first_key // LANES * LANES), end_key)
        last = min(max((split + 1) * SPLIT, first), end_key)
        step = q_len * GROUP * OUTPUT_STRIDE
        head_step = splits * step
        start = places[1 + number] + first_head * head_step
        attend_split(
            q,
            k,
            v,
            work,
            partial,
            start + split * step,
            head_step,
            sequence,
            number,
            first_head,
            heads,
            first,
            last,
        )
        if fetch_add(counters, 1 + number * kv_heads + first_head, 1) == splits - 1:
            for kv_h in range(first_head, first_head + heads):
                merge(out, lse, partial, start, splits, batch, q_start, kv_h, q_len * GROUP)
                start += head_step


def can_take(k, v, q_len):
    """Whether this kernel can compute the attention of sequences of up to `q_len` queries."""
    return q_len * GROUP <= MAX_ROWS and k.strides[3] == v.strides[3] == k.itemsize


def heads_of_a_task(k, kv_heads, q_len, splits, workers):
    """How many kv heads a task takes; results do not depend on it.

    Where the heads of a key lie side by side, taking them together reads memory in its order; but
    there must be enough tasks for all workers.
    """
    if abs(k.strides[2]) >= abs(k.strides[1]):
        return 1
    return max(1, min(kv_heads, TASK_ROWS // (q_len * GROUP), kv_heads * splits // (4 * workers)))


def forward(q, k, v, out, lse, sink, table, workers):
    """Write attention(q, k, v) to `out` and its log-sum-exp to `lse`, with up to `workers` threads.

    Shapes are those of `worker`; `table` has a row for each sequence, each with a query or more.
    """
    kv_heads = v.shape[2]
    splits = np.maximum(1, -(-table[:, 4] // SPLIT))
    heads = heads_of_a_task(k, kv_heads, int(table[:, 2].max()), int(splits.sum()), workers)
    sizes = splits * table[:, 2] * (kv_heads * GROUP * OUTPUT_STRIDE)
    places = np.concatenate(([heads], np.cumsum(sizes) - sizes))
    partial = np.empty(int(sizes.sum()), ELEMENT)
    counters = np.zeros(1 + len(table) * kv_heads, np.int64)
    sequences = numbered(table, splits * -(-kv_heads // heads))
    workers = min(workers, int(sequences[-1]))
    workspaces = _pool.take(workers)
    arrays = (q, k, v, out, lse, workspaces, counters, sequences, places, partial)
    run_workers(worker, describe(*arrays), workers)
    _pool.give(workspaces)


_pool = WorkspacePool(WORKSPACE)
