"""Whole layers on compiled kernels against the float64 reference: weights, layouts, shapes."""

from __future__ import annotations

import dataclasses
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiling import compile_once, dense, place

import attngen
from attngen.attention import LayerAttention
from attngen.check import expect
from attngen.inputs import LayerInputs
from attngen.layer_reference import reference_layer

pytestmark = [pytest.mark.numba, pytest.mark.slow]

# Sizes that are not multiples of anything; heads · head_dim is not d_model.
SPEC: dict[str, Any] = {
    "name": "odd_layer",
    "scope": "layer",
    "d_model": 53,
    "heads": 6,
    "kv_heads": 2,
    "head_dim": 12,
    "value_dim": 7,
    "causal": True,
    "outputs": ["out", "lse"],
}
SPECS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "generated": (SPEC, {}),
    "blas": ({**SPEC, "name": "odd_layer_blas"}, {"projection": "blas"}),
    "double_with_sink": (
        {**SPEC, "name": "odd_layer_double", "dtype": "float64", "sink": True, "softcap": 3.0},
        {},
    ),
    "bfloat16": ({**SPEC, "name": "odd_layer_bfloat16", "dtype": "bfloat16"}, {}),
    "float16_blas": (
        {**SPEC, "name": "odd_layer_float16", "dtype": "float16"},
        {"projection": "blas"},
    ),
    "differential": (
        {**SPEC, "name": "odd_differential", "differential": {"lambda": 0.7}},
        {},
    ),
}


@pytest.fixture(scope="module", params=SPECS)
def layer(request: pytest.FixtureRequest, kernel_cache: Path) -> LayerAttention:
    attention = compile_once(kernel_cache, *SPECS[request.param])
    assert isinstance(attention, LayerAttention)
    return attention


@pytest.fixture(scope="module")
def generated(kernel_cache: Path) -> LayerAttention:
    attention = compile_once(kernel_cache, *SPECS["generated"])
    assert isinstance(attention, LayerAttention)
    return attention


def inputs(
    layer: LayerAttention, batch: int, q_len: int, kv_len: int | None = None, seed: int = 0
) -> LayerInputs:
    """Random inputs; a context if `kv_len` is given; with biases for odd seeds."""
    rng, ir = np.random.default_rng(seed), layer._compiled.ir
    dtype = ir.dtype.numpy

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    context = None if kv_len is None else normal(batch, kv_len, 53)
    weights = attngen.Weights.random(layer.spec, rng, biases=bool(seed % 2))
    return LayerInputs(normal(batch, q_len, 53), weights, context, normal(6) if ir.sink else None)


def keywords(given: LayerInputs) -> dict[str, Any]:
    named = {"context": given.context, "sink": given.sink}
    return {name: value for name, value in named.items() if value is not None}


def check(layer: LayerAttention, given: LayerInputs, out: Any, lse: Any, what: str = "") -> None:
    ir = layer._compiled.ir
    assert out.shape == given.x.shape
    assert out.dtype == given.x.dtype
    verdict = expect(ir, given, rows=10_000).judge(out)
    assert verdict.good, f"{what}: {verdict}"
    _, want = reference_layer(ir, given.x, given.weights, given.context, given.sink)
    np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(want))
    seen = np.isfinite(want)
    np.testing.assert_allclose(lse[seen], want[seen], rtol=0, atol=2e-5, err_msg=what)


SHAPES = [
    (1, 1, None), (2, 1, 90), (1, 65, None), (3, 17, None), (2, 33, 71), (1, 20, 5), (1, 4, 1),
    (2, 130, None), (1, 40, 200),
]  # fmt: skip


@pytest.mark.parametrize("bound", [False, True], ids=["unbound", "bound"])
def test_shapes(layer: LayerAttention, bound: bool) -> None:
    for seed, (batch, q_len, kv_len) in enumerate(SHAPES):
        given = inputs(layer, batch, q_len, kv_len, seed)
        if bound:
            result = layer.bind(given.weights)(given.x, **keywords(given))
        else:
            result = layer(given.x, given.weights, **keywords(given))
        check(layer, given, *result, what=f"{batch}, {q_len}, {kv_len}")


def test_one_sequence_is_a_batch_of_one(layer: LayerAttention) -> None:
    given = inputs(layer, 1, 30, 44, 3)
    out, lse = layer(given.x, given.weights, **keywords(given))
    single = dataclasses.replace(given, x=given.x[0], context=given.context[0])
    out1, lse1 = layer(single.x, given.weights, **keywords(single))
    np.testing.assert_array_equal(out1, out[0])
    np.testing.assert_array_equal(lse1, lse[0])


def test_empty_sequences_give_the_output_bias(layer: LayerAttention) -> None:
    for batch, q_len, kv_len in ((1, 5, 0), (0, 5, 5), (2, 0, 4), (0, 0, 0)):
        given = inputs(layer, batch, q_len, kv_len, 1)
        out, lse = layer(given.x, given.weights, **keywords(given))
        np.testing.assert_array_equal(
            out, np.broadcast_to(given.weights.o_bias, (batch, q_len, 53))
        )
        assert lse.shape == (batch, layer.spec.query_heads, q_len)
        assert np.isneginf(lse).all()


def test_every_way_to_give_weights_is_the_same_to_the_bit(layer: LayerAttention) -> None:
    given = inputs(layer, 2, 37, None, 1)
    weights = given.weights
    named = {f.name: getattr(weights, f.name) for f in fields(weights)}
    matrices = {name: array for name, array in named.items() if array.ndim == 2}
    biases = {name: array for name, array in named.items() if array.ndim == 1}
    want, want_lse = layer(given.x, weights, **keywords(given))
    fused = np.concatenate([weights.q, weights.k, weights.v], axis=1)
    fused_bias = np.concatenate([weights.q_bias, weights.k_bias, weights.v_bias])
    reverse = {n: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1] for n, a in matrices.items()}
    ways = {
        "fortran": attngen.Weights(**{n: np.asfortranarray(a) for n, a in named.items()}),
        "reversed": attngen.Weights(**reverse, **biases),
        "torch": attngen.Weights.from_torch_layout(
            **{n: np.ascontiguousarray(a.T) for n, a in matrices.items()}, **biases
        ),
        "fused": attngen.Weights.from_fused(
            fused, weights.o, layer.spec, qkv_bias=fused_bias, o_bias=weights.o_bias
        ),
        "fused torch": attngen.Weights.from_fused(
            np.ascontiguousarray(fused.T).T,
            weights.o,
            layer.spec,
            qkv_bias=fused_bias,
            o_bias=weights.o_bias,
        ),
    }
    for name, way in ways.items():
        for attend in (lambda x, w=way, **rest: layer(x, w, **rest), layer.bind(way)):
            out, lse = attend(given.x, **keywords(given))
            np.testing.assert_array_equal(out, want, err_msg=name)
            np.testing.assert_array_equal(lse, want_lse, err_msg=name)


def test_bound_weights_are_copies(layer: LayerAttention) -> None:
    given = inputs(layer, 1, 9, None, 1)
    bound = layer.bind(given.weights)
    want, _ = bound(given.x, **keywords(given))
    for f in fields(given.weights):
        getattr(given.weights, f.name)[...] = np.nan
    out, _ = bound(given.x, **keywords(given))
    np.testing.assert_array_equal(out, want)


X_STRIDES = {
    "contiguous": lambda shape: dense(shape, (0, 1, 2)),
    "fortran": lambda shape: dense(shape, (2, 1, 0)),
    "reversed": lambda shape: tuple(-s for s in dense(shape, (0, 1, 2))),
    "every-other": lambda shape: tuple(2 * s for s in dense(shape, (0, 1, 2))),
    "length-first": lambda shape: dense(shape, (1, 0, 2)),
    "batch-last": lambda shape: dense(shape, (1, 2, 0)),
}


@pytest.mark.parametrize("strides", X_STRIDES)
def test_strides_of_x_context_and_out(layer: LayerAttention, strides: str) -> None:
    given = inputs(layer, 2, 21, 34, 5)
    places = []
    for array in (given.x, given.context):
        placed = place(array.shape, X_STRIDES[strides](array.shape), array.dtype, np.nan)
        placed.view[...] = array
        places.append(placed)
    before = [p.buffer.copy() for p in places]
    out = place(given.x.shape, X_STRIDES[strides](given.x.shape), given.x.dtype, 12345.0)
    others = out.outside.copy()
    moved = dataclasses.replace(given, x=places[0].view, context=places[1].view)
    result, lse = layer(moved.x, given.weights, out=out.view, **keywords(moved))
    assert result is out.view
    check(layer, given, result, lse, strides)
    np.testing.assert_array_equal(out.outside, others)
    for p, buffer in zip(places, before, strict=True):
        np.testing.assert_array_equal(p.buffer, buffer)


def test_one_row_for_all_by_a_stride_of_zero(layer: LayerAttention) -> None:
    given = inputs(layer, 2, 21, None, 5)
    for axis in (0, 1):
        one = given.x[(slice(None),) * axis + (slice(0, 1),)]
        shared = dataclasses.replace(given, x=np.broadcast_to(one, given.x.shape))
        check(layer, shared, *layer(shared.x, given.weights, **keywords(given)), what=f"{axis}")


def test_threads_and_batches_change_no_bit(generated: LayerAttention) -> None:
    package = generated._package
    given = inputs(generated, 3, 150, None, 1)
    bound = generated.bind(given.weights)
    packed = bound._packed
    outs = []
    for workers in (1, 2, 5):
        out = np.full_like(given.x, np.nan)
        package.layer(given.x, given.x, packed, out, None, None, workers=workers)
        outs.append(out)
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])
    alone = np.stack([bound(x)[0] for x in given.x])
    np.testing.assert_array_equal(alone, outs[0])


def test_nan_in_a_later_row_reaches_no_earlier_one(generated: LayerAttention) -> None:
    given = inputs(generated, 1, 60, None, 1)
    want, want_lse = generated(given.x, given.weights)
    bad = given.x.copy()
    bad[:, 40] = np.nan
    out, lse = generated(bad, given.weights)
    np.testing.assert_array_equal(out[:, :40], want[:, :40])
    np.testing.assert_array_equal(lse[..., :40], want_lse[..., :40])
    assert np.isnan(out[:, 40:]).all()


@pytest.mark.parametrize("rows", [1, 5, 6, 100])
def test_the_projection_alone(generated: LayerAttention, rows: int) -> None:
    package, rng = generated._package, np.random.default_rng(rows)
    for depth, columns in ((1, 1), (53, 42), (300, 97), (1030, 5)):
        a, w = (rng.standard_normal(s, dtype="float32") for s in ((rows, depth), (depth, columns)))
        bias = rng.standard_normal(columns, dtype="float32")
        out = place((rows, columns), (columns + 3, 1), "float32", 12345.0)
        others = out.outside.copy()
        package.project(a, package.pack_weight(w), bias, out.view)
        want = a.astype("float64") @ w + bias
        np.testing.assert_allclose(out.view, want, rtol=0, atol=1e-6 * depth + 1e-6)
        np.testing.assert_array_equal(out.outside, others)


def test_a_namespace_is_not_weights(generated: LayerAttention) -> None:
    given = inputs(generated, 1, 3, None, 0)
    with pytest.raises(TypeError, match=r"weights: expected attngen\.Weights, got"):
        generated(given.x, SimpleNamespace(q=1))
