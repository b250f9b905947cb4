"""The context of the prefill template, from a lowered kernel."""

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
from attngen.backends.numba_cpu.side_inputs import bound_assignments, definitions
from attngen.backends.sections import (
    INTERVAL_FORMS,
    LN2,
    LOG2E,
    SEQUENCE,
    Section,
    interval_code,
    is_closed,
    made_of_dot,
    needed,
    read_by,
    section,
)
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import Expr
from attngen.ir.kernel import FlashForward, SourceFile
from attngen.lowering import padded_row, round_up, value_stride, workspace_elements
from attngen.render import render

TEMPLATE = "numba_cpu/flash_forward.py.jinja"
_OPERATIONS = """fetch_add prefetch v_fma v_load v_mul v_splat v_splat_load v_store v_sum
    v_transpose v_zero"""
_OF_SOFTMAX = " v_add v_div v_eq v_max v_select v_sub v_weight"
_OF_MASK = " v_ne v_select"


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
    query_scale: float
    log2e: float
    ln2: float
    bottom_right: bool
    simd_names: tuple[str, ...]
    masked: bool
    key_first: str
    key_last: str
    always: str
    possible: str
    range_lines: tuple[str, ...]
    key_lines: tuple[str, ...]
    test_lines: tuple[str, ...]
    panel_lines: tuple[str, ...]
    block_test: bool
    uses_bounds: bool
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
    query_rows: int
    output_rows: int
    key_stride: int
    value_stride: int
    staging_stride: int
    buffers: tuple[PlacedBuffer, ...]
    workspace: int


def flash_file(ir: AttentionIR, kernel: FlashForward) -> SourceFile:
    """``flash_forward.py`` for `kernel`."""
    return SourceFile("flash_forward.py", render(TEMPLATE, flash_context(ir, kernel)))


def flash_context(ir: AttentionIR, kernel: FlashForward) -> FlashContext:
    """Everything the template prints."""
    lanes, tile = kernel.lanes, kernel.tile_scalars
    code = interval_code(kernel.mask, ir.inputs)
    inputs = definitions(ir, kernel.mask, 9)
    score, mask, difference = _sections(ir, kernel, tuple(inputs))
    sections = tuple(s.listed for s in (score, mask, difference) if s)
    q_bounds = bound_assignments(kernel.mask, "q")
    heads = {"h_first": "kv_h * GROUP", "h_last": "kv_h * GROUP + GROUP - 1"}
    block_rows = {
        **heads,
        "q_first": "first_row // GROUP + offset",
        "q_last": "(first_row + rows - 1) // GROUP + offset",
    }
    panel_rows = {
        **heads,
        "q_first": "(first_row + panel) // GROUP + offset",
        "q_last": "(first_row + min(panel + PANEL, rows) - 1) // GROUP + offset",
    }
    keys = {"k_last": "k_first + keys - 1", **bound_assignments(kernel.mask, "k")}
    block_test = kernel.mask is not None and not is_closed(kernel.mask)
    ends = ("key_first", "key_last")
    range_lines = needed({**block_rows, **q_bounds, **code.steps_of(*ends)}, *code.read_by(*ends))
    key_lines = needed(keys, *code.read_by("always", "possible"))
    test = {**block_rows, **q_bounds, **code.steps_of("possible")}
    test_lines = needed(test, code.forms["possible"]) if block_test else ()
    panel = {**panel_rows, **q_bounds, **code.steps_of(*INTERVAL_FORMS)}
    panel_lines = needed(panel, *code.forms.values())
    names = read_by(
        tuple(n for n in inputs if n not in ("sink", "sizes")),
        *sections,
        *code.forms.values(),
        *range_lines,
        *key_lines,
        *test_lines,
        *panel_lines,
    )
    input_lines = needed(inputs, *names, *["sink"] * ir.sink)
    return FlashContext(
        summary=f"Attention of {ir.name}: prefill, many query rows at a time.",
        head_dim=kernel.head_dim,
        value_dim=kernel.value_dim,
        group=ir.group,
        block_q=kernel.block_q,
        block_kv=kernel.block_kv,
        scalars=tuple(range(tile)),
        vectors=tuple(range(kernel.tile_vectors)),
        lane=offsets(kernel.tile_vectors, lanes),
        panel_row=offsets(tile, kernel.panel_rows),
        key_row=offsets(tile, padded_row(kernel.head_dim, lanes)),
        column=offsets(tile, 1),
        tile_scalars=tile,
        tile_vectors=kernel.tile_vectors,
        query_scale=kernel.query_scale,
        log2e=LOG2E,
        ln2=LN2,
        bottom_right=ir.alignment == "bottom_right",
        simd_names=simd_names(
            _OPERATIONS
            + _OF_SOFTMAX * (kernel.weight is None)
            + _OF_MASK * bool(kernel.mask)
            + " v_sub" * bool(difference),
            score,
            mask,
            difference,
        ),
        masked=kernel.mask is not None,
        **code.forms,
        range_lines=range_lines,
        key_lines=key_lines,
        test_lines=test_lines,
        panel_lines=panel_lines,
        block_test=block_test,
        uses_bounds=bool(kernel.mask and kernel.mask.data_bounds),
        side_names=names,
        input_lines=input_lines,
        workers_names=workers_names(input_lines, kernel.dtype),
        score=score,
        mask=mask,
        made=next(iter(made_of_dot(kernel)), "dot"),
        softmax=kernel.weight is None,
        sink=kernel.sink,
        off_by_one=kernel.off_by_one,
        difference=difference,
        stored=kernel.dtype.is_half,
        query_rows=round_up(kernel.head_dim, lanes),
        output_rows=max(round_up(kernel.value_dim, lanes), round_up(kernel.value_dim, tile)),
        key_stride=padded_row(kernel.head_dim, lanes),
        value_stride=value_stride(kernel.value_dim, lanes, tile),
        staging_stride=padded_row(max(kernel.head_dim, kernel.value_dim), lanes),
        buffers=place(kernel.buffers, kernel.dtype),
        workspace=workspace_elements(kernel.buffers, kernel.dtype),
    )


def _sections(
    ir: AttentionIR, kernel: FlashForward, inputs: tuple[str, ...]
) -> tuple[Section | None, Section | None, Section | None]:
    """The score's section, the mask's, and that of the share of a second map."""
    outer = {"q": "v_load(positions, panel + lane)"}
    vectors = {"q", "dot"}
    parameters = ("positions", "heads", "panel", "k_first", *SEQUENCE, *inputs)
    if ir.group > 1:
        outer["h"] = "v_load(heads, panel + lane)"
        vectors.add("h")
    else:
        outer["h"] = "kv_h"
    inner = {"k": "k_first + key"}

    def make(results: dict[str, Expr]) -> Section:
        printer = vector_printer(vectors, set(inner), ir.inputs)
        return section(results, printer, inner, outer, parameters)

    scores = made_of_dot(kernel)
    score = make(scores) if scores else None
    mask = make({"keep": kernel.mask.predicate}) if kernel.mask else None
    share = None
    if kernel.difference is not None:
        printer = vector_printer(vectors, set(), ir.inputs)
        share = section({"share": kernel.difference}, printer, {}, outer, ("kv_h", *inputs))
    return score, mask, share
