"""The context of the split-KV template, from a lowered kernel."""

from __future__ import annotations

from dataclasses import dataclass

from attngen.backends.numba_cpu.sections import (
    PlacedBuffer,
    offsets,
    place,
    simd_names,
    vector_printer,
    workers_names,
)
from attngen.backends.numba_cpu.side_inputs import definitions
from attngen.backends.scalar_code import scalar_steps
from attngen.backends.sections import (
    LN2,
    LOG2E,
    SEQUENCE,
    Section,
    assignments,
    interval_code,
    made_of_dot,
    needed,
    read_by,
    section,
)
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import Expr, loads, variables
from attngen.ir.kernel import SourceFile, SplitKV, SplitTile
from attngen.lowering import padded_row, round_up, score_row, workspace_elements
from attngen.render import render

TEMPLATE = "numba_cpu/split_kv.py.jinja"
_OPERATIONS = "fetch_add prefetch v_fma v_load v_splat v_splat_load v_store v_sum v_zero"
_OF_SOFTMAX = " v_add v_max v_sub v_weight"

_SEQUENCE_ALONE = frozenset({"q_first", "q_last", "q_len", "kv_len"})


@dataclass(frozen=True, slots=True)
class PrintedTile:
    """A register tile of some rows, as the template names it."""

    name: str
    what: str
    count: int
    times: str
    width: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitContext:
    """Variables of ``split_kv.py.jinja``, which documents them."""

    summary: str
    head_dim: int
    value_dim: int
    group: int
    max_rows: int
    split_kv: int
    task_rows: int
    key_tile: int
    keys: tuple[int, ...]
    tiles: tuple[PrintedTile, ...]
    query_row: tuple[str, ...]
    score_row: tuple[str, ...]
    output_row: tuple[str, ...]
    plus: tuple[str, ...]
    lane: tuple[str, ...]
    has_rest: bool
    query_scale: float
    log2e: float
    ln2: float
    bottom_right: bool
    simd_names: tuple[str, ...]
    positioned: bool
    masked: bool
    key_first: str
    key_last: str
    always: str
    block_lines: tuple[str, ...]
    key_lines: tuple[str, ...]
    range_lines: tuple[str, ...]
    row_lines: tuple[str, ...]
    side_names: tuple[str, ...]
    input_lines: tuple[str, ...]
    workers_names: tuple[str, ...]
    score: Section | None
    mask: Section | None
    made: str
    softmax: bool
    sink: bool
    off_by_one: bool
    difference: Section | None
    stored: bool
    query_stride: int
    score_stride: int
    output_stride: int
    buffers: tuple[PlacedBuffer, ...]
    workspace: int


def split_file(ir: AttentionIR, kernel: SplitKV) -> SourceFile:
    """``split_kv.py`` for `kernel`."""
    return SourceFile("split_kv.py", render(TEMPLATE, split_context(ir, kernel)))


def split_context(ir: AttentionIR, kernel: SplitKV) -> SplitContext:
    """Everything the template prints."""
    lanes = kernel.lanes
    # A split outside the range of the keys has no keys, and that range is one for all heads and all
    # sequences of the same lengths.
    code = interval_code(kernel.mask, ir.inputs, ("possible", *_unshared_bounds(kernel)))
    always = code.forms["always"]
    if kernel.mask and kernel.mask.data_bounds:
        always = "False"  # few rows are masked faster than their data is looked up
    inputs = definitions(ir, kernel.mask, 10)
    score, mask = _sections(ir, kernel, tuple(inputs))
    difference = _difference(ir, kernel, tuple(inputs))
    reads = tuple(s.listed for s in (score, mask, difference) if s)
    names = read_by(
        tuple(n for n in inputs if n not in ("sink", "sizes")), *reads, *code.read_by("always")
    )
    input_lines = needed(inputs, *names, *["sink"] * ir.sink)
    rows = {"q": "row // GROUP + offset", "h": "kv_h * GROUP + row % GROUP"}
    positions = {
        "q_first": "offset",
        "q_last": "offset + q_len - 1",
        "h_first": "kv_h * GROUP",
        "h_last": "kv_h * GROUP + GROUP - 1",
    }
    block_lines = needed(positions, *code.read_by("always")) if always != "False" else ()
    row_lines = assignments(rows, *reads)
    keys = {"k_first": "first", "k_last": "last - 1"}
    ends = ("key_first", "key_last")
    most_rows = kernel.tiles[0].rows
    score_stride = score_row(kernel.split_kv, kernel.key_tile, lanes)
    output_stride = round_up(kernel.value_dim + 2, lanes)
    return SplitContext(
        summary=f"Attention of {ir.name}: decoding, few query rows against many keys.",
        head_dim=kernel.head_dim,
        value_dim=kernel.value_dim,
        group=ir.group,
        max_rows=kernel.max_rows,
        split_kv=kernel.split_kv,
        task_rows=kernel.task_rows,
        key_tile=kernel.key_tile,
        keys=tuple(range(kernel.key_tile)),
        tiles=tuple(_printed(tile, lanes) for tile in kernel.tiles),
        query_row=offsets(most_rows, padded_row(kernel.head_dim, lanes)),
        score_row=offsets(most_rows, score_stride),
        output_row=offsets(most_rows, output_stride),
        plus=offsets(kernel.key_tile, 1),
        lane=offsets(max(tile.value_vectors for tile in kernel.tiles), lanes),
        has_rest=kernel.value_dim % lanes > 0,
        query_scale=kernel.query_scale,
        log2e=LOG2E,
        ln2=LN2,
        bottom_right=ir.alignment == "bottom_right",
        simd_names=simd_names(
            _OPERATIONS + _OF_SOFTMAX * (kernel.weight is None) + " v_select" * bool(mask),
            score,
            mask,
        ),
        positioned=bool(read_by(("offset",), *block_lines, *row_lines)),
        masked=kernel.mask is not None,
        key_first=code.forms["key_first"],
        key_last=code.forms["key_last"],
        always=always,
        block_lines=block_lines,
        range_lines=needed({**positions, **code.steps_of(*ends)}, *code.read_by(*ends)),
        row_lines=row_lines,
        side_names=names,
        input_lines=input_lines,
        workers_names=workers_names(input_lines, kernel.dtype),
        key_lines=needed({**keys, **code.steps_of("always")}, always),
        score=score,
        mask=mask,
        made=next(iter(made_of_dot(kernel)), "dot"),
        softmax=kernel.weight is None,
        sink=kernel.sink,
        off_by_one=kernel.off_by_one,
        difference=difference,
        stored=kernel.dtype.is_half,
        query_stride=padded_row(kernel.head_dim, lanes),
        score_stride=score_stride,
        output_stride=output_stride,
        buffers=place(kernel.buffers, kernel.dtype),
        workspace=workspace_elements(kernel.buffers, kernel.dtype),
    )


def _printed(tile: SplitTile, lanes: int) -> PrintedTile:
    """A tile with the names of its functions."""
    one = tile.rows == 1
    return PrintedTile(
        name="row" if one else "rows",
        what="a row" if one else f"{tile.rows} rows",
        count=tile.rows,
        times="" if one else f"{tile.rows} * ",
        width=tile.value_vectors * lanes,
        rows=tuple(range(tile.rows)),
        columns=tuple(range(tile.value_vectors)),
    )


def _unshared_bounds(kernel: SplitKV) -> tuple[str, ...]:
    """The bounds of the keys that read more than lengths and positions."""
    mask = kernel.mask
    bounds = {"key_first": mask.key_first, "key_last": mask.key_last} if mask else {}
    return tuple(
        name
        for name, bound in bounds.items()
        if bound is not None and (loads(bound) or not variables(bound) <= _SEQUENCE_ALONE)
    )


def _difference(ir: AttentionIR, kernel: SplitKV, inputs: tuple[str, ...]) -> Section | None:
    """What makes `share` of a row, the factor of a second map."""
    if kernel.difference is None:
        return None

    def printer(expr: Expr, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        text, steps = scalar_steps(expr, name, ir.inputs)
        return (*(f"{step} = {code}" for step, code in steps.items()), f"{name} = {text}"), ()

    head = {"h": "kv_h * GROUP + row % GROUP"}
    return section({"share": kernel.difference}, printer, {}, head, inputs)


def _sections(
    ir: AttentionIR, kernel: SplitKV, inputs: tuple[str, ...]
) -> tuple[Section | None, Section | None]:
    """The score's section and the mask's."""
    parameters = ("q", "h", "first", *SEQUENCE, *inputs)

    def make(results: dict[str, Expr]) -> Section:
        inner = {"k": "v_iota(first + lane)"}
        printer = vector_printer({"k", "dot"}, set(inner), ir.inputs)
        return section(results, printer, inner, {}, parameters)

    scores = made_of_dot(kernel)
    score = make(scores) if scores else None
    mask = make({"keep": kernel.mask.predicate}) if kernel.mask else None
    return score, mask
