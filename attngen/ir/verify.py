"""Verifiers: what every stage may take for granted about the IR it is given.

Input: an AttentionIR or KernelIR. Output: nothing, or an InternalError that names the field. They
check what a rewrite could break; what a person can get wrong is checked where their text is read.
"""

from __future__ import annotations

import math
from typing import Literal, assert_never

from attngen.errors import InternalError
from attngen.ir.attention import OUTPUTS, SIZES, AttentionIR, SideInput
from attngen.ir.expr import SCORE, Const, Expr, children, data_bound, loads, variables
from attngen.ir.kernel import (
    GROUP_THREADS,
    Buffer,
    FlashForward,
    GridForward,
    Kernel,
    KernelIR,
    MaskPlan,
    Projection,
    SplitKV,
)
from attngen.ir.kinds import Kind, kind_of

SCORE_VARS = frozenset({"dot", "b", "h", "kv_h", "q", "k", "q_len", "kv_len"})
MASK_VARS = SCORE_VARS - {"dot"}
ROW_VARS = frozenset({"b", "kv_h", "h_first", "h_last", "q_first", "q_last", "q_len", "kv_len"})
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
    if ir.activation is not None:
        _expression("activation", ir.activation, ("real",), MASK_VARS | {SCORE.name})
        _require(not loads(ir.activation), "activation", "reads a side input")
        _require(not (ir.sink or ir.off_by_one), "sink", "is part of a softmax alone")
        _require("lse" not in ir.outputs, "outputs", "there is no lse without a softmax")
    if ir.difference is not None:
        _expression("difference", ir.difference, ("integer", "real"), frozenset({"h", "kv_h"}))
        _require(not ir.sink, "sink", "is of which of a head's two maps")
    _require(not (ir.sink and ir.off_by_one), "off_by_one", "is a sink, and there is another")
    _inputs(ir)
    _require(ir.alignment in ("bottom_right", "top_left"), "alignment", repr(ir.alignment))
    _require(ir.base in ("e", "2"), "base", repr(ir.base))
    listed = tuple(name for name in OUTPUTS if name in ir.outputs)
    _require(ir.outputs == listed and "out" in listed, "outputs", repr(ir.outputs))


def _inputs(ir: AttentionIR) -> None:
    names = [i.name for i in ir.inputs]
    for given in ir.inputs:
        name = f"inputs.{given.name}"
        _require(given.name.isidentifier(), name, "is no identifier")
        _require(names.count(given.name) == 1, name, "occurs twice")
        _require(given.name not in SCORE_VARS, name, "is the name of a variable")
        for size in given.shape:
            _require(size in SIZES or (isinstance(size, int) and size > 0), name, f"size {size!r}")
        _require(bool(given.shape), name, "has no axis")
        _table(ir, given)
    known = {i.name: i for i in ir.inputs}
    difference = () if ir.difference is None else loads(ir.difference)
    for load in (*loads(ir.score), *loads(ir.mask), *difference):
        _require(load.input in known, f"inputs.{load.input}", "is missing")
        given = known[load.input]
        fits = len(load.indices) == len(given.shape) and load.dtype == given.dtype
        _require(fits, f"inputs.{load.input}", f"does not fit {load!r}")


def _table(ir: AttentionIR, given: SideInput) -> None:
    if given.values is None:
        return
    sizes = {"heads": ir.heads, "kv_heads": ir.kv_heads}
    shape = [size if isinstance(size, int) else sizes.get(size, 0) for size in given.shape]
    whole = len(given.values) == math.prod(shape)
    _require(whole, f"inputs.{given.name}", "has a wrong number of values")
    _require(all(map(math.isfinite, given.values)), f"inputs.{given.name}", "is not finite")


def verify_kernel(program: KernelIR) -> None:
    """Check the attention and every kernel of `program`.

    Raises:
        InternalError: naming the kernel and the field that is wrong.
    """
    ir = program.attention
    verify_attention(ir)
    in_base = ir.base == "2" or ir.activation is not None
    _require(in_base, "attention.base", "kernels work in base 2")
    _require(bool(program.kernels), "kernels", "is empty")
    for kernel in program.kernels:
        try:
            _verify_one(ir, kernel)
        except InternalError as error:
            raise InternalError(f"{type(kernel).__name__}.{error}") from None


def _verify_one(ir: AttentionIR, kernel: Kernel) -> None:
    in_storage = isinstance(kernel, (Projection, GridForward))
    dtype = ir.dtype if in_storage else ir.heads_dtype
    _require(kernel.dtype == dtype, "dtype", f"is {kernel.dtype.name}, not {dtype.name}")
    _buffers(kernel.buffers)
    if not isinstance(kernel, GridForward):
        _positive("lanes", kernel.lanes)
    match kernel:
        case FlashForward():
            for name in ("tile_scalars", "tile_vectors", "block_q", "block_kv"):
                _positive(name, getattr(kernel, name))
            _multiple("block_q", kernel.block_q, kernel.panel_rows)
            _multiple("block_kv", kernel.block_kv, kernel.tile_scalars)
            _same_attention(ir, kernel)
        case GridForward():
            for name in ("threads", "block_q", "block_kv", "depth", "value_panel"):
                _positive(name, getattr(kernel, name))
            _multiple("threads", kernel.threads, 32)
            _multiple("block_q", kernel.block_q, kernel.threads // GROUP_THREADS)
            _multiple("block_kv", kernel.block_kv, GROUP_THREADS)
            _multiple("block_kv", kernel.block_kv, kernel.depth)
            _multiple("value_panel", kernel.value_panel, GROUP_THREADS)
            _same_attention(ir, kernel)
        case SplitKV():
            for name in ("key_tile", "task_rows", "split_kv"):
                _positive(name, getattr(kernel, name))
            _require(kernel.tiles[-1].rows == 1, "tiles", "end with more than one row")
            _require(kernel.max_rows <= kernel.task_rows, "max_rows", "is more than a task takes")
            _same_attention(ir, kernel)
        case Projection():
            for name in ("tile_rows", "tile_vectors", "block_m", "block_n", "block_k"):
                _positive(name, getattr(kernel, name))
            _multiple("block_n", kernel.block_n, kernel.tile_vectors * kernel.lanes)
            _require(ir.d_model is not None, "dtype", "a core has no projections")
        case _:
            assert_never(kernel)


def _same_attention(ir: AttentionIR, kernel: FlashForward | GridForward | SplitKV) -> None:
    for name in (
        "head_dim",
        "value_dim",
        "query_scale",
        "score",
        "sink",
        "off_by_one",
        "difference",
    ):
        value, expected = getattr(kernel, name), getattr(ir, name)
        _require(value == expected, name, f"is {value!r}, not the attention's {expected!r}")
    _require((kernel.weight is None) == (ir.activation is None), "weight", "is not the activation")
    if kernel.weight is not None:
        _expression("weight", kernel.weight, ("real",), SCORE_VARS)
    if kernel.mask is None:
        _require(ir.mask == Const(True), "mask", "is missing")
    else:
        _require(kernel.mask.predicate == ir.mask, "mask.predicate", "is not the attention's")
        _mask_plan(kernel.mask)


def _mask_plan(plan: MaskPlan) -> None:
    ends: tuple[Literal["min", "max"], ...] = ("min", "max")
    data = [
        variable.name
        for load in loads(plan.predicate)
        for end in ends
        if (variable := data_bound(load, end)) is not None
    ]
    _expression("mask.always", plan.always, ("boolean",), TILE_VARS.union(data))
    _expression("mask.possible", plan.possible, ("boolean",), TILE_VARS.union(data))
    for name, bound in (("mask.key_first", plan.key_first), ("mask.key_last", plan.key_last)):
        if bound is not None:
            rows = {n for n in data if n.endswith(("_q_min", "_q_max"))}
            _expression(name, bound, ("integer",), ROW_VARS | rows)


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
    if isinstance(expr, Const):
        value = expr.value
        small = isinstance(value, float) or abs(value) < MAX_INTEGER
        _require(math.isfinite(value) and small, field, f"has the constant {value!r}")
    for child in children(expr):
        _constants(field, child)


def _positive(field: str, value: int) -> None:
    _require(value > 0, field, f"must be positive, and is {value}")


def _multiple(field: str, value: int, step: int) -> None:
    _require(value % step == 0, field, f"must be a multiple of {step}, and is {value}")


def _require(holds: bool, field: str, message: str) -> None:
    if not holds:
        raise InternalError(f"{field}: {message}")
