"""The way into the kernels: NumPy arrays of any strides in, a kernel chosen by the shapes.

Nothing is compiled before the first call. Calls may come from many threads at once.
"""

import numpy as np
from numba import get_num_threads

from . import flash_forward, sequences, split_kv
from .projection import pack_weight, project
from .simd import ELEMENT

__all__ = [
    "attend",
    "attention",
    "layer",
    "pack_weight",
    "project",
]

DTYPE = np.dtype("float32")
HEADS = 32
KV_HEADS = 32
D_MODEL = 4096

# Waking the other threads takes as long as about this many multiply-adds on one.
SERIAL_WORK = 1 << 21


_NOT_WANTED = np.empty((0, 0, 0), ELEMENT)


def attend(q, k, v, out, lse=None, sink=None, table=None, workers=None):
    """Write attention(q, k, v) to `out`, and its log-sum-exp to `lse` if given.

    Nothing is checked here: arrays have these shapes and the dtype float32.

    Args:
        q, k, v: (batch, q_len, heads, head_dim), (batch, kv_len, kv_heads, head_dim) and
            (batch, kv_len, kv_heads, value_dim), of any strides.
        out: (batch, q_len, heads, value_dim), of any strides.
        lse: (batch, heads, q_len) or None.
        sink: (heads,); not used by this spec.
        table: the sequences in these arrays, as `sequences` makes them; one for each batch index
            if None. Queries that belong to no sequence keep what is in `out` and `lse`.
        workers: threads to use; Numba's setting if None, 1 stays on the calling thread.
    """
    if table is None:
        batch, longest, kv_len = q.shape[0], q.shape[1], k.shape[1]
        table = sequences.uniform(batch if longest else 0, longest, kv_len)
        pairs = batch * longest * kv_len
    else:
        table = table[table[:, 2] > 0]
        longest = int(table[:, 2].max(initial=0))
        pairs = int((table[:, 2] * table[:, 4]).sum())
    if not len(table):
        return
    if workers is None:
        workers = get_num_threads()
    width = q.shape[3] + v.shape[3]
    if pairs * q.shape[2] * width <= SERIAL_WORK:
        workers = 1
    kernel = split_kv if split_kv.can_take(k, v, longest) else flash_forward
    lse = _NOT_WANTED if lse is None else lse
    kernel.forward(q, k, v, out, lse, sink, table, workers)


def attention(q, k, v, *, out=None, return_lse=False):
    """Attention of one sequence (S, heads, head_dim) or a batch (B, S, heads, head_dim).

    Returns `out`, or (out, lse) with the natural-log LSE of shape (heads, S) or (B, heads, S). An
    `out` that is passed does not overlap the other arrays.

    Raises:
        TypeError: an array is not a NumPy array of float32.
        ValueError: the shapes do not belong together.
    """
    for name, array in {"q": q, "k": k, "v": v}.items():
        _check_array(name, array, DTYPE)
    if q.ndim not in (3, 4) or not q.ndim == k.ndim == v.ndim:
        raise ValueError(f"q, k and v must all have 3 or 4 axes, not {q.ndim}, {k.ndim}, {v.ndim}")
    single = q.ndim == 3
    q4, k4, v4 = (a[None] for a in (q, k, v)) if single else (q, k, v)
    batch, q_len = q4.shape[:2]
    kv_len = k4.shape[1]
    expected = {
        "q": (batch, q_len, HEADS, flash_forward.HEAD_DIM),
        "k": (batch, kv_len, KV_HEADS, flash_forward.HEAD_DIM),
        "v": (batch, kv_len, KV_HEADS, flash_forward.VALUE_DIM),
    }
    for name, array in {"q": q4, "k": k4, "v": v4}.items():
        if array.shape != expected[name]:
            raise ValueError(f"{name} must have shape {expected[name]}, not {array.shape}")
    shape = (batch, q_len, HEADS, flash_forward.VALUE_DIM)
    if out is None:
        out = np.empty(shape[single:], DTYPE)
    _check_array("out", out, DTYPE)
    if out.shape != shape[single:] or not out.flags.writeable:
        raise ValueError(f"out must be writable and have shape {shape[single:]}, not {out.shape}")
    lse = np.empty((batch, HEADS, q_len), ELEMENT) if return_lse else None
    attend(q4, k4, v4, out[None] if single else out, lse)
    if not return_lse:
        return out
    return out, lse[0] if single else lse


def _check_array(name, array, dtype):
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        got = getattr(array, "dtype", type(array).__name__)
        raise TypeError(f"{name} must be a NumPy array of {dtype}, not {got}")
    if not array.flags.aligned:
        raise ValueError(f"{name} must be aligned to its elements; pass a copy")


def layer(x, context, weights, out, lse=None, sink=None, table=None, workers=None):
    """Write the layer's result for `x`, attending to `context`, to `out`.

    Args:
        x, context: (batch, q_len, D_MODEL) and (batch, kv_len, D_MODEL), of any strides.
        weights: has q, k, v and o as `pack_weight` makes them, and q_bias, k_bias, v_bias and
            o_bias, each an array or None.
        out: (batch, q_len, D_MODEL), of any strides; it does not overlap the inputs.
        lse, sink, table, workers: as for `attend`.
    """
    q = _project_heads(x, weights.q, weights.q_bias, HEADS, flash_forward.HEAD_DIM, workers)
    k = _project_heads(
        context, weights.k, weights.k_bias, KV_HEADS, flash_forward.HEAD_DIM, workers
    )
    v = _project_heads(
        context, weights.v, weights.v_bias, KV_HEADS, flash_forward.VALUE_DIM, workers
    )
    heads = np.empty((*q.shape[:2], HEADS, flash_forward.VALUE_DIM), DTYPE)
    attend(q, k, v, heads, lse, sink, table, workers)
    _project_rows(heads.reshape(*q.shape[:2], -1), weights.o, weights.o_bias, out, workers)


def _project_heads(x, packed, bias, heads, width, workers):
    """x · w + bias in the layout that the attention reads: (batch, length, heads, width)."""
    result = np.empty((*x.shape[:2], heads * width), DTYPE)
    _project_rows(x, packed, bias, result, workers)
    return result.reshape(*x.shape[:2], heads, width)


def _project_rows(x, packed, bias, out, workers):
    """Write x · w + bias to `out`, for all batches at once if they lie in memory as one."""
    rows = x.shape[0] * x.shape[1]
    if all(a.shape[0] == 1 or a.strides[0] == a.shape[1] * a.strides[1] for a in (x, out)):
        x, out = (
            np.lib.stride_tricks.as_strided(a, (1, rows, a.shape[2]), a.strides) for a in (x, out)
        )
    for a, c in zip(x, out, strict=True):
        project(a, packed, bias, c, workers)
