"""The operators that a modifier subgraph may have, each as a function of symbolic tensors.

Input: the operands of a node and its attributes. Output: a tensor or vector. What has no entry in
:data:`OPERATORS` has no counterpart in the expressions of a spec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

from attngen.interop.onnx.tensors import (
    ONE,
    ZERO,
    Indices,
    NoCounterpartError,
    Tensor,
    Value,
    Vector,
    as_scalar,
    as_tensor,
    as_vector,
    elementwise,
    number,
    reshaped,
    scalar,
    truth,
    whole,
)
from attngen.ir.expr import Binary, BinaryOp, Const, Expr, Select, Unary, UnaryOp
from attngen.ir.kinds import kind_of
from attngen.ir.ranges import ANY_CALL, value_range

Attributes: TypeAlias = Mapping[str, Any]
Operator: TypeAlias = Callable[[Sequence[Value], Attributes], Value]

_BOOL, _INTEGERS = 9, frozenset({2, 3, 4, 5, 6, 7, 12, 13})


def _binary(op: BinaryOp) -> Operator:
    """An operation of two numbers."""
    return lambda operands, _: elementwise(
        lambda a, b: _folded(Binary(op, number(a), number(b))), *operands
    )


def _logic(op: BinaryOp) -> Operator:
    return lambda operands, _: elementwise(lambda a, b: Binary(op, truth(a), truth(b)), *operands)


def _unary(op: UnaryOp) -> Operator:
    return lambda operands, _: elementwise(lambda a: _folded(Unary(op, number(a))), *operands)


def _fold(op: BinaryOp) -> Operator:
    """An operation of any count of numbers."""

    def operator(operands: Sequence[Value], _: Attributes) -> Value:
        return elementwise(
            lambda *items: reduce(lambda a, b: Binary(op, number(a), number(b)), items), *operands
        )

    return operator


def _folded(expr: Expr) -> Expr:
    """Sums and differences of known numbers, as sizes need them."""
    match expr:
        case Unary(op="neg", operand=Const(value=value)):
            return Const(-value)
        case Binary(op="add", left=Const(value=a), right=Const(value=b)):
            return Const(a + b)
        case Binary(op="sub", left=Const(value=a), right=Const(value=b)):
            return Const(a - b)
        case Binary(op="mul", left=Const(value=a), right=Const(value=b)):
            return Const(a * b)
    return expr


def _divided(a: Expr, b: Expr) -> Expr:
    """A quotient; that of whole numbers is cut towards zero, and a spec's rounds down."""
    a, b = number(a), number(b)
    if "real" in (kind_of(a), kind_of(b)):
        return Binary("div", a, b)
    low, _ = value_range(a, ANY_CALL)
    least, _ = value_range(b, ANY_CALL)
    if least <= 0:
        raise NoCounterpartError("Div of whole numbers by one that may be zero or negative")
    if low >= 0:
        return Binary("floordiv", a, b)
    negative = Unary("neg", Binary("floordiv", Unary("neg", a), b))
    return Select(Binary("ge", a, ZERO), Binary("floordiv", a, b), negative)


def _mod(operands: Sequence[Value], attributes: Attributes) -> Value:
    if attributes.get("fmod", 0):
        raise NoCounterpartError("Mod with fmod=1 has no counterpart in a spec's expressions")
    return elementwise(lambda a, b: Binary("mod", number(a), number(b)), *operands)


def _pow(operands: Sequence[Value], _: Attributes) -> Value:
    exponent = as_scalar(operands[1])
    forms: dict[float, Callable[[Expr], Expr]] = {
        0.5: lambda x: Unary("sqrt", x),
        1.0: lambda x: x,
        2.0: lambda x: Binary("mul", x, x),
        3.0: lambda x: Binary("mul", Binary("mul", x, x), x),
    }
    if not isinstance(exponent, Const) or float(exponent.value) not in forms:
        raise NoCounterpartError("Pow takes the exponents 0.5, 1, 2 and 3 as constants")
    form = forms[float(exponent.value)]
    return elementwise(lambda x: form(number(x)), operands[0])


def _where(operands: Sequence[Value], _: Attributes) -> Value:
    def choose(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
        if "boolean" in (kind_of(then), kind_of(otherwise)):
            return Select(truth(condition), truth(then), truth(otherwise))
        return Select(truth(condition), then, otherwise)

    return elementwise(choose, *operands)


def _cast(operands: Sequence[Value], attributes: Attributes) -> Value:
    """A change of kind; a change of precision is left to the kernels' own."""
    to = attributes["to"]
    if isinstance(operands[0], Vector) and to in _INTEGERS:
        return operands[0]
    if to == _BOOL:
        return elementwise(truth, operands[0])
    if to in _INTEGERS:
        return elementwise(lambda x: x if kind_of(x) == "integer" else Unary("int", x), operands[0])
    return elementwise(lambda x: x if kind_of(x) == "real" else Unary("float", x), operands[0])


def _clip(operands: Sequence[Value], _: Attributes) -> Value:
    value = operands[0]
    for bound, op in zip(operands[1:], ("max", "min"), strict=False):
        value = elementwise(lambda a, b, op=op: Binary(op, a, b), value, bound)
    return value


def _shape(operands: Sequence[Value], attributes: Attributes) -> Value:
    operand = operands[0]
    if isinstance(operand, Vector):
        return Vector((Const(len(operand.items)),))
    return Vector(operand.shape[attributes.get("start", 0) : attributes.get("end")])


def _gather(operands: Sequence[Value], attributes: Attributes) -> Value:
    data, places = operands
    if isinstance(data, Vector):
        items = tuple(data.items[place] for place in whole(places))
        is_scalar = isinstance(places, Tensor) and not places.shape
        return scalar(items[0]) if is_scalar else Vector(items)
    axis = attributes.get("axis", 0) % len(data.shape)
    at = as_tensor(places)
    rank = len(at.shape)

    def element(indices: Indices) -> Expr:
        inner = at.element(indices[axis : axis + rank])
        return data.element((*indices[:axis], inner, *indices[axis + rank :]))

    return Tensor((*data.shape[:axis], *at.shape, *data.shape[axis + 1 :]), element)


def _slice(operands: Sequence[Value], _: Attributes) -> Value:
    data = operands[0]
    if not isinstance(data, Vector):
        raise NoCounterpartError("Slice of a tensor that is no shape")
    starts, ends, *more = (whole(operand) for operand in operands[1:])
    step = more[1][0] if len(more) > 1 else 1
    return Vector(data.items[starts[0] : ends[0] : step])


def _range(operands: Sequence[Value], _: Attributes) -> Value:
    start, limit, delta = (as_scalar(operand) for operand in operands)
    if delta != ONE:
        raise NoCounterpartError("Range with a step other than 1")
    size = limit if start == ZERO else _folded(Binary("sub", limit, start))
    return Tensor(
        (size,), lambda indices: indices[0] if start == ZERO else Binary("add", start, indices[0])
    )


def _reshape(operands: Sequence[Value], _: Attributes) -> Value:
    data = operands[0]
    shape = as_vector(operands[1]).items
    if isinstance(data, Vector):
        if len(shape) == 1:
            return data
        data = as_tensor(data)
    copied = tuple(data.shape[axis] if size == ZERO else size for axis, size in enumerate(shape))
    return reshaped(data, copied)


def _unsqueeze(operands: Sequence[Value], _: Attributes) -> Value:
    data = operands[0]
    axes = whole(operands[1])
    if isinstance(data, Tensor) and not data.shape and len(axes) == 1:
        return Vector((data.element(()),))
    tensor = as_tensor(data)
    rank = len(tensor.shape) + len(axes)
    new = {axis % rank for axis in axes}
    sizes = iter(tensor.shape)
    return reshaped(tensor, tuple(ONE if axis in new else next(sizes) for axis in range(rank)))


def _squeeze(operands: Sequence[Value], _: Attributes) -> Value:
    data = operands[0]
    if isinstance(data, Vector):
        return scalar(as_scalar(data))
    rank = len(data.shape)
    every = [axis for axis, size in enumerate(data.shape) if size == ONE]
    gone = {axis % rank for axis in (whole(operands[1]) if len(operands) > 1 else every)}
    return reshaped(data, tuple(s for axis, s in enumerate(data.shape) if axis not in gone))


def _expand(operands: Sequence[Value], _: Attributes) -> Value:
    data = as_tensor(operands[0])
    shape = as_vector(operands[1]).items
    rank = max(len(shape), len(data.shape))
    sizes = list((ONE,) * (rank - len(data.shape)) + data.shape)
    for axis, size in enumerate(shape, start=rank - len(shape)):
        sizes[axis] = size if sizes[axis] == ONE else sizes[axis]
    return Tensor(tuple(sizes), data.at)


def _transpose(operands: Sequence[Value], attributes: Attributes) -> Value:
    data = as_tensor(operands[0])
    order = attributes.get("perm", range(len(data.shape))[::-1])

    def element(indices: Indices) -> Expr:
        own = list(indices)
        for axis, source in enumerate(order):
            own[source] = indices[axis]
        return data.element(tuple(own))

    return Tensor(tuple(data.shape[axis] for axis in order), element)


def _concat(operands: Sequence[Value], _: Attributes) -> Value:
    return Vector(tuple(item for operand in operands for item in as_vector(operand).items))


OPERATORS: dict[str, Operator] = {
    "Abs": _unary("abs"),
    "Add": _binary("add"),
    "And": _logic("and"),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Div": lambda operands, _: elementwise(_divided, *operands),
    "Equal": _binary("eq"),
    "Exp": _unary("exp"),
    "Expand": _expand,
    "Floor": _unary("floor"),
    "Gather": _gather,
    "Greater": _binary("gt"),
    "GreaterOrEqual": _binary("ge"),
    "Identity": lambda operands, _: operands[0],
    "Less": _binary("lt"),
    "LessOrEqual": _binary("le"),
    "Log": _unary("log"),
    "Max": _fold("max"),
    "Min": _fold("min"),
    "Mod": _mod,
    "Mul": _binary("mul"),
    "Neg": _unary("neg"),
    "Not": lambda operands, _: elementwise(lambda a: Unary("not", truth(a)), *operands),
    "Or": _logic("or"),
    "Pow": _pow,
    "Range": _range,
    "Reciprocal": lambda operands, _: elementwise(
        lambda a: Binary("div", Const(1.0), a), *operands
    ),
    "Relu": lambda operands, _: elementwise(lambda a: Binary("max", a, Const(0.0)), *operands),
    "Reshape": _reshape,
    "Shape": _shape,
    "Sigmoid": _unary("sigmoid"),
    "Slice": _slice,
    "Sqrt": _unary("sqrt"),
    "Squeeze": _squeeze,
    "Sub": _binary("sub"),
    "Tanh": _unary("tanh"),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _logic("ne"),
}
"""By the operator's name. ``Constant`` is read where constants are known."""
