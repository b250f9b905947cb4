"""What a call may add to its arrays: key lengths, packed sequences, side inputs.

Input: what a caller passed and the sizes of the call. Output: arrays that the kernels can read, or
a :class:`CallTypeError` or :class:`CallValueError` that names the argument. Lengths may have any
integer dtype; everything else is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from attngen import dense_mask
from attngen.call_checks import Array, admit, check_array, check_dtype, check_flag
from attngen.dense_mask import MaskKind
from attngen.errors import CallTypeError, CallValueError
from attngen.ir.attention import AttentionIR
from attngen.ir.bounds import Lengths, index_faults, shape_of


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a call: those of its arrays, and the sequences in them.

    Attributes:
        batch: how many sequences there are.
        q_len, kv_len: the longest of them; queries and keys of a packed call in all.
    """

    batch: int
    q_len: int
    kv_len: int


def check_lengths(lengths: object, batch: int, kv_len: int, *, batched: bool) -> Array:
    """How many keys of each batch index are valid, as int64.

    Args:
        lengths: (batch,) integers from 0 to `kv_len`.
        batch: the batch size of the call.
        kv_len: keys in the arrays.
        batched: whether the call has a batch at all.
    """
    if not batched:
        raise CallTypeError("lengths: expected a batch of sequences; slice k and v instead")
    array = _integers("lengths", lengths)
    if array.shape != (batch,):
        raise CallValueError(f"lengths: expected shape ({batch},), got {array.shape}")
    if array.size and not (array.min() >= 0 and array.max() <= kv_len):
        worst = array.min() if array.min() < 0 else array.max()
        raise CallValueError(f"lengths: expected 0 to {kv_len} keys, got {worst}")
    return array.astype(np.int64)


def check_packed(
    cu_seqlens: object, q_total: int, kv_total: int, *, batched: bool
) -> tuple[Array, Array]:
    """Where packed sequences begin and end among the queries and among the keys, as int64.

    Args:
        cu_seqlens: cumulative lengths (n + 1,), or a pair of them for queries and for keys.
        q_total: queries of all sequences.
        kv_total: keys of all sequences.
        batched: whether the arrays have a batch axis, which packed sequences do without.
    """
    if batched:
        raise CallTypeError(
            "cu_seqlens: expected packed arrays without a batch axis, such as q (total, heads, "
            "head_dim)"
        )
    pair = cu_seqlens if isinstance(cu_seqlens, tuple) else (cu_seqlens, cu_seqlens)
    if len(pair) != 2 or any(isinstance(item, (int, np.integer)) for item in pair):
        raise CallValueError(
            f"cu_seqlens: expected a pair of arrays (queries, keys), got a tuple of {len(pair)}; "
            "pass one array as numpy.array(cu_seqlens)"
        )
    q_ends = _cumulative("queries", pair[0], q_total)
    k_ends = _cumulative("keys", pair[1], kv_total)
    if len(q_ends) != len(k_ends):
        raise CallValueError(
            f"cu_seqlens: expected as many sequences of queries as of keys, got "
            f"{len(q_ends) - 1} and {len(k_ends) - 1}"
        )
    return q_ends, k_ends


def _cumulative(of: str, ends: object, total: int) -> Array:
    array = _integers("cu_seqlens", ends)
    if array.ndim != 1 or not array.size:
        raise CallValueError(f"cu_seqlens: expected shape (sequences + 1,), got {array.shape}")
    array = array.astype(np.int64)
    if array[0] != 0 or array[-1] != total:
        raise CallValueError(
            f"cu_seqlens: expected 0 to {total} {of}, got {array[0]} to {array[-1]}"
        )
    if (np.diff(array) < 0).any():
        at = int(np.argmax(np.diff(array) < 0))
        raise CallValueError(
            f"cu_seqlens: expected no sequence of negative length, got {array[at]} and then "
            f"{array[at + 1]} at index {at + 1}"
        )
    return array


def _integers(name: str, value: object) -> Array:
    if isinstance(value, (list, tuple)):
        raise CallTypeError(
            f"{name}: expected a NumPy array of integers, got a {type(value).__name__}; pass "
            f"numpy.array({name})"
        )
    array = admit(name, value)
    if array.dtype.kind not in "iu":
        raise CallTypeError(f"{name}: expected integers, got {array.dtype.name}")
    return array


def check_return_lse(ir: AttentionIR, wanted: object) -> bool:
    """`wanted`, if it is a truth value and there is a log-sum-exp to return."""
    if check_flag("return_lse", wanted) and ir.activation is not None:
        raise CallTypeError(
            "return_lse: expected False, as there is no log-sum-exp where 'activation' is not a "
            "softmax"
        )
    return bool(wanted)


def check_sink(ir: AttentionIR, sink: object) -> Array | None:
    """The sink of a call: (heads,) in the accumulator's dtype where the spec has one, else None."""
    if ir.sink:
        name = ir.dtype.accumulator
        if sink is None:
            raise CallTypeError(
                f"missing argument 'sink': this spec says 'sink: true'; pass an array of shape "
                f"({ir.heads},) and dtype {name}"
            )
        return check_array("sink", sink, name, (ir.heads,), in_spec=False)
    if sink is not None:
        raise CallTypeError("unexpected argument 'sink': say 'sink: true' in the spec")
    return None


def check_inputs(ir: AttentionIR, given: Mapping[str, object], sizes: Sizes) -> dict[str, Array]:
    """The side inputs of a call by name.

    Raises:
        CallTypeError: one is missing or has the wrong dtype.
        CallValueError: one has the wrong shape, or an expression would read outside of it.
    """
    arrays: dict[str, Array] = {}
    lengths = Lengths(sizes.batch, sizes.q_len, sizes.kv_len)
    for side in ir.inputs:
        if side.values is not None:
            continue
        shape = shape_of(ir, side, lengths)
        if side.name == dense_mask.NAME:
            arrays[side.name] = _spread(given[side.name], shape)
            continue
        dtype = ir.dtype.accumulator if side.dtype == "float" else side.dtype
        if side.name not in given:
            raise CallTypeError(
                f"missing argument {side.name!r}: this spec has it as a side input; pass an array "
                f"of shape {shape} and dtype {dtype}"
            )
        array = admit(side.name, given[side.name])
        check_dtype(side.name, array, dtype, in_spec=False)
        if array.shape != shape:
            symbols = ", ".join(str(s) for s in side.shape)
            raise CallValueError(
                f"{side.name}: expected shape ({symbols}) = {shape}, got {array.shape}"
            )
        arrays[side.name] = array
    if faults := index_faults(ir, lengths, arrays):
        fault = faults[0]
        raise CallValueError(
            f"{fault.input}: expected indices 0 to {fault.size - 1} on axis {fault.axis}, and "
            f"'{fault.index}' goes from {fault.low} to {fault.high} where the mask attends; clamp "
            f"it with min and max, or pass a larger array"
        )
    return arrays


def mask_kind(mask: object, accumulator: str) -> MaskKind:
    """Whether a mask array selects (bool) or is added (float).

    Args:
        mask: what the caller passed.
        accumulator: the dtype that an added mask must have.
    """
    array = admit("mask", mask)
    if array.dtype == np.bool_:
        return "bool"
    if array.dtype.kind in "iu":
        raise CallTypeError(
            f"mask: expected bool (True attends) or {accumulator} (added to the scores), got "
            f"{array.dtype.name}; say which is meant: mask.astype(bool)"
        )
    check_dtype("mask", array, accumulator, in_spec=False)
    return "float"


def _spread(mask: object, shape: tuple[int, ...]) -> Array:
    """A mask array as one of four axes, each of full size or of size 1."""
    array = admit("mask", mask)
    fits = array.ndim <= 4 and all(
        size in (1, full) for size, full in zip(array.shape[::-1], shape[::-1], strict=False)
    )
    if not fits or array.ndim < 1:
        raise CallValueError(
            f"mask: expected a shape that broadcasts to (batch, heads, q_len, kv_len) = {shape}, "
            f"got {array.shape}"
        )
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    # An axis that was broadcast holds one value in fact.
    kept = tuple(
        slice(0, 1) if size > 1 and not stride else slice(None)
        for size, stride in zip(array.shape, array.strides, strict=True)
    )
    array = array[kept]
    return array if array.shape[3] == shape[3] else np.repeat(array, shape[3], axis=3)


def input_names(ir: AttentionIR) -> tuple[str, ...]:
    """The keyword arguments that the spec's side inputs add to a call."""
    return tuple(side.name for side in ir.inputs if side.values is None)
