"""Whether side inputs are read inside their arrays: proved, or checked at the call.

Input: an AttentionIR and the lengths of a call. Output: for each read of a side input the least and
greatest index on each axis. A read in the score counts where the mask attends, and one under a
condition (`and`, `or`, a Select) where that leads to it; conditions count as far as they are
linear. Pairs that do not attend may have indices outside: kernels clamp those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attngen.ir.attention import AttentionIR, SideInput
from attngen.ir.expr import Binary, Expr, Load, Select, children, loads
from attngen.ir.printer import expression_text
from attngen.ir.ranges import UNKNOWN, Facts, Range, value_range


@dataclass(frozen=True, slots=True)
class Lengths:
    """The sizes of one call; for packed sequences, those of one sequence."""

    batch: int
    q_len: int
    kv_len: int


@dataclass(frozen=True, slots=True)
class IndexFault:
    """An index that may leave its axis where the mask attends.

    Attributes:
        input: the side input's name.
        axis: the axis, from 0.
        index: the index as text.
        low: the least value the index can have; -inf where it depends on data that is not known.
        high: the greatest.
        size: the axis has the indices 0 … size - 1.
    """

    input: str
    axis: int
    index: str
    low: float
    high: float
    size: int


def index_ranges(
    ir: AttentionIR, load: Load, lengths: Lengths, arrays: Mapping[str, Any] | None = None
) -> tuple[Range, ...]:
    """The least and greatest value of each index of `load`, wherever it stands in `ir`.

    Args:
        ir: before or after the passes.
        load: a read of a side input in its score or mask.
        lengths: of the call; none is zero.
        arrays: the side inputs of the call, for indices that are read from another one.
    """
    ranges: list[Range] | None = None
    for found, facts in _reads(ir, _facts(ir, lengths, arrays or {})):
        if found == load:
            here = [value_range(index, facts) for index in load.indices]
            if any(low > high for low, high in here):
                continue  # its conditions exclude each other
            if ranges is not None:
                pairs = zip(here, ranges, strict=True)
                here = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs]
            ranges = here
    return tuple(ranges) if ranges is not None else tuple((0, -1) for _ in load.indices)


def index_faults(
    ir: AttentionIR, lengths: Lengths, arrays: Mapping[str, Any] | None = None
) -> tuple[IndexFault, ...]:
    """Every index of `ir` that may leave its axis in a call; none where there is no pair at all."""
    if 0 in (lengths.batch, lengths.q_len, lengths.kv_len):
        return ()
    inputs = {given.name: given for given in ir.inputs}
    return tuple(
        IndexFault(load.input, axis, expression_text(index), low, high, size)
        for load in dict.fromkeys((*loads(ir.score), *loads(ir.mask)))
        for axis, (index, size, (low, high)) in enumerate(
            zip(
                load.indices,
                shape_of(ir, inputs[load.input], lengths),
                index_ranges(ir, load, lengths, arrays),
                strict=True,
            )
        )
        if low <= high and not (low >= 0 and high < size)
    )


def shape_of(ir: AttentionIR, given: SideInput, lengths: Lengths) -> tuple[int, ...]:
    """The shape that a side input has in a call."""
    sizes = {
        "batch": lengths.batch,
        "heads": ir.heads,
        "kv_heads": ir.kv_heads,
        "q_len": lengths.q_len,
        "kv_len": lengths.kv_len,
    }
    return tuple(size if isinstance(size, int) else sizes[size] for size in given.shape)


def _facts(ir: AttentionIR, lengths: Lengths, arrays: Mapping[str, Any]) -> Facts:
    first = lengths.kv_len - lengths.q_len if ir.alignment == "bottom_right" else 0
    tables = {given.name: given.values for given in ir.inputs}

    def data(load: Load) -> Range:
        if load.dtype == "bool":
            return (0, 1)
        values = tables.get(load.input)
        held = np.asarray(arrays.get(load.input, ()) if values is None else values)
        if held.size == 0:
            return UNKNOWN
        low, high = held.min().item(), held.max().item()
        return (low, high) if low <= high else UNKNOWN

    return Facts(
        {
            "b": (0, lengths.batch - 1),
            "h": (0, ir.heads - 1),
            "kv_h": (0, ir.kv_heads - 1),
            "q": (first, first + lengths.q_len - 1),
            "k": (0, lengths.kv_len - 1),
            "q_len": (lengths.q_len, lengths.q_len),
            "kv_len": (lengths.kv_len, lengths.kv_len),
        },
        data,
    )


def _reads(ir: AttentionIR, facts: Facts) -> Iterator[tuple[Load, Facts]]:
    yield from _within(ir.mask, facts)
    yield from _within(ir.score, facts.given(ir.mask, holds=True))


def _within(expr: Expr, facts: Facts) -> Iterator[tuple[Load, Facts]]:
    """The reads in `expr`, each with what is known where it matters."""
    match expr:
        case Binary(op="and" | "or" as op, left=left, right=right):
            yield from _within(left, facts)
            yield from _within(right, facts.given(left, holds=op == "and"))
        case Select(condition=condition, then=then, otherwise=otherwise):
            yield from _within(condition, facts)
            yield from _within(then, facts.given(condition, holds=True))
            yield from _within(otherwise, facts.given(condition, holds=False))
        case _:
            if isinstance(expr, Load):
                yield expr, facts
            for child in children(expr):
                yield from _within(child, facts)
