"""Attention as a spec and a call: what attributes become, what is refused, random nodes."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interop.conformance import emulator
from onnx import TensorProto, helper
from onnx.reference.ops.op_attention import _compute_attention

import attngen
from attngen.errors import CallTypeError, CallValueError, SpecError
from attngen.interop.onnx import (
    AttentionAttributes,
    AttentionOperator,
    TensorType,
    attention_spec,
    from_model,
    from_node,
    run_attention,
)

Q, K, V = (TensorType("float32", shape) for shape in ((2, 6, 4, 8), (2, 3, 5, 8), (2, 3, 5, 10)))
SIZES = {"name": "onnx_attention", "heads": 6, "head_dim": 8, "kv_heads": 3, "value_dim": 10}
INDEX = "(q - kv_len + q_len)"


@pytest.mark.parametrize(
    ("attributes", "spec"),
    [
        ({}, {}),
        ({"scale": 0.0, "softcap": 0.0, "left_window_size": -1}, {}),
        ({"scale": 0.5, "softcap": 30.0}, {"scale": 0.5, "softcap": 30.0}),
        ({"is_causal": 1}, {"causal": "top_left"}),
        (
            {"is_causal": 1, "left_window_size": 3},
            {"causal": "top_left", "window": {"left": 3}},
        ),
        ({"left_window_size": 3}, {"mask": f"{INDEX} - k <= 3"}),
        (
            {"left_window_size": 0, "right_window_size": 2},
            {"mask": f"{INDEX} - k <= 0 and k - {INDEX} <= 2"},
        ),
        ({"softmax_precision": 1}, {}),
        ({"softmax_precision": 10}, {}),
        ({"softmax_precision": 11}, {"dtype": "float64"}),
    ],
)
def test_attributes_become_keys(attributes: dict[str, Any], spec: dict[str, Any]) -> None:
    found = attention_spec(attributes, Q, K, V)
    assert found == SIZES | spec
    attngen.interpret(found)  # it is a spec


@pytest.mark.parametrize(
    ("queries", "keys", "spec"),
    [
        (4, 4, {"causal": "bottom_right", "window": {"left": 2}}),
        ("length", "length", {"causal": "bottom_right", "window": {"left": 2}}),
        (4, 2, {"mask": "k <= (q + 2) and (q + 2) - k <= 2"}),
        (1, 3, {"mask": "k <= (q - 2) and (q - 2) - k <= 2"}),
    ],
)
def test_behind_a_past_positions_count_from_its_end(queries, keys, spec) -> None:
    q = TensorType("float32", (2, 6, queries, 8))
    k, v = (TensorType("float32", (2, 3, keys, width)) for width in (8, 10))
    attributes = {"is_causal": 1, "left_window_size": 2}
    assert attention_spec(attributes, q, k, v, k) == SIZES | spec
    assert attention_spec({}, q, k, v, k) == SIZES, "positions do not matter"
    unknown, known = TensorType("float32", (2, 6, None, 8)), TensorType("float32", (2, 3, 4, 8))
    with pytest.raises(SpecError, match=r"the lengths of Q \(None\) and K \(4\) must be known"):
        attention_spec(attributes, unknown, known, v, k)


def test_valid_lengths_count_positions_from_their_end() -> None:
    attributes = {"is_causal": 1, "right_window_size": 0}
    found = attention_spec(attributes, Q, K, V, nonpad_kv_seqlen=True)
    assert found == SIZES | {"causal": "bottom_right", "window": {"right": 0}}


def test_inputs_of_three_axes_have_their_heads_in_attributes() -> None:
    flat = [TensorType("float64", (2, "s", width)) for width in (48, 24, 30)]
    heads = {"q_num_heads": 6, "kv_num_heads": 3}
    assert attention_spec(heads, *flat) == SIZES | {"dtype": "float64"}
    for change, message in (
        ({"q_num_heads": None}, "'q_num_heads' must be given for inputs of three axes"),
        ({"kv_num_heads": 5}, "the width of K, 24, is not divided by 5 heads"),
        ({"kv_num_heads": 4}, "the width of V, 30, is not divided by 4 heads"),
        ({"q_num_heads": 3}, "the head size of K, 8, is not that of Q, 16"),
    ):
        given_heads = {n: x for n, x in (heads | change).items() if x is not None}
        with pytest.raises(SpecError, match=re.escape(message)):
            attention_spec(given_heads, *flat)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"causal": 1}, "Attention has no attribute 'causal'"),
        ({"is_causal": 2}, "'is_causal' must be one of (0, 1), not 2"),
        ({"qk_matmul_output_mode": 4}, "'qk_matmul_output_mode' must be one of (0, 1, 2, 3)"),
        ({"scale": -1.0}, "'scale' must be a number from 0, not -1.0"),
        ({"scale": float("nan")}, "'scale' must be a number from 0, not nan"),
        ({"softcap": -2.0}, "'softcap' must be a number from 0, not -2.0"),
        ({"left_window_size": -2}, "'left_window_size' must be -1 (open) or a count"),
        ({"softmax_precision": 7}, "'softmax_precision' must be a float type of ONNX, not 7"),
        ({"q_num_heads": 0}, "'q_num_heads' must be positive, not 0"),
        ({"q_num_heads": 5}, "'q_num_heads' is 5, and the input has 6 heads"),
    ],
)
def test_attributes_without_meaning_are_named(attributes, message) -> None:
    with pytest.raises(SpecError, match=re.escape(message)) as raised:
        attention_spec(attributes, Q, K, V)
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, diagnostic.key) == ("E-ONNX", next(iter(attributes)))


def arrays(**shapes: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape, dtype="f4") for name, shape in shapes.items()}


RIGHT = arrays(q=Q.shape, k=K.shape, v=V.shape)  # type: ignore[arg-type]
PAST = arrays(past_key=(2, 3, 7, 8), past_value=(2, 3, 7, 10))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": [1.0]}, CallTypeError, "Q: expected a NumPy array, got list"),
        ({"k": RIGHT["k"].astype("i4")}, CallTypeError, "K: expected one of float32, float16"),
        ({"v": RIGHT["v"].astype("f8")}, CallTypeError, "V: expected float32, as Q has, got"),
        ({"v": RIGHT["v"][:, :, :4]}, CallValueError, "V: expected batch 2, 3 heads and 5 keys"),
        ({"k": RIGHT["k"][:1]}, CallValueError, "K: expected batch 2, 3 heads and 5 keys"),
        ({"past_key": PAST["past_key"]}, CallTypeError, "past_value: expected an array, as the"),
        (
            PAST | {"past_value": PAST["past_value"][:, :, 1:]},
            CallValueError,
            "past_value: expected shape (2, 3, 7, 10), got (2, 3, 6, 10)",
        ),
        (
            PAST | {"nonpad_kv_seqlen": np.array([1, 2])},
            CallTypeError,
            "nonpad_kv_seqlen: expected none beside past_key",
        ),
        (
            {"nonpad_kv_seqlen": np.array([6, 2])},
            CallValueError,
            "nonpad_kv_seqlen: expected (2,) integers from 0 to 5, got [6 2]",
        ),
        ({"nonpad_kv_seqlen": np.ones(2)}, CallTypeError, "nonpad_kv_seqlen: expected an array of"),
        (
            {"attn_mask": np.ones((4, 6), bool)},
            CallValueError,
            "attn_mask: expected a shape that broadcasts to (batch, heads, q_len, keys) = "
            "(2, 6, 4, 5), with as many keys or fewer, got (4, 6)",
        ),
        ({"attn_mask": np.ones((3, 4, 5), bool)}, CallValueError, "attn_mask: expected a shape"),
        ({"attn_mask": np.float32(1)}, CallTypeError, "attn_mask: expected a NumPy array"),
        ({"attn_mask": np.ones((4, 5))}, CallTypeError, "attn_mask: expected bool (True attends)"),
        ({"outputs": ["y"]}, CallTypeError, "outputs: expected names of Y, present_key"),
    ],
)
def test_inputs_that_do_not_fit_are_named(change, error, message) -> None:
    with pytest.raises(error, match=re.escape(message)):
        run_attention({}, **RIGHT | change, compiler=emulator("flash_forward"))


def test_outputs_come_when_they_are_asked_for() -> None:
    operator = AttentionOperator(AttentionAttributes(), compiler=emulator("flash_forward"))
    found = operator(**RIGHT)
    assert found[1:] == (None, None, None)
    assert found.Y.flags.c_contiguous
    more = operator(**RIGHT, **PAST, outputs=("Y", "present_key", "qk_matmul_output"))
    joined = np.concatenate((PAST["past_key"], RIGHT["k"]), axis=2)
    np.testing.assert_array_equal(more.present_key, joined)
    assert more.qk_matmul_output.shape == (2, 6, 4, 12)


def test_specs_of_the_attention_nodes_of_a_model() -> None:
    """As an exporter writes it: other operators around, symbols for batch and lengths."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"]),
        helper.make_node("Attention", ["q", "x", "x"], ["y"], name="one", q_num_heads=4,
                         kv_num_heads=2, is_causal=1),
        helper.make_node("Attention", ["y", "x", "x", "", "past", "past"], ["z", "key", "value"],
                         q_num_heads=4, kv_num_heads=2, is_causal=1, softcap=20.0),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 32]),
            helper.make_tensor_value_info("past", TensorProto.FLOAT, ["batch", 2, "past", 16]),
        ],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.zeros((32, 64), "f4"), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    sizes = {"name": "onnx_attention", "heads": 4, "head_dim": 16, "kv_heads": 2}
    assert {name: found.spec for name, found in from_model(model).items()} == {
        "one": sizes | {"causal": "top_left"},
        "z": sizes | {"causal": "bottom_right", "softcap": 20.0},
    }
    with pytest.raises(SpecError, match="MatMul is neither Attention nor"):
        from_node(nodes[0], {})
    with pytest.raises(SpecError, match="the type of K, 'x', is not known"):
        from_node(nodes[1], {"q": Q})


@st.composite
def node_calls(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attributes and inputs of an Attention node of opset 25."""
    size = st.integers(1, 6)
    kv_heads, group, batch = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(size)
    q_len, new, width, value = draw(size), draw(size), draw(size), draw(size)
    heads, rng = kv_heads * group, np.random.default_rng(draw(st.integers(0, 99)))
    flat = draw(st.booleans())
    attributes: dict[str, Any] = {"is_causal": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        attributes["left_window_size"] = draw(st.integers(-1, 4))
        attributes["right_window_size"] = draw(st.integers(-1, 4))
    if draw(st.booleans()):
        attributes["softcap"] = 1.5
    if draw(st.booleans()):
        attributes["scale"] = 0.7
    if flat:
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    attributes["qk_matmul_output_mode"] = draw(st.integers(0, 3))

    def normal(length: int, count: int, size: int) -> Any:
        shape = (batch, length, count * size) if flat else (batch, count, length, size)
        return rng.standard_normal(shape)

    inputs = {
        "q": normal(q_len, heads, width),
        "k": normal(new, kv_heads, width),
        "v": normal(new, kv_heads, value),
    }
    keys, cache = new, draw(st.sampled_from(["none", "past", "nonpad"]))
    if cache == "past":
        past = draw(st.integers(0, 6))
        keys += past
        inputs["past_key"] = rng.standard_normal((batch, kv_heads, past, width))
        inputs["past_value"] = rng.standard_normal((batch, kv_heads, past, value))
    if cache == "nonpad":
        inputs["nonpad_kv_seqlen"] = rng.integers(0, new + 1, batch)
    if draw(st.booleans()):
        last = draw(st.integers(1, keys))
        shape = [draw(st.sampled_from([1, full])) for full in (batch, heads, q_len)]
        shape = [*shape[draw(st.integers(0, 3)) :], last]
        mask = rng.standard_normal(shape)
        floats = np.where(mask > 1, -np.inf, mask)
        inputs["attn_mask"] = floats if draw(st.booleans()) else mask < 0.7
    return attributes, inputs


@settings(max_examples=120)
@given(node_calls(), st.sampled_from(["flash_forward", "split_kv"]))
def test_random_nodes_do_what_onnx_says(call, kernel: str) -> None:
    attributes, inputs = call
    wanted = ("Y", "present_key", "present_value", "qk_matmul_output")
    found = run_attention(attributes, **inputs, outputs=wanted, compiler=emulator(kernel))
    names = {"q": "Q", "k": "K", "v": "V"}
    given_inputs = {names.get(name, name): array for name, array in inputs.items()}
    if (mask := given_inputs.get("attn_mask")) is not None:
        # with is_causal ONNX's reference takes the mask's rows for the queries, even one or none
        rows = inputs["q"].shape[1 if inputs["q"].ndim == 3 else 2]
        shape = np.broadcast_shapes(mask.shape, (rows, mask.shape[-1]))
        given_inputs["attn_mask"] = np.broadcast_to(mask, shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = _compute_attention(**given_inputs, **attributes)
    mode = attributes["qk_matmul_output_mode"]
    raw_of_onnx = mode > 0 or "softcap" not in attributes  # its reference caps in mode 0 as well
    for name, got, want in zip(wanted, found, expected, strict=True):
        if name != "qk_matmul_output" or raw_of_onnx:
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9, err_msg=name)
