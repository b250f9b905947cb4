"""Tensors of a subgraph as functions of their indices, with expressions for sizes and elements.

A modifier of FlexAttention is a graph over whole tensors; a spec says what happens to one score. A
:class:`Tensor` bridges them: its elements are one expression over the indices of its axes, and
reshaping, broadcasting and arithmetic make new functions of it. Shapes that are computed in the
graph are small vectors, whose elements are expressions one by one: :class:`Vector`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from attngen.interop.onnx.translation import Array
from attngen.ir.expr import Binary, Const, DataType, Expr, Load, Unary, Var
from attngen.ir.kinds import kind_of

Indices: TypeAlias = tuple[Expr, ...]
ONE, ZERO = Const(1), Const(0)


class NoCounterpartError(Exception):
    """A graph does what no expression of a spec says; who reads the graph names it to the user."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of any rank: its shape, and its element at given indices (0 on axes of size 1)."""

    shape: tuple[Expr, ...]
    element: Callable[[Indices], Expr]

    def at(self, indices: Indices) -> Expr:
        """The element at `indices` of a tensor that this one broadcasts to."""
        own = indices[len(indices) - len(self.shape) :]
        return self.element(
            tuple(ZERO if size == ONE else i for size, i in zip(self.shape, own, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Vector:
    """A tensor of one axis with known elements, such as a shape."""

    items: tuple[Expr, ...]


Value: TypeAlias = Tensor | Vector


@dataclass(slots=True)
class Constants:
    """The constant tensors of a graph that a kernel has to index: side inputs of the spec."""

    inputs: dict[str, Array] = field(default_factory=dict)

    def value(self, array: Array) -> Value:
        """`array` as a number, a vector of whole numbers, or a side input of the spec."""
        if array.ndim == 1 and array.dtype.kind in "iu" and array.size <= 8:
            return Vector(tuple(Const(int(x)) for x in array))
        shape = tuple(Const(size) for size in array.shape)
        if array.size == 1:
            number = Const(array.item())
            return Tensor(shape, lambda _: number)
        name = f"tensor_{len(self.inputs)}"
        kind: DataType = "float"
        if array.dtype.kind in "iub":
            kind = "bool" if array.dtype == np.bool_ else "int64"
        held = {"float": np.float64, "bool": np.bool_, "int64": np.int64}[kind]
        self.inputs[name] = np.squeeze(array).astype(held)
        axes = tuple(axis for axis, size in enumerate(array.shape) if size != 1)
        return Tensor(
            shape, lambda indices: Load(name, tuple(indices[axis] for axis in axes), dtype=kind)
        )

    def keep(self, names: Collection[str]) -> None:
        """Forget the tensors that no expression reads."""
        self.inputs = {n: array for n, array in self.inputs.items() if n in names}

    @property
    def declared(self) -> Mapping[str, Any]:
        """The `inputs` key of the spec."""
        kinds = {"f": "float", "b": "bool"}
        return {
            name: {"shape": list(array.shape), "dtype": kinds.get(array.dtype.kind, "int")}
            for name, array in self.inputs.items()
        }


def scalar(expr: Expr) -> Tensor:
    """A tensor without axes."""
    return Tensor((), lambda _: expr)


def as_tensor(value: Value) -> Tensor:
    """`value` as a function of its indices: a vector only if all its elements are equal."""
    if isinstance(value, Tensor):
        return value
    if len(set(value.items)) != 1:
        raise NoCounterpartError("a vector of sizes takes part in arithmetic")
    return Tensor((Const(len(value.items)),), lambda _: value.items[0])


def as_vector(value: Value) -> Vector:
    """`value` as known elements: a vector, or a tensor of one element."""
    if isinstance(value, Vector):
        return value
    if any(size != ONE for size in value.shape):
        raise NoCounterpartError("a shape is computed from a tensor that is none")
    return Vector((value.element((ZERO,) * len(value.shape)),))


def as_scalar(value: Value) -> Expr:
    """The one element of `value`."""
    items = as_vector(value).items
    if len(items) != 1:
        raise NoCounterpartError("a vector stands where one number is expected")
    return items[0]


def whole(value: Value) -> list[int]:
    """The elements of `value`, which are known numbers: axes or places."""
    found = []
    for item in as_vector(value).items:
        if not isinstance(item, Const) or isinstance(item.value, float):
            raise NoCounterpartError("axes and places must be constants")
        found.append(int(item.value))
    return found


def elementwise(function: Callable[..., Expr], *values: Value) -> Tensor:
    """`function` of the elements of tensors that broadcast to each other."""
    tensors = [as_tensor(value) for value in values]
    rank = max(len(tensor.shape) for tensor in tensors)
    shape: list[Expr] = [ONE] * rank
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape, start=rank - len(tensor.shape)):
            shape[axis] = size if shape[axis] == ONE else shape[axis]
    return Tensor(
        tuple(shape), lambda indices: function(*(tensor.at(indices) for tensor in tensors))
    )


def reshaped(tensor: Tensor, shape: tuple[Expr, ...]) -> Tensor:
    """`tensor` with axes of size 1 put in or taken out; ``Const(-1)`` takes what is left."""
    kept = [axis for axis, size in enumerate(tensor.shape) if size != ONE]
    wanted = [axis for axis, size in enumerate(shape) if size != ONE]
    if len(wanted) == len(kept) + 1 and Const(-1) in shape:
        wanted.remove(shape.index(Const(-1)))  # what is left is 1
    if len(kept) != len(wanted):
        raise NoCounterpartError("Reshape merges or splits axes")
    sizes = list(shape)
    for axis in range(len(sizes)):
        if axis not in wanted:
            sizes[axis] = ONE
    for own, new in zip(kept, wanted, strict=True):
        sizes[new] = tensor.shape[own]
    rank = len(tensor.shape)

    def element(indices: Indices) -> Expr:
        own: list[Expr] = [ZERO] * rank
        for axis, new in zip(kept, wanted, strict=True):
            own[axis] = indices[new]
        return tensor.element(tuple(own))

    return Tensor(tuple(sizes), element)


def number(expr: Expr) -> Expr:
    """`expr` as a number: a truth value is 1 or 0."""
    return Unary("int", expr) if kind_of(expr) == "boolean" else expr


def truth(expr: Expr) -> Expr:
    """`expr` as a truth value: a number is true unless it is 0."""
    return expr if kind_of(expr) == "boolean" else Binary("ne", expr, ZERO)


SCORE = Var("score", dtype="float")
"""The element that a modifier is given."""
