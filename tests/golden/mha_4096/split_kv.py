"""Attention of mha_4096: decoding, few query rows against many keys.

Split-KV attention (Flash-Decoding, Dao et al., 2023): with few query rows the time is that of
reading K and V once. The keys are split into tasks of SPLIT keys, for any number of threads:

    for a split of a kv head's keys (one task; all rows of the head share each pass over a key):
        scores  = K q                   from K in place, value lanes in a vector
        weights = exp2(scores - max),  output = Σ weight · V,  kept with their max and sum
    who finishes a kv head's last split merges its partial results, in the order of the splits
"""

import numpy as np
from numba import njit

from .sequences import find_sequence, numbered, task_count
from .simd import (
    ELEMENT,
    LANES,
    fetch_add,
    v_add,
    v_fma,
    v_iota,
    v_le,
    v_load,
    v_max,
    v_select,
    v_splat,
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
ROW_TILE = 1  # rows that share one load of a key
SPLIT = 256  # keys of a task
QUERY_SCALE = ELEMENT(0.12751743082459868)  # brings the products into units of log2
NEG_INF = ELEMENT(-np.inf)

WHOLE_HEAD = HEAD_DIM - HEAD_DIM % LANES  # what whole vectors cover
WHOLE_VALUE = VALUE_DIM - VALUE_DIM % LANES

# Where the parts of a worker's workspace begin, in elements; each on a cache line.
QUERY_STRIDE = 144
SCORE_STRIDE = 272
QUERIES = 0  # scaled queries: [row][d]
SCORES = 2304  # scores, then weights: [row][key]
LANE_MAX = 6656  # lanes of a maximum
WORKSPACE = 6672

# A partial result of one row: its output, then its maximum and its sum.
OUTPUT_STRIDE = 144
ROW_MAX = VALUE_DIM
ROW_SUM = VALUE_DIM + 1

OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy"}
# What only other kernels call needs no entry for Python or C, which saves compile time.
INNER = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@njit(**INNER)
def load_queries(q, work, b, start, kv_h, rows):
    """Copy the rows of a kv head, scaled; row r is query r // GROUP of head r % GROUP."""
    for row in range(rows):
        source = q[b, start + row // GROUP, kv_h * GROUP + row % GROUP]
        for d in range(HEAD_DIM):
            work[QUERIES + row * QUERY_STRIDE + d] = source[d] * QUERY_SCALE


@njit(**INNER)
def score_keys(k, work, b, start, kv_h, keys, rows):
    """scores[row, key] = q[row] · k[start + key], read in place."""
    for key in range(keys):
        source = k[b, start + key, kv_h]
        for row in range(0, rows, ROW_TILE):
            query = QUERIES + row * QUERY_STRIDE
            at = SCORES + row * SCORE_STRIDE + key
            dot0 = v_zero()
            for d in range(0, WHOLE_HEAD, LANES):
                x = v_load(source, d)
                dot0 = v_fma(x, v_load(work, query + d), dot0)
            rest0 = v_sum(dot0)
            for d in range(WHOLE_HEAD, HEAD_DIM):
                rest0 += source[d] * work[query + d]
            work[at] = rest0


@njit(**INNER)
def mask_row(work, row, keys, q, first):
    """Turn the products of a row into scores, in place, with -inf where it may not see a key."""
    for lane in range(0, keys, LANES):
        at = SCORES + row * SCORE_STRIDE + lane
        dot = v_load(work, at)
        k = v_iota(first + lane)
        keep = v_le(k, v_splat(q))
        v_store(work, at, v_select(keep, dot, v_splat(NEG_INF)))


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
def weigh_values(v, work, partial, at, b, start, kv_h, keys, rows):
    """output[row] = Σ weight[row, key] · v[start + key], read in place."""
    for row in range(rows):
        for d in range(VALUE_DIM):
            partial[at + row * OUTPUT_STRIDE + d] = ELEMENT(0)
    for key in range(keys):
        source = v[b, start + key, kv_h]
        for row in range(rows):
            weight = work[SCORES + row * SCORE_STRIDE + key]
            if weight == ELEMENT(0):
                continue  # a masked key, whose value may be NaN
            output = at + row * OUTPUT_STRIDE
            for d in range(0, WHOLE_VALUE, LANES):
                total = v_fma(v_splat(weight), v_load(source, d), v_load(partial, output + d))
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
                if shrink != ELEMENT(0):
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
    sequence,
    b,
    kv_h,
    first,
    last,
):
    """One task: all rows of a kv head against keys first … last - 1, into partial[at:]."""
    batch, q_start, q_len, k_start, kv_len = sequence
    rows = q_len * GROUP
    keys = last - first
    load_queries(q, work, batch, q_start, kv_h, rows)
    score_keys(k, work, batch, k_start + first, kv_h, keys, rows)
    offset = kv_len - q_len  # position of query 0
    q_first = offset
    k_last = last - 1
    full = k_last <= q_first
    for row in range(rows):
        q = row // GROUP + offset
        if not full:
            mask_row(work, row, keys, q, first)
        softmax_row(work, row, keys, partial, at + row * OUTPUT_STRIDE)
    weigh_values(v, work, partial, at, batch, k_start + first, kv_h, keys, rows)


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
    finished splits for each kv head of each sequence, all 0; sequences, as `find_sequence` reads
    them; places: where each sequence's partial results begin; partial.
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
    kv_heads = k.shape[2]
    tasks = task_count(sequences)
    while True:
        task = fetch_add(counters, 0, 1)
        if task >= tasks:
            break
        sequence, number, task = find_sequence(sequences, task)
        batch, q_start, q_len, _, kv_len = sequence
        splits = max(1, (kv_len + SPLIT - 1) // SPLIT)  # of the whole sequence, seen or not
        kv_h, split = divmod(task, splits)
        first_key, end_key = key_range(q_len, kv_len)
        first = min(max(split * SPLIT, first_key // LANES * LANES), end_key)
        last = min(max((split + 1) * SPLIT, first), end_key)
        step = q_len * GROUP * OUTPUT_STRIDE
        start = places[number] + kv_h * splits * step
        attend_split(
            q,
            k,
            v,
            work,
            partial,
            start + split * step,
            sequence,
            number,
            kv_h,
            first,
            last,
        )
        if fetch_add(counters, 1 + number * kv_heads + kv_h, 1) == splits - 1:
            merge(out, lse, partial, start, splits, batch, q_start, kv_h, q_len * GROUP)


def can_take(k, v, q_len):
    """Whether this kernel can compute the attention of sequences of up to `q_len` queries."""
    return q_len * GROUP <= MAX_ROWS and k.strides[3] == v.strides[3] == k.itemsize


def forward(q, k, v, out, lse, sink, table, workers):
    """Write attention(q, k, v) to `out` and its log-sum-exp to `lse`, with up to `workers` threads.

    Shapes are those of `worker`; `table` has a row for each sequence, each with a query or more.
    """
    kv_heads = k.shape[2]
    tasks = np.maximum(1, -(-table[:, 4] // SPLIT)) * kv_heads
    sizes = tasks * table[:, 2] * (GROUP * OUTPUT_STRIDE)
    places = np.cumsum(sizes) - sizes
    partial = np.empty(int(sizes.sum()), ELEMENT)
    counters = np.zeros(1 + len(table) * kv_heads, np.int64)
    sequences = numbered(table, tasks)
    workers = min(workers, int(sequences[-1]))
    workspaces = _pool.take(workers)
    arrays = (q, k, v, out, lse, workspaces, counters, sequences, places, partial)
    run_workers(worker, describe(*arrays), workers)
    _pool.give(workspaces)


_pool = WorkspacePool(WORKSPACE)
