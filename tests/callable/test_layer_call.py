"""Calling a layer: weights in every form, binding, context, and every mistake by name."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

from attngen.errors import CallTypeError, CallValueError
from attngen.weights import Weights

RNG = np.random.default_rng(2)
SHAPES = {"q": (16, 32), "k": (16, 16), "v": (16, 12), "o": (24, 16)}


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype="float32")


@pytest.fixture
def attention(build):
    return build(d_model=16)


def same_weights(left: Weights, right: Weights) -> None:
    for name in ("q", "k", "v", "o", "q_bias", "k_bias", "v_bias", "o_bias"):
        a, b = getattr(left, name), getattr(right, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("shape", [(3, 16), (2, 3, 16)])
def test_bound_and_unbound_agree(attention, shape: tuple[int, ...], biases: bool) -> None:
    weights = Weights.random(attention.spec, RNG, biases=biases)
    assert {n: getattr(weights, n).shape for n in SHAPES} == SHAPES
    x = f32(*shape)
    out, lse = attention(x, weights, return_lse=True)
    assert (out.shape, out.dtype, lse.shape) == (shape, x.dtype, (*shape[:-2], 4, 3))
    bound = attention.bind(weights)
    np.testing.assert_array_equal(bound(x), out)
    buffer = np.empty_like(x)
    assert bound(x, out=buffer) is buffer
    np.testing.assert_array_equal(buffer, out)


def test_context(attention) -> None:
    weights = Weights.random(attention.spec, RNG)
    x, context = f32(2, 3, 16), f32(2, 5, 16)
    both = attention(x, weights, context=context)
    one = attention(x[1], weights, context=context[1])
    np.testing.assert_allclose(both[1], one, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(attention(x, weights, context=x), attention(x, weights))
    none, lse = attention(x, weights, context=context[:, :0], return_lse=True)
    assert not none.any()
    assert lse.shape == (2, 4, 3)


def test_an_empty_context_leaves_the_output_bias(attention) -> None:
    weights = Weights.random(attention.spec, RNG, biases=True)
    out = attention(f32(3, 16), weights, context=f32(0, 16))
    np.testing.assert_array_equal(out, np.broadcast_to(weights.o_bias, (3, 16)))


@pytest.mark.parametrize("shape", [(0, 16), (0, 3, 16), (2, 0, 16)])
def test_empty(attention, shape: tuple[int, ...]) -> None:
    weights = Weights.random(attention.spec, RNG)
    assert attention(f32(*shape), weights).shape == shape


def test_torch_layout_and_fused_are_views_of_the_same(attention) -> None:
    weights = Weights.random(attention.spec, RNG, biases=True)
    biases = {f"{n}_bias": getattr(weights, f"{n}_bias") for n in SHAPES}
    turned = {n: np.ascontiguousarray(getattr(weights, n).T) for n in SHAPES}
    torch_like = Weights.from_torch_layout(**turned, **biases)
    assert all(np.shares_memory(getattr(torch_like, n), turned[n]) for n in SHAPES)
    same_weights(torch_like, weights)
    qkv = np.concatenate([weights.q, weights.k, weights.v], axis=1)
    bias = np.concatenate([weights.q_bias, weights.k_bias, weights.v_bias])
    fused = Weights.from_fused(qkv, weights.o, attention.spec, qkv_bias=bias, o_bias=weights.o_bias)
    assert all(np.shares_memory(getattr(fused, n), qkv) for n in "qkv")
    same_weights(fused, weights)
    x = f32(3, 16)
    np.testing.assert_allclose(
        attention(x, torch_like), attention(x, weights), rtol=1e-5, atol=1e-5
    )


def test_bound_weights_are_copies(attention) -> None:
    weights = Weights.random(attention.spec, RNG, biases=True)
    x = f32(3, 16)
    bound = attention.bind(weights)
    before = bound(x)
    weights.q[:] = 0
    weights.o_bias[:] = 0
    np.testing.assert_array_equal(bound(x), before)
    assert not np.array_equal(attention(x, weights), before)


def test_pickling_a_bound_layer_ships_its_weights(attention) -> None:
    bound = attention.bind(Weights.random(attention.spec, RNG))
    x = f32(3, 16)
    again = pickle.loads(pickle.dumps(bound))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(again(x), bound(x))


def test_packed_weights_of_another_schedule_are_refused(attention) -> None:
    bound = attention.bind(Weights.random(attention.spec, RNG))
    restore, ((function, (folder, options)), packed, layout) = bound.__reduce__()
    with pytest.raises(CallValueError, match="another machine's schedule"):
        restore((function, (folder, {**options, "lanes": 16})), packed, layout)


def random_weights(**changes: Any) -> Weights:
    return Weights(**({n: f32(*s) for n, s in SHAPES.items()} | changes))


MISTAKES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no weights": ({"weights": None}, CallTypeError, "missing argument 'weights': pass attngen.W"),
    "weights kind": ({"weights": [1]}, CallTypeError, "expected attngen.Weights, got list"),
    "torch layout": (
        {"weights": random_weights(q=f32(32, 16))},
        CallValueError,
        "weights.q: expected shape (16, 32), got (32, 16): matrices are (in, out); pass weights.q",
    ),
    "weight shape": (
        {"weights": random_weights(v=f32(16, 16))},
        CallValueError,
        "weights.v: expected shape (16, 12), got (16, 16)",
    ),
    "square needs no hint": (
        {"weights": random_weights(k=f32(17, 17))},
        CallValueError,
        "weights.k: expected shape (16, 16), got (17, 17)",
    ),
    "weight dtype": (
        {"weights": random_weights(o=np.zeros((24, 16)))},
        CallTypeError,
        "weights.o: expected dtype float32, got float64",
    ),
    "weight kind": (
        {"weights": random_weights(o=None)},
        CallTypeError,
        "weights.o: expected a NumPy",
    ),
    "bias shape": (
        {"weights": random_weights(q_bias=f32(16))},
        CallValueError,
        "weights.q_bias: expected shape (32,), got (16,)",
    ),
    "x width": (
        {"x": f32(3, 15)},
        CallValueError,
        "x: expected (length, 16) or (batch, length, 16), got shape (3, 15)",
    ),
    "x rank": ({"x": f32(16)}, CallValueError, "x: expected (length, 16)"),
    "x dtype": ({"x": np.zeros((3, 16))}, CallTypeError, "x: expected dtype float32, got float64"),
    "x kind": ({"x": [[0.0] * 16]}, CallTypeError, "x: expected a NumPy array, got a list"),
    "context rank": (
        {"context": f32(1, 5, 16)},
        CallValueError,
        "context: expected 2 dimensions, as x has (no batch, shape (3, 16)), got 3",
    ),
    "context batch": (
        {"x": f32(2, 3, 16), "context": f32(3, 5, 16)},
        CallValueError,
        "context: expected batch 2, as x has, got 3",
    ),
    "context width": ({"context": f32(5, 8)}, CallValueError, "context: expected (length, 16)"),
    "out": ({"out": f32(4, 16)}, CallValueError, "out: expected shape (3, 16), got (4, 16)"),
    "misspelt": ({"contxt": f32(5, 16)}, CallTypeError, "did you mean 'context'?"),
    "sink": ({"sink": f32(4)}, CallTypeError, "say 'sink: true' in the spec"),
}


@pytest.mark.parametrize(("change", "error", "text"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes(attention, change: dict[str, Any], error: type[Exception], text: str) -> None:
    arguments = {"x": f32(3, 16), "weights": random_weights()} | change
    with pytest.raises(error, match=re.escape(text)):
        attention(**arguments)


def test_more_mistakes(attention, build) -> None:
    x, weights = f32(3, 16), random_weights()
    with pytest.raises(CallValueError, match=r"out: .* x lies in"):
        attention(x, weights, out=x)
    with pytest.raises(CallTypeError, match="weights are bound"):
        attention.bind(weights)(x, weights)
    with pytest.raises(CallTypeError, match="got dict"):
        attention.bind({})
    with pytest.raises(CallValueError, match=r"q: expected a matrix \(out, in\)"):
        Weights.from_torch_layout(q=f32(3), k=f32(3, 3), v=f32(3, 3), o=f32(3, 3))
    with pytest.raises(
        CallValueError, match=r"qkv: expected shape \(16, 60\), got \(60, 16\).*qkv.T"
    ):
        Weights.from_fused(f32(60, 16), weights.o, attention.spec)
    with pytest.raises(CallTypeError, match="core"):
        Weights.random(build().spec, RNG)
