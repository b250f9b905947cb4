"""Attention of mha_4096 on CUDA cores, in float32.

FlashAttention-2 (Dao, 2023) with a tile of scores, and one of outputs, in each thread's registers:

    for a block of query rows and a panel of value columns (one block of threads; rows of a kv
    head, 1 head side by side):
        for a block of keys:
            scores  = Q Kᵀ                       through slices of DEPTH elements in shared memory
            row_max, row_sum and scores → weights            (online softmax, base 2)
            outputs = outputs · rescale + weights V          through slices of DEPTH keys
        out = outputs / row_sum

The sixteen threads of a row group share rows: each has every sixteenth key and value column. A
row's result depends neither on which rows share its block nor on the number of blocks.
"""

from numba import cuda, types
from numba.cuda.libdevice import log2f as log2

from .ptx import (
    ELEMENT,
    exp2,
    fresh,
    group_max,
    group_sum,
    shared_memory,
)

HEAD_DIM = 128
VALUE_DIM = 128
GROUP = 1  # query heads that share one kv head
KV_HEADS = 32
THREADS = 128  # of a block
GROUP_THREADS = 16  # threads that share rows
ROW_GROUPS = 8
BLOCK_Q = 48  # query rows of a block
BLOCK_KV = 64  # keys of a step
DEPTH = 32  # elements of Q and K, or keys of V, in a slice
VALUE_PANEL = 128  # value columns of a block
VALUE_PANELS = 1
ROWS = 6  # of a thread: rows, keys in Q Kᵀ, and value columns
KEYS = 4
COLUMNS = 8
SCORE_TILE = 24  # ROWS × KEYS
OUTPUT_TILE = 48  # ROWS × COLUMNS
QUERY_SCALE = ELEMENT(0.12751743082459868)  # brings the products into units of log2
NEG_INF = ELEMENT(float("-inf"))

# Rows of slices and scores are padded so that threads that run together share no memory bank.
STAGED_STRIDE = 33
SCORE_STRIDE = 80

# Where the parts of a block's shared memory begin, in elements.
Q_SLICE = 0  # DEPTH elements of each query row: [row][d]
K_SLICE = 1584  # DEPTH elements of each key: [key][d]
V_SLICE = 0  # then, in their place, DEPTH rows of V: [key][column]
SCORES = 4096  # scores, then weights: [row][key]
ROW_MAX = 7936  # maximum of each row so far, in units of log2
ROW_SUM = 7984  # sum of each row's weights so far
RESCALE = 8032  # what a row's outputs shrink by
SHARED_BYTES = 32320

DATA = types.CPointer(ELEMENT)
SUMS = types.CPointer(ELEMENT)
INTEGERS = types.CPointer(types.int64)
TRUTHS = types.CPointer(types.uint8)
LENGTHS = types.CPointer(types.int32)
STRIDES = types.UniTuple(types.int64, 4)

# Every parameter of the kernel and its type, in order.
PARAMETERS = {
    "q": DATA,
    "k": DATA,
    "v": DATA,
    "out": DATA,
    "lse": SUMS,
    "q_strides": STRIDES,
    "k_strides": STRIDES,
    "v_strides": STRIDES,
    "out_strides": STRIDES,
    "lse_strides": types.UniTuple(types.int64, 3),
    "q_len": types.int64,
    "kv_len": types.int64,
    "row_blocks": types.int64,
    "has_lse": types.int64,
    "layout": types.int64,
    "q_ends": LENGTHS,
    "k_ends": LENGTHS,
}

# Values of `layout`: all sequences have the lengths q_len and kv_len; k_ends has the number of keys
# of each; or q_ends and k_ends say where they begin and end in arrays of one batch.
UNIFORM = 0
PADDED = 1
PACKED = 2


@cuda.jit(device=True, inline="always")
def load_queries(shared, q, base, strides, first_row, rows, first, thread):
    """Elements first … of the block's query rows, scaled; zeros outside of Q.

    Row r is query r // GROUP of the head r % GROUP of those that share the kv head.
    """
    thread = fresh(thread)
    for start in range(0, BLOCK_Q * DEPTH, THREADS):
        item = start + thread
        row = first_row + item // DEPTH
        d = first + item % DEPTH
        x = ELEMENT(0)
        if row < rows and d < HEAD_DIM:
            at = base + row // GROUP * strides[1] + row % GROUP * strides[2] + d * strides[3]
            x = q[at] * QUERY_SCALE
        shared[Q_SLICE + item // DEPTH * STAGED_STRIDE + item % DEPTH] = x


@cuda.jit(device=True, inline="always")
def load_keys(shared, k, base, strides, k_first, keys, first, thread):
    """Elements first … of a block of keys; zeros outside of K."""
    thread = fresh(thread)
    for start in range(0, BLOCK_KV * DEPTH, THREADS):
        item = start + thread
        key = item // DEPTH
        d = first + item % DEPTH
        x = ELEMENT(0)
        if key < keys and d < HEAD_DIM:
            at = base + (k_first + key) * strides[1] + d * strides[3]
            x = k[at]
        shared[K_SLICE + key * STAGED_STRIDE + item % DEPTH] = x


@cuda.jit(device=True, inline="always")
def load_values(shared, v, base, strides, first, last, panel, thread):
    """Keys first … of V, before key `last`, and the panel's columns of them; zeros outside."""
    thread = fresh(thread)
    for start in range(0, DEPTH * VALUE_PANEL, THREADS):
        item = start + thread
        key = first + item // VALUE_PANEL
        column = panel + item % VALUE_PANEL
        x = ELEMENT(0)
        if key < last and column < VALUE_DIM:
            at = base + key * strides[1] + column * strides[3]
            x = v[at]
        shared[V_SLICE + item] = x


@cuda.jit(device=True, inline="always")
def multiply_slices(shared, tile, lane, row_group):
    """tile[ROWS × KEYS] += Q Kᵀ over the elements that are staged."""
    for d in range(DEPTH):
        for i in range(ROWS):
            query = shared[Q_SLICE + (row_group + i * ROW_GROUPS) * STAGED_STRIDE + d]
            for j in range(KEYS):
                key = shared[K_SLICE + (lane + j * GROUP_THREADS) * STAGED_STRIDE + d]
                tile[i * KEYS + j] += query * key


@cuda.jit(device=True, inline="always")
def store_scores(shared, tile, lane, row_group):
    """The thread's products to their places among the block's scores."""
    for i in range(ROWS):
        at = SCORES + (row_group + i * ROW_GROUPS) * SCORE_STRIDE + lane
        for j in range(KEYS):
            shared[at + j * GROUP_THREADS] = tile[i * KEYS + j]


@cuda.jit(device=True, inline="always")
def mask_rows(
    shared,
    lane,
    row_group,
    keys,
    first_row,
    rows,
    k_first,
    offset,
):
    """Turn the thread's products into scores, with -inf where a row may not see a key.

    The result has a bit for each of its elements, which is set where the key is hidden.
    """
    row_group = fresh(row_group)
    hidden = 0
    for i in range(ROWS):
        row = min(first_row + row_group + i * ROW_GROUPS, rows - 1)
        q = row // GROUP + offset
        for start in range(0, BLOCK_KV, GROUP_THREADS):
            key = start + lane
            at = SCORES + (row_group + i * ROW_GROUPS) * SCORE_STRIDE + key
            dot = shared[at]
            shared[at] = NEG_INF
            bit = 1 << (i * KEYS + start // GROUP_THREADS)
            hidden |= bit
            if key < keys:
                k = k_first + key
                keep = k <= q
                if keep:
                    shared[at] = dot
                    hidden ^= bit
    return hidden


@cuda.jit(device=True, inline="always")
def mark_hidden(shared, hidden, lane, row_group):
    """Put -inf for the weights of hidden keys."""
    for i in range(ROWS):
        at = SCORES + (row_group + i * ROW_GROUPS) * SCORE_STRIDE + lane
        for j in range(KEYS):
            if hidden >> (i * KEYS + j) & 1:
                shared[at + j * GROUP_THREADS] = NEG_INF


@cuda.jit(device=True, inline="always")
def softmax_rows(shared, lane, row_group):
    """Scores to weights, in place; brings row_max and row_sum up to date and sets RESCALE.

    Each thread of a row group has its own keys; the first one keeps what is known of their rows.
    """
    for i in range(ROWS):
        row = row_group + i * ROW_GROUPS
        at = SCORES + row * SCORE_STRIDE + lane
        old_max = shared[ROW_MAX + row]
        row_max = old_max
        for j in range(KEYS):
            row_max = max(row_max, shared[at + j * GROUP_THREADS])
        row_max = group_max(row_max)
        # A row that has seen no key yet has the maximum -inf; 0 in its place gives weights of 0.
        top = ELEMENT(0) if row_max == NEG_INF else row_max
        row_sum = ELEMENT(0)
        for j in range(KEYS):
            weight = exp2(shared[at + j * GROUP_THREADS] - top)
            shared[at + j * GROUP_THREADS] = weight
            row_sum += weight
        # Where the maximum grew, what was summed so far shrinks.
        rescale = exp2(old_max - top)
        row_sum = shared[ROW_SUM + row] * rescale + group_sum(row_sum)
        cuda.syncwarp()  # all have read what is overwritten now
        if lane == 0:
            shared[ROW_MAX + row] = row_max
            shared[ROW_SUM + row] = row_sum
            shared[RESCALE + row] = rescale
    cuda.syncwarp()


@cuda.jit(device=True, inline="always")
def rescale_outputs(shared, outputs, row_group):
    """What was summed so far, in units of the new maxima."""
    for i in range(ROWS):
        rescale = shared[RESCALE + row_group + i * ROW_GROUPS]
        for j in range(COLUMNS):
            outputs[i * COLUMNS + j] *= rescale


@cuda.jit(device=True, inline="always")
def add_values(shared, outputs, first, full, lane, row_group):
    """outputs[ROWS × COLUMNS] += weights V over the keys that are staged.

    Hidden keys have -inf for a weight where a block is not `full`, as 0 · NaN must not reach a row
    that may not see them; it reaches those that may, however small their weight.
    """
    values = cuda.local.array(COLUMNS, ELEMENT)
    for key in range(DEPTH):
        for j in range(COLUMNS):
            values[j] = shared[V_SLICE + key * VALUE_PANEL + lane + j * GROUP_THREADS]
        for i in range(ROWS):
            row = row_group + i * ROW_GROUPS
            weight = shared[SCORES + row * SCORE_STRIDE + first + key]
            if full or weight != NEG_INF:
                for j in range(COLUMNS):
                    outputs[i * COLUMNS + j] += weight * values[j]


@cuda.jit(device=True, inline="always")
def row_scale(row_max, row_sum):
    """What the outputs of a row are multiplied with: 1 over the softmax denominator."""
    if row_sum == ELEMENT(0):
        return ELEMENT(0)  # a row that saw no key gives exactly 0
    return ELEMENT(1) / row_sum


def forward(
    q,
    k,
    v,
    out,
    lse,
    q_strides,
    k_strides,
    v_strides,
    out_strides,
    lse_strides,
    q_len,
    kv_len,
    row_blocks,
    has_lse,
    layout,
    q_ends,
    k_ends,
):
    """One block of query rows of a kv head against all the keys they may see.

    q, out (batch, length, heads, ·), k, v (batch, length, kv_heads, ·) and lse (batch, heads,
    length) have any strides, which are counted in elements.
    """
    shared = shared_memory()
    thread = int(cuda.threadIdx.x)
    lane = thread % GROUP_THREADS
    row_group = thread // GROUP_THREADS

    # Heads in order, and the last rows of each first: under a causal mask they take longest.
    block = int(cuda.blockIdx.x)
    panel = block % VALUE_PANELS * VALUE_PANEL
    row_block = block // VALUE_PANELS % row_blocks
    head = block // (VALUE_PANELS * row_blocks)
    kv_h = head % KV_HEADS
    b = head // KV_HEADS
    batch = b
    q_start = 0
    k_start = 0
    if layout == PADDED:
        kv_len = int(k_ends[b])
    if layout == PACKED:
        batch = 0
        q_start = int(q_ends[b])
        q_len = q_ends[b + 1] - q_start
        k_start = int(k_ends[b])
        kv_len = k_ends[b + 1] - k_start
    rows = q_len * GROUP
    first_row = (row_blocks - 1 - row_block) * BLOCK_Q
    if first_row >= rows:
        return
    q_base = batch * q_strides[0] + q_start * q_strides[1] + kv_h * GROUP * q_strides[2]
    k_base = batch * k_strides[0] + k_start * k_strides[1] + kv_h * k_strides[2]
    v_base = batch * v_strides[0] + k_start * v_strides[1] + kv_h * v_strides[2]
    offset = kv_len - q_len

    outputs = cuda.local.array(OUTPUT_TILE, ELEMENT)
    scores = cuda.local.array(SCORE_TILE, ELEMENT)
    for i in range(OUTPUT_TILE):
        outputs[i] = ELEMENT(0)
    for row in range(thread, BLOCK_Q, THREADS):
        shared[ROW_MAX + row] = NEG_INF
        shared[ROW_SUM + row] = ELEMENT(0)
    cuda.syncthreads()

    first_key = 0
    end_key = kv_len
    q_first = first_row // GROUP + offset
    q_last = (min(first_row + BLOCK_Q, rows) - 1) // GROUP + offset
    end_key = min(kv_len, q_last + 1)
    for k_first in range(first_key, end_key, BLOCK_KV):
        keys = min(BLOCK_KV, end_key - k_first)
        k_last = k_first + keys - 1
        for i in range(SCORE_TILE):
            scores[i] = ELEMENT(0)
        for first in range(0, HEAD_DIM, DEPTH):
            cuda.syncthreads()  # all have read what was staged before
            load_queries(shared, q, q_base, q_strides, first_row, rows, first, thread)
            load_keys(shared, k, k_base, k_strides, k_first, keys, first, thread)
            cuda.syncthreads()
            multiply_slices(shared, scores, lane, row_group)
        store_scores(shared, scores, lane, row_group)

        full = k_last <= q_first
        full = full and keys == BLOCK_KV
        hidden = 0
        if not full:
            hidden = mask_rows(
                shared,
                lane,
                row_group,
                keys,
                first_row,
                rows,
                k_first,
                offset,
            )
        softmax_rows(shared, lane, row_group)
        rescale_outputs(shared, outputs, row_group)
        if not full:
            mark_hidden(shared, hidden, lane, row_group)

        for first in range(0, keys, DEPTH):
            cuda.syncthreads()  # weights are written, and what was staged before is read
            load_values(
                shared, v, v_base, v_strides, k_first + first, k_first + keys, panel, thread
            )
            cuda.syncthreads()
            add_values(shared, outputs, first, full, lane, row_group)

    for i in range(ROWS):
        row = first_row + row_group + i * ROW_GROUPS
        if row < rows:
            query = q_start + row // GROUP
            h = kv_h * GROUP + row % GROUP
            row_max = shared[ROW_MAX + row_group + i * ROW_GROUPS]
            row_sum = shared[ROW_SUM + row_group + i * ROW_GROUPS]
            scale = row_scale(row_max, row_sum)
            base = batch * out_strides[0] + query * out_strides[1] + h * out_strides[2]
            for j in range(COLUMNS):
                column = panel + lane + j * GROUP_THREADS
                if column < VALUE_DIM:
                    output = outputs[i * COLUMNS + j] * scale
                    at = base + column * out_strides[3]
                    out[at] = output
            if has_lse and lane == 0 and panel == 0:
                at = batch * lse_strides[0] + h * lse_strides[1] + query * lse_strides[2]
                log2_sum = NEG_INF if row_sum == ELEMENT(0) else row_max + log2(row_sum)
                lse[at] = log2_sum * ELEMENT(0.6931471805599453)
