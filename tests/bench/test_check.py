"""A result is held against the reference: right ones pass, and small mistakes do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attngen.accuracy import score_slope
from attngen.check import Verdict, expect, pick_rows
from attngen.costs import Lengths
from attngen.inputs import CoreInputs, LayerInputs, random_inputs
from attngen.ir.attention import AttentionIR
from attngen.layer_reference import reference_layer
from attngen.passes import simplify
from attngen.reference import reference_attention
from attngen.spec.elaborate import elaborate
from attngen.spec.reader import read_spec

CORE: dict[str, Any] = {"heads": 4, "kv_heads": 2, "head_dim": 16, "causal": True}
SPECS: dict[str, dict[str, Any]] = {
    "core": CORE,
    "softcap and sink": {**CORE, "softcap": 5.0, "sink": True},
    "float64": {**CORE, "dtype": "float64"},
    "off by one": {**CORE, "activation": "softmax_off_by_one"},
    "differential": {**CORE, "differential": {"lambda": 0.8}},
    "differential layer": {
        "d_model": 64,
        "heads": 4,
        "causal": True,
        "differential": {"lambda": [0.5, 0.6, 0.7, 0.8]},
    },
    "sigmoid": {**CORE, "activation": "sigmoid", "bias": "alibi"},
    "relu": {**CORE, "activation": "relu"},
    "relu layer": {"d_model": 64, "heads": 4, "causal": True, "activation": "relu"},
    "layer": {"d_model": 64, "heads": 4, "causal": True},
}


def attention(name: str) -> AttentionIR:
    return elaborate(read_spec({"name": "checked", **SPECS[name]}))


def exact(ir: AttentionIR, inputs: CoreInputs | LayerInputs) -> Any:
    if isinstance(inputs, CoreInputs):
        return reference_attention(ir, inputs.q, inputs.k, inputs.v, inputs.sink)[0]
    return reference_layer(ir, inputs.x, inputs.weights, inputs.context, inputs.sink)[0]


def judge(ir: AttentionIR, inputs: CoreInputs | LayerInputs, result: Any) -> Verdict:
    return expect(ir, inputs).judge(result)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("lengths", [Lengths(70, 90, 2), Lengths(1, 8), Lengths(0, 3)])
def test_the_rounded_exact_result_is_good(name: str, lengths: Lengths) -> None:
    ir = attention(name)
    inputs = random_inputs(ir, lengths)
    assert judge(ir, inputs, exact(ir, inputs).astype(ir.dtype.numpy)).good


@pytest.mark.parametrize("name", SPECS)
def test_a_key_too_many_is_seen(name: str) -> None:
    ir = attention(name)
    shifted = elaborate(read_spec({"name": "checked", **SPECS[name], "causal": "top_left"}))
    inputs = random_inputs(ir, Lengths(30, 31))
    verdict = judge(ir, inputs, exact(shifted, inputs).astype(ir.dtype.numpy))
    assert not verdict.good
    assert verdict.error > 100 * verdict.bound


def test_a_relative_error_of_a_thousandth_is_seen() -> None:
    ir = attention("core")
    inputs = random_inputs(ir, Lengths(30, 30))
    assert not judge(ir, inputs, exact(ir, inputs) * 1.001).good


def test_nan_is_an_infinite_error() -> None:
    ir = attention("core")
    inputs = random_inputs(ir, Lengths(30, 30))
    result = exact(ir, inputs)
    result[0, -1, 0, 0] = np.nan
    assert judge(ir, inputs, result).error == float("inf")


@pytest.mark.parametrize("q_len", [0, 1, 63, 64, 65, 5000])
def test_rows_are_distinct_and_hold_both_ends(q_len: int) -> None:
    rows = pick_rows(q_len, 64)
    assert rows.size == min(q_len, 64) == np.unique(rows).size
    if q_len:
        assert {0, q_len - 1} <= set(rows.tolist())


@pytest.mark.parametrize("name", ["core", "softcap and sink"])
def test_the_slope_is_the_scale_before_and_after_the_passes(name: str) -> None:
    ir = attention(name)
    assert score_slope(ir) == pytest.approx(0.25)
    assert score_slope(simplify(ir)) == pytest.approx(0.25)


def test_side_inputs_are_examples_that_the_reference_and_the_kernels_are_given_alike() -> None:
    ir = elaborate(read_spec("document"))
    inputs = random_inputs(ir, Lengths(40, 40, 2))
    assert isinstance(inputs, CoreInputs)
    assert {name: array.shape for name, array in inputs.side.items()} == {"doc": (2, 40)}
    expected = expect(ir, inputs)
    exact_one = reference_attention(ir, inputs.q, inputs.k, inputs.v, inputs=inputs.side)[0]
    assert expected.judge(exact_one.astype(ir.dtype.numpy)).good
    other = {"doc": np.zeros_like(inputs.side["doc"])}
    wrong = reference_attention(ir, inputs.q, inputs.k, inputs.v, inputs=other)[0]
    assert not expected.judge(wrong.astype(ir.dtype.numpy)).good


def test_halves_are_judged_by_the_element_nearest_to_its_own_bound() -> None:
    ir = elaborate(read_spec({"name": "checked", **CORE, "dtype": "bfloat16"}))
    inputs = random_inputs(ir, Lengths(30, 30))
    assert isinstance(inputs, CoreInputs)
    rounded = exact(ir, inputs).astype(ir.dtype.numpy)
    verdict = judge(ir, inputs, rounded)
    assert verdict.good
    assert 0.5 < verdict.error / verdict.bound < 1
    largest = np.abs(rounded.astype(np.float64)).argmax()
    rounded.view(np.uint16).flat[largest] += 2  # two places off
    assert not judge(ir, inputs, rounded).good
