"""Random expressions of the whole grammar, well typed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from attngen.ir.expr import Binary, Const, Expr, Load, Select, Unary, Var

COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
FUNCTIONS = ("tanh", "sigmoid", "floor", "exp", "exp2", "log", "log2", "sqrt")

# Side inputs that the tests have for any tile: (batch, 20) of whole numbers and of truths.
DOC_Q, DOC_K = (Load("doc", (Var("b"), Var(n)), dtype="int64") for n in ("q", "k"))
SEG_K = Load("seg", (Var("k"),), dtype="int64")
REAL_K, REAL_Q = (Load("real", (Var("b"), Var(n)), dtype="bool") for n in ("k", "q"))
LENGTH = Load("length", (Var("b"),), dtype="int64")
WEIGHT = Load("weight", (Var("b"), Var("k")), dtype="float")
DATA = (DOC_Q, DOC_K, SEG_K, LENGTH)


def _binary(ops: Sequence[str], operand: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(Binary, st.sampled_from(ops), operand, operand)


def _select(
    condition: st.SearchStrategy[Expr], value: st.SearchStrategy[Expr]
) -> st.SearchStrategy[Expr]:
    return st.builds(Select, condition, value, value)


def integers(
    names: Sequence[str], size: int = 9, data: Sequence[Expr] = ()
) -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([*map(Var, names), *data]) | st.builds(Const, st.integers(-size, size))
    divisors = st.builds(Const, st.integers(1, size) | st.integers(-size, -1)) | st.sampled_from(
        [Var(n) for n in names if n in ("q_len", "kv_len")] or [Const(3)]
    )

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return (
            _binary(("add", "sub", "mul", "min", "max"), inner)
            | st.builds(Unary, st.sampled_from(("neg", "abs")), inner)
            | st.builds(Binary, st.sampled_from(("floordiv", "mod")), inner, divisors)
            | _select(_binary(COMPARE, inner), inner)
        )

    return st.recursive(leaves, grow, max_leaves=4)


def reals(
    names: Sequence[str], reals: Sequence[str] = (), data: Sequence[Expr] = ()
) -> st.SearchStrategy[Expr]:
    leaves = (
        integers(names, data=data)
        | st.builds(Const, st.floats(-4, 4, width=16))
        | st.sampled_from([Var(n) for n in (*names, *reals)])
    )
    return st.recursive(
        leaves,
        lambda inner: (
            _binary(("add", "sub", "mul", "div", "min", "max"), inner)
            | st.builds(Unary, st.sampled_from(("neg", "abs", "float", *FUNCTIONS)), inner)
            | _select(_binary(COMPARE, inner), inner)
        ),
        max_leaves=4,
    )


def comparisons(names: Sequence[str], data: Sequence[Expr] = ()) -> st.SearchStrategy[Expr]:
    rounded = st.builds(Unary, st.just("int"), reals(names, data=data))
    whole = integers(names, data=data)
    return (
        _binary(COMPARE, whole)
        | _binary(COMPARE, reals(names, data=data))
        | st.builds(Binary, st.sampled_from(COMPARE), whole, rounded)
    )


def masks(
    names: Sequence[str] = ("q", "k", "q_len", "kv_len"), data: Sequence[Expr] = ()
) -> st.SearchStrategy[Expr]:
    distance = st.sampled_from(
        [Binary("sub", Var("q"), Var("k")), Binary("sub", Var("k"), Var("q")), Var("q"), Var("k")]
    )
    simple = st.builds(Binary, st.sampled_from(COMPARE), distance, integers(("q", "k"), 6))
    leaves = comparisons(names, data) | simple | st.builds(Const, st.booleans())
    if data:
        leaves |= st.sampled_from([REAL_Q, REAL_K, Binary("eq", DOC_Q, DOC_K)])
    return st.recursive(
        leaves,
        lambda inner: (
            _binary(("and", "or", "eq", "ne"), inner)
            | st.builds(Unary, st.just("not"), inner)
            | _select(inner, inner)
        ),
        max_leaves=5,
    )
