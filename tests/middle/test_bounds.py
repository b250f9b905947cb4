"""Index checks: ranges of values, and reads of side inputs that may leave their arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from middle.builders import CAUSAL, attention, window
from middle.strategies import integers, masks, reals

from attngen.errors import CallValueError
from attngen.ir.attention import SideInput
from attngen.ir.bounds import Lengths, index_faults, index_ranges
from attngen.ir.evaluate import evaluate
from attngen.ir.expr import TRUE, Binary, Const, Expr, K, Load, Q, Select, Unary, Var, conjunction
from attngen.ir.ranges import ANY_CALL, Facts, value_range

NAMES = ("q", "k", "q_len", "kv_len")
DISTANCE = Binary("sub", Q, K)


def small(q: tuple[int, int], k: tuple[int, int]) -> Facts:
    return Facts({"q": q, "k": k, "q_len": (5, 5), "kv_len": (9, 9)}, lambda _: (-7, 7))


@given(
    integers(NAMES) | reals(NAMES),
    masks(NAMES),
    st.tuples(st.integers(-6, 3), st.integers(0, 6)),
    st.tuples(st.integers(0, 4), st.integers(0, 5)),
    st.booleans(),
)
def test_ranges_hold_every_value(
    expr: Expr, condition: Expr, q: tuple[int, int], k: tuple[int, int], holds: bool
) -> None:
    facts = small((q[0], q[0] + q[1]), (k[0], k[0] + k[1]))
    env = {
        "q": np.arange(q[0], q[0] + q[1] + 1)[:, None],
        "k": np.arange(k[0], k[0] + k[1] + 1)[None],
        "q_len": 5,
        "kv_len": 9,
    }
    values, kept = np.broadcast_arrays(evaluate(expr, env), evaluate(condition, env))
    values = values[kept == holds]
    low, high = value_range(expr, facts.given(condition, holds=holds))
    room = 1e-9 * max(abs(low), abs(high)) if math.isfinite(low) and math.isfinite(high) else 0
    whole = values.dtype.kind == "i"
    if math.isinf(low) and math.isinf(high):
        return
    assert not values.size or (values.min() >= low - (0 if whole else room))
    assert not values.size or (values.max() <= high + (0 if whole else room))
    assert not np.isnan(values).any()


@pytest.mark.parametrize("op", ["floordiv", "mod", "div"])
@pytest.mark.parametrize("bounds", [(1, 0), (5, -5), (0, -1)])
def test_what_contradicts_itself_divides_nothing(op: str, bounds: tuple[int, int]) -> None:
    facts = Facts({"q": bounds, "k": (3, 9)}, lambda _: (-7, 7))
    one, two = (Unary("float", x) if op == "div" else x for x in (K, Q))
    low, high = value_range(Binary(op, one, two), facts)
    assert not math.isnan(low)
    assert not math.isnan(high)


def bias(*indices: Expr) -> Load:
    return Load("bias", indices)


def biased(load: Expr, mask: Expr = TRUE, shape: tuple[str | int, ...] = ("heads", 9)):
    table = SideInput("bias", shape, "float")
    parent = SideInput("parent", ("kv_len",), "int64")
    return attention(mask=mask, score=Binary("add", Var("dot"), load), inputs=(table, parent))


def at(distance: Expr) -> Load:
    return bias(Var("h"), distance)


CALL = Lengths(batch=2, q_len=4, kv_len=9)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (TRUE, (-3, 8)),  # q is 5 … 8 and k is 0 … 8
        (CAUSAL, (0, 8)),
        (window(3, causal=True), (0, 3)),
        (window(2, 2), (-2, 2)),
        (conjunction(CAUSAL, Binary("le", Const(4), K)), (0, 4)),
        (Unary("not", CAUSAL), (-3, -1)),
        (Binary("or", CAUSAL, window(1)), (-3, 8)),
    ],
)
def test_a_mask_narrows_an_index(mask: Expr, expected: tuple[int, int]) -> None:
    load = at(DISTANCE)
    assert index_ranges(biased(load, mask), load, CALL) == ((0, 3), expected)
    simplified = biased(Binary("mul", Const(1.5), load), mask)
    assert index_ranges(simplified, load, CALL) == ((0, 3), expected)


def test_a_condition_narrows_an_index_in_its_branch() -> None:
    near = Binary("le", Unary("abs", DISTANCE), Const(3))
    load = at(Binary("add", DISTANCE, Const(3)))
    guarded = Select(near, load, Const(0.0))
    assert index_ranges(biased(guarded), load, CALL) == ((0, 3), (0, 6))
    assert index_faults(biased(guarded), CALL) == ()
    other = Select(near, Const(0.0), load)
    assert [f.axis for f in index_faults(biased(other), CALL)] == [1]


def test_one_side_of_a_conjunction_narrows_the_other() -> None:
    seen = Load("seen", (DISTANCE,), dtype="bool")
    inputs = (SideInput("seen", (9,), "bool"),)
    assert index_faults(attention(mask=Binary("and", CAUSAL, seen), inputs=inputs), CALL) == ()
    later = Binary("or", Binary("lt", Q, K), seen)
    assert index_faults(attention(mask=later, inputs=inputs), CALL) == ()
    [fault] = index_faults(attention(mask=Binary("or", CAUSAL, seen), inputs=inputs), CALL)
    assert (fault.input, fault.axis, fault.index) == ("seen", 0, "q - k")
    assert (fault.low, fault.high, fault.size) == (-3, -1, 9)


def test_an_index_that_is_read_is_checked_with_its_data() -> None:
    load = bias(Var("h"), Load("parent", (K,), dtype="int64"))
    ir = biased(load)
    fine, wrong = np.array([0, 8, 3]), np.array([0, 9, 3])
    assert index_faults(ir, CALL, {"parent": fine}) == ()
    assert [f.high for f in index_faults(ir, CALL, {"parent": wrong})] == [9]
    assert [f.low for f in index_faults(ir, CALL)] == [-math.inf]


def test_more_queries_than_keys_have_positions_below_zero() -> None:
    load = Load("bias", (Q,))
    ir = biased(load, shape=("kv_len",))
    assert index_ranges(ir, load, Lengths(1, 5, 3)) == ((-2, 2),)
    assert index_faults(ir, Lengths(1, 3, 3)) == ()
    assert len(index_faults(ir, Lengths(1, 5, 3))) == 1
    assert index_faults(ir, Lengths(1, 5, 0)) == ()


@given(integers(("q", "k")), masks(("q", "k")), st.integers(1, 5), st.integers(1, 6))
def test_what_passes_the_check_never_leaves_its_array(
    index: Expr, mask: Expr, q_len: int, kv_len: int
) -> None:
    ir = biased(Load("bias", (index,)), mask, shape=(12,))
    faults = index_faults(ir, Lengths(1, q_len, kv_len))
    first = kv_len - q_len
    env = {
        "q": np.arange(first, kv_len)[:, None],
        "k": np.arange(kv_len)[None],
        "dot": 0.0,
        "bias": np.arange(12.0),
    }
    attends = np.broadcast_to(evaluate(mask, env), (q_len, kv_len))
    if not faults:
        evaluate(ir.score, env, attends)


def test_reading_outside_where_it_matters_is_an_error() -> None:
    env = {"q": np.arange(3)[:, None], "k": np.arange(3)[None], "bias": np.arange(2.0)}
    load = Load("bias", (DISTANCE,))
    inside = np.abs(env["q"] - env["k"] - 0.5) < 1
    np.testing.assert_array_equal(np.asarray(evaluate(load, env, inside))[inside] >= 0, True)
    with pytest.raises(CallValueError, match="axis 0 of 'bias' has 2 elements and is read at -1"):
        evaluate(load, env)


def test_what_holds_in_any_call() -> None:
    assert value_range(Binary("mod", Q, Const(8)), ANY_CALL) == (0, 7)
    assert value_range(Binary("max", Var("b"), Const(1)), ANY_CALL)[0] == 1
    assert value_range(Binary("div", Const(1.0), K), ANY_CALL) == (-math.inf, math.inf)
    assert value_range(Unary("log", Var("kv_len")), ANY_CALL)[0] == 0.0
    assert value_range(Unary("log", K), ANY_CALL) == (-math.inf, math.inf)
    assert value_range(Unary("tanh", Unary("float", Q)), ANY_CALL) == (-1.0, 1.0)
