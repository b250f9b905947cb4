"""What the kernel templates have in common: placed buffers, address offsets, sections of lines."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from attngen.backends.numba_cpu.printing import operations, scalar_code, vector_lines
from attngen.dtypes import DType
from attngen.ir.expr import DOT, Expr
from attngen.ir.kernel import Buffer, MaskPlan
from attngen.lowering import workspace_elements

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)

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


def score_lines(score: Expr) -> tuple[str, ...]:
    """Lines that make `score` of the vector `dot`; none where the product is the score."""
    return () if score == DOT else vector_lines(score, "score", {"dot"})


def mask_lines(mask: MaskPlan | None, vector: str) -> tuple[str, ...]:
    """Lines that make `keep` of positions q and k, of which `vector` is the one in lanes."""
    return vector_lines(mask.predicate, "keep", {vector}) if mask else ()


def interval_code(mask: MaskPlan | None) -> dict[str, str]:
    """The interval forms of `mask` as Python, or empty strings where nothing is known."""
    forms = {form: getattr(mask, form) if mask else None for form in INTERVAL_FORMS}
    return {form: "" if expr is None else scalar_code(expr) for form, expr in forms.items()}


def assignments(definitions: dict[str, str], *readers: str) -> tuple[str, ...]:
    """Lines for those of `definitions` (name -> code) that the code in `readers` mentions."""
    words = set(re.findall(r"\w+", " ".join(readers)))
    return tuple(f"{name} = {code}" for name, code in definitions.items() if name in words)


def simd_names(base: str, *sections: tuple[str, ...]) -> tuple[str, ...]:
    """The vector operations to import: those in `base` (words), and those that sections call."""
    return tuple(sorted(set(base.split()).union(*(operations(s) for s in sections))))
