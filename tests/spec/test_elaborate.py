"""A Spec's meaning as AttentionIR: defaults, score and mask."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attngen.dtypes import FLOAT64
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import DOT, TRUE, Binary, Const, Expr, K, Q, Unary, children
from attngen.ir.printer import expression_text
from attngen.spec.buckets import T5Buckets
from attngen.spec.elaborate import elaborate
from attngen.spec.reader import read_spec
from attngen.weights import projection_shapes

CAUSAL = Binary("le", K, Q)
LEFT_3 = Binary("le", Binary("sub", Q, K), Const(3))
RIGHT_0 = Binary("le", Binary("sub", K, Q), Const(0))


def ir_of(**keys: Any) -> Any:
    return elaborate(read_spec({"heads": 8, "head_dim": 64, **keys}))


def origins(expr: Expr) -> set[str]:
    return {expr.origin}.union(*map(origins, children(expr)))


def test_defaults() -> None:
    ir = ir_of()
    assert (ir.kv_heads, ir.value_dim, ir.d_model, ir.scope) == (8, 64, None, "core")
    assert (ir.query_scale, ir.base, ir.alignment, ir.sink) == (1.0, "e", "bottom_right", False)
    assert (ir.outputs, ir.mask, ir.name) == (("out",), TRUE, "attention")
    assert ir.score == Binary("mul", DOT, Const(0.125))


def test_what_is_given() -> None:
    ir = ir_of(
        d_model=100, kv_heads=2, value_dim=3, dtype="float64", sink=True, name="n",
        description="d", outputs=["out", "lse"],
    )  # fmt: skip
    assert (ir.kv_heads, ir.value_dim, ir.d_model, ir.scope) == (2, 3, 100, "layer")
    assert (ir.dtype, ir.sink, ir.name, ir.description) == (FLOAT64, True, "n", "d")
    assert ir.outputs == ("out", "lse")


def test_outputs_have_one_order_whatever_is_written() -> None:
    assert ir_of(outputs=["probabilities", "lse", "out"]).outputs == ("out", "lse", "probabilities")


@pytest.mark.parametrize("head_dim", [1, 3, 80, 192])
def test_the_default_scale_is_that_of_the_query_heads(head_dim: int) -> None:
    ir = ir_of(head_dim=head_dim, value_dim=7)
    assert ir.score == Binary("mul", DOT, Const(1 / math.sqrt(head_dim)))


@pytest.mark.parametrize("scale", [0, 0.0, -1.0e4, 0.25])
def test_a_given_scale_is_kept_also_where_it_is_zero(scale: float) -> None:
    assert ir_of(scale=scale).score == Binary("mul", DOT, Const(float(scale)))


def test_softcap_comes_after_the_scale() -> None:
    score = ir_of(scale=0.5, softcap=30).score
    scaled = Binary("mul", DOT, Const(0.5))
    cap = Const(30.0)
    assert score == Binary("mul", cap, Unary("tanh", Binary("div", scaled, cap)))
    assert origins(score) == {"", "scale", "softcap"}


@pytest.mark.parametrize(
    ("keys", "mask", "alignment"),
    [
        ({"causal": False}, TRUE, "bottom_right"),
        ({"causal": True}, CAUSAL, "bottom_right"),
        ({"causal": "bottom_right"}, CAUSAL, "bottom_right"),
        ({"causal": "top_left"}, CAUSAL, "top_left"),
        ({"window": {"left": 3}}, LEFT_3, "bottom_right"),
        ({"window": {"right": 0}}, RIGHT_0, "bottom_right"),
        ({"window": {"left": -1, "right": -1}}, TRUE, "bottom_right"),
        ({"window": {"left": 3, "right": 0}}, Binary("and", LEFT_3, RIGHT_0), "bottom_right"),
        ({"causal": "top_left", "window": {"left": 3}}, Binary("and", CAUSAL, LEFT_3), "top_left"),
    ],
    ids=str,
)
def test_masks(keys: dict[str, Any], mask: Expr, alignment: str) -> None:
    ir = ir_of(**keys)
    assert ir.mask == mask
    assert ir.alignment == alignment


def test_masks_say_where_they_come_from() -> None:
    mask = ir_of(causal=True, window={"left": 3, "right": 2}).mask
    assert origins(mask) == {"", "causal", "window.left", "window.right"}


DOC = {"doc": {"shape": ["batch", "kv_len"], "dtype": "int"}}


@pytest.mark.parametrize(
    ("keys", "mask"),
    [
        ({"prefix": 7}, "k <= q or k < 7"),
        ({"prefix": 0}, "k <= q"),
        (
            {"prefix": 7, "causal": "top_left", "window": {"left": 9}},
            "(k <= q or k < 7) and q - k <= 9",
        ),
        ({"chunk": 64}, "q // 64 == k // 64"),
        ({"causal": True, "chunk": 64}, "k <= q and q // 64 == k // 64"),
        ({"dilation": 3}, "(q - k) % 3 == 0"),
        ({"dilation": 1}, "True"),
        ({"global_tokens": 4}, "True"),
        ({"window": {"left": 5}, "global_tokens": 4}, "q - k <= 5 or k < 4 or q < 4"),
        (
            {"causal": True, "window": {"left": 5}, "dilation": 2, "global_tokens": 4},
            "k <= q and (q - k <= 5 and (q - k) % 2 == 0 or k < 4 or q < 4)",
        ),
        ({"causal": True, "mask": "k != 3"}, "k <= q and k != 3"),
        ({"mask": "doc[b, q] == doc[b, k]", "inputs": DOC}, "doc[b, q] == doc[b, k]"),
        ({"mask": "k < size or k < size // 2", "parameters": {"size": 9}}, "k < 9 or k < 9 // 2"),
    ],
    ids=str,
)
def test_sugar_is_a_mask_like_any_other(keys: dict[str, Any], mask: str) -> None:
    assert expression_text(ir_of(**keys).mask) == mask


def test_score_softcap_and_bias_come_in_this_order() -> None:
    ir = ir_of(scale=0.5, score="score + k", softcap=30, bias="alibi")
    capped = "30.0 * tanh((dot * 0.5 + k) / 30.0)"
    assert expression_text(ir.score) == f"{capped} + alibi_slopes[h] * (k - q)"
    [table] = ir.inputs
    assert (table.name, table.shape, table.dtype) == ("alibi_slopes", ("heads",), "float")
    assert table.values == tuple(2.0**-i for i in range(1, 9))
    assert {"scale", "score", "softcap", "bias"} <= origins(ir.score)


def test_side_inputs_keep_their_order_and_types() -> None:
    inputs = {
        "visible": {"shape": ["kv_len"], "dtype": "bool"},
        **DOC,
        "slope": {"shape": ["heads", 2]},
    }
    mask, score = "visible[k] and doc[b, k] == 1", "score * slope[h, k % 2]"
    ir = ir_of(inputs=inputs, mask=mask, score=score)
    assert [(i.name, i.shape, i.dtype, i.values) for i in ir.inputs] == [
        ("visible", ("kv_len",), "bool", None),
        ("doc", ("batch", "kv_len"), "int64", None),
        ("slope", ("heads", 2), "float", None),
    ]


def test_a_scale_for_each_head_is_a_table_or_an_argument() -> None:
    listed, learned = ir_of(scale=[*range(1, 9)]), ir_of(scale="per_head", softcap=3)
    assert expression_text(listed.score) == "dot * head_scale[h]"
    assert expression_text(learned.score) == "3.0 * tanh(dot * head_scale[h] / 3.0)"
    assert [i.values for i in (*listed.inputs, *learned.inputs)] == [tuple(range(1, 9)), None]
    assert {i.shape for i in (*listed.inputs, *learned.inputs)} == {("heads",)}


T5_CASES = json.loads((Path(__file__).parent / "t5_buckets.json").read_text())


@pytest.mark.parametrize("case", T5_CASES, ids=lambda c: str([*c.values()][:3]))
def test_t5_has_the_buckets_of_its_published_code(case: dict[str, Any]) -> None:
    """The bucket of k - q, as torch and transformers give it beyond `max_distance` on each side."""
    *options, wanted = case.values()
    buckets = T5Buckets(*options)
    spec = {"bias": "t5", "causal": not buckets.bidirectional}
    ir = ir_of(**spec, t5={"buckets": buckets.buckets, "max_distance": buckets.max_distance})
    table, bias = ir.inputs
    assert (bias.name, bias.shape, bias.values) == (
        "relative_bias",
        ("heads", case["buckets"]),
        None,
    )
    assert (table.values, table.dtype) == (buckets.table(), "int64")
    far = buckets.max_distance + 3
    env = {"dot": 0.0, "h": 0, "q": np.int64(0), "k": np.arange(-far, far + 1)}
    env |= {"t5_buckets": np.array(table.values), "relative_bias": np.arange(1000.0)[None]}
    np.testing.assert_array_equal(evaluate(ir.score, env), wanted)


def test_t5_looks_both_ways_in_an_encoder() -> None:
    for causal in (False, True, "top_left"):
        spec = read_spec({"heads": 2, "head_dim": 8, "causal": causal, "bias": "t5"})
        assert spec.t5 == T5Buckets(32, 128, bidirectional=not causal)


def test_differential_attention() -> None:
    number = ir_of(differential={"lambda": 0.8})
    assert number.difference == Const(0.8)
    assert (number.query_heads, number.key_heads, number.heads, number.kv_heads) == (16, 16, 8, 8)
    assert (number.head_dim, number.value_dim) == (64, 128)
    learned = ir_of(differential={"lambda": "per_head"}, kv_heads=2)
    assert learned.difference is not None
    assert expression_text(learned.difference) == "head_lambda[h]"
    assert [(i.name, i.shape, i.values) for i in learned.inputs] == [
        ("head_lambda", ("heads",), None)
    ]
    assert (learned.query_heads, learned.key_heads, learned.group) == (16, 4, 4)


def test_a_differential_layer_is_as_wide_as_another() -> None:
    spec = read_spec({"d_model": 3072, "heads": 12, "differential": {"lambda": 0.8}})
    assert (spec.head_dim, spec.value_dim) == (128, 256)
    assert projection_shapes(spec) == dict.fromkeys("qkvo", (3072, 3072))
    assert projection_shapes(elaborate(spec)) == projection_shapes(spec)
