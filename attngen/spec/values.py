"""Checks a tree against the table of fields, one value at a time.

Input: a tree of :mod:`attngen.spec.nodes`. Output: plain values of the keys that are right, and a
diagnostic for each that is not. Nothing here relates two keys.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard, assert_never

from attngen.errors import Diagnostic
from attngen.spec.field_kinds import (
    IDENTIFIER,
    MAX_AXES,
    PER_HEAD,
    SIZE_MAX,
    AnyNumber,
    Axes,
    Choice,
    Expression,
    Field,
    Flag,
    HeadNumbers,
    Integer,
    Kind,
    Named,
    Number,
    Section,
    Shape,
    Text,
    Words,
)
from attngen.spec.fields import SPEC
from attngen.spec.nodes import Broken, Entry, Fields, Items, Node, Scalar, describe, shorten
from attngen.spec.plan import Group
from attngen.spec.rewrites import expected, rewrite
from attngen.spec.spelling import Spelling
from attngen.spec.suggest import either, nearest
from attngen.spec.sweep_reader import SweepReader

Value: TypeAlias = "bool | int | float | str | tuple[str | int | float, ...] | dict[str, Value]"

_OUT_OF_SCOPE = {
    "dropout": "take 'dropout' out: it belongs to training, and attngen computes inference alone",
}
"""Hints for keys that do not come because of what attngen is."""


def check_values(root: Fields) -> tuple[dict[str, Value], tuple[Diagnostic, ...]]:
    """The values of the keys that are right, and what is wrong with the others."""
    checker = _Checker()
    values = checker.section(root, SPEC, "")
    return values, tuple(checker.diagnostics)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The groups of a sweep, and the texts of its conditions, which name other keys."""

    groups: tuple[Group, ...] = ()
    conditions: tuple[Scalar, ...] = ()


def read_sweep(node: Node) -> Sweep:
    """The parts of the sweep that `node` is; :func:`check_values` reports its mistakes."""
    wanted = SPEC.field("sweep")
    assert wanted is not None  # noqa: S101 - the table has it
    assert isinstance(wanted.kind, Axes)  # noqa: S101
    return _Checker().sweep(node, wanted.kind, wanted.name)


class _Checker:
    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []

    def report(
        self, code: str, key: str, node: Node, message: str, hint: str = "", note: str = ""
    ) -> None:
        self.diagnostics.append(
            Diagnostic(code, f"'{key}' {message}", node.span, key, note=note, hint=hint)
        )

    def section(self, node: Fields, kind: Section, path: str) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for name, entry in node.entries.items():
            field = kind.field(name)
            if field is None:
                self.unknown(name, entry, kind, path)
                continue
            value = self.value(entry.node, field, f"{path}.{name}" if path else name)
            if value is not None:
                values[name] = value
        return values

    def unknown(self, name: str, entry: Entry, kind: Section, path: str) -> None:
        key = f"{path}.{name}" if path else name
        where = f" in '{path}'" if path else ""
        code, message, note = "E-KEY", f"unknown key {shorten(name)}{where}", ""
        known = [field.name for field in kind.fields]
        if name in kind.later:
            code, message = "E-LATER", f"'{key}' is not in this version of attngen"
            note = "it is not ignored, as the result would not be what the spec says"
            hint = _OUT_OF_SCOPE.get(key, f"take '{name}' out")
        elif (near := nearest(name, known)) is not None:
            hint = f"did you mean '{near}'?"
        elif not path and (home := _home(name)) is not None:
            hint = f"'{name}' belongs in '{home}'"
        else:
            hint = f"the keys are {', '.join(known)}"
        self.diagnostics.append(Diagnostic(code, message, entry.key_span, key, note, hint))

    def value(self, node: Node, field: Field, key: str) -> Value | None:
        """The value of `node` as `field` wants it, or None once it is reported."""
        kind = field.kind
        match node, kind:
            case Broken(), _:
                return None
            case Fields(), Section():
                if kind.nonempty and not node.entries:
                    self.report("E-TYPE", key, node, "must not be empty", field.hint)
                return self.section(node, kind, key)
            case Items(), Words():
                return self.words(node, kind, field, key)
            case Fields(), Named():
                return self.named(node, kind, key)
            case Items(), Shape():
                return self.shape(node, kind, field, key)
            case Items(), HeadNumbers():
                return self.head_numbers(node, field, key)
            case Scalar(), (
                Integer()
                | Number()
                | AnyNumber()
                | HeadNumbers()
                | Flag()
                | Text()
                | Choice()
                | Expression()
            ):
                return self.scalar(node, kind, field, key)
            case _, Axes():
                self.sweep(node, kind, key)
                return None
            case _:
                self.wrong(node, field, key)
                return None

    def sweep(self, node: Node, kind: Axes, key: str) -> Sweep:
        """What a sweep goes through; it is no value, as it says nothing about the spec itself."""
        reader = SweepReader(kind, self.value)
        groups = reader.read(node, key)
        self.diagnostics += reader.diagnostics
        return Sweep(groups, tuple(reader.conditions))

    def named(self, node: Fields, kind: Named, path: str) -> dict[str, Value]:
        """The values under names of the author's choice."""
        values: dict[str, Value] = {}
        for name, entry in node.entries.items():
            key = f"{path}.{name}"
            if not re.fullmatch(IDENTIFIER, name):
                message = f"{shorten(name)} in '{path}' must be a Python identifier"
                self.diagnostics.append(Diagnostic("E-NAME", message, entry.key_span, path))
                continue
            value = self.value(entry.node, kind.item, key)
            if value is not None:
                values[name] = value
        return values

    def shape(self, node: Items, kind: Shape, field: Field, key: str) -> tuple[str | int, ...]:
        """The sizes of a shape; empty once something is reported."""
        sizes: list[str | int] = []
        if not 1 <= len(node.items) <= MAX_AXES:
            message = f"must have 1 to {MAX_AXES} sizes, and has {len(node.items)}"
            self.report("E-SHAPE", key, node, message, field.hint)
        for item in node.items[:MAX_AXES]:
            value = item.value if isinstance(item, Scalar) else None
            if self.is_size(value, kind):
                sizes.append(value)
            else:
                near = nearest(value, kind.symbols) if isinstance(value, str) else None
                hint = f"did you mean {near}?" if near else field.hint
                sizes_named = f"{', '.join(kind.symbols)} or a positive integer"
                message = f"must list {sizes_named}, not {describe(item).removeprefix('the text ')}"
                self.report("E-SHAPE", key, item, message, hint)
        return tuple(sizes) if len(sizes) == len(node.items) else ()

    def head_numbers(self, node: Items, field: Field, key: str) -> tuple[float, ...] | None:
        """One number for each head; how many there must be is for the rules."""
        item = Field(field.name, Number(), field.doc)
        if not node.items:
            self.report("E-TYPE", key, node, "must not be an empty list")
        numbers = [self.value(entry, item, key) for entry in node.items]
        right = tuple(number for number in numbers if isinstance(number, float))
        return right if right and len(right) == len(numbers) else None

    @staticmethod
    def is_size(value: object, kind: Shape) -> TypeGuard[str | int]:
        """Whether `value` is a symbol or a positive integer."""
        if isinstance(value, str):
            return value in kind.symbols
        return type(value) is int and 1 <= value <= SIZE_MAX

    def scalar(
        self,
        node: Scalar,
        kind: Integer | Number | AnyNumber | HeadNumbers | Flag | Text | Choice | Expression,
        field: Field,
        key: str,
    ) -> Value | None:
        if node.spelling is not None and _is_meant(node.spelling, kind):
            self.misspelt(node, node.spelling, kind, key)
            return None
        value = node.value
        match kind:
            case Integer():
                if type(value) is int:
                    return self.integer(node, value, kind, key)
            case Number():
                if type(value) is int or type(value) is float:
                    return self.number(node, value, kind, field, key)
            case AnyNumber():
                if type(value) is int or type(value) is float:
                    number = self.number(node, value, Number(), field, key)
                    return value if number is not None else None
            case HeadNumbers():
                if type(value) is int or type(value) is float:
                    return self.number(node, value, Number(), field, key)
                if value == PER_HEAD:
                    return PER_HEAD
            case Expression():
                if isinstance(value, str) and value:
                    return value
            case Flag():
                if isinstance(value, bool):
                    return value
            case Text():
                if isinstance(value, str):
                    return self.text(node, value, kind, key)
            case Choice(options=options):
                if any(value is o or (isinstance(o, str) and value == o) for o in options):
                    return value if isinstance(value, bool) else str(value)
            case _:
                assert_never(kind)
        self.wrong(node, field, key)
        return None

    def misspelt(self, node: Scalar, spelling: Spelling, kind: Kind, key: str) -> None:
        meant, write = spelling.meant, spelling.write
        if isinstance(meant, float) and not math.isfinite(meant):
            self.report("E-RANGE", key, node, f"must be a finite number, not {spelling.text}")
            return
        if isinstance(meant, float) and isinstance(kind, Integer):
            write = str(int(meant))
        message = f"is written {spelling.text}, {spelling.reason}"
        self.report("E-SPELLING", key, node, message, f"write {write}")

    def integer(self, node: Scalar, value: int, kind: Integer, key: str) -> int | None:
        if value < kind.minimum:
            message = f"must be at least {kind.minimum}, not {node.shown}"
            hint = "use -1 for an open side" if kind.minimum == -1 else ""
        elif value > kind.maximum:
            message = f"must be at most {kind.maximum}, not {node.shown}"
            hint = "use -1 for an open side" if kind.minimum == -1 else ""
        else:
            return value
        self.report("E-RANGE", key, node, message, hint)
        return None

    def number(
        self, node: Scalar, value: float, kind: Number, field: Field, key: str
    ) -> float | None:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.report(
                "E-RANGE", key, node, f"must be a finite number, not {node.shown}", field.hint
            )
        elif kind.above is not None and number <= kind.above:
            message = f"must be greater than {kind.above:g}, not {node.shown}"
            self.report("E-RANGE", key, node, message, field.hint)
        else:
            return number
        return None

    def text(self, node: Scalar, value: str, kind: Text, key: str) -> str | None:
        if kind.nonempty and not value:
            self.report("E-TYPE", key, node, f"must be {kind.expected}, not {describe(node)}")
        elif not all(c.isprintable() or c in "\n\t" for c in value):
            message = "must be printable text, and has a control character"
            self.report("E-TEXT", key, node, message, "take the character out")
        elif kind.pattern and not re.fullmatch(kind.pattern, value):
            guess = re.sub(r"\W+", "_", value, flags=re.ASCII).strip("_").lower()[:60]
            hint = f"such as {guess}" if re.fullmatch(kind.pattern, guess) else ""
            message = f"must be {kind.expected}, not {shorten(value)}"
            self.report("E-NAME", key, node, message, hint)
        else:
            return value
        return None

    def words(self, node: Items, kind: Words, field: Field, key: str) -> tuple[str, ...] | None:
        found: list[str] = []
        before = len(self.diagnostics)
        for item in node.items:
            if not isinstance(item, Scalar) or item.value not in kind.options:
                message = f"must list {either(kind.options)}, not {describe(item)}"
                self.report("E-CHOICE", key, item, message, field.hint)
            elif item.value in found:
                self.report("E-CHOICE", key, item, f"lists '{item.value}' twice", "keep one")
            else:
                found.append(str(item.value))
        if len(self.diagnostics) > before:
            return None
        if kind.required not in found:
            self.report("E-CHOICE", key, node, f"must list '{kind.required}'", field.hint)
            return None
        return tuple(option for option in kind.options if option in found)

    def wrong(self, node: Node, field: Field, key: str) -> None:
        """Reports a value of the wrong kind, with the best hint that its text allows."""
        kind = field.kind
        found = (
            describe(node).removeprefix("the text ") if isinstance(kind, Choice) else describe(node)
        )
        message = f"must be {expected(kind)}, not {found}"
        code = "E-CHOICE" if isinstance(kind, Choice) else "E-TYPE"
        note, hint = "", field.hint
        if isinstance(node, Scalar):
            if node.value is None:
                hint = hint or f"give '{key}' a value, or take the line out"
            elif isinstance(kind, Choice) and node.value in kind.later:
                note = f"{node.value} is not in this version of attngen"
            else:
                hint = rewrite(node, kind) or hint
        self.report(code, key, node, message, hint, note)


def _is_meant(spelling: Spelling, kind: Kind) -> bool:
    """Whether a scalar of this odd spelling was meant as a value of `kind`."""
    if isinstance(spelling.meant, bool):
        return isinstance(kind, Flag) or (isinstance(kind, Choice) and True in kind.options)
    if isinstance(kind, Integer):
        return float(spelling.meant).is_integer()
    return isinstance(kind, (Number, AnyNumber, HeadNumbers))


def _home(name: str) -> str | None:
    """The path of the section that has a key `name`, for a key written at the top by mistake."""

    def search(section: Section, path: str) -> str | None:
        for field in section.fields:
            if isinstance(field.kind, Section):
                below = f"{path}.{field.name}" if path else field.name
                if field.kind.field(name) is not None:
                    return below
                if (found := search(field.kind, below)) is not None:
                    return found
        return None

    return search(SPEC, "")
