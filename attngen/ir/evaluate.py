"""What an expression is worth: evaluation over NumPy arrays and Python numbers.

Input: an expression and a value for each variable it reads; arrays broadcast. Output: an array or a
scalar. Whole numbers stay exact (int64 in arrays), real arithmetic is float64 and follows IEEE 754
without warnings, and both operands of `and` and `or` are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.ir.expr import BinaryOp, Const, Expr, Unary, UnaryOp, Var

Value: TypeAlias = npt.NDArray[Any] | np.generic | int | float | bool

_UNARY: dict[UnaryOp, Callable[[Any], Any]] = {
    "neg": np.negative,
    "not": np.logical_not,
    "tanh": np.tanh,
}

_BINARY: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
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


def evaluate(expr: Expr, env: Mapping[str, Any]) -> Value:
    """The value of `expr` where each variable has its value in `env`.

    Raises:
        KeyError: a variable of `expr` is not in `env`.
    """
    with np.errstate(all="ignore"):
        return _evaluate(expr, env)


def _evaluate(expr: Expr, env: Mapping[str, Any]) -> Value:
    value: Value
    match expr:
        case Const(value=value):
            return value
        case Var(name=name):
            value = env[name]
            return value
        case Unary(op=op, operand=operand):
            value = _UNARY[op](_evaluate(operand, env))
            return value
        case _:
            value = _BINARY[expr.op](_evaluate(expr.left, env), _evaluate(expr.right, env))
            return value
