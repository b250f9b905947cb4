"""The FLOP and byte model against plain counting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attngen.costs import Lengths, Visits, cost, count_visits, key_ranges
from attngen.dtypes import FLOAT32
from attngen.ir.attention import Alignment, AttentionIR
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import (
    DOT,
    SCORE,
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


def attention(
    mask: Expr = TRUE, alignment: Alignment = "bottom_right", **sizes: int
) -> AttentionIR:
    values = {"heads": 4, "kv_heads": 2, "head_dim": 8, "value_dim": 16, **sizes}
    return AttentionIR(
        name="a",
        dtype=FLOAT32,
        heads=values["heads"],
        kv_heads=values["kv_heads"],
        head_dim=values["head_dim"],
        value_dim=values["value_dim"],
        d_model=values.get("d_model"),
        query_scale=1.0,
        score=DOT,
        mask=mask,
        alignment=alignment,
        sink=False,
        base="e",
        outputs=("out",),
    )


def counted(ir: AttentionIR, q_len: int, kv_len: int) -> tuple[int, int]:
    """Pairs and keys, one pair at a time."""
    first = kv_len - q_len if ir.alignment == "bottom_right" else 0
    table = np.zeros((q_len, kv_len), bool)
    for i in range(q_len):
        for j in range(kv_len):
            env = {"q": first + i, "k": j, "q_len": q_len, "kv_len": kv_len}
            table[i, j] = bool(evaluate(ir.mask, env))
    return int(table.sum()), int(table.any(axis=0).sum())


CAUSAL = Binary("le", K, Q)


def window_left(size: int) -> Expr:
    return Binary("le", Binary("sub", Q, K), Const(size))


def window_right(size: int) -> Expr:
    return Binary("le", Binary("sub", K, Q), Const(size))


MASKS = {
    "full": TRUE,
    "causal": CAUSAL,
    "window": conjunction(CAUSAL, window_left(3)),
    "two sided": conjunction(window_left(2), window_right(1)),
    "strict": Binary("gt", Q, K),
    "equal": Binary("eq", Q, K),
    "doubled": Binary("ge", Q, Binary("mul", Const(2), K)),
    "lengths": Binary("lt", K, Binary("sub", Var("kv_len"), Const(2))),
    "nothing": Const(False),
    "sink tokens": conjunction(CAUSAL, disjunction(window_left(2), Binary("lt", K, Const(2)))),
    "not equal": Binary("ne", Q, K),
    "product": Binary("le", Binary("mul", Q, K), Const(9)),
}


@pytest.mark.parametrize("mask", MASKS)
@given(q_len=st.integers(0, 9), kv_len=st.integers(0, 9), top_left=st.booleans())
def test_visits_are_exact(mask: str, q_len: int, kv_len: int, top_left: bool) -> None:
    ir = attention(MASKS[mask], "top_left" if top_left else "bottom_right")
    visits = count_visits(ir, Lengths(q_len, kv_len, batch=3))
    pairs, keys = counted(ir, q_len, kv_len)
    assert visits == Visits(3 * ir.heads * pairs, 3 * ir.kv_heads * keys)


def test_causal_windows_have_a_closed_form_and_disjunctions_do_not() -> None:
    positions = np.arange(5, dtype=np.int64)
    assert key_ranges(MASKS["window"], positions, 5, 5) is not None
    assert key_ranges(MASKS["sink tokens"], positions, 5, 5) is None


def test_large_causal_count_is_the_formula() -> None:
    s = 100_000
    ir = attention(CAUSAL)
    assert count_visits(ir, Lengths(s, s)).pairs == ir.heads * s * (s + 1) // 2


def test_core_flop_and_bytes() -> None:
    work = cost(attention(), Lengths(q_len=3, kv_len=5, batch=2))
    assert work.flop == 2 * 2 * 4 * 15 * (8 + 16)
    queries, keys = 2 * 3 * 4, 2 * 5 * 2
    assert work.bytes == 4 * (queries * (8 + 16) + keys * (8 + 16))
    assert work.exponentials == 2 * 4 * 15
    relu = replace(attention(), activation=Binary("max", Const(0.0), SCORE))
    assert cost(relu, Lengths(q_len=3, kv_len=5, batch=2)) == replace(work, exponentials=0)
    two = replace(attention(d_model=32), difference=Const(0.5))
    work_of_two = cost(two, Lengths(q_len=3, kv_len=5, batch=2))
    [attend] = [step for step in work_of_two.steps if step.name == "attention"]
    assert (attend.flop, work_of_two.exponentials) == (2 * work.flop, 2 * work.exponentials)
    assert attend.bytes == 4 * (queries * (2 * 8 + 16) + keys * (2 * 8 + 16))
    flop = {step.name: step.flop for step in work_of_two.steps}
    assert flop["q projection"] == 2 * 6 * 32 * (2 * 4 * 8)
    assert flop["v projection"] == 2 * 10 * 32 * (2 * 16)
    sigmoid = replace(attention(), activation=Unary("sigmoid", SCORE))
    assert cost(sigmoid, Lengths(q_len=3, kv_len=5, batch=2)) == work


def test_keys_that_nobody_sees_cost_no_bytes() -> None:
    ir = attention(MASKS["window"])
    near = cost(ir, Lengths(q_len=1, kv_len=1000)).bytes
    assert near == cost(ir, Lengths(q_len=1, kv_len=10)).bytes


def test_layer_adds_its_projections() -> None:
    ir = attention(d_model=10)
    work = cost(ir, Lengths(q_len=6, kv_len=6))
    names = [step.name for step in work.steps]
    assert names == [
        "q projection",
        "k projection",
        "v projection",
        "attention",
        "output projection",
    ]
    projections = 2 * 6 * 10 * (4 * 8 + 2 * 8 + 2 * 16 + 4 * 16)
    assert work.flop == projections + 2 * 4 * 36 * 24


def test_roofline_takes_the_slower_of_arithmetic_and_memory() -> None:
    (step,) = cost(attention(), Lengths(8, 8)).steps
    assert step.seconds(step.flop / 3.0, step.bytes / 1.0) == pytest.approx(3.0)
    assert step.seconds(step.flop / 1.0, step.bytes / 5.0) == pytest.approx(5.0)
