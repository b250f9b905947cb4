"""Random expressions of the whole grammar, well typed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from attngen.ir.expr import Binary, Const, Expr, Unary, Var

COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


def _binary(ops: Sequence[str], operand: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(Binary, st.sampled_from(ops), operand, operand)


def integers(names: Sequence[str], size: int = 9) -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([Var(n) for n in names]) | st.builds(Const, st.integers(-size, size))
    return st.recursive(
        leaves,
        lambda inner: (
            _binary(("add", "sub", "mul", "min", "max"), inner)
            | st.builds(Unary, st.just("neg"), inner)
        ),
        max_leaves=4,
    )


def reals(names: Sequence[str], reals: Sequence[str] = ()) -> st.SearchStrategy[Expr]:
    leaves = (
        integers(names)
        | st.builds(Const, st.floats(-4, 4, width=16))
        | st.sampled_from([Var(n) for n in (*names, *reals)])
    )
    return st.recursive(
        leaves,
        lambda inner: (
            _binary(("add", "sub", "mul", "div", "min", "max"), inner)
            | st.builds(Unary, st.sampled_from(("neg", "tanh")), inner)
        ),
        max_leaves=4,
    )


def comparisons(names: Sequence[str]) -> st.SearchStrategy[Expr]:
    return _binary(COMPARE, integers(names)) | _binary(COMPARE, reals(names))


def masks(names: Sequence[str] = ("q", "k", "q_len", "kv_len")) -> st.SearchStrategy[Expr]:
    distance = st.sampled_from(
        [Binary("sub", Var("q"), Var("k")), Binary("sub", Var("k"), Var("q")), Var("q"), Var("k")]
    )
    simple = st.builds(Binary, st.sampled_from(COMPARE), distance, integers(("q", "k"), 6))
    return st.recursive(
        comparisons(names) | simple | st.builds(Const, st.booleans()),
        lambda inner: (
            _binary(("and", "or", "eq", "ne"), inner) | st.builds(Unary, st.just("not"), inner)
        ),
        max_leaves=5,
    )
