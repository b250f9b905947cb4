"""What an expression is worth: evaluation over NumPy arrays and Python numbers.

Input: an expression and a value for each variable and side input it reads; arrays broadcast.
Output: an array or a scalar. Whole numbers stay exact (int64 in arrays), real arithmetic is float64
and follows IEEE 754 without warnings. Both operands of `and` and `or` and both branches of a Select
are evaluated, but a side input may be left by its index where the value does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.errors import CallValueError
from attngen.ir.expr import BinaryOp, Const, Expr, Load, Select, Unary, UnaryOp, Var, loads

Value: TypeAlias = npt.NDArray[Any] | np.generic | int | float | bool


def _to_float(value: Any) -> Any:
    return np.asarray(value).astype(np.float64)[()]


def _to_int(value: Any) -> Any:
    """Cut to a whole number, of at most 2**62 in size; 0 for NaN."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return array.astype(np.int64)[()]
    whole = np.clip(array, -(2.0**62), 2.0**62)
    return np.where(np.isnan(array), 0.0, whole).astype(np.int64)[()]


_UNARY: dict[UnaryOp, Callable[[Any], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "not": np.logical_not,
    "tanh": np.tanh,
    "exp": np.exp,
    "exp2": lambda x: np.exp2(_to_float(x)),
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-_to_float(x))),
    "floor": lambda x: np.floor(_to_float(x)),
    "float": _to_float,
    "int": _to_int,
}

_BINARY: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "min": np.minimum,
    "max": np.maximum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}


def evaluate(expr: Expr, env: Mapping[str, Any], where: Any = None) -> Value:
    """The value of `expr` where each variable and side input has its value in `env`.

    Args:
        expr: what to evaluate.
        env: numbers or arrays; a side input is an array with one axis for each index.
        where: truth values; elsewhere the result does not matter. Everywhere if None.

    Raises:
        KeyError: a variable of `expr` is not in `env`.
        CallValueError: a side input is read outside its array, where it matters.
    """
    with np.errstate(all="ignore"):
        return _evaluate(expr, env, where)


def _evaluate(expr: Expr, env: Mapping[str, Any], where: Any) -> Value:
    value: Value
    match expr:
        case Const(value=value):
            return value
        case Var(name=name):
            value = env[name]
            return value
        case Unary(op=op, operand=operand):
            value = _UNARY[op](_evaluate(operand, env, where))
            return value
        case Select(condition=condition, then=then, otherwise=otherwise):
            chosen = _evaluate(condition, env, where)
            one = _evaluate(then, env, _narrowed(where, chosen, then))
            two = _evaluate(otherwise, env, _narrowed(where, np.logical_not(chosen), otherwise))
            return np.where(chosen, one, two)[()]
        case Load():
            indices = [_evaluate(index, env, where) for index in expr.indices]
            return _element(expr.input, np.asarray(env[expr.input]), indices, where)
        case _:
            left = _evaluate(expr.left, env, where)
            needed = where
            if expr.op in ("and", "or"):
                matters = left if expr.op == "and" else np.logical_not(left)
                needed = _narrowed(where, matters, expr.right)
            value = _BINARY[expr.op](left, _evaluate(expr.right, env, needed))
            return value


def _narrowed(where: Any, condition: Any, expr: Expr) -> Any:
    """Where `expr` matters, which is evaluated under `condition`."""
    if not loads(expr):
        return where
    return condition if where is None else np.logical_and(where, condition)


def _element(name: str, array: npt.NDArray[Any], indices: list[Value], where: Any) -> Value:
    clipped = []
    for axis, (index, size) in enumerate(zip(indices, array.shape, strict=True)):
        outside = np.logical_or(np.less(index, 0), np.greater_equal(index, size))
        if where is not None:
            outside = np.logical_and(outside, where)
        if np.any(outside):
            wrong = np.broadcast_to(index, np.shape(outside))[outside].flat[0]
            raise CallValueError(
                f"axis {axis} of {name!r} has {size} elements and is read at {wrong}"
            )
        clipped.append(np.clip(index, 0, max(size - 1, 0)))
    if array.size == 0:
        return np.zeros(np.broadcast_shapes(*map(np.shape, indices)), array.dtype)[()]
    value: Value = array[tuple(clipped)]
    return value
