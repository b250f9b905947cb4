"""KernelIR -> source package: one context and one template a kernel.

Input: a program, the schedule and target it was made for. Output: a complete Python package that
imports NumPy and Numba only. The same input gives the same bytes: no time, host or path is in it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from attngen.backends.numba_cpu.header import header_file
from attngen.backends.numba_cpu.printing import operations, scalar_code, vector_lines
from attngen.backends.numba_cpu.simd import simd_file
from attngen.dtypes import DType
from attngen.ir.expr import DOT, Expr
from attngen.ir.kernel import (
    Buffer,
    FlashForward,
    KernelIR,
    MaskPlan,
    Projection,
    SourceFile,
    SourcePackage,
    SplitKV,
)
from attngen.ir.schedule import CpuSchedule
from attngen.lowering import padded_row, round_up, value_stride, workspace_elements
from attngen.render import render
from attngen.targets import CpuTarget

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)


@dataclass(frozen=True, slots=True)
class PlacedBuffer:
    """A buffer with the name of its constant and its first element in the workspace."""

    constant: str
    start: int
    holds: str


@dataclass(frozen=True, slots=True)
class FlashContext:
    """Variables of ``flash_forward.py.jinja``, which documents them."""

    summary: str
    head_dim: int
    value_dim: int
    group: int
    block_q: int
    block_kv: int
    scalars: tuple[int, ...]
    vectors: tuple[int, ...]
    lane: tuple[str, ...]
    panel_row: tuple[str, ...]
    key_row: tuple[str, ...]
    column: tuple[str, ...]
    tile_scalars: int
    tile_vectors: int
    query_scale: str
    log2e: float
    ln2: float
    bottom_right: bool
    simd_names: tuple[str, ...]
    masked: bool
    key_first: str
    key_last: str
    always: str
    possible: str
    block_lines: tuple[str, ...]
    key_lines: tuple[str, ...]
    panel_lines: tuple[str, ...]
    score_lines: tuple[str, ...]
    mask_lines: tuple[str, ...]
    sink: bool
    query_rows: int
    output_rows: int
    key_stride: int
    value_stride: int
    staging_stride: int
    buffers: tuple[PlacedBuffer, ...]
    workspace: int


@dataclass(frozen=True, slots=True)
class SplitContext:
    """Variables of ``split_kv.py.jinja``, which documents them."""

    summary: str
    head_dim: int
    value_dim: int
    group: int
    max_rows: int
    split_kv: int
    rows: tuple[int, ...]
    row_tile: int
    query_row: tuple[str, ...]
    score_row: tuple[str, ...]
    query_scale: str
    log2e: float
    ln2: float
    bottom_right: bool
    simd_names: tuple[str, ...]
    masked: bool
    key_first: str
    key_last: str
    always: str
    block_lines: tuple[str, ...]
    key_lines: tuple[str, ...]
    score_lines: tuple[str, ...]
    mask_lines: tuple[str, ...]
    sink: bool
    query_stride: int
    score_stride: int
    output_stride: int
    buffers: tuple[PlacedBuffer, ...]
    workspace: int


@dataclass(frozen=True, slots=True)
class EntryContext:
    """Variables of ``entry.py.jinja``, which documents them."""

    dtype: str
    accumulator: str
    heads: int
    kv_heads: int
    sink: bool
    short_rows: int
    layer: bool
    d_model: int
    generated_projection: bool


def emit(kernel: KernelIR, schedule: CpuSchedule, target: CpuTarget) -> SourcePackage:
    """Print `kernel` as a package named after its spec."""
    ir = kernel.attention
    files = [header_file(kernel, schedule, target)]
    entry = EntryContext(
        dtype=ir.dtype.name,
        accumulator=ir.dtype.accumulator,
        heads=ir.heads,
        kv_heads=ir.kv_heads,
        sink=ir.sink,
        short_rows=schedule.short_rows.value,
        layer=ir.scope == "layer",
        d_model=ir.d_model or 0,
        generated_projection=schedule.projection.value == "generated",
    )
    files.append(_file("entry.py", "numba_cpu/entry.py.jinja", entry))
    lanes = schedule.lanes.value
    files.append(simd_file(ir.dtype, lanes, target.isa if lanes > 1 else "scalar"))
    for part in kernel.kernels:
        match part:
            case FlashForward():
                flash = flash_context(kernel, part)
                files.append(_file("flash_forward.py", "numba_cpu/flash_forward.py.jinja", flash))
            case SplitKV():
                split = split_context(kernel, part)
                files.append(_file("split_kv.py", "numba_cpu/split_kv.py.jinja", split))
            case Projection():
                raise AssertionError(part)
    return SourcePackage(ir.name, tuple(files))


def _file(path: str, template: str, context: object) -> SourceFile:
    return SourceFile(path, render(template, context))


def place(buffers: tuple[Buffer, ...], dtype: DType) -> tuple[PlacedBuffer, ...]:
    """Give each buffer its place, one after the other, each on a 64-byte line."""
    return tuple(
        PlacedBuffer(b.name.upper(), workspace_elements(buffers[:i], dtype), b.holds)
        for i, b in enumerate(buffers)
    )


def score_lines(score: Expr) -> tuple[str, ...]:
    """Lines that make `score` of the vector `dot`; none where the product is the score."""
    return () if score == DOT else vector_lines(score, "score", {"dot"})


def interval_code(mask: MaskPlan | None, form: str) -> str:
    """An interval form of `mask` as Python, or an empty string where nothing is known."""
    expr: Expr | None = getattr(mask, form) if mask else None
    return scalar_code(expr) if expr is not None else ""


def _simd_names(base: set[str], *sections: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(base.union(*(operations(s) for s in sections))))


def _set(definitions: dict[str, str], *texts: str) -> tuple[str, ...]:
    """Assignments for those of `definitions` that a word of `texts` reads."""
    words = set(re.findall(r"\w+", " ".join(texts)))
    return tuple(f"{name} = {code}" for name, code in definitions.items() if name in words)


def _offsets(count: int, step: int) -> tuple[str, ...]:
    """What to add to an address to get to each of `count` places, `step` apart."""
    return tuple(f" + {i * step}" if i else "" for i in range(count))


def flash_context(kernel: KernelIR, part: FlashForward) -> FlashContext:
    """Everything the flash template prints."""
    ir, lanes = kernel.attention, part.lanes
    scores = score_lines(part.score)
    masks = vector_lines(part.mask.predicate, "keep", {"q"}) if part.mask else ()
    names = {
        "call_worker", "fetch_add", "v_add", "v_div", "v_eq", "v_exp2", "v_fma", "v_load", "v_max", "v_mul",
        "v_select", "v_splat", "v_splat_load", "v_store", "v_sub", "v_sum", "v_transpose", "v_zero",
    }  # fmt: skip
    if part.mask:
        names.add("v_ne")
    bounds = key_first, key_last = [interval_code(part.mask, f) for f in ("key_first", "key_last")]
    always, possible = (interval_code(part.mask, form) for form in ("always", "possible"))
    return FlashContext(
        summary=f"Attention of {ir.name}: prefill, many query rows at a time.",
        head_dim=part.head_dim,
        value_dim=part.value_dim,
        group=ir.group,
        block_q=part.block_q,
        block_kv=part.block_kv,
        scalars=tuple(range(part.tile_scalars)),
        vectors=tuple(range(part.tile_vectors)),
        lane=_offsets(part.tile_vectors, lanes),
        panel_row=_offsets(part.tile_scalars, part.panel_rows),
        key_row=_offsets(part.tile_scalars, padded_row(part.head_dim, lanes)),
        column=_offsets(part.tile_scalars, 1),
        tile_scalars=part.tile_scalars,
        tile_vectors=part.tile_vectors,
        query_scale=repr(part.query_scale),
        log2e=LOG2E,
        ln2=LN2,
        bottom_right=ir.alignment == "bottom_right",
        simd_names=_simd_names(names, scores, masks),
        masked=part.mask is not None,
        key_first=key_first,
        key_last=key_last,
        always=always,
        possible=possible,
        block_lines=_set(
            {
                "q_first": "first_row // GROUP + offset",
                "q_last": "(first_row + rows - 1) // GROUP + offset",
            },
            *bounds,
        ),
        key_lines=_set({"k_last": "k_first + keys - 1"}, always, possible),
        panel_lines=_set(
            {
                "q_first": "(first_row + panel) // GROUP + offset",
                "q_last": "(first_row + min(panel + PANEL, rows) - 1) // GROUP + offset",
            },
            *bounds,
            always,
            possible,
        ),
        score_lines=scores,
        mask_lines=masks,
        sink=part.sink,
        query_rows=round_up(part.head_dim, lanes),
        output_rows=max(
            round_up(part.value_dim, lanes), round_up(part.value_dim, part.tile_scalars)
        ),
        key_stride=padded_row(part.head_dim, lanes),
        value_stride=value_stride(part.value_dim, lanes, part.tile_scalars),
        staging_stride=padded_row(max(part.head_dim, part.value_dim), lanes),
        buffers=place(part.buffers, part.dtype),
        workspace=workspace_elements(part.buffers, part.dtype),
    )


def split_context(kernel: KernelIR, part: SplitKV) -> SplitContext:
    """Everything the split-KV template prints."""
    ir, lanes = kernel.attention, part.lanes
    scores = score_lines(part.score)
    masks = vector_lines(part.mask.predicate, "keep", {"k"}) if part.mask else ()
    names = {
        "call_worker", "fetch_add", "v_add", "v_exp2", "v_fma", "v_load", "v_max", "v_splat", "v_store", "v_sub",
        "v_sum", "v_zero",
    }  # fmt: skip
    if part.mask:
        names |= {"v_iota", "v_select"}
    key_first, key_last, always = (
        interval_code(part.mask, form) for form in ("key_first", "key_last", "always")
    )
    return SplitContext(
        summary=f"Attention of {ir.name}: decoding, few query rows against many keys.",
        head_dim=part.head_dim,
        value_dim=part.value_dim,
        group=ir.group,
        max_rows=part.max_rows,
        split_kv=part.split_kv,
        rows=tuple(range(part.rows)),
        row_tile=part.rows,
        query_row=_offsets(part.rows, padded_row(part.head_dim, lanes)),
        score_row=_offsets(part.rows, padded_row(part.split_kv, lanes)),
        query_scale=repr(part.query_scale),
        log2e=LOG2E,
        ln2=LN2,
        bottom_right=ir.alignment == "bottom_right",
        simd_names=_simd_names(names, scores, masks),
        masked=part.mask is not None,
        key_first=key_first,
        key_last=key_last,
        always=always,
        block_lines=_set(
            {"q_first": "offset", "q_last": "offset + q_len - 1"}, key_first, key_last, always
        ),
        key_lines=_set({"k_first": "first", "k_last": "last - 1"}, always),
        score_lines=scores,
        mask_lines=masks,
        sink=part.sink,
        query_stride=padded_row(part.head_dim, lanes),
        score_stride=padded_row(part.split_kv, lanes),
        output_stride=round_up(part.value_dim + 2, lanes),
        buffers=place(part.buffers, part.dtype),
        workspace=workspace_elements(part.buffers, part.dtype),
    )
