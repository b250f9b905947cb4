"""The oracle against field cases, and against sums written out in plain Python."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cases.cases import FIELD_CASES, FieldCase
from hypothesis import given
from hypothesis import strategies as st
from middle.builders import CAUSAL, attention, softcapped, window

from attngen.errors import CallTypeError, CallValueError
from attngen.ir.attention import AttentionIR
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import DOT, SCORE, TRUE, Binary, Const, K, Q, Unary, Var
from attngen.layer_reference import reference_layer
from attngen.passes import simplify
from attngen.reference import reference_attention, reference_scores
from attngen.spec.elaborate import elaborate
from attngen.spec.reader import read_spec

Array = npt.NDArray[Any]
RNG = np.random.default_rng(7)


def arrays(ir: AttentionIR, q_len: int, kv_len: int, batch: int = 2) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(q_len * 100 + kv_len)
    return (
        rng.standard_normal((batch, q_len, ir.heads, ir.head_dim)),
        rng.standard_normal((batch, kv_len, ir.kv_heads, ir.head_dim)),
        rng.standard_normal((batch, kv_len, ir.kv_heads, ir.value_dim)),
    )


def spelt_out(
    ir: AttentionIR, q: Array, k: Array, v: Array, sink: Array | None
) -> tuple[Array, Array]:
    """One score at a time; base e only."""
    batch, q_len, heads, _ = q.shape
    kv_len = k.shape[1]
    out = np.zeros((batch, q_len, heads, v.shape[3]))
    lse = np.full((batch, heads, q_len), -math.inf)
    for b, i, h in np.ndindex(batch, q_len, heads):
        kv_h = h // (heads // k.shape[2])
        position = kv_len - q_len + i if ir.alignment == "bottom_right" else i
        total = 0.0
        for j in range(kv_len):
            env = {"q": position, "k": j, "q_len": q_len, "kv_len": kv_len, "h": h}
            if evaluate(ir.mask, env):
                dot = ir.query_scale * sum(
                    float(x) * float(y) for x, y in zip(q[b, i, h], k[b, j, kv_h], strict=True)
                )
                score = float(evaluate(ir.score, env | {"dot": dot}))
                weight = math.exp(score)
                if ir.activation is not None:
                    weight = float(evaluate(ir.activation, env | {"score": score}))
                total += weight
                out[b, i, h] += weight * v[b, j, kv_h]
        if ir.activation is not None:
            lse[b, h, i] = math.nan
        elif total:
            lse[b, h, i] = math.log(total)
            out[b, i, h] /= total + ir.off_by_one + (0.0 if sink is None else math.exp(sink[h]))
    return out, lse


# ---------------------------------------------------------------- against known results


@pytest.mark.parametrize("case", FIELD_CASES, ids=str)
def test_field_cases(case: FieldCase) -> None:
    given_arrays = case.load()
    ir = elaborate(read_spec(case.spec))
    q, k, v = given_arrays.q, given_arrays.k, given_arrays.v
    for form in (ir, simplify(ir)):
        out, lse = reference_attention(form, q, k, v)
        case.check(out, lse)
        # both sides are float64: far tighter than the tolerance that float32 kernels get
        np.testing.assert_allclose(out, given_arrays.expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(lse, given_arrays.lse, rtol=1e-10, atol=1e-12)


SCORES = st.sampled_from(
    [
        Binary("mul", DOT, Const(0.35)),
        Binary("mul", DOT, Const(0.0)),
        Binary("mul", DOT, Const(-1)),
        softcapped(0.5, 2.0),
        Binary("add", DOT, Binary("mul", Binary("sub", K, Q), Binary("div", Var("h"), Const(8)))),
    ]
)
ACTIVATIONS = {
    "sigmoid": Unary("sigmoid", Binary("sub", SCORE, Const(1.5))),
    "relu": Binary("div", Binary("max", Const(0.0), SCORE), Var("kv_len")),
}
MASKS = st.sampled_from([TRUE, CAUSAL, window(1), window(0, 1), window(2, causal=True)])


@given(
    score=SCORES,
    mask=MASKS,
    alignment=st.sampled_from(["bottom_right", "top_left"]),
    lengths=st.tuples(st.integers(0, 5), st.integers(0, 6)),
    batch=st.integers(0, 2),
    weights=st.sampled_from(["softmax", "sink", "off by one", "sigmoid", "relu"]),
    kv_heads=st.sampled_from([1, 2, 4]),
)
def test_it_is_what_the_formula_says(
    score: Any, mask: Any, alignment: Any, lengths: Any, batch: int, weights: str, kv_heads: int
) -> None:
    ir = attention(
        score=score,
        mask=mask,
        alignment=alignment,
        kv_heads=kv_heads,
        sink=(sink := weights == "sink"),
        off_by_one=weights == "off by one",
        activation=ACTIVATIONS.get(weights),
    )
    q, k, v = arrays(ir, *lengths, batch)
    logits = np.array([0.5, -3.0, 2.0, -np.inf]) if sink else None
    expected, expected_lse = spelt_out(ir, q, k, v, logits)
    for form in (ir, simplify(ir)):
        out, lse = reference_attention(form, q, k, v, logits)
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(lse, expected_lse, rtol=1e-12, atol=1e-13)


def test_a_sink_is_one_more_key_without_a_value_and_not_in_the_lse() -> None:
    ir = attention(score=DOT, sink=True, heads=1, kv_heads=1, head_dim=1)
    q = np.ones((1, 3, 1, 1))
    _, k, v = arrays(ir, 3, 5, 1)
    logit = 0.75
    out, lse = reference_attention(ir, q, k, v, np.array([logit]))
    longer_k = np.concatenate([k, np.full((1, 1, 1, 1), logit)], axis=1)
    longer_v = np.concatenate([v, np.zeros((1, 1, 1, ir.value_dim))], axis=1)
    plain = attention(score=DOT, heads=1, kv_heads=1, head_dim=1)
    np.testing.assert_allclose(out, reference_attention(plain, q, longer_k, longer_v)[0])
    np.testing.assert_allclose(lse, reference_attention(plain, q, k, v)[1])


def test_differential_attention_is_the_difference_of_two() -> None:
    keys = {"causal": True, "bias": "alibi", "kv_heads": 2, "value_dim": 6, "head_dim": 8}
    plain = elaborate(read_spec({**keys, "heads": 4}))
    factors = [0.8, -0.5, 0.0, 2.0]
    both = elaborate(read_spec({**keys, "heads": 4, "differential": {"lambda": factors}}))
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((2, n, h, d)) for n, h, d in ((5, 8, 8), (7, 4, 8), (7, 2, 6)))
    first, first_lse = reference_attention(plain, q[:, :, ::2], k[:, :, ::2], v)
    second, second_lse = reference_attention(plain, q[:, :, 1::2], k[:, :, 1::2], v)
    for form in (both, simplify(both)):
        out, lse = reference_attention(form, q, k, v)
        wanted = first - np.array(factors)[:, None] * second
        np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(lse[:, ::2], first_lse, rtol=1e-13)
        np.testing.assert_allclose(lse[:, 1::2], second_lse, rtol=1e-13)
    logits, probabilities = reference_scores(both, q, k, v)
    assert logits.shape == probabilities.shape == (2, 8, 5, 7)
    np.testing.assert_allclose(probabilities.sum(-1), 1)


def test_off_by_one_is_a_sink_of_logit_0() -> None:
    sinks, off = attention(sink=True), attention(off_by_one=True)
    q, k, v = arrays(off, 4, 5)
    expected = reference_attention(sinks, q, k, v, np.zeros(4))
    for found, wanted in zip(reference_attention(off, q, k, v), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_sigmoid_and_relu_as_their_papers_define_them() -> None:
    n, shape = 7, {"heads": 2, "head_dim": 4}
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((n, 2, 4)) for _ in range(3))
    scores = np.einsum("qhd,khd->hqk", q, k) / 2
    for keys, weights in (
        ({"activation": "sigmoid"}, 1 / (1 + np.exp(-(scores - math.log(n))))),
        ({"activation": "sigmoid", "activation_bias": 0.5}, 1 / (1 + np.exp(-(scores + 0.5)))),
        ({"activation": "relu"}, np.maximum(scores, 0) / n),
    ):
        ir = simplify(elaborate(read_spec({**shape, **keys})))
        out, lse = reference_attention(ir, q, k, v)
        np.testing.assert_allclose(out, np.einsum("hqk,khd->qhd", weights, v), atol=1e-14)
        assert np.isnan(lse).all()


@pytest.mark.parametrize("logit", [-1e4, 1e4])
def test_extreme_sinks_neither_overflow_nor_warn(logit: float) -> None:
    ir = attention(sink=True)
    q, k, v = arrays(ir, 2, 3)
    out, _ = reference_attention(ir, q, k, v, np.full(4, logit))
    plain, _ = reference_attention(attention(), q, k, v)
    np.testing.assert_allclose(out, plain if logit < 0 else 0 * plain)


# ---------------------------------------------------------------- rows without keys, NaN, inf


def test_rows_without_keys_are_zero() -> None:
    ir = attention(mask=CAUSAL)
    out, lse = reference_attention(ir, *arrays(ir, 5, 2))
    assert not out[:, :3].any()
    assert np.isneginf(lse[:, :, :3]).all()
    assert out[:, 3:].all()
    assert np.isfinite(lse[:, :, 3:]).all()


def test_no_keys_no_queries_no_batch() -> None:
    ir = attention()
    out, lse = reference_attention(ir, *arrays(ir, 3, 0))
    assert out.shape == (2, 3, 4, 6)
    assert not out.any()
    assert np.isneginf(lse).all()
    assert reference_attention(ir, *arrays(ir, 0, 3))[0].shape == (2, 0, 4, 6)
    assert reference_attention(ir, *arrays(ir, 3, 3, batch=0))[1].shape == (0, 4, 3)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_poison_reaches_only_rows_that_attend_to_it(poison: float) -> None:
    ir = attention(mask=window(1, causal=True), kv_heads=1)
    q, k, v = arrays(ir, 6, 6, 1)
    clean, clean_lse = reference_attention(ir, q, k, v)
    for target in (k, v):
        held = target[0, 2].copy()
        target[0, 2] = poison
        out, lse = reference_attention(ir, q, k, v)
        target[0, 2] = held
        np.testing.assert_array_equal(out[:, [0, 1, 4, 5]], clean[:, [0, 1, 4, 5]])
        np.testing.assert_array_equal(lse[..., [0, 1, 4, 5]], clean_lse[..., [0, 1, 4, 5]])
        if target is v or math.isnan(poison):
            assert not np.isfinite(out[:, 2:4]).any()
    q[0, 3] = np.nan
    out, _ = reference_attention(ir, q, k, v)
    assert np.isnan(out[:, 3]).all()
    assert np.isfinite(out[:, [0, 1, 2, 4, 5]]).all()


def test_scores_of_minus_infinity_attend_to_nothing() -> None:
    ir = attention(heads=1, kv_heads=1, head_dim=1)
    q, k, v = np.ones((1, 1, 1)), np.full((2, 1, 1), -np.inf), np.ones((2, 1, 6))
    out, lse = reference_attention(ir, q, k, v)
    assert not out.any()
    assert np.isneginf(lse).all()


# ---------------------------------------------------------------- calls


def test_one_sequence_any_dtype_any_strides() -> None:
    ir = attention(mask=CAUSAL)
    q, k, v = (np.round(a * 4) / 4 for a in arrays(ir, 4, 6, 1))
    expected, expected_lse = reference_attention(ir, q, k, v)
    out, lse = reference_attention(
        ir, q[0].astype(np.float16), np.asfortranarray(k[0]).astype(np.float32), v[0]
    )
    np.testing.assert_array_equal(out, expected[0])
    np.testing.assert_array_equal(lse, expected_lse[0])


def test_chosen_rows() -> None:
    ir = attention(mask=window(2, causal=True))
    q, k, v = arrays(ir, 9, 7)
    out, lse = reference_attention(ir, q, k, v)
    some, some_lse = reference_attention(ir, q, k, v, rows=[8, 0, 3, -1])
    np.testing.assert_allclose(some, out[:, [8, 0, 3, 8]], rtol=1e-14)
    np.testing.assert_allclose(some_lse, lse[:, :, [8, 0, 3, 8]], rtol=1e-14)
    assert reference_attention(ir, q, k, v, rows=[])[0].shape == (2, 0, 4, 6)


def test_rows_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ir = attention(mask=CAUSAL)
    q, k, v = arrays(ir, 9, 7)
    out, lse = reference_attention(ir, q, k, v)
    monkeypatch.setattr("attngen.reference._SCORES_AT_ONCE", 14)
    again, again_lse = reference_attention(ir, q, k, v)
    np.testing.assert_allclose(again, out, rtol=1e-14)
    np.testing.assert_allclose(again_lse, lse, rtol=1e-14)


@pytest.mark.parametrize("argument", ["q", "k", "v", "sink"])
def test_misfits_are_named(argument: str) -> None:
    ir = attention(sink=True)
    q, k, v = arrays(ir, 3, 5)
    given_arrays = {"q": q, "k": k, "v": v, "sink": np.zeros(4)}
    given_arrays[argument] = given_arrays[argument][..., :-1]
    with pytest.raises(CallValueError, match=f"'{argument}' must have shape"):
        reference_attention(ir, **given_arrays)


def test_sinks_come_when_the_spec_says_so() -> None:
    q, k, v = arrays(attention(), 3, 5)
    with pytest.raises(CallTypeError, match="'sink' must be given"):
        reference_attention(attention(sink=True), q, k, v)
    with pytest.raises(CallTypeError, match="'sink' is not part"):
        reference_attention(attention(), q, k, v, np.zeros(4))


# ---------------------------------------------------------------- layers


def weights(ir: AttentionIR, *, biases: bool) -> SimpleNamespace:
    d_model = ir.d_model or 0
    shapes = {
        "q": (d_model, ir.heads * ir.head_dim),
        "k": (d_model, ir.kv_heads * ir.head_dim),
        "v": (d_model, ir.kv_heads * ir.value_dim),
        "o": (ir.heads * ir.value_dim, d_model),
    }
    values = {name: RNG.standard_normal(shape) for name, shape in shapes.items()}
    values |= {
        f"{name}_bias": RNG.standard_normal(shape[1]) if biases else None
        for name, shape in shapes.items()
    }
    return SimpleNamespace(**values)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("crossed", [False, True])
def test_layer(biases: bool, crossed: bool) -> None:
    ir = attention(d_model=10, mask=CAUSAL)
    w = weights(ir, biases=biases)
    x = RNG.standard_normal((2, 5, 10))
    context = RNG.standard_normal((2, 7, 10)) if crossed else None
    source = x if context is None else context

    def projected(a: Array, name: str) -> Array:
        result = np.einsum("bsi,io->bso", a, getattr(w, name))
        return result + getattr(w, f"{name}_bias") if biases else result

    core = attention(mask=CAUSAL)
    attended, expected_lse = reference_attention(
        core,
        projected(x, "q").reshape(2, 5, 4, 8),
        projected(source, "k").reshape(2, -1, 2, 8),
        projected(source, "v").reshape(2, -1, 2, 6),
    )
    expected = projected(attended.reshape(2, 5, 24), "o")
    out, lse = reference_layer(ir, x, w, context)
    np.testing.assert_allclose(out, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-11)
    some, some_lse = reference_layer(ir, x, w, context, rows=[4, 1])
    np.testing.assert_allclose(some, expected[:, [4, 1]], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(some_lse, expected_lse[:, :, [4, 1]], rtol=1e-11)
    one, one_lse = reference_layer(ir, x[1], w, None if context is None else context[1])
    np.testing.assert_allclose(one, expected[1], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(one_lse, expected_lse[1], rtol=1e-11)


def test_layer_weights_that_do_not_fit_are_named() -> None:
    ir = attention(d_model=10)
    w = weights(ir, biases=False)
    with pytest.raises(CallValueError, match=r"a weight of shape \(10, 32\) does not fit"):
        reference_layer(ir, np.zeros((2, 9)), w)
