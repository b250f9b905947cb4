from __future__ import annotations

import numpy as np
import pytest
from middle.builders import softcapped

from attngen.errors import InternalError
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import DOT, TRUE, Binary, Const, K, Q, Unary, Var
from attngen.ir.kinds import kind_of


def test_each_operation_on_arrays() -> None:
    q, k = np.array([[1], [2], [3]]), np.array([[2, 2]])
    table = {
        "add": q + k,
        "sub": q - k,
        "mul": q * k,
        "div": q / k,
        "min": np.minimum(q, k),
        "max": np.maximum(q, k),
        "lt": q < k,
        "le": q <= k,
        "gt": q > k,
        "ge": q >= k,
        "eq": q == k,
        "ne": q != k,
    }
    for op, expected in table.items():
        np.testing.assert_array_equal(evaluate(Binary(op, Q, K), {"q": q, "k": k}), expected)
    env = {"q": q}
    np.testing.assert_array_equal(evaluate(Unary("neg", Q), env), -q)
    np.testing.assert_array_equal(evaluate(Unary("tanh", Q), env), np.tanh(q))
    one, two = Binary("le", Q, Const(2)), Binary("ge", Q, Const(2))
    np.testing.assert_array_equal(evaluate(Binary("and", one, two), env), q == 2)
    np.testing.assert_array_equal(evaluate(Binary("or", one, two), env), q < 9)
    np.testing.assert_array_equal(evaluate(Unary("not", one), env), q > 2)


def test_whole_numbers_are_exact_beyond_float64() -> None:
    big = 1 << 60
    assert evaluate(Binary("add", Q, Const(1)), {"q": np.array([big])})[0] == big + 1
    assert not evaluate(Binary("le", Binary("add", Q, Const(1)), Q), {"q": big})


def test_real_arithmetic_is_float64_and_silent() -> None:
    dot = np.array([1e300, -np.inf, np.nan, 0.0])
    value = evaluate(softcapped(1e300, 2.0), {"dot": dot})
    np.testing.assert_array_equal(value, [2.0, -2.0, np.nan, 0.0])
    assert np.isinf(evaluate(Binary("div", Const(1), Q), {"q": 0}))


def test_missing_variable_is_named() -> None:
    with pytest.raises(KeyError, match="kv_len"):
        evaluate(Var("kv_len"), {"k": 1})


def test_kinds() -> None:
    assert kind_of(Binary("add", Q, Const(1))) == "integer"
    assert kind_of(Binary("div", Q, K)) == "real"
    assert kind_of(Binary("mul", Q, DOT)) == "real"
    assert kind_of(Unary("tanh", Q)) == "real"
    assert kind_of(Binary("eq", TRUE, Binary("lt", Q, K))) == "boolean"


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (Binary("add", TRUE, Q), "'add' does not take boolean and integer"),
        (Binary("and", Q, TRUE), "'and' does not take boolean and integer"),
        (Binary("lt", TRUE, TRUE), "'lt' does not take boolean"),
        (Binary("and", Q, K), "'and' does not take integer"),
        (Unary("not", Q), "'not' does not take integer"),
        (Unary("neg", TRUE), "'neg' does not take boolean"),
        (Var("position"), "unknown variable 'position'"),
    ],
)
def test_ill_typed_expressions_are_named(expr: object, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        kind_of(expr)  # type: ignore[arg-type]
