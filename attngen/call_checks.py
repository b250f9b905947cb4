"""Mistakes in a call, told so that the next try works.

Input: what a caller passed, and what the attention needs. Output: nothing, or a
:class:`CallTypeError` or :class:`CallValueError` that names the argument, what was expected and
what came. Invariants: nothing is copied, cast or broadcast; an array that passes is one that the
generated kernels can read as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NoReturn, TypeAlias

import numpy as np

from attngen.dtypes import DTYPES
from attngen.errors import CallTypeError, CallValueError
from attngen.ir.attention import AttentionIR

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_OVERLAP_WORK: Any = 100_000  # NumPy's own annotation forgets that any number is allowed
_HOW_TO_PASS = {
    "torch": "pass {name}.detach().cpu().numpy(), which shares the memory of a CPU tensor",
    "jax": "pass numpy.asarray({name})",
    "jaxlib": "pass numpy.asarray({name})",
    "cupy": "pass {name}.get()",
    "tensorflow": "pass {name}.numpy()",
    "pandas": "pass {name}.to_numpy()",
}
# What callers of other libraries try: where it is said here.
_ELSEWHERE = {
    "is_causal": "say 'causal: true' in the spec",
    "causal": "say 'causal: true' in the spec",
    "scale": "say 'scale' in the spec",
    "softmax_scale": "say 'scale' in the spec",
    "softcap": "say 'softcap' in the spec",
    "window_size": "say 'window' in the spec",
    "window": "say 'window' in the spec",
    "attn_mask": "use mask=, a boolean array (True attends) or one to add to the scores",
    "attention_mask": "use mask=, a boolean array (True attends) or one to add to the scores",
    "dropout_p": "dropout belongs to training and is not supported",
    "dropout": "dropout belongs to training and is not supported",
    "enable_gqa": "say 'kv_heads' in the spec",
    "return_softmax_lse": "use return_lse=True",
}


def admit(name: str, value: object) -> Array:
    """`value` as the array it is, if kernels can read it where it lies."""
    if not isinstance(value, np.ndarray):
        raise CallTypeError(f"{name}: expected a NumPy array, got {_described(name, value)}")
    if isinstance(value, np.ma.MaskedArray):
        raise CallTypeError(
            f"{name}: expected a plain NumPy array, got a masked array, whose mask would be "
            f"ignored; pass {name}.filled(...)"
        )
    if not value.flags.aligned:
        raise CallValueError(
            f"{name}: expected elements aligned to their size, got a view at odd addresses; "
            f"pass {name}.copy()"
        )
    return np.asarray(value)  # a subclass as the plain array it is


def check_dtype(name: str, value: Array, expected: str, *, in_spec: bool = True) -> None:
    """Check the dtype, byte order included.

    Args:
        name: the argument, as the message shall call it.
        value: what was passed.
        expected: the name of the dtype it must have.
        in_spec: whether the spec's `dtype` decides it, so that changing that may be the fix.
    """
    if value.dtype == expected:
        return
    # By name bfloat16 is there only where ml_dtypes has been imported.
    how = f"{name}.astype({'ml_dtypes.bfloat16' if expected == 'bfloat16' else repr(expected)})"
    if not value.dtype.isnative:
        got, hint = f"{value.dtype.name} in foreign byte order", ""
    elif in_spec and value.dtype.name in DTYPES:
        got, hint = value.dtype.name, f", or say 'dtype: {value.dtype.name}' in the spec"
    else:
        got, hint = value.dtype.name, ""
    if expected in DTYPES and DTYPES[expected].is_half and got in ("uint16", "void16"):
        how, hint = how.replace(".astype", ".view"), ", if these are its bits"
    raise CallTypeError(f"{name}: expected dtype {expected}, got {got}; pass {how}{hint}")


def check_array(
    name: str, value: object, dtype: str, shape: tuple[int, ...], *, in_spec: bool = True
) -> Array:
    """`value`, if it is an array of exactly this dtype and shape."""
    array = admit(name, value)
    check_dtype(name, array, dtype, in_spec=in_spec)
    if array.shape != shape:
        raise CallValueError(f"{name}: expected shape {shape}, got {array.shape}")
    return array


def check_matrix(name: str, value: object, dtype: str, shape: tuple[int, int]) -> Array:
    """`value`, if it is an (in, out) matrix of this dtype and shape."""
    array = admit(name, value)
    if array.shape == shape[::-1] != shape:
        raise CallValueError(
            f"{name}: expected shape {shape}, got {array.shape}: matrices are (in, out); "
            f"pass {name}.T, or make the weights with Weights.from_torch_layout"
        )
    return check_array(name, array, dtype, shape)


def check_out(out: object, dtype: str, shape: tuple[int, ...], inputs: dict[str, Array]) -> Array:
    """`out`, if results can be written to it while `inputs` are being read."""
    array = admit("out", out)
    if array.dtype != dtype:  # a converted copy would not do here
        order = "" if array.dtype.isnative else " in foreign byte order"
        raise CallTypeError(f"out: expected dtype {dtype}, got {array.dtype.name}{order}")
    if array.shape != shape:
        raise CallValueError(f"out: expected shape {shape}, got {array.shape}")
    if not array.flags.writeable:
        raise CallValueError("out: expected an array that can be written, got a read-only one")
    if array.size and _meets_itself(array):
        raise CallValueError(
            f"out: expected distinct elements, got strides {array.strides}, where elements share "
            "their place"
        )
    for name, value in inputs.items():
        if np.may_share_memory(array, value) and _overlap(array, value):
            raise CallValueError(f"out: expected memory of its own, got memory that {name} lies in")
    return array


def _meets_itself(array: Array) -> bool:
    """Whether two elements of an array share memory."""
    if array.flags.forc:
        return False
    axes = sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    reach = array.itemsize  # bytes that the axes so far span
    for stride, size in axes:
        if stride < reach:
            break
        reach += stride * (size - 1)
    else:
        return False  # each axis steps over all that the smaller ones span
    offsets: Any = 0  # strides that interleave: rare, so that counting is quick enough
    for stride, size in axes:
        offsets = np.add.outer(offsets, np.arange(size) * stride)
    steps = np.diff(np.sort(offsets, axis=None))
    return bool((steps < array.itemsize).any())


def _overlap(left: Array, right: Array) -> bool:
    try:
        return bool(np.shares_memory(left, right, max_work=_OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return True  # not decided in reasonable time: the safe answer


def check_flag(name: str, value: object) -> bool:
    """`value`, if it is a truth value."""
    if not isinstance(value, (bool, np.bool_)):
        raise CallTypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def unknown_keywords(unknown: Iterable[str], known: Iterable[str]) -> NoReturn:
    """Refuse keyword arguments, with the nearest known one or where the matter is settled."""
    word = next(iter(unknown))
    choices = sorted(known)
    if word in _ELSEWHERE:
        hint = _ELSEWHERE[word]
    elif near := difflib.get_close_matches(word, choices, n=1, cutoff=0.6):
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"the keywords are {', '.join(choices)}"
    raise CallTypeError(f"unexpected keyword argument {word!r}: {hint}")


def _described(name: str, value: object) -> str:
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    hint = _HOW_TO_PASS.get(library, "pass numpy.asarray({name})")
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # which NumPy does not know
        hint = "pass {name}.detach().cpu().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)"
    if value is None:
        return "None"
    if hasattr(value, "__cuda_array_interface__"):
        return (
            f"a {kind.__module__}.{kind.__qualname__} on a CUDA device, and attngen.compile makes "
            "CPU kernels; 'attngen compile SPEC --target cuda -o DIR' writes a package whose "
            "attend() takes it, or pass a copy in the CPU's memory"
        )
    if kind.__module__ == "builtins":
        return f"a {kind.__name__}; pass a NumPy array of the spec's dtype"
    return f"{kind.__module__}.{kind.__qualname__}; {hint.format(name=name)}"


def check_core(ir: AttentionIR, q: object, k: object, v: object) -> tuple[Array, Array, Array]:
    """q, k and v, if they fit the attention and each other."""
    arrays = {"q": admit("q", q), "k": admit("k", k), "v": admit("v", v)}
    for name, array in arrays.items():
        check_dtype(name, array, ir.dtype.name)
    twice = "2·" if ir.maps == 2 else ""
    tails = {
        "q": ("q_len", ir.query_heads, f"{twice}heads", ir.head_dim, "head_dim"),
        "k": ("kv_len", ir.key_heads, f"{twice}kv_heads", ir.head_dim, "head_dim"),
        "v": ("kv_len", ir.kv_heads, "kv_heads", ir.value_dim, "value_dim"),
    }
    for name, (length, heads, heads_name, width, width_name) in tails.items():
        _check_head_array(name, arrays[name], f"{length}, {heads_name}", heads, width, width_name)
    for name in ("k", "v"):
        _check_batch(name, arrays[name], "q", arrays["q"], core_rank=3)
    if arrays["k"].shape[-3] != arrays["v"].shape[-3]:
        raise CallValueError(
            f"v: expected kv_len {arrays['k'].shape[-3]}, as k has, got {arrays['v'].shape[-3]} "
            f"(k {arrays['k'].shape}, v {arrays['v'].shape})"
        )
    return arrays["q"], arrays["k"], arrays["v"]


def _check_head_array(
    name: str, array: Array, axes: str, heads: int, width: int, width_name: str
) -> None:
    wanted = f"({axes}, {width_name}) or (batch, {axes}, {width_name})"
    if array.ndim not in (3, 4):
        raise CallValueError(
            f"{name}: expected {wanted}, got {array.ndim} dimensions, shape {array.shape}"
        )
    got_heads, got_width = array.shape[-2:]
    heads_name = axes.rpartition(" ")[2]
    if (got_heads, got_width) == (heads, width):
        return
    hint = ""
    if got_width == width and array.shape[-3] == heads:
        hint = (
            f": this looks like ({heads_name}, length, {width_name}); "
            f"pass {name}.swapaxes(-3, -2), which copies nothing"
        )
    elif array.ndim == 3 and got_width == heads * width:
        hint = f": split the heads, {name}.reshape(*{name}.shape[:-1], {heads}, {width})"
    what = f"{heads_name} {heads}" if got_heads != heads else f"{width_name} {width}"
    got = got_heads if got_heads != heads else got_width
    raise CallValueError(
        f"{name}: expected {what}, got {got} (shape {array.shape}, read as {wanted}){hint}"
    )


def _check_batch(name: str, array: Array, like_name: str, like: Array, core_rank: int) -> None:
    """Check that two arrays agree on having a batch, and on its size."""
    if array.ndim != like.ndim:
        have = "a batch" if like.ndim > core_rank else "no batch"
        raise CallValueError(
            f"{name}: expected {like.ndim} dimensions, as {like_name} has ({have}, shape "
            f"{like.shape}), got {array.ndim}, shape {array.shape}"
        )
    if like.ndim > core_rank and array.shape[0] != like.shape[0]:
        raise CallValueError(
            f"{name}: expected batch {like.shape[0]}, as {like_name} has, got {array.shape[0]}"
        )


def check_sequence(name: str, value: object, ir: AttentionIR) -> Array:
    """`value`, if it is (length, d_model) or (batch, length, d_model) in the spec's dtype."""
    array = admit(name, value)
    check_dtype(name, array, ir.dtype.name)
    if array.ndim not in (2, 3) or array.shape[-1] != ir.d_model:
        raise CallValueError(
            f"{name}: expected (length, {ir.d_model}) or (batch, length, {ir.d_model}), "
            f"got shape {array.shape}"
        )
    return array


def check_context(value: object, x: Array, ir: AttentionIR) -> Array:
    """`value`, if keys and values for the sequence `x` can be made from it."""
    context = check_sequence("context", value, ir)
    _check_batch("context", context, "x", x, core_rank=2)
    return context
