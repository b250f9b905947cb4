"""What the CPU's kernel templates have in common: placed buffers, offsets, vector sections."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from attngen.backends.numba_cpu.printing import operations, vector_sections
from attngen.backends.sections import Printer, Section, read_by
from attngen.dtypes import DType
from attngen.ir.attention import SideInput
from attngen.ir.expr import Expr
from attngen.ir.kernel import Buffer
from attngen.lowering import workspace_elements


@dataclass(frozen=True, slots=True)
class PlacedBuffer:
    """A buffer with the name of its constant and its first element in the workspace."""

    constant: str
    start: int
    holds: str


def place(buffers: tuple[Buffer, ...], dtype: DType) -> tuple[PlacedBuffer, ...]:
    """Give each buffer its place, one after the other, each on a 64-byte line."""
    return tuple(
        PlacedBuffer(b.name.upper(), workspace_elements(buffers[:i], dtype), b.holds)
        for i, b in enumerate(buffers)
    )


def offsets(count: int, step: int) -> tuple[str, ...]:
    """What to add to an address to get to each of `count` places, `step` apart."""
    return tuple(f" + {i * step}" if i else "" for i in range(count))


def vector_printer(
    vectors: AbstractSet[str], inner: AbstractSet[str], inputs: tuple[SideInput, ...] = ()
) -> Printer:
    """Prints expressions in which `vectors` are vectors, for a loop that sets `inner` and dot."""

    def lines(expr: Expr, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return vector_sections(expr, name, vectors, inner | {"dot"}, inputs)

    return lines


def simd_names(base: str, *sections: Section | None) -> tuple[str, ...]:
    """The vector operations to import: those in `base` (words), and those that sections call."""
    lines = tuple(line for s in sections if s for line in (*s.row, *s.key))
    return tuple(sorted(set(base.split()) | operations(lines)))


def workers_names(lines: tuple[str, ...], dtype: DType) -> tuple[str, ...]:
    """What to import from ``workers.py``: what every kernel uses, and the readers in `lines`."""
    always = {"WorkspacePool", "array_at", "describe", "integers_at", "run_workers"}
    always |= {"stored_at"} if dtype.is_half else set()
    readers = read_by(("floats_at", "truths_at"), *lines)
    return tuple(sorted(always | set(readers), key=lambda name: (name.lower() == name, name)))
