"""The context of the forward template for CUDA cores, from a lowered kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attngen.backends.numba_cuda.printing import FUNCTIONS, converted_forms, element_printer
from attngen.backends.numba_cuda.ptx import function_imports, ptx_calls
from attngen.backends.numba_cuda.side_inputs import (
    KernelInput,
    bound_assignments,
    bound_functions,
    definitions,
    kernel_inputs,
)
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
    section,
)
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import Expr
from attngen.ir.kernel import GROUP_THREADS, GridForward, SourceFile
from attngen.lowering import score_stride, staged_stride
from attngen.render import render

TEMPLATE = "numba_cuda/flash_forward.py.jinja"
_PTX_NAMES = frozenset({"fresh", "shared_memory"})
_OF_HALVES = frozenset({"narrowed", "widened"})
_OF_SOFTMAX = frozenset({"exp2", "group_max", "group_sum"})


@dataclass(frozen=True, slots=True)
class Part:
    """A part of shared memory: the constant that names its first element, and what it holds."""

    constant: str
    start: int
    holds: str


@dataclass(frozen=True, slots=True)
class FlashContext:
    """Variables of ``numba_cuda/flash_forward.py.jinja``, which documents them."""

    summary: str
    head_dim: int
    value_dim: int
    group: int
    kv_heads: int
    threads: int
    group_threads: int
    row_groups: int
    block_q: int
    block_kv: int
    depth: int
    value_panel: int
    value_panels: int
    rows: int
    keys: int
    columns: int
    score_tile: int
    output_tile: int
    query_scale: float
    log2e: float
    ln2: float
    staged_stride: int
    score_stride: int
    parts: tuple[Part, ...]
    shared_bytes: int
    functions: tuple[str, ...]
    ptx_names: tuple[str, ...]
    half: bool
    stored: str
    masked: bool
    key_first: str
    key_last: str
    possible: str
    full: str
    tail: bool
    range_lines: tuple[str, ...]
    key_lines: tuple[str, ...]
    test_lines: tuple[str, ...]
    full_lines: tuple[str, ...]
    block_test: bool
    inputs: tuple[KernelInput, ...]
    input_lines: tuple[str, ...]
    score: Section | None
    mask: Section
    made: str
    softmax: bool
    sink: bool
    off_by_one: bool
    largest: str


def flash_file(ir: AttentionIR, kernel: GridForward) -> SourceFile:
    """``flash_forward.py`` for `kernel`."""
    return SourceFile("flash_forward.py", render(TEMPLATE, flash_context(ir, kernel)))


def flash_context(ir: AttentionIR, kernel: GridForward) -> FlashContext:
    """Everything the template prints."""
    offset = "kv_len - q_len" if ir.alignment == "bottom_right" else "0"  # position of query 0
    mask_plan = converted_forms(kernel.mask)
    code = interval_code(mask_plan, ir.inputs, functions=FUNCTIONS)
    sizes = definitions(ir)
    names = tuple(side.name for side in ir.inputs)
    score, mask = _sections(ir, kernel, (*names, *sizes))
    q_bounds = bound_assignments(ir, mask_plan, "q")
    rows = {
        "h_first": "kv_h * GROUP",
        "h_last": "kv_h * GROUP + GROUP - 1",
        "q_first": "first_row // GROUP + offset",
        "q_last": "(min(first_row + BLOCK_Q, rows) - 1) // GROUP + offset",
        **q_bounds,
    }
    keys = {"k_last": "k_first + keys - 1", **bound_assignments(ir, mask_plan, "k")}
    block_test = mask_plan is not None and not is_closed(mask_plan)
    # What no key changes is made once, before the loop; the rest where it is read.
    before = needed(
        {**rows, **code.steps_of("key_first", "key_last")},
        *(text for form in INTERVAL_FORMS for text in code.read_by(form)),
    )
    tests = ("always", "possible") if block_test else ("always",)
    key_lines = needed(keys, *code.read_by(*tests))
    test_lines = needed(code.steps["possible"], code.forms["possible"]) if block_test else ()
    full_lines = needed(code.steps["always"], code.forms["always"])
    sections = [mask.listed, score.listed if score else ""]
    lines = (*before, *key_lines, *test_lines, *full_lines, *sections, *code.forms.values())
    called = (*lines, *_code_of(score), *_code_of(mask))
    ptx_names = {*_PTX_NAMES, *bound_functions(ir, mask_plan)}
    half = kernel.dtype.name != kernel.dtype.accumulator
    ptx_names |= _OF_HALVES if half else set()
    if kernel.weight is None:
        called = (*called, "log2()")
        ptx_names |= _OF_SOFTMAX
    return FlashContext(
        summary=f"Attention of {ir.name} on CUDA cores, in {kernel.dtype.accumulator}.",
        head_dim=kernel.head_dim,
        value_dim=kernel.value_dim,
        group=ir.group,
        kv_heads=ir.kv_heads,
        threads=kernel.threads,
        group_threads=GROUP_THREADS,
        row_groups=kernel.threads // GROUP_THREADS,
        block_q=kernel.block_q,
        block_kv=kernel.block_kv,
        depth=kernel.depth,
        value_panel=kernel.value_panel,
        value_panels=-(-kernel.value_dim // kernel.value_panel),
        rows=kernel.rows,
        keys=kernel.keys,
        columns=kernel.columns,
        score_tile=kernel.rows * kernel.keys,
        output_tile=kernel.rows * kernel.columns,
        query_scale=kernel.query_scale,
        log2e=LOG2E,
        ln2=LN2,
        staged_stride=staged_stride(kernel.depth),
        score_stride=score_stride(kernel.block_kv),
        parts=_parts(kernel),
        shared_bytes=_shared_bytes(kernel),
        functions=function_imports(kernel.dtype, called),
        ptx_names=tuple(sorted({*ptx_names, *ptx_calls(called)})),
        half=half,
        stored="types.uint16" if half else "ELEMENT",
        masked=mask_plan is not None,
        key_first=code.forms["key_first"],
        key_last=code.forms["key_last"],
        possible=code.forms["possible"],
        full=_full(code.forms["always"]),
        tail=code.forms["always"] not in ("", "True", "False"),
        range_lines=before,
        key_lines=key_lines,
        test_lines=test_lines,
        full_lines=full_lines,
        block_test=block_test,
        inputs=kernel_inputs(ir),
        input_lines=needed({"offset": offset, **sizes}, *lines),
        score=score,
        mask=mask,
        made=next(iter(made_of_dot(kernel)), "dot"),
        softmax=kernel.weight is None,
        sink=kernel.sink,
        off_by_one=kernel.off_by_one,
        largest=repr(float(np.finfo(kernel.dtype.accumulator).max)).replace("+", ""),
    )


def _full(always: str) -> str:
    """Whether no pair of a block of rows and of keys that exist is masked, as Python."""
    return "keys == BLOCK_KV" if always in ("", "True") else always


def _code_of(part: Section | None) -> tuple[str, ...]:
    return (*part.row, *part.key) if part else ()


def _shared_bytes(kernel: GridForward) -> int:
    itemsize = 8 if kernel.dtype.accumulator == "float64" else 4
    return sum(b.size for b in kernel.buffers) * itemsize


def _parts(kernel: GridForward) -> tuple[Part, ...]:
    """Where the parts of shared memory begin; slices of K lie behind those of Q."""
    parts = []
    start = 0
    for buffer in kernel.buffers:
        if buffer.name == "staged":
            k_slice = kernel.block_q * staged_stride(kernel.depth)
            parts += [
                Part("Q_SLICE", start, "DEPTH elements of each query row: [row][d]"),
                Part("K_SLICE", start + k_slice, "DEPTH elements of each key: [key][d]"),
                Part("V_SLICE", start, "then, in their place, DEPTH rows of V: [key][column]"),
            ]
        else:
            parts.append(Part(buffer.name.upper(), start, buffer.holds))
        start += buffer.size
    return tuple(parts)


def _sections(
    ir: AttentionIR, kernel: GridForward, inputs: tuple[str, ...]
) -> tuple[Section | None, Section]:
    """The score's section and the mask's, which makes scores as well."""
    outer = {
        "row": "min(first_row + row_group + i * ROW_GROUPS, rows - 1)",
        "q": "row // GROUP + offset",
        "h": "kv_h * GROUP + row % GROUP",
    }
    if ir.group == 1:
        outer["h"] = "kv_h"
    inner = {"k": "k_first + key"}
    parameters = ("first_row", "rows", "k_first", "offset", *SEQUENCE, *inputs)
    printer = element_printer(set(inner), ir.inputs)

    def make(results: dict[str, Expr]) -> Section:
        return section(results, printer, inner, outer, parameters)

    scores = made_of_dot(kernel)
    keep = {"keep": kernel.mask.predicate} if kernel.mask else {}
    return make(scores) if scores else None, make({**keep, **scores})
