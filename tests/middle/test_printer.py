from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st
from middle.builders import CAUSAL, attention, flash, split
from middle.strategies import DATA, REAL_K, REAL_Q, masks, reals

from attngen.dtypes import FLOAT32
from attngen.ir.expr import (
    DOT,
    SCORE,
    Binary,
    Const,
    Expr,
    K,
    Load,
    Q,
    Select,
    Unary,
    Var,
    children,
)
from attngen.ir.kernel import KernelIR, Projection
from attngen.ir.printer import attention_text, expression_text, kernel_text, schedule_text
from attngen.ir.schedule import CpuSchedule, Decision

BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.And: "and",
    ast.Or: "or",
}

DTYPES = {load.input: load.dtype for load in (*DATA, REAL_K, REAL_Q)}


def parsed(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value=value):
            return Const(value)
        case ast.Name(id=name):
            return Var(name)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            return Const(-value)
        case ast.UnaryOp(op=op, operand=operand):
            return Unary("neg" if isinstance(op, ast.USub) else "not", parsed(operand))
        case ast.BinOp(left=left, op=op, right=right):
            return Binary(BINARY[type(op)], parsed(left), parsed(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return Binary(BINARY[type(op)], parsed(left), parsed(right))
        case ast.BoolOp(op=op, values=values):
            result = parsed(values[0])
            for value in values[1:]:
                result = Binary(BINARY[type(op)], result, parsed(value))
            return result
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return Select(parsed(test), parsed(body), parsed(orelse))
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            places = index.elts if isinstance(index, ast.Tuple) else [index]
            return Load(name, tuple(map(parsed, places)), dtype=DTYPES[name])
        case ast.Call(func=ast.Name(id=name), args=[operand]):
            return Unary(name, parsed(operand))
        case ast.Call(func=ast.Name(id=name), args=[left, right]):
            return Binary(name, parsed(left), parsed(right))
        case _:
            raise AssertionError(ast.dump(node))


def negated_constant(expr: Expr) -> bool:
    """Whether a constant is negated in `expr`: Python has no other text for a negative number."""
    if isinstance(expr, Unary) and expr.op == "neg" and isinstance(expr.operand, Const):
        return True
    return any(map(negated_constant, children(expr)))


@given((masks(data=DATA) | reals(("q", "h"), ["dot"])).filter(lambda e: not negated_constant(e)))
def test_the_text_of_an_expression_is_python_for_its_tree(expr: Expr) -> None:
    assert parsed(ast.parse(expression_text(expr), mode="eval").body) == expr


def test_parentheses_only_where_they_are_needed() -> None:
    window = Binary("lt", Binary("sub", Q, K), Const(512))
    mask = Binary("and", CAUSAL, Binary("or", window, Binary("lt", K, Const(4))))
    assert expression_text(mask) == "k <= q and (q - k < 512 or k < 4)"
    score = Binary("mul", Const(-2.5), Unary("tanh", Binary("sub", DOT, Binary("add", Q, K))))
    assert expression_text(score) == "-2.5 * tanh(dot - (q + k))"
    assert expression_text(Unary("neg", Binary("min", Q, Const(True)))) == "-min(q, True)"


def test_attention() -> None:
    layer = attention(
        name="layer", d_model=32, mask=CAUSAL, sink=True, base="2", outputs=("out", "lse")
    )
    assert (
        attention_text(layer)
        == """\
attention layer (layer)
  dtype     float32, sums in float32
  d_model   32, with projections in and out
  heads     4 query, 2 key and value (2 to 1)
  head_dim  8, value_dim 6
  q         kv_len - q_len + i for query i (bottom_right); k = j for key j
  dot       1.0 * (query · key)
  score     dot * 0.125
  mask      k <= q
  weight    exp2(score - row_max) where mask, else 0
  out       sum(weight * value) / (sum(weight) + exp2(sink[h] * log2(e) - row_max))
  outputs   out, lse"""
    )
    core = attention_text(attention(alignment="top_left"))
    assert "attention plain (core)" in core
    assert "  q         i for query i (top_left); k = j for key j" in core
    assert "exp(score - row_max)" in core
    assert "  out       sum(weight * value) / sum(weight)\n" in core
    assert "d_model" not in core


def test_weights_of_other_kinds() -> None:
    one_more = attention_text(attention(off_by_one=True, base="2"))
    assert "  out       sum(weight * value) / (sum(weight) + exp2(0 - row_max))\n" in one_more
    alone = attention_text(attention(activation=Binary("max", Const(0.0), SCORE)))
    assert "  weight    max(0.0, score) where mask, else 0\n" in alone
    assert "  out       sum(weight * value)\n" in alone
    two = attention_text(attention(difference=Binary("sub", Const(1.5), Var("h")), base="2"))
    assert "  map       sum(weight * value) / sum(weight)\n" in two
    assert "  out       map 2h - (1.5 - h) * map 2h + 1, of query and key heads\n" in two
    assert "  maps      2, less 0.5 times the second" in kernel_text(
        KernelIR(attention(), (split(difference=Const(0.5)),))
    )
    weight = Binary("max", Const(0.0), DOT)
    program = KernelIR(attention(), (flash(weight=weight), split(off_by_one=True)))
    assert "  weight     max(0.0, dot), without a softmax\n" in kernel_text(program)
    assert "  sink      one of logit 0" in kernel_text(program)


def schedule(**values: int) -> CpuSchedule:
    names = [name for name in CpuSchedule.__dataclass_fields__ if name != "projection"]
    decisions = {name: Decision(values.get(name, 4), "heuristic", "") for name in names}
    return CpuSchedule(projection=Decision("blas", "spec", "as written"), **decisions)


def test_schedule() -> None:
    lines = schedule_text(schedule(block_q=128)).splitlines()
    assert lines[0] == "decision           value  source     why"
    assert lines[4] == "block_q              128  heuristic"
    assert lines[8] == "projection          blas  spec       as written"
    assert len(lines) == 14


def test_kernels() -> None:
    projection = Projection(FLOAT32, 8, 6, 2, 96, 512, 256, ())
    program = KernelIR(attention(), (flash(), split(), projection))
    parts = kernel_text(program).split("\n\n")
    assert parts[0] == attention_text(program.attention)
    assert (
        parts[1]
        == """\
flash_forward: online softmax over blocks of query rows
  lanes      8 query rows in a vector
  tile       6 keys × 2 vectors of rows
  block_q    64 rows a task, 16 a panel
  block_kv   48 keys a step
  head_dim   8, value_dim 6, float32
  dot        0.5 * (query · key)
  score      dot
  mask       k <= q
  full tile  k_last <= q_first
  not empty  k_first <= q_last
  first key  open
  last key   q_last
  sink       yes
  workspace of a worker, in elements:
    queries  128  Qᵀ
    row_max   16  maxima"""
    )
    assert (
        parts[2]
        == """\
split_kv: few query rows, split over the keys
  lanes     8 keys or value columns in a vector
  rows      8 of a kv head at most, 16 of a task
  tile      2 rows × 4 keys
  split_kv  256 keys a split
  head_dim  8, value_dim 6, float32
  dot       0.5 * (query · key)
  score     dot
  mask      none
  sink      no"""
    )
    assert (
        parts[3]
        == """\
projection: C = A · W + bias, with W packed
  dtype  float32
  lanes  8 columns in a vector
  tile   6 rows × 2 vectors of columns
  block  96 rows × 512 columns
  depth  256 of the inner dimension"""
    )


@given(st.sampled_from([-1, -1.5]))
def test_negative_constants(value: float) -> None:
    assert expression_text(Binary("le", K, Const(value))) == f"k <= {value}"
