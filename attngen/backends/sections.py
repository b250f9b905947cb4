"""What the backends' templates have in common: sections of lines, and masks' forms as Python.

Input: expressions, and a printer of them in the target's terms. Output: lines in the order in which
they run, each only where something reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from attngen.backends.scalar_code import NUMPY, scalar_steps
from attngen.ir.attention import SideInput
from attngen.ir.expr import DOT, Binary, Const, Expr, Unary, Var
from attngen.ir.kernel import FlashForward, GridForward, MaskPlan, SplitKV

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)

_LONGEST = 100 - len("                mask_panel(work, first, last, ELEMENT(0))")

INTERVAL_FORMS = ("key_first", "key_last", "always", "possible")

# What every section may read of the sequence it works on.
SEQUENCE = ("b", "kv_h", "q_len", "kv_len")

Printer: TypeAlias = Callable[[Expr, str], tuple[tuple[str, ...], tuple[str, ...]]]
"""Lines that assign an expression to a name: those before the loop over keys, and those in it."""


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
    printer: Printer,
    inner: dict[str, str],
    outer: dict[str, str],
    parameters: tuple[str, ...],
) -> Section:
    """Lines that make each of `results` (name -> expression).

    Args:
        results: what to make, in this order.
        printer: prints one of them.
        inner: name -> code of the variables that are set in the inner loop.
        outer: name -> code of those that are set before it.
        parameters: the other names that the lines may read, in the order of the parameters.
    """
    row: list[str] = []
    key: list[str] = []
    for name, expr in results.items():
        before, within = printer(expr, name)
        row += before
        key += within
    key = [*assignments(inner, *key), *key]
    row = [*needed(outer, *row, *key), *row]
    reads = read_by(parameters, *row, *key)
    listed = "".join(f", {name}" for name in reads)
    return Section(listed, reads, len(listed) > _LONGEST, tuple(row), tuple(key))


def made_of_dot(kernel: FlashForward | GridForward | SplitKV) -> dict[str, Expr]:
    """What sections make of a product (name -> expression): a weight, a score, or nothing."""
    if kernel.weight is not None:
        return {"weight": kernel.weight}
    return {} if kernel.score == DOT else {"score": kernel.score}


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
    mask: MaskPlan | None,
    inputs: tuple[SideInput, ...] = (),
    without: tuple[str, ...] = (),
    functions: str = NUMPY,
) -> IntervalCode:
    """The interval forms of `mask`, but nothing for those in `without`."""
    forms, steps = {}, {}
    for form in INTERVAL_FORMS:
        expr = getattr(mask, form) if mask and form not in without else None
        known = ("", {}) if expr is None else scalar_steps(expr, form, inputs, functions)
        forms[form], steps[form] = known
    return IntervalCode(forms, steps)


def assignments(definitions: dict[str, str], *readers: str) -> tuple[str, ...]:
    """Lines for those of `definitions` (name -> code) that the code in `readers` mentions."""
    return tuple(f"{name} = {definitions[name]}" for name in read_by(tuple(definitions), *readers))


def bounded_inputs(mask: MaskPlan | None) -> tuple[str, ...]:
    """The inputs of which the mask's interval forms read bounds, each once, in order."""
    return tuple(dict.fromkeys(b.input for b in mask.data_bounds)) if mask else ()


def is_closed(mask: MaskPlan) -> bool:
    """Whether the bounds of the keys say all: no block between them can be empty."""
    return _is_interval(mask.predicate)


def _is_interval(expr: Expr) -> bool:
    match expr:
        case Binary(op="and", left=left, right=right):
            return _is_interval(left) and _is_interval(right)
        case Binary(op="lt" | "le" | "gt" | "ge", left=left, right=right):
            return _is_affine(left) and _is_affine(right)
        case _:
            return False


def _is_affine(expr: Expr) -> bool:
    match expr:
        case Const() | Var():
            return True
        case Unary(op="neg", operand=operand):
            return _is_affine(operand)
        case Binary(op="add" | "sub", left=left, right=right):
            return _is_affine(left) and _is_affine(right)
        case _:
            return False
