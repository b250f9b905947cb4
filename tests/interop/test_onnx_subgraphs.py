"""Modifier subgraphs as expressions: each operator against ONNX's own evaluation of the graph."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper

import attngen
from attngen.errors import SpecError
from attngen.interop.onnx import TensorType, flex_translation
from attngen.interop.onnx.operators import OPERATORS

BATCH, HEADS, Q_LEN, KV_LEN, WIDTH = 2, 4, 5, 6, 8
TYPE = "float[B,H,L,S]"
# Index tensors as exporters write them: q (L, 1) and k (S), h (H, 1, 1), and their kinds as floats.
INDICES = """
    shape = Shape (scores)
    zero = Constant <value_int: int = 0> ()
    one = Constant <value_int: int = 1> ()
    at_2 = Constant <value_int: int = 2> ()
    at_3 = Constant <value_ints: ints = [3]> ()
    rows = Gather <axis: int = 0> (shape, at_2)
    columns_1 = Gather <axis: int = 0> (shape, at_3)
    columns = Squeeze (columns_1)
    heads_1 = Shape <start: int = 1, end: int = 2> (scores)
    zero_1 = Constant <value_ints: ints = [0]> ()
    heads = Squeeze (heads_1, zero_1)
    q_range = Range (zero, rows, one)
    q = Unsqueeze (q_range, one)
    k = Range (zero, columns, one)
    h_range = Range (zero, heads, one)
    h_axes = Constant <value_ints: ints = [1, 2]> ()
    h = Unsqueeze (h_range, h_axes)
    qf = Cast <to: int = 1> (q)
    kf = Cast <to: int = 1> (k)
    hf = Cast <to: int = 1> (h)
"""
BODIES = {
    "arithmetic": """
        a = Mul (scores, half)
        b = Div (a, two)
        c = Sub (b, half)
        d = Neg (c)
        out = Abs (d)
    """,
    "functions": """
        a = Sigmoid (scores)
        b = Exp (a)
        c = Log (b)
        d = Sqrt (c)
        e = Reciprocal (d)
        f = Tanh (e)
        g = Relu (f)
        out = Floor (g)
    """,
    "alibi": """
        slope = Reciprocal (half)
        x = Sub (kf, qf)
        y = Mul (x, slope)
        z = Mul (y, hf)
        out = Add (scores, z)
    """,
    "clip": """
        low = Constant <value_float: float = -0.5> ()
        a = Clip (scores, low, half)
        b = Max (a, kf, half)
        out = Min (b, two)
    """,
    "powers": """
        three = Constant <value_float: float = 3.0> ()
        a = Pow (scores, two)
        b = Pow (scores, three)
        c = Pow (a, half)
        d = Add (b, c)
        out = Add (d, a)
    """,
    "integers": """
        three = Constant <value_int: int = 3> ()
        a = Sub (q, k)
        b = Div (a, three)
        c = Mod (a, three)
        d = Div (k, three)
        e = Add (b, c)
        f = Add (e, d)
        g = Cast <to: int = 1> (f)
        out = Add (scores, g)
    """,
    "causal": """
        mask = GreaterOrEqual (q, k)
        out = Where (mask, scores, minus_infinity)
    """,
    "added mask": """
        future = Less (q, k)
        nothing = Constant <value_float: float = 0.0> ()
        bias = Where (future, minus_infinity, nothing)
        out = Add (scores, bias)
    """,
    "mask before and after": """
        first = Equal (k, zero)
        near = Sub (q, k)
        distance = Abs (near)
        is_near = LessOrEqual (distance, one)
        seen = Or (first, is_near)
        a = Where (seen, scores, minus_infinity)
        doubled = Mul (scores, two)
        odd = Greater (h, one)
        out = Where (odd, a, doubled)
    """,
    "logic": """
        a = Greater (scores, half)
        b = Not (a)
        c = Greater (q, k)
        d = Xor (b, c)
        e = And (d, c)
        f = Cast <to: int = 1> (e)
        g = Cast <to: int = 9> (f)
        i = Where (g, c, a)
        j = Cast <to: int = 7> (i)
        l = Cast <to: int = 1> (j)
        out = Add (scores, l)
    """,
    "layouts": """
        q4_shape = Constant <value_ints: ints = [1, 1, -1, 1]> ()
        q4 = Reshape (qf, q4_shape)
        row = Transpose <perm: ints = [0, 1, 3, 2]> (q4)
        back = Transpose <perm: ints = [0, 1, 3, 2]> (row)
        two_1 = Constant <value_ints: ints = [2]> ()
        four_1 = Constant <value_ints: ints = [4]> ()
        first_two = Slice (shape, zero_1, two_1)
        last_two = Slice (shape, two_1, four_1)
        whole_shape = Concat <axis: int = 0> (first_two, last_two)
        wide = Expand (back, whole_shape)
        same = Identity (wide)
        mixed = Mul (same, kf)
        out = Add (scores, mixed)
    """,
    "tensors": """
        a = Add (scores, bias)
        b = Mul (a, per_head)
        c = Where (flags, b, minus_infinity)
        chosen = Gather <axis: int = 0> (table, k)
        out = Add (c, chosen)
    """,
}
RNG = np.random.default_rng(2)
CONSTANTS = {
    "half": np.float32(0.5),
    "two": np.array([2.0], "f4"),
    "minus_infinity": np.float32(-np.inf),
    "bias": RNG.standard_normal((1, 1, Q_LEN, KV_LEN)).astype("f4"),
    "per_head": RNG.random((HEADS, 1, 1)).astype("f4"),
    "flags": np.tri(Q_LEN, KV_LEN, 1, dtype=bool),
    "table": RNG.standard_normal(9).astype("f4"),
}


def graph(body: str, name: str = "modifier") -> onnx.GraphProto:
    text = f"{name} ({TYPE} scores) => ({TYPE} out) {{ {INDICES}{body} }}"
    parsed = onnx.parser.parse_graph(text)
    constants = (onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items())
    parsed.initializer.extend(constants)
    return parsed


def arrays():
    rng = np.random.default_rng(3)
    q = rng.standard_normal((BATCH, HEADS, Q_LEN, WIDTH))
    k, v = (rng.standard_normal((BATCH, 2, KV_LEN, WIDTH)) for _ in range(2))
    return tuple(a.astype("f4") for a in (q, k, v))


def types(q, k, v):
    return tuple(TensorType(a.dtype.name, a.shape) for a in (q, k, v))


def evaluated(attributes, q, k, v):
    """What ONNX's reference says."""
    node = helper.make_node("FlexAttention", list("QKV"), ["Y"], domain="ai.onnx.preview")
    for name, value in attributes.items():
        node.attribute.append(helper.make_attribute(name, value))
    model = helper.make_model(
        helper.make_graph(
            [node],
            "flex",
            [
                helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
                for n, a in zip("QKV", (q, k, v), strict=True)
            ],
            [helper.make_tensor_value_info("Y", TensorProto.FLOAT, q.shape)],
        ),
        opset_imports=[helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.preview", 1)],
        ir_version=13,
    )
    feeds = dict(zip("QKV", (q, k, v), strict=True))
    return onnx.reference.ReferenceEvaluator(model).run(None, feeds)[0]


def interpreted(attributes, q, k, v):
    """The same by the spec that the node is, in float64."""
    node = flex_translation(attributes, *types(q, k, v))
    inside = attngen.interpret(node.spec)
    inputs = {n: a.astype("f4" if a.dtype.kind == "f" else a.dtype) for n, a in node.inputs.items()}
    out = inside(*(a.swapaxes(1, 2) for a in (q, k, v)), **inputs)
    return node.factor * out.swapaxes(1, 2)


@pytest.mark.parametrize("name", BODIES)
def test_every_operator_means_what_onnx_says(name: str) -> None:
    attributes = {"score_mod": graph(BODIES[name])}
    want = evaluated(attributes, *arrays())
    np.testing.assert_allclose(interpreted(attributes, *arrays()), want, rtol=1e-4, atol=1e-5)
    plain = interpreted({}, *arrays())
    assert np.abs(plain - want).max() > 1e-3, "the modifier changes nothing"


def test_every_operator_is_in_a_graph() -> None:
    used = {node.op_type for body in BODIES.values() for node in graph(body).node}
    assert used == {*OPERATORS, "Constant"}


def test_masks_become_masks_and_constants_inputs() -> None:
    q_type, k_type, v_type = types(*arrays())

    def spec(name: str):
        node = flex_translation({"score_mod": graph(BODIES[name])}, q_type, k_type, v_type)
        return node.spec, node.inputs

    position = "q - kv_len + q_len"
    assert spec("causal")[0]["mask"] == f"{position} >= k"
    assert "score" not in spec("causal")[0]
    assert spec("added mask")[0]["mask"] == f"{position} >= k"
    assert spec("arithmetic")[0]["score"] == "abs(-(score * 0.5 / 2.0 - 0.5))"
    declared, inputs = spec("tensors")
    assert declared["mask"] == f"tensor_2[{position}, k]"
    assert declared["score"] == (f"(score + tensor_0[{position}, k]) * tensor_1[h] + tensor_3[k]")
    assert {n: (d["shape"], d["dtype"]) for n, d in declared["inputs"].items()} == {
        "tensor_0": ([Q_LEN, KV_LEN], "float"),
        "tensor_1": ([HEADS], "float"),
        "tensor_2": ([Q_LEN, KV_LEN], "bool"),
        "tensor_3": ([9], "float"),
    }
    assert inputs.keys() == declared["inputs"].keys()


@pytest.mark.parametrize(
    ("body", "factor"),
    [
        ("out = Mul (scores, half)", 0.5),
        ("a = Mul (half, scores) b = Neg (a) out = Div (b, two)", -0.25),
        ("out = Identity (scores)", 1.0),
    ],
)
def test_probabilities_take_a_factor(body: str, factor: float) -> None:
    attributes = {"prob_mod": graph(body)}
    node = flex_translation(attributes, *types(*arrays()))
    assert node.factor == factor
    want = evaluated(attributes, *arrays())
    np.testing.assert_allclose(interpreted(attributes, *arrays()), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("key", "body", "message"),
    [
        ("score_mod", "out = Erf (scores)", "score_mod has the operator Erf"),
        ("score_mod", "out = Add (scores, outside)", "score_mod reads 'outside', which is not in"),
        (
            "score_mod",
            "c = Greater (scores, half) out = Where (c, scores, minus_infinity)",
            "score_mod lets a pair attend or not by its score",
        ),
        ("score_mod", "out = Mul (scores, minus_infinity)", "score_mod makes scores of -inf"),
        (
            "score_mod",
            "s = Constant <value_ints: ints = [-1]> () a = Reshape (scores, s) out = Add (a, a)",
            "Reshape merges or splits axes",
        ),
        (
            "score_mod",
            "n = Constant <value_float: float = 1.5> () out = Pow (scores, n)",
            "Pow takes the exponents",
        ),
        ("score_mod", "a = Div (q, k) b = Cast <to: int = 1> (a) out = Add (scores, b)", "Div of"),
        ("score_mod", "out = Mod <fmod: int = 1> (scores, half)", "Mod with fmod=1"),
        ("prob_mod", "out = Add (scores, half)", "prob_mod must multiply all probabilities by"),
        ("prob_mod", "out = Mul (scores, kf)", "prob_mod must multiply all probabilities by"),
        ("prob_mod", "out = Mul (scores, scores)", "prob_mod must multiply all probabilities by"),
    ],
)
def test_what_has_no_counterpart_is_named(key: str, body: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)) as raised:
        flex_translation({key: graph(body)}, *types(*arrays()))
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "E-ONNX"


def test_attributes_of_flex_attention() -> None:
    q, k, v = types(*arrays())
    assert flex_translation({"scale": 0.0}, q, k, v).spec["scale"] == 0.0
    assert flex_translation({"softmax_precision": 11}, q, k, v).spec["dtype"] == "float64"
    for attributes, message in (
        ({"softcap": 2.0}, "FlexAttention has no attribute 'softcap'"),
        ({"scale": -1.0}, "'scale' must be a number from 0, not -1.0"),
    ):
        with pytest.raises(SpecError, match=re.escape(message)):
            flex_translation(attributes, q, k, v)
    with pytest.raises(SpecError, match="Q, K and V must have four axes"):
        flex_translation({}, TensorType("float32", (1, 2, 3)), k, v)
