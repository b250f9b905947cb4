"""The way into the kernel: device arrays of any strides in, one launch on the caller's stream.

Nothing is compiled, and no driver is touched, before the first call.
"""

from . import flash_forward as kernel
from .build import machine_code
from .launch import device_array, device_of, launch

__all__ = ["attend", "machine_code"]

DTYPE = "float32"
SUMS = "float32"
ENDS = "int32"
HEADS = 32


def attend(
    q,
    k,
    v,
    out,
    lse=None,
    *,
    lengths=None,
    cu_seqlens=None,
    longest=None,
    stream=0,
):
    """Write attention(q, k, v) to `out`, and its log-sum-exp to `lse` if given.

    Arrays lie on a CUDA device, have `__cuda_array_interface__` (torch, CuPy, Numba, JAX) and any
    strides. The call returns when the kernel is queued.

    Args:
        q, k, v: (batch, q_len, heads, head_dim), (batch, kv_len, kv_heads, head_dim) and
            (batch, kv_len, kv_heads, value_dim) of float32.
        out: (batch, q_len, heads, value_dim) of float32.
        lse: (batch, heads, q_len) of float32, or None.
        lengths: (batch,) of int32, from 0 to kv_len: only so many keys of each are valid.
        cu_seqlens: a pair of cumulative lengths (sequences + 1,) of int32, from 0, for queries and
            keys: the arrays have a batch of one, which holds the sequences one after the other.
        longest: of the packed sequences' queries; without it blocks are started for q_len each.
        stream: the handle of a stream, such as torch.cuda.current_stream().cuda_stream.

    Raises:
        TypeError, ValueError: naming the argument, what was expected and what came.
        ImportError: what a first call needs is not installed.
        RuntimeError: the CUDA driver reports an error.
    """
    batch, q_len = _leading("q", q)
    kv_len = _leading("k", k)[1]
    kv_heads = kernel.KV_HEADS
    arrays = {
        "q": device_array("q", q, DTYPE, (batch, q_len, HEADS, kernel.HEAD_DIM)),
        "k": device_array("k", k, DTYPE, (batch, kv_len, kv_heads, kernel.HEAD_DIM)),
        "v": device_array("v", v, DTYPE, (batch, kv_len, kv_heads, kernel.VALUE_DIM)),
        "out": device_array("out", out, DTYPE, (batch, q_len, HEADS, kernel.VALUE_DIM)),
    }
    arguments = {"q_ends": 0, "k_ends": 0}
    arguments |= {"lse": 0, "lse_strides": (0, 0, 0), "has_lse": int(lse is not None)}
    if lse is not None:
        arrays["lse"] = device_array("lse", lse, SUMS, (batch, HEADS, q_len))
    for name, array in arrays.items():
        arguments |= {name: array.address, f"{name}_strides": array.strides}

    layout, sequences, rows = kernel.UNIFORM, batch, q_len
    if lengths is not None:
        layout = kernel.PADDED
        arguments["k_ends"] = _flat("lengths", lengths, ENDS, (batch,)).address
    if cu_seqlens is not None:
        if batch != 1 or lengths is not None:
            raise ValueError("cu_seqlens describes a batch of one, and comes without lengths")
        layout = kernel.PACKED
        sequences = _leading("cu_seqlens", cu_seqlens[0])[0] - 1
        for name, ends in zip(("q_ends", "k_ends"), cu_seqlens, strict=True):
            arguments[name] = _flat("cu_seqlens", ends, ENDS, (sequences + 1,)).address
        rows = q_len if longest is None else min(longest, q_len)
    if not batch * q_len:
        return
    device = device_of(arrays["q"])
    row_blocks = -(-rows * kernel.GROUP // kernel.BLOCK_Q)
    arguments |= {
        "q_len": q_len,
        "kv_len": kv_len,
        "row_blocks": row_blocks,
        "layout": layout,
    }
    blocks = row_blocks * kernel.VALUE_PANELS * kv_heads * sequences
    launch(device, blocks, arguments, stream)


def _leading(name, value):
    """The first sizes of an array's shape, which the others are held to."""
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        kind = type(value).__name__
        raise TypeError(f"{name} must be an array on a CUDA device, and a {kind} is not")
    shape = tuple(interface["shape"])
    rank = 1 if name == "cu_seqlens" else 4
    if len(shape) != rank:
        raise ValueError(f"{name} must have {rank} axes, and has shape {shape}")
    return shape[:2]


def _flat(name, value, dtype, shape):
    """A device array whose elements lie side by side."""
    array = device_array(name, value, dtype, shape)
    if array.strides[-1] != 1 and shape[-1] > 1:
        raise ValueError(f"{name} must be contiguous along its last axis")
    return array
