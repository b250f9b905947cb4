"""Side inputs as arrays: the tables of a spec, and what a call brings, in the shapes it declares.

Input: an AttentionIR and arrays by name. Output: one array for each side input, of int64, bool or
float64, checked against the lengths of the call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from attngen.errors import CallTypeError, CallValueError
from attngen.ir.attention import AttentionIR
from attngen.ir.bounds import Lengths, shape_of
from attngen.ir.expr import DOT, DataType, loads

Array = npt.NDArray[Any]

_NUMPY: dict[DataType, type[np.generic]] = {
    "float": np.float64,
    "int64": np.int64,
    "bool": np.bool_,
}
_KINDS: dict[DataType, str] = {"float": "fiu", "int64": "iu", "bool": "b"}


def arrays_of(ir: AttentionIR, inputs: Mapping[str, Array], lengths: Lengths) -> dict[str, Array]:
    """Every side input of `ir` as an array.

    Raises:
        CallTypeError: one is missing, not part of the spec, or holds something else.
        CallValueError: a shape does not fit.
    """
    arrays: dict[str, Array] = {}
    wanted = {given.name for given in ir.inputs if given.values is None}
    for name in inputs:
        if name not in wanted:
            raise CallTypeError(f"{name!r} is not part of this spec")
    for given in ir.inputs:
        shape = shape_of(ir, given, lengths)
        if given.values is not None:
            arrays[given.name] = np.array(given.values).reshape(shape)
        elif given.name not in inputs:
            raise CallTypeError(f"{given.name!r} must be given")
        else:
            array = np.asarray(inputs[given.name])
            if array.dtype.kind not in _KINDS[given.dtype]:
                raise CallTypeError(f"{given.name!r} must hold {given.dtype}, not {array.dtype}")
            if array.shape != shape:
                message = f"{given.name!r} must have shape {shape}, and has {array.shape}"
                raise CallValueError(message)
            arrays[given.name] = array.astype(_NUMPY[given.dtype])
    return arrays


def of_mask(ir: AttentionIR) -> AttentionIR:
    """`ir` with the side inputs that its mask reads, and a score that reads none."""
    read = {load.input for load in loads(ir.mask)}
    inputs = tuple(side for side in ir.inputs if side.name in read)
    return dataclasses.replace(ir, inputs=inputs, score=DOT)


def mask_arrays(ir: AttentionIR, inputs: Mapping[str, Array], lengths: Lengths) -> dict[str, Array]:
    """What the mask of `ir` reads, as `arrays_of` gives it; `inputs` may hold the score's as well.

    Raises:
        CallTypeError: one is missing, not part of the spec, or holds something else.
        CallValueError: a shape does not fit.
    """
    own = of_mask(ir)
    others = {side.name for side in ir.inputs} - {side.name for side in own.inputs}
    given = {name: array for name, array in inputs.items() if name not in others}
    return arrays_of(own, with_batch(own, given), lengths)


def with_batch(ir: AttentionIR, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The side inputs of one sequence, with an axis of one where `ir` has that of the batch."""
    shapes = {given.name: given.shape for given in ir.inputs}
    batched = dict(inputs)
    for name, array in inputs.items():
        shape = shapes.get(name, ())
        if "batch" in shape and np.ndim(array) == len(shape) - shape.count("batch"):
            axes = tuple(axis for axis, size in enumerate(shape) if size == "batch")
            batched[name] = np.expand_dims(array, axes)
    return batched
