"""What the operators have in common: specs made from nodes, outputs, compiled callables by spec.

Input: a spec as a mapping. Output: a callable, made once for each spec that an operator meets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.attention import Attention
from attngen.driver import compile_spec
from attngen.errors import CallTypeError, Diagnostic, SpecError

Array: TypeAlias = npt.NDArray[Any]
Spec: TypeAlias = dict[str, Any]
Compiler: TypeAlias = Callable[[Mapping[str, Any]], Attention]

FLOATS: dict[int, str] = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""The element types of Q, K and V, by their number in ONNX."""


@dataclass(frozen=True, slots=True, eq=False)
class Translation:
    """A node as attngen says it.

    Attributes:
        spec: what ``attngen.compile`` takes.
        inputs: the side inputs of a call by name: tensors that a subgraph holds.
        factor: what the result is multiplied by.
    """

    spec: Spec
    inputs: dict[str, Array] = field(default_factory=dict)
    factor: float = 1.0


class AttentionOutputs(NamedTuple):
    """The outputs of ONNX's Attention under its names; None where one was not asked for."""

    Y: Array
    present_key: Array | None = None
    present_value: Array | None = None
    qk_matmul_output: Array | None = None


class Kernels:
    """Compiled callables by spec; `compiler` is ``attngen.compile``, or stands for it."""

    def __init__(self, compiler: Compiler | None = None) -> None:
        self._compiler = compiler or compile_spec
        self._made: dict[str, Attention] = {}

    def for_spec(self, spec: Spec) -> Attention:
        """The callable for `spec`, compiled when it is first needed."""
        key = json.dumps(spec, sort_keys=True)
        if key not in self._made:
            self._made[key] = self._compiler(spec)
        return self._made[key]


def unmapped(key: str, message: str, hint: str = "") -> SpecError:
    """The error for what has no counterpart in a spec, about the attribute `key`."""
    return SpecError([Diagnostic("E-ONNX", message, key=key, hint=hint)])


def computed_dtype(operand: str, softmax_precision: str | None) -> str:
    """The spec's dtype for operands of this type.

    Kernels keep scores and weights in float32, which is at least what a smaller
    `softmax_precision` asks for, and in float64 for float64. So only double precision over
    smaller operands takes wider kernels than the operands have.
    """
    return "float64" if softmax_precision == "float64" else operand


def check_arrays(arrays: Mapping[str, object]) -> dict[str, Array]:
    """`arrays` as NumPy arrays of one float type.

    Raises:
        CallTypeError: one is no array, or has another type than the first.
    """
    checked: dict[str, Array] = {}
    for name, value in arrays.items():
        if not isinstance(value, np.ndarray):
            kind = type(value).__name__
            raise CallTypeError(f"{name}: expected a NumPy array, got {kind}")
        if value.dtype.name not in FLOATS.values():
            allowed = ", ".join(FLOATS.values())
            raise CallTypeError(f"{name}: expected one of {allowed}, got {value.dtype.name}")
        first_name, first = next(iter(checked.items()), (name, value))
        if value.dtype != first.dtype:
            raise CallTypeError(
                f"{name}: expected {first.dtype.name}, as {first_name} has, got "
                f"{value.dtype.name}: operands of one type are mapped"
            )
        checked[name] = value
    return checked
