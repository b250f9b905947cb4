"""Verifiers: what every stage may take for granted about the IR it is given.

Input: an AttentionIR or KernelIR. Output: nothing, or an InternalError that names the field. They
check what a rewrite could break; what a person can get wrong is checked where their text is read.
"""

from __future__ import annotations

import math
from typing import assert_never

from attngen.errors import InternalError
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import Binary, Const, Expr, Unary, Var, variables
from attngen.ir.kernel import Buffer, FlashForward, Kernel, KernelIR, MaskPlan, Projection, SplitKV
from attngen.ir.kinds import Kind, kind_of

SCORE_VARS = frozenset({"dot", "b", "h", "kv_h", "q", "k", "q_len", "kv_len"})
MASK_VARS = frozenset({"q", "k", "q_len", "kv_len"})
ROW_VARS = frozenset({"q_first", "q_last", "q_len", "kv_len"})
TILE_VARS = ROW_VARS | {"k_first", "k_last"}
MAX_INTEGER = 1 << 62
"""Whole numbers stay below this, so that adding a position to one fits 64 bits."""


def verify_attention(ir: AttentionIR) -> None:
    """Check `ir`.

    Raises:
        InternalError: naming the field that is wrong.
    """
    _require(ir.name.isidentifier(), "name", f"is no identifier: {ir.name!r}")
    for name in ("heads", "kv_heads", "head_dim", "value_dim"):
        _positive(name, getattr(ir, name))
    if ir.d_model is not None:
        _positive("d_model", ir.d_model)
    _require(ir.heads % ir.kv_heads == 0, "kv_heads", f"{ir.kv_heads} does not divide {ir.heads}")
    _require(math.isfinite(ir.query_scale), "query_scale", f"is not finite: {ir.query_scale}")
    _expression("score", ir.score, ("integer", "real"), SCORE_VARS)
    _expression("mask", ir.mask, ("boolean",), MASK_VARS)
    _require(ir.alignment in ("bottom_right", "top_left"), "alignment", repr(ir.alignment))
    _require(ir.base in ("e", "2"), "base", repr(ir.base))
    _require(ir.outputs in (("out",), ("out", "lse")), "outputs", repr(ir.outputs))


def verify_kernel(program: KernelIR) -> None:
    """Check the attention and every kernel of `program`.

    Raises:
        InternalError: naming the kernel and the field that is wrong.
    """
    verify_attention(program.attention)
    _require(program.attention.base == "2", "attention.base", "kernels work in base 2")
    _require(bool(program.kernels), "kernels", "is empty")
    for kernel in program.kernels:
        try:
            _verify_one(program.attention, kernel)
        except InternalError as error:
            raise InternalError(f"{type(kernel).__name__}.{error}") from None


def _verify_one(ir: AttentionIR, kernel: Kernel) -> None:
    _require(kernel.dtype == ir.dtype, "dtype", f"is {kernel.dtype.name}, not {ir.dtype.name}")
    _positive("lanes", kernel.lanes)
    _buffers(kernel.buffers)
    match kernel:
        case FlashForward():
            for name in ("tile_scalars", "tile_vectors", "block_q", "block_kv"):
                _positive(name, getattr(kernel, name))
            _multiple("block_q", kernel.block_q, kernel.panel_rows)
            _multiple("block_kv", kernel.block_kv, kernel.tile_scalars)
            _same_attention(ir, kernel)
        case SplitKV():
            for name in ("rows", "max_rows", "split_kv"):
                _positive(name, getattr(kernel, name))
            _multiple("max_rows", kernel.max_rows, kernel.rows)
            _same_attention(ir, kernel)
        case Projection():
            for name in ("tile_rows", "tile_vectors", "block_m", "block_n", "block_k"):
                _positive(name, getattr(kernel, name))
            _multiple("block_n", kernel.block_n, kernel.tile_vectors * kernel.lanes)
            _require(ir.d_model is not None, "dtype", "a core has no projections")
        case _:
            assert_never(kernel)


def _same_attention(ir: AttentionIR, kernel: FlashForward | SplitKV) -> None:
    for name in ("head_dim", "value_dim", "query_scale", "score", "sink"):
        value, expected = getattr(kernel, name), getattr(ir, name)
        _require(value == expected, name, f"is {value!r}, not the attention's {expected!r}")
    if kernel.mask is None:
        _require(ir.mask == Const(True), "mask", "is missing")
    else:
        _require(kernel.mask.predicate == ir.mask, "mask.predicate", "is not the attention's")
        _mask_plan(kernel.mask)


def _mask_plan(plan: MaskPlan) -> None:
    _expression("mask.always", plan.always, ("boolean",), TILE_VARS)
    _expression("mask.possible", plan.possible, ("boolean",), TILE_VARS)
    for name, bound in (("mask.key_first", plan.key_first), ("mask.key_last", plan.key_last)):
        if bound is not None:
            _expression(name, bound, ("integer",), ROW_VARS)


def _buffers(buffers: tuple[Buffer, ...]) -> None:
    names = [b.name for b in buffers]
    for buffer in buffers:
        _require(buffer.name.isidentifier(), "buffers", f"{buffer.name!r} is no identifier")
        _require(names.count(buffer.name) == 1, "buffers", f"{buffer.name!r} occurs twice")
        _positive(f"buffers.{buffer.name}", buffer.size)


def _expression(field: str, expr: Expr, kinds: tuple[Kind, ...], names: frozenset[str]) -> None:
    try:
        kind = kind_of(expr)
    except InternalError as error:
        raise InternalError(f"{field}: {error}") from None
    _require(kind in kinds, field, f"is {kind}, not {' or '.join(kinds)}")
    unknown = variables(expr) - names
    _require(not unknown, field, f"reads {', '.join(sorted(unknown))}")
    _constants(field, expr)


def _constants(field: str, expr: Expr) -> None:
    match expr:
        case Const(value=value):
            small = isinstance(value, float) or abs(value) < MAX_INTEGER
            _require(math.isfinite(value) and small, field, f"has the constant {value!r}")
        case Var():
            pass
        case Unary(operand=operand):
            _constants(field, operand)
        case Binary(left=left, right=right):
            _constants(field, left)
            _constants(field, right)
        case _:
            assert_never(expr)


def _positive(field: str, value: int) -> None:
    _require(value > 0, field, f"must be positive, and is {value}")


def _multiple(field: str, value: int, step: int) -> None:
    _require(value % step == 0, field, f"must be a multiple of {step}, and is {value}")


def _require(holds: bool, field: str, message: str) -> None:
    if not holds:
        raise InternalError(f"{field}: {message}")
