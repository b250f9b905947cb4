"""Tile classes against every element of the tile, and the forms that get printed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from middle.builders import CAUSAL, window
from middle.strategies import masks

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
from attngen.ir.printer import expression_text
from attngen.mask_tiles import TileClass, classify, plan

Tile = tuple[int, int, int, int, int, int]


def truth(mask: Expr, tile: Tile) -> np.ndarray:
    q_first, q_last, k_first, k_last, q_len, kv_len = tile
    env = {
        "q": np.arange(q_first, q_last + 1)[:, None],
        "k": np.arange(k_first, k_last + 1)[None],
        "q_len": q_len,
        "kv_len": kv_len,
    }
    shape = (q_last - q_first + 1, k_last - k_first + 1)
    return np.broadcast_to(evaluate(mask, env), shape)


def true_class(mask: Expr, tile: Tile) -> TileClass:
    attends = truth(mask, tile)
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
        (TRUE, ["True", "True", None, None]),
        (FALSE, ["False", "False", None, "-1"]),
    ],
    ids=lambda value: expression_text(value) if not isinstance(value, list) else "",
)
def test_forms_are_short(mask: Expr, expected: list[str | None]) -> None:
    assert texts(mask) == expected
