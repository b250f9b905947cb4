"""The modifier subgraphs of FlexAttention as expressions: score_mod, and a factor of prob_mod.

Input: a GraphProto with one input and one output of (batch, heads, q_len, kv_len). Output: the text
of a spec's `score` and `mask`, and the constant tensors that they index; or a SpecError that names
the operator that has no counterpart. Minus infinity is no number of a spec: where a score gets it,
the pair does not attend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from attngen.interop.onnx.operators import OPERATORS
from attngen.interop.onnx.tensors import (
    SCORE,
    Constants,
    NoCounterpartError,
    Tensor,
    Value,
    as_tensor,
    number,
)
from attngen.interop.onnx.translation import unmapped
from attngen.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    BinaryOp,
    Const,
    Expr,
    K,
    Q,
    Select,
    Unary,
    Var,
    children,
    conjunction,
    disjunction,
    loads,
)
from attngen.ir.kinds import kind_of
from attngen.ir.printer import expression_text

_BATCH = Var("batch", dtype="int64")
_ROW = Binary("add", Binary("sub", Q, Var("kv_len")), Var("q_len"))
"""The index of a query, whose position counts from the last key."""


@dataclass(frozen=True, slots=True)
class Modified:
    """What a score_mod says: the keys `score` and `mask` of a spec, None where it leaves them."""

    score: str | None
    mask: str | None
    constants: Constants


def score_mod(graph: Any, heads: int) -> Modified:
    """What `graph` does to a score.

    Raises:
        SpecError: an operator or a use of one has no counterpart in the expressions of a spec.
    """
    constants = Constants()
    score, attends = _split(number(_result("score_mod", graph, heads, constants)))
    if _reads_score(attends):
        raise unmapped(
            "score_mod",
            "score_mod lets a pair attend or not by its score",
            "a mask of a spec knows positions, heads and tensors, and no scores",
        )
    if (bad := _not_finite(score)) is not None:
        raise unmapped(
            "score_mod",
            f"score_mod makes scores of {bad}, where no Where or Add leads to it",
            "say which pairs attend with Where(condition, scores, -inf)",
        )
    read = {load.input for load in (*loads(score), *loads(attends))}
    constants.keep(read)
    return Modified(
        None if score == SCORE else expression_text(score),
        None if attends == TRUE else expression_text(attends),
        constants,
    )


def prob_factor(graph: Any, heads: int) -> float:
    """The number that `graph` multiplies all probabilities by.

    Raises:
        SpecError: it does something else, which no fused kernel can do after the fact.
    """
    constants = Constants()
    factor = _factor(number(_result("prob_mod", graph, heads, constants)))
    if factor is None or not math.isfinite(factor):
        raise unmapped(
            "prob_mod",
            "prob_mod must multiply all probabilities by one constant number",
            "fused kernels never hold probabilities; attngen.interpret gives them",
        )
    return factor


def _result(key: str, graph: Any, heads: int, constants: Constants) -> Expr:
    """The element of the graph's output at (b, h, q, k), over that of its input."""
    try:
        return _evaluated(key, graph, heads, constants)
    except NoCounterpartError as error:
        raise unmapped(key, f"{key}: {error}") from None


def _evaluated(key: str, graph: Any, heads: int, constants: Constants) -> Expr:
    from onnx import helper, numpy_helper

    if len(graph.input) != 1 or len(graph.output) != 1:
        raise unmapped(key, f"{key} must have one input and one output")
    if graph.sparse_initializer:
        raise unmapped(key, f"{key} has sparse constants")
    shape = (_BATCH, Const(heads), Var("q_len"), Var("kv_len"))
    values: dict[str, Value] = {graph.input[0].name: Tensor(shape, lambda _: SCORE)}
    for tensor in graph.initializer:
        values[tensor.name] = constants.value(numpy_helper.to_array(tensor))
    for node in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            values[node.output[0]] = constants.value(_constant(key, attributes))
            continue
        operator = OPERATORS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if operator is None:
            hint = f"the operators are Constant, {', '.join(OPERATORS)}"
            raise unmapped(key, f"{key} has the operator {node.op_type}", hint)
        if missing := [name for name in node.input if name and name not in values]:
            raise unmapped(key, f"{key} reads {missing[0]!r}, which is not in the subgraph")
        operands = [values[name] for name in node.input if name]
        values[node.output[0]] = operator(operands, attributes)
    result = values.get(graph.output[0].name)
    if result is None:
        raise unmapped(key, f"{key} does not make its output")
    tensor = as_tensor(result)
    if len(tensor.shape) > 4:
        raise unmapped(key, f"{key} makes a tensor of {len(tensor.shape)} axes, not of four")
    return tensor.at((Var("b"), Var("h"), _ROW, K))


def _constant(key: str, attributes: dict[str, Any]) -> Any:
    import numpy as np
    from onnx import numpy_helper

    if "value" in attributes:
        return numpy_helper.to_array(attributes["value"])
    for name, dtype in (
        ("value_float", "f4"),
        ("value_floats", "f4"),
        ("value_int", "i8"),
        ("value_ints", "i8"),
    ):
        if name in attributes:
            return np.array(attributes[name], dtype)
    raise unmapped(key, f"{key} has a Constant of {', '.join(attributes)}")


def _split(expr: Expr) -> tuple[Expr, Expr]:
    """`expr` as a score, and where it is not minus infinity."""
    match expr:
        case Const(value=value) if value == -math.inf:
            return Const(0.0), FALSE
        case Select(condition=condition, then=then, otherwise=otherwise):
            one, first = _split(then)
            two, second = _split(otherwise)
            if first == second == TRUE:
                return expr, TRUE
            attends = _either(condition, first, second)
            if first == FALSE:
                return two, attends
            return (one if second == FALSE else Select(condition, one, two)), attends
        case Binary(op="add" | "sub" as op, left=left, right=right):
            one, first = _split(left)
            two, second = (right, TRUE) if op == "sub" else _split(right)
            if first == TRUE == second:
                return expr, TRUE
            if one == Const(0.0) and op == "add":
                return two, conjunction(first, second)
            if two in (Const(0.0), Const(0)):
                return one, conjunction(first, second)
            return Binary(op, one, two), conjunction(first, second)
        case _:
            return expr, TRUE


def _either(condition: Expr, first: Expr, second: Expr) -> Expr:
    """Where a choice attends whose sides attend where `first` and `second` say."""
    if second == FALSE:
        return conjunction(condition, first)
    denied = _negated(condition)
    if first == FALSE:
        return conjunction(denied, second)
    return conjunction(disjunction(denied, first), disjunction(condition, second))


_NEGATED: dict[BinaryOp, BinaryOp] = {
    "lt": "ge",
    "le": "gt",
    "gt": "le",
    "ge": "lt",
    "eq": "ne",
    "ne": "eq",
}


def _negated(condition: Expr) -> Expr:
    match condition:
        case Unary(op="not", operand=operand):
            return operand
        case Binary(op=op, left=left, right=right) if op in _NEGATED:
            if kind_of(left) == kind_of(right) == "integer":  # NaN has no place in an order
                return Binary(_NEGATED[op], left, right)
    return Unary("not", condition)


def _reads_score(expr: Expr) -> bool:
    return expr == SCORE or any(map(_reads_score, children(expr)))


def _not_finite(expr: Expr) -> float | None:
    if isinstance(expr, Const):
        return None if math.isfinite(expr.value) else float(expr.value)
    return next((bad for e in children(expr) if (bad := _not_finite(e)) is not None), None)


def _factor(expr: Expr) -> float | None:
    """The constant that `expr` is the score times, if it is that."""
    match expr:
        case Binary(op="mul", left=left, right=Const(value=value)):
            inner = _factor(left)
        case Binary(op="mul", left=Const(value=value), right=right):
            inner = _factor(right)
        case Binary(op="div", left=left, right=Const(value=divisor)) if divisor != 0:
            inner, value = _factor(left), 1 / divisor
        case Unary(op="neg", operand=operand):
            inner, value = _factor(operand), -1
        case _:
            return 1.0 if expr == SCORE else None
    return None if inner is None else inner * value
