from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from middle.builders import CAUSAL, attention, softcapped, window
from middle.strategies import integers, masks, reals

from attngen.ir.affine import compare
from attngen.ir.attention import AttentionIR
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import DOT, FALSE, TRUE, Binary, Const, Expr, K, Q, Unary, Var, conjunction
from attngen.ir.printer import expression_text
from attngen.ir.verify import verify_attention
from attngen.passes import PIPELINE, simplify
from attngen.passes.exp2_form import LOG2E, Exp2Form
from attngen.passes.fold_constants import FoldConstants, folded
from attngen.passes.fold_scale import FoldScale, dot_factors
from attngen.passes.normalise_mask import NormaliseMask, normalised

NAMES = ("q", "k", "q_len", "kv_len")
GRID = {
    "q": np.arange(-3, 9)[:, None],
    "k": np.arange(0, 11)[None],
    "q_len": 12,
    "kv_len": 11,
}
POINTS = {**GRID, "h": 3, "dot": np.linspace(-7, 7, 132).reshape(12, 11)}


def scaled(factor: float) -> Expr:
    return Binary("mul", DOT, Const(factor))


# ---------------------------------------------------------------- results that are promised


def test_plain_attention_becomes_dot_alone() -> None:
    ir = simplify(attention(score=scaled(0.125)))
    assert (ir.base, ir.query_scale, ir.score) == ("2", 0.125 * LOG2E, DOT)


@pytest.mark.parametrize("factor", [0, 0.0, -1e4, 1, 1e-300, 1e300])
def test_any_scale_moves_to_the_queries(factor: float) -> None:
    ir = simplify(attention(score=scaled(factor)))
    assert ir.score == DOT
    assert ir.query_scale == pytest.approx(factor * LOG2E, rel=1e-15)


@pytest.mark.parametrize("flipped", [False, True])
def test_softcap_scales_inside_the_tanh(flipped: bool) -> None:
    score = softcapped(0.25, 50.0)
    if flipped:
        assert isinstance(score, Binary)
        score = Binary("mul", score.right, score.left)
    ir = simplify(attention(score=score))
    assert ir.query_scale == 0.25 / 50.0
    assert ir.score == Binary("mul", Const(50.0 * LOG2E), Unary("tanh", DOT))


def test_softcap_with_scale_zero() -> None:
    ir = simplify(attention(score=softcapped(0.0, 50.0)))
    assert (ir.query_scale, dot_factors(ir.score)) == (0.0, {1.0})


def test_bias_keeps_its_place_beside_the_scaled_dot() -> None:
    bias = Binary("mul", Const(0.5), Binary("sub", K, Q))
    ir = simplify(attention(score=Binary("add", scaled(0.25), bias)))
    assert ir.query_scale == 0.25 * LOG2E
    assert expression_text(ir.score) == f"dot + {0.5 * LOG2E!r} * (k - q)"


def test_different_factors_stay() -> None:
    score = Binary("max", scaled(0.5), scaled(0.25))
    ir = attention(score=score)
    assert FoldScale()(ir) is ir


@pytest.mark.parametrize("factor", [1e300, 1e-300])
def test_a_scale_that_leaves_the_range_of_numbers_stays(factor: float) -> None:
    ir = attention(score=scaled(factor), query_scale=factor)
    assert FoldScale()(ir) is ir


# ---------------------------------------------------------------- every pass, on everything


@st.composite
def scores(draw: st.DrawFn) -> Expr:
    """Scores whose rounding stays small: no division by what may be nearly zero."""
    leaf = st.sampled_from([DOT, Q, K, Var("h")]) | st.builds(Const, st.floats(-4, 4, width=16))
    constant = st.builds(Const, st.floats(-4, 4, width=16) | st.integers(-3, 3))
    divisor = st.builds(Const, st.sampled_from([-2.0, 0.5, 3, 7.0]))

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        ops = st.sampled_from(["add", "sub", "min", "max"])
        return (
            st.builds(Binary, ops, inner, inner)
            | st.builds(Binary, st.just("mul"), constant, inner)
            | st.builds(Binary, st.just("mul"), inner, constant)
            | st.builds(Binary, st.just("div"), inner, divisor)
            | st.builds(Unary, st.sampled_from(["neg", "tanh"]), inner)
        )

    return draw(st.recursive(leaf, grow, max_leaves=6))


def natural_score(ir: AttentionIR, product: np.ndarray) -> np.ndarray:
    value = evaluate(ir.score, POINTS | {"dot": ir.query_scale * product})
    return np.asarray(value) * (1.0 if ir.base == "e" else math.log(2))


@given(scores(), st.sampled_from([1.0, 0.0, -0.5]), masks())
def test_passes_keep_the_meaning_and_have_a_fixed_point(
    score: Expr, query_scale: float, mask: Expr
) -> None:
    ir = attention(score=score, query_scale=query_scale, mask=mask)
    seen: list[str] = []

    def observe(name: str, before: AttentionIR, after: AttentionIR) -> None:
        seen.append(name)
        verify_attention(after)
        product = POINTS["dot"]
        close = {"rtol": 1e-11, "atol": 1e-11}
        np.testing.assert_allclose(
            natural_score(after, product), natural_score(before, product), **close
        )
        np.testing.assert_array_equal(
            *np.broadcast_arrays(evaluate(after.mask, GRID), evaluate(before.mask, GRID))
        )

    result = simplify(ir, observe)
    assert seen == [type(p).__name__ for p in PIPELINE]
    assert result.base == "2"
    assert simplify(result) is result


@pytest.mark.parametrize("rewrite", [Exp2Form(), FoldConstants(), FoldScale(), NormaliseMask()])
def test_a_pass_with_nothing_to_do_returns_its_argument(rewrite: object) -> None:
    ir = attention(score=DOT, base="2", mask=CAUSAL)
    assert rewrite(ir) is ir  # type: ignore[operator]


# ---------------------------------------------------------------- folding


@given(integers(NAMES) | masks(NAMES))
def test_folding_whole_numbers_and_truths_is_exact(expr: Expr) -> None:
    result = folded(expr)
    np.testing.assert_array_equal(
        *np.broadcast_arrays(evaluate(result, GRID), evaluate(expr, GRID))
    )
    assert folded(result) is result


@given(reals(NAMES, ["dot"]))
def test_folding_real_numbers_keeps_ieee_specials(expr: Expr) -> None:
    before, after = evaluate(expr, POINTS), evaluate(folded(expr), POINTS)
    # merging factors may round differently, but never makes or loses a NaN or an infinity
    np.testing.assert_array_equal(*np.broadcast_arrays(np.isfinite(before), np.isfinite(after)))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Binary("add", Const(2), Const(3)), "5"),
        (Binary("add", Q, Const(0)), "q"),
        (Binary("add", Const(0.0), DOT), "dot"),
        (Binary("add", Q, Const(0.0)), "q + 0.0"),  # it makes q a real number
        (Binary("sub", DOT, Const(0.0)), "dot"),
        (Binary("sub", Const(0), Q), "0 - q"),
        (Binary("div", DOT, Const(1.0)), "dot"),
        (Binary("div", Const(1.0), Const(0.0)), "1.0 / 0.0"),
        (Binary("mul", Const(1.0), DOT), "dot"),
        (Binary("mul", Q, Const(0)), "0"),
        (Binary("mul", DOT, Const(0.0)), "0.0 * dot"),  # 0 · inf is NaN
        (Binary("mul", Const(0.5), Binary("mul", DOT, Const(2.0))), "dot"),
        (Binary("mul", Binary("mul", Const(3.0), DOT), Const(2.0)), "6.0 * dot"),
        (Binary("mul", Const(2.0), Unary("neg", DOT)), "-2.0 * dot"),
        (Binary("mul", Const(1e200), scaled(1e200)), "1e+200 * (1e+200 * dot)"),
        (Unary("neg", Unary("neg", Q)), "q"),
        (Unary("not", Unary("not", CAUSAL)), "k <= q"),
        (Unary("tanh", Unary("tanh", DOT)), "tanh(tanh(dot))"),
        (Binary("and", TRUE, CAUSAL), "k <= q"),
        (Binary("or", CAUSAL, FALSE), "k <= q"),
        (Binary("or", CAUSAL, TRUE), "True"),
        (Binary("lt", Const(2), Const(3)), "True"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_folding(expr: Expr, expected: str) -> None:
    assert expression_text(folded(expr)) == expected


# ---------------------------------------------------------------- masks


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (CAUSAL, "k <= q"),
        (Binary("ge", Q, K), "k <= q"),
        (Binary("le", Binary("sub", K, Q), Const(0)), "k <= q"),
        (Unary("not", Binary("gt", K, Q)), "k <= q"),
        (Unary("not", Unary("not", CAUSAL)), "k <= q"),
        (Binary("gt", K, Q), "q < k"),
        (window(255, causal=True), "k <= q and q <= k + 255"),
        (window(3, 0, causal=True), "k <= q and q <= k + 3"),
        (window(-1, 4, causal=True), "k <= q"),
        (conjunction(window(-1, 4), CAUSAL), "k <= q"),
        (Binary("or", CAUSAL, window(-1, 4)), "k <= q + 4"),
        (Binary("or", CAUSAL, Binary("gt", K, Q)), "True"),
        (Binary("and", CAUSAL, Binary("gt", K, Q)), "False"),
        (Binary("or", Binary("lt", K, Const(3)), Binary("gt", K, Const(3))), "k <= 2 or 4 <= k"),
        (Unary("not", window(3, causal=True)), "q < k or k + 4 <= q"),
        (Binary("lt", K, Const(4)), "k <= 3"),
        (Binary("gt", K, Const(4)), "5 <= k"),
        (Binary("le", Binary("mul", Const(2), K), Const(7)), "k <= 3"),
        (Binary("eq", Binary("mul", Const(2), K), Const(7)), "False"),
        (Binary("ne", Binary("mul", Const(2), K), Binary("mul", Q, Const(4))), "k != 2 * q"),
        (Binary("le", K, Binary("min", Q, Const(5))), "k <= q and k <= 5"),
        (Binary("le", Binary("min", K, Q), Const(5)), "k <= 5 or q <= 5"),
        (Binary("and", CAUSAL, TRUE), "k <= q"),
        (Binary("ge", Binary("div", Q, Const(2)), K), "k <= q / 2"),
        (Unary("not", Binary("ge", Binary("div", Q, Const(2)), K)), "not k <= q / 2"),
        (Binary("eq", CAUSAL, Unary("not", CAUSAL)), "(k <= q) == (q < k)"),
        (Unary("not", Binary("eq", CAUSAL, window(3))), "(k <= q) != (q <= k + 3)"),
        (Binary("eq", Binary("lt", Q, Q), CAUSAL), "q < k"),
        (Binary("ne", CAUSAL, Binary("lt", Q, Q)), "k <= q"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_masks_have_one_spelling(mask: Expr, expected: str) -> None:
    result = normalised(mask)
    assert expression_text(result) == expected
    assert normalised(result) == result


def test_a_tighter_bound_is_held_against_the_others() -> None:
    loose, low, tight = (Binary(op, K, Const(c)) for op, c in (("le", 9), ("ge", 5), ("le", 2)))
    assert normalised(conjunction(conjunction(loose, low), tight)) == FALSE


def test_origins_survive() -> None:
    mask = Binary("ge", Q, K, origin="causal")
    result = normalised(mask)
    assert isinstance(result, Binary)
    assert result.origin == "causal"


def test_too_many_cases_are_left_as_they_are() -> None:
    wide: Expr = Q
    for i in range(40):
        wide = Binary("min", wide, Binary("add", K, Const(i * i)))
    result = compare("le", K, wide)
    np.testing.assert_array_equal(
        *np.broadcast_arrays(evaluate(result, GRID), GRID["k"] <= evaluate(wide, GRID))
    )
