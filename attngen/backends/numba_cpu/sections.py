"""What the kernel templates have in common: placed buffers, address offsets, sections of lines."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from attngen.backends.numba_cpu.printing import operations, vector_sections
from attngen.backends.numba_cpu.scalar_code import scalar_steps
from attngen.dtypes import DType
from attngen.ir.attention import SideInput
from attngen.ir.expr import Expr
from attngen.ir.kernel import Buffer, MaskPlan
from attngen.lowering import workspace_elements

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)

_LONGEST = 100 - len("                score_panel(work, first, last)")

INTERVAL_FORMS = ("key_first", "key_last", "always", "possible")


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


@dataclass(frozen=True, slots=True)
class Section:
    """Code that makes scores or truths, for one vector at a time.

    Attributes:
        listed: ", …": what it reads beside the vector, as further parameters; or nothing.
        reads: the same as names, to be printed one a line where `is_long`.
        is_long: whether a call with `listed` does not fit a line.
        row: lines for what does not change with the keys of the inner loop.
        key: lines for the rest.
    """

    listed: str
    reads: tuple[str, ...]
    is_long: bool
    row: tuple[str, ...]
    key: tuple[str, ...]


def section(
    results: dict[str, Expr],
    vectors: frozenset[str],
    inner: dict[str, str],
    outer: dict[str, str],
    parameters: tuple[str, ...],
    inputs: tuple[SideInput, ...] = (),
) -> Section:
    """Lines that make each of `results` (name -> expression).

    Args:
        results: what to make, in this order.
        vectors: the variables that are vectors.
        inner: name -> code of the variables that are set in the inner loop.
        outer: name -> code of those that are set before it.
        parameters: the other names that the lines may read, in the order of the parameters.
        inputs: the side inputs that `results` may index.
    """
    row: list[str] = []
    key: list[str] = []
    for name, expr in results.items():
        before, within = vector_sections(expr, name, vectors, frozenset(inner) | {"dot"}, inputs)
        row += before
        key += within
    key = [*assignments(inner, *key), *key]
    row = [*assignments(outer, *row, *key), *row]
    reads = read_by(parameters, *row, *key)
    listed = "".join(f", {name}" for name in reads)
    return Section(listed, reads, len(listed) > _LONGEST, tuple(row), tuple(key))


def read_by(names: tuple[str, ...], *texts: str) -> tuple[str, ...]:
    """Those of `names` (or of comma-separated groups of names) that a word of `texts` is."""
    words = set(re.findall(r"\w+", " ".join(texts)))
    return tuple(name for name in names if words & set(name.split(", ")))


def needed(definitions: dict[str, str], *readers: str) -> tuple[str, ...]:
    """As `assignments`, and with those that the code of needed ones reads."""
    lines = assignments(definitions, *readers)
    while not set(lines) <= set(readers):
        readers = (*readers, *lines)
        lines = assignments(definitions, *readers)
    return lines


@dataclass(frozen=True, slots=True)
class IntervalCode:
    """The interval forms of a mask as Python.

    Attributes:
        forms: form -> code that fits a line, or an empty text where nothing is known.
        steps: form -> what its code reads (name -> code), in order.
    """

    forms: dict[str, str]
    steps: dict[str, dict[str, str]]

    def steps_of(self, *forms: str) -> dict[str, str]:
        """The steps of several forms."""
        return {name: code for form in forms for name, code in self.steps[form].items()}

    def read_by(self, *forms: str) -> tuple[str, ...]:
        """All the code of several forms."""
        return (*(self.forms[form] for form in forms), *self.steps_of(*forms).values())


def interval_code(
    mask: MaskPlan | None, inputs: tuple[SideInput, ...] = (), without: tuple[str, ...] = ()
) -> IntervalCode:
    """The interval forms of `mask`, but nothing for those in `without`."""
    forms, steps = {}, {}
    for form in INTERVAL_FORMS:
        expr = getattr(mask, form) if mask and form not in without else None
        known = ("", {}) if expr is None else scalar_steps(expr, form, inputs)
        forms[form], steps[form] = known
    return IntervalCode(forms, steps)


def assignments(definitions: dict[str, str], *readers: str) -> tuple[str, ...]:
    """Lines for those of `definitions` (name -> code) that the code in `readers` mentions."""
    return tuple(f"{name} = {definitions[name]}" for name in read_by(tuple(definitions), *readers))


def simd_names(base: str, *sections: Section | None) -> tuple[str, ...]:
    """The vector operations to import: those in `base` (words), and those that sections call."""
    lines = tuple(line for s in sections if s for line in (*s.row, *s.key))
    return tuple(sorted(set(base.split()) | operations(lines)))


def workers_names(lines: tuple[str, ...]) -> tuple[str, ...]:
    """What to import from ``workers.py``: what every kernel uses, and the readers in `lines`."""
    always = {"WorkspacePool", "array_at", "describe", "integers_at", "run_workers"}
    readers = read_by(("floats_at", "truths_at"), *lines)
    return tuple(sorted(always | set(readers), key=lambda name: (name.lower() == name, name)))
