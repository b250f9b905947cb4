"""ONNX's layouts of queries, keys and values, and attngen's: views from one to the other.

Input: arrays of (batch, heads, length, size) or (batch, length, heads · size). Output: views of
(batch, length, heads, size). Only a past, which is another array, makes copies of k and v.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attngen.errors import CallTypeError, CallValueError
from attngen.interop.onnx.attributes import AttentionAttributes, TensorType
from attngen.interop.onnx.translation import Array, check_arrays, unmapped

Size = int | str | None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a node; those of a spec are known, lengths may be symbols."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    q_len: Size
    kv_len: Size


def sizes_of(attributes: AttentionAttributes, q: TensorType, k: TensorType, v: TensorType) -> Sizes:
    """The sizes of a node with these inputs.

    Raises:
        SpecError: a size that a spec needs is not known, or does not fit the others.
    """
    ranks = {len(t.shape) for t in (q, k, v)}
    if ranks == {4}:
        for name in ("q_num_heads", "kv_num_heads"):
            axis = 1
            given, has = getattr(attributes, name), (q if name == "q_num_heads" else k).shape[axis]
            if given is not None and given != has:
                raise unmapped(name, f"{name!r} is {given}, and the input has {has} heads")
        heads, kv_heads = _known("Q", q, 1), _known("K", k, 1)
        widths = [_known(n, t, 3) for n, t in (("Q", q), ("K", k), ("V", v))]
        lengths = q.shape[2], k.shape[2]
    elif ranks == {3}:
        for name in ("q_num_heads", "kv_num_heads"):
            if getattr(attributes, name) is None:
                raise unmapped(name, f"{name!r} must be given for inputs of three axes")
        heads, kv_heads = attributes.q_num_heads or 0, attributes.kv_num_heads or 0
        counts = {"Q": heads, "K": kv_heads, "V": kv_heads}
        widths = []
        for name, tensor in (("Q", q), ("K", k), ("V", v)):
            width, count = _known(name, tensor, 2), counts[name]
            if width % count:
                raise unmapped(
                    name, f"the width of {name}, {width}, is not divided by {count} heads"
                )
            widths.append(width // count)
        lengths = q.shape[1], k.shape[1]
    else:
        shapes = ", ".join(str(t.shape) for t in (q, k, v))
        raise unmapped("Q", f"Q, K and V must all have three axes or four, not {shapes}")
    if widths[0] != widths[1]:
        raise unmapped("K", f"the head size of K, {widths[1]}, is not that of Q, {widths[0]}")
    if heads % kv_heads:
        raise unmapped("K", f"the {kv_heads} heads of K do not divide the {heads} of Q")
    return Sizes(heads, kv_heads, widths[0], widths[2], *lengths)


def _known(name: str, tensor: TensorType, axis: int) -> int:
    size = tensor.shape[axis]
    if isinstance(size, int):
        if size < 1:
            raise unmapped(name, f"axis {axis} of {name} must be positive, not {size}")
        return size
    hint = "fix it in the model, as onnxruntime's make_dynamic_shape_fixed does, or pass its size"
    raise unmapped(name, f"axis {axis} of {name} is {size or 'unknown'}, and must be known", hint)


@dataclass(frozen=True, slots=True, eq=False)
class Operands:
    """q, k and v of a call as (batch, length, heads, size), with the past before k and v.

    Attributes:
        flat: whether the node's inputs have three axes.
    """

    q: Array
    k: Array
    v: Array
    flat: bool

    def converted(self, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
        """q, k and v in the type that the kernels take: mostly as they are."""
        q, k, v = (a.astype(dtype, copy=False) for a in (self.q, self.k, self.v))
        return q, k, v

    def new_output(self, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """A new array in the node's layout, and a view of it as the kernels write it."""
        batch, q_len, heads = self.q.shape[:3]
        width = self.v.shape[3]
        if self.flat:
            result = np.empty((batch, q_len, heads * width), dtype)
            return result, result.reshape(batch, q_len, heads, width)
        result = np.empty((batch, heads, q_len, width), dtype)
        return result, result.swapaxes(1, 2)

    def present_key(self, past: Array | None) -> Array:
        """The keys for the next call: (batch, kv_heads, length, size), never the caller's."""
        return _present(self.k, past)

    def present_value(self, past: Array | None) -> Array:
        """The values for the next call: (batch, kv_heads, length, size), never the caller's."""
        return _present(self.v, past)


def _present(whole: Array, past: Array | None) -> Array:
    heads_first = whole.swapaxes(1, 2)
    return heads_first.copy() if past is None else heads_first


def operands_of(
    attributes: AttentionAttributes,
    q: Array,
    k: Array,
    v: Array,
    past_key: Array | None = None,
    past_value: Array | None = None,
) -> Operands:
    """Views of the inputs of a call; keys and values behind their past.

    Raises:
        CallTypeError: an input is no float array, or its type is not that of the others.
        CallValueError: a shape does not fit.
        SpecError: the heads do not fit.
    """
    given = {"Q": q, "K": k, "V": v}
    if (past_key is None) != (past_value is None):
        missing = "past_key" if past_key is None else "past_value"
        raise CallTypeError(f"{missing}: expected an array, as the other past is given")
    if past_key is not None and past_value is not None:
        given |= {"past_key": past_key, "past_value": past_value}
    arrays = check_arrays(given)
    types = [TensorType(a.dtype.name, a.shape) for a in (q, k, v)]
    sizes = sizes_of(attributes, *types)
    flat = q.ndim == 3
    counts = {"Q": sizes.heads, "K": sizes.kv_heads, "V": sizes.kv_heads}
    views = {
        name: _split(arrays[name], count) if flat else arrays[name].swapaxes(1, 2)
        for name, count in counts.items()
    }
    batch, kv_len = q.shape[0], views["K"].shape[1]
    for name, width in (("K", sizes.head_dim), ("V", sizes.value_dim)):
        expected = (batch, kv_len, sizes.kv_heads, width)
        if views[name].shape != expected:
            raise CallValueError(
                f"{name}: expected batch {batch}, {sizes.kv_heads} heads and {kv_len} keys, got "
                f"shape {arrays[name].shape}"
            )
    for name, width in (("past_key", sizes.head_dim), ("past_value", sizes.value_dim)):
        if name not in arrays:
            continue
        past = arrays[name]
        length = arrays["past_key"].shape[2] if arrays["past_key"].ndim == 4 else 0
        expected = (batch, sizes.kv_heads, length, width)
        if past.shape != expected:
            raise CallValueError(f"{name}: expected shape {expected}, got {past.shape}")
        new = "K" if name == "past_key" else "V"
        # heads first in memory, which is how the present goes out
        joined = np.concatenate((past, views[new].swapaxes(1, 2)), axis=2)
        views[new] = joined.swapaxes(1, 2)
    return Operands(views["Q"], views["K"], views["V"], flat)


def _split(array: Array, heads: int) -> Array:
    """(batch, length, heads · size) as (batch, length, heads, size): an axis in two is a view."""
    return array.reshape(*array.shape[:2], heads, array.shape[2] // heads)
