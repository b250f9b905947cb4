"""Tile classes against every element of the tile, and the forms that get printed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from middle.builders import CAUSAL, window
from middle.strategies import DATA, DOC_K, DOC_Q, LENGTH, REAL_K, SEG_K, WEIGHT, masks

from attngen.ir.evaluate import evaluate
from attngen.ir.expr import (
    FALSE,
    TRUE,
    Binary,
    Const,
    Expr,
    K,
    Q,
    Unary,
    Var,
    conjunction,
    disjunction,
)
from attngen.ir.kernel import DataBound
from attngen.ir.printer import expression_text
from attngen.mask_tiles import TileClass, classify, plan

Tile = tuple[int, int, int, int, int, int]
DOCUMENTS = {
    "doc": np.array([[0] * 5 + [1] * 10 + [4] * 5, [2] * 20]),
    "seg": np.arange(20) // 3,
    "real": np.ones((2, 20), bool),
    "length": np.array([20, 3]),
}


def truth(mask: Expr, tile: Tile, data: dict[str, object] | None = None) -> np.ndarray:
    q_first, q_last, k_first, k_last, q_len, kv_len = tile
    env = {
        "q": np.arange(q_first, q_last + 1)[:, None],
        "k": np.arange(k_first, k_last + 1)[None],
        "q_len": q_len,
        "kv_len": kv_len,
    }
    shape = (q_last - q_first + 1, k_last - k_first + 1)
    return np.broadcast_to(evaluate(mask, env | (data or {}), np.False_), shape)


def true_class(mask: Expr, tile: Tile, data: dict[str, object] | None = None) -> TileClass:
    attends = truth(mask, tile, data)
    if not attends.any():
        return TileClass.EMPTY
    return TileClass.FULL if attends.all() else TileClass.PARTIAL


@st.composite
def tiles(draw: st.DrawFn) -> Tile:
    q_len, kv_len = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    first = kv_len - q_len if draw(st.booleans()) else 0
    rows = sorted(draw(st.tuples(*[st.integers(first, first + q_len - 1)] * 2)))
    keys = sorted(draw(st.tuples(*[st.integers(0, kv_len - 1)] * 2)))
    return (*rows, *keys, q_len, kv_len)


@given(masks(), tiles())
@example(Binary("ne", Binary("mul", Q, K), Const(4)), (1, 3, 1, 3, 4, 4))
@example(Unary("not", Binary("lt", Binary("div", Q, K), Const(1))), (0, 0, 0, 0, 1, 1))
def test_no_tile_is_called_empty_or_full_that_is_not(mask: Expr, tile: Tile) -> None:
    known = classify(mask, *tile)
    if known is not TileClass.PARTIAL:
        assert known is true_class(mask, tile)


@st.composite
def data(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Side inputs for every mask of the strategies, for two batch elements."""
    few = st.lists(st.integers(-2, 5), min_size=20, max_size=20)
    return {
        "doc": np.array([sorted(draw(few)), draw(few)]),
        "seg": np.array(draw(few)),
        "real": np.array(draw(st.lists(st.booleans(), min_size=40, max_size=40))).reshape(2, 20),
        "length": np.array([draw(st.integers(0, 20)), 7]),
    }


def bounds_of(arrays: dict[str, np.ndarray], b: int, tile: Tile) -> dict[str, object]:
    """What a kernel knows of the data of a tile."""
    q_first, q_last, k_first, k_last = np.clip(tile[:4], 0, 19)
    known: dict[str, object] = {"b": b, **arrays}
    for name, axis, first, last in (
        ("doc", "q", q_first, q_last),
        ("doc", "k", k_first, k_last),
        ("seg", "k", k_first, k_last),
        ("real", "q", q_first, q_last),
        ("real", "k", k_first, k_last),
    ):
        row = arrays[name] if arrays[name].ndim == 1 else arrays[name][b]
        part = row[first : last + 1]
        known[f"{name}_{axis}_min"], known[f"{name}_{axis}_max"] = part.min(), part.max()
    return known


@given(masks(data=DATA), tiles(), data(), st.integers(0, 1))
@example(Binary("eq", DOC_Q, DOC_K), (0, 3, 0, 3, 4, 4), DOCUMENTS, 0)
def test_no_tile_is_called_wrongly_that_reads_data(
    mask: Expr, tile: Tile, arrays: dict[str, np.ndarray], b: int
) -> None:
    known = classify(mask, *tile, bounds_of(arrays, b, tile))
    if known is not TileClass.PARTIAL:
        assert known is true_class(mask, tile, {"b": b, **arrays})


@given(masks(data=DATA), tiles(), data(), st.integers(0, 1))
def test_keys_lie_within_bounds_that_read_data(
    mask: Expr, tile: Tile, arrays: dict[str, np.ndarray], b: int
) -> None:
    forms = plan(mask)
    q_len, kv_len = tile[4:]
    every = truth(mask, (*tile[:2], 0, kv_len - 1, q_len, kv_len), {"b": b, **arrays})
    seen = np.flatnonzero(every.any(axis=0))
    env = bounds_of(arrays, b, tile)
    env |= {"q_first": tile[0], "q_last": tile[1], "q_len": q_len, "kv_len": kv_len}
    if seen.size and forms.key_first is not None:
        assert evaluate(forms.key_first, env, np.False_) <= seen[0]
    if seen.size and forms.key_last is not None:
        assert seen[-1] <= evaluate(forms.key_last, env, np.False_)


def test_every_bound_that_the_forms_read_is_listed() -> None:
    both = Binary("eq", DOC_Q, DOC_K)
    assert plan(both).data_bounds == (DataBound("doc", "q", True), DataBound("doc", "k", True))
    assert plan(REAL_K).data_bounds == (DataBound("real", "k", True),)
    assert plan(Binary("le", SEG_K, Q)).data_bounds == (DataBound("seg", "k", False),)
    assert plan(Binary("lt", K, LENGTH)).data_bounds == ()
    assert plan(Binary("lt", Const(0.5), WEIGHT)).data_bounds == ()  # NaN has no order


def test_documents_are_told_apart() -> None:
    same = Binary("eq", DOC_Q, DOC_K)
    arrays = DOCUMENTS
    for q in range(0, 20, 5):
        for k in range(0, 20, 5):
            tile = (q, q + 4, k, k + 4, 20, 20)
            known = classify(same, *tile, bounds_of(arrays, 0, tile))
            assert known is true_class(same, tile, {"b": 0, **arrays}), tile


def test_heads_of_a_tile_are_a_range() -> None:
    mask = Binary("lt", Var("h"), Const(2))
    tile = (0, 3, 0, 3, 4, 4)
    for heads, expected in (((0, 1), "full"), ((1, 2), "partial"), ((2, 3), "empty")):
        known = classify(mask, *tile, {"h_first": heads[0], "h_last": heads[1]})
        assert known.value == expected


HALF_KEY = Binary("div", K, Const(2))


@pytest.mark.parametrize(
    "mask",
    [
        Binary("le", HALF_KEY, Const(1.5)),
        Unary("not", Binary("le", HALF_KEY, Const(1.5))),
        Binary("gt", Binary("div", K, Const(-2)), Const(-1.5)),
        Binary("lt", Unary("neg", HALF_KEY), Const(-1.0)),
        Binary("ge", Unary("tanh", K), Const(0.97)),
        Binary("lt", Binary("sub", Const(4.5), K), Const(2.0)),
        Binary("lt", Binary("mul", Const(-0.5), K), Const(-1.2)),
        Binary("lt", Binary("div", K, Var("kv_len")), Const(0.4)),
        Binary("ne", Binary("max", HALF_KEY, Const(1.0)), Const(1.0)),
        Binary("le", Binary("mul", K, K), Const(9)),
    ],
    ids=expression_text,
)
def test_monotone_functions_of_the_key_are_exact(mask: Expr) -> None:
    for first in range(6):
        for last in range(first, 6):
            tile = (0, 3, first, last, 4, 6)
            assert classify(mask, *tile) is true_class(mask, tile), tile


@given(masks(), tiles())
def test_keys_lie_within_their_bounds(mask: Expr, tile: Tile) -> None:
    forms = plan(mask)
    q_len, kv_len = tile[4:]
    seen = np.flatnonzero(truth(mask, (*tile[:2], 0, kv_len - 1, q_len, kv_len)).any(axis=0))
    env = {"q_first": tile[0], "q_last": tile[1], "q_len": q_len, "kv_len": kv_len}
    if seen.size and forms.key_first is not None:
        assert evaluate(forms.key_first, env) <= seen[0]
    if seen.size and forms.key_last is not None:
        assert seen[-1] <= evaluate(forms.key_last, env)


WINDOWS = [
    window(left, right, causal=causal)
    for left, right, causal in itertools.product((-1, 0, 1, 3, 100), (-1, 0, 2, 100), (True, False))
]


@pytest.mark.parametrize("mask", WINDOWS, ids=expression_text)
@pytest.mark.parametrize("block", [(1, 1), (2, 3), (4, 2)])
def test_causal_and_windows_are_exact(mask: Expr, block: tuple[int, int]) -> None:
    block_q, block_kv = block
    forms = plan(mask)
    for q_len, kv_len in itertools.product((1, 2, 5, 8), (1, 3, 5, 9)):
        for first in {0, kv_len - q_len}:
            for q_first in range(first, first + q_len, block_q):
                q_last = min(q_first + block_q, first + q_len) - 1
                for k_first in range(0, kv_len, block_kv):
                    k_last = min(k_first + block_kv, kv_len) - 1
                    tile = (q_first, q_last, k_first, k_last, q_len, kv_len)
                    assert classify(mask, *tile) is true_class(mask, tile), tile
                env = {"q_first": q_first, "q_last": q_last}
                everywhere = (q_first, q_last, -200, 200, q_len, kv_len)
                keys = np.flatnonzero(truth(mask, everywhere).any(axis=0)) - 200
                if forms.key_first is not None:
                    assert evaluate(forms.key_first, env) == keys[0]
                if forms.key_last is not None:
                    assert evaluate(forms.key_last, env) == keys[-1]


def texts(mask: Expr) -> list[str | None]:
    p = plan(mask)
    forms = (p.always, p.possible, p.key_first, p.key_last)
    return [None if form is None else expression_text(form) for form in forms]


SINKS = conjunction(CAUSAL, disjunction(window(511), Binary("lt", K, Const(4))))
DISTANCE = Binary("max", Binary("sub", Q, K), Binary("sub", K, Q))
PREFIX = disjunction(CAUSAL, Binary("lt", K, Binary("sub", Var("kv_len"), Var("q_len"))))


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (CAUSAL, ["k_last <= q_first", "k_first <= q_last", None, "q_last"]),
        (
            window(255, causal=True),
            [
                "k_last <= q_first and q_last <= k_first + 255",
                "k_first <= q_last and q_first <= k_last + 255",
                "q_first - 255",
                "q_last",
            ],
        ),
        (
            window(1, 2),
            [
                "q_last <= k_first + 1 and k_last <= q_first + 2",
                "q_first <= k_last + 1 and k_first <= q_last + 2",
                "q_first - 1",
                "q_last + 2",
            ],
        ),
        (
            SINKS,
            [
                "k_last <= q_first and (q_last <= k_first + 511 or k_last <= 3)",
                "k_first <= q_last and (q_first <= k_last + 511 or k_first <= 3)",
                None,
                "q_last",
            ],
        ),
        (
            Binary("le", DISTANCE, Const(9)),
            [
                "q_last <= k_first + 9 and k_last <= q_first + 9",
                "q_first <= k_last + 9 and k_first <= q_last + 9",
                "q_first - 9",
                "q_last + 9",
            ],
        ),
        (
            PREFIX,
            [
                "k_last <= q_first or k_last + q_len < kv_len",
                "k_first <= q_last or k_first + q_len < kv_len",
                None,
                "max(q_last, kv_len - q_len - 1)",
            ],
        ),
        (
            Unary("not", CAUSAL),
            ["q_last < k_first", "q_first < k_last", "q_first + 1", None],
        ),
        (
            Binary("eq", Q, K),
            [
                "q_last <= k_first and k_last <= q_first",
                "q_first <= k_last and k_first <= q_last",
                "q_first",
                "q_last",
            ],
        ),
        (
            Binary("eq", *(Binary("floordiv", x, Const(64)) for x in (Q, K))),
            [
                "q_last // 64 <= k_first // 64 and k_last // 64 <= q_first // 64",
                "q_first // 64 <= k_last // 64 and k_first // 64 <= q_last // 64",
                "64 * (q_first // 64)",
                "64 * (q_last // 64) + 63",
            ],
        ),
        (
            Binary("eq", DOC_Q, DOC_K),
            [
                "doc_q_max <= doc_k_min and doc_k_max <= doc_q_min",
                "doc_q_min <= doc_k_max and doc_k_min <= doc_q_max",
                None,
                None,
            ],
        ),
        (
            conjunction(Binary("lt", K, LENGTH), REAL_K),
            [
                "k_last < length[b] and real_k_min",
                "k_first < length[b] and real_k_max",
                None,
                "length[b] - 1",
            ],
        ),
        (TRUE, ["True", "True", None, None]),
        (FALSE, ["False", "False", None, "-1"]),
    ],
    ids=lambda value: expression_text(value) if not isinstance(value, list) else "",
)
def test_forms_are_short(mask: Expr, expected: list[str | None]) -> None:
    assert texts(mask) == expected
