"""Reads ``sweep``: lists and ranges of values for keys, and how they are combined.

Input: the node of ``sweep`` and a check of single values. Output: groups of axes, the conditions'
texts with their nodes, and a diagnostic for each mistake, at its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from attngen.errors import Diagnostic
from attngen.formatting import count_text
from attngen.spec.axes import GROUPS, WHERE
from attngen.spec.field_kinds import (
    AnyNumber,
    Axes,
    Expression,
    Field,
    HeadNumbers,
    Integer,
    Number,
    Section,
    Shape,
    Words,
)
from attngen.spec.nodes import Broken, Entry, Fields, Items, Node, Scalar, describe, shorten
from attngen.spec.plan import Axis, Group, Setting
from attngen.spec.suggest import nearest

MAX_SETTINGS = 10_000
Check = Callable[[Node, Field, str], Any]
RANGED = (Integer, Number, AnyNumber, HeadNumbers)
"""The kinds of key that take a range."""
RANGE = ("from", "to", "step", "factor")
_RANGE_HINT = "such as {from: 128, to: 4096, factor: 2} or {from: 64, to: 256, step: 64}"
_CONDITION = Field(WHERE, Expression(), "", hint="such as where: heads * head_dim == d_model")
_HINT = "such as sweep: {head_dim: [64, 128], q_len: {from: 512, to: 4096, factor: 2}}"


@dataclass
class SweepReader:
    """One ``sweep`` under judgement.

    Attributes:
        kind: which keys it may have.
        check: the value of a node for a field (None once a mistake is reported).
        diagnostics: the mistakes that `check` does not report itself.
        conditions: the nodes of ``where`` that are texts.
    """

    kind: Axes
    check: Check
    diagnostics: list[Diagnostic] = field(default_factory=list)
    conditions: list[Scalar] = field(default_factory=list)

    def read(self, node: Node, path: str) -> tuple[Group, ...]:
        """The groups of the sweep that `node` is."""
        if isinstance(node, Broken):
            return ()
        if not isinstance(node, Fields):
            self.report("E-TYPE", path, node, f"must be a mapping, not {describe(node)}", _HINT)
            return ()
        groups: list[Group] = []
        for name, entry in node.entries.items():
            below = f"{path}.{name}"
            if name == WHERE:
                self.where(entry.node, below)
            elif name in GROUPS:
                for part in self.parts(entry.node, below):
                    groups += self.group(part, below, together=name == "zip")
            else:
                groups += self.crossed(name, entry, path)
        if not any(name != WHERE for name in node.entries):
            self.report("E-SWEEP", path, node, "goes through no key", _HINT)
        self.distinct(node, path)
        return tuple(groups)

    def report(self, code: str, key: str, node: Node, message: str, hint: str = "") -> None:
        """Adds a mistake at `node`."""
        self.diagnostics.append(Diagnostic(code, f"'{key}' {message}", node.span, key, hint=hint))

    def parts(self, node: Node, path: str) -> Iterator[Fields]:
        """The mappings of a group's value: one, or a list of them."""
        for part in node.items if isinstance(node, Items) else (node,):
            if isinstance(part, Fields) and part.entries:
                yield part
            elif not isinstance(part, Broken):
                found = "an empty one" if isinstance(part, Fields) else describe(part)
                hint = "such as {heads: [8, 16], head_dim: [128, 64]}"
                self.report("E-TYPE", path, part, f"must be a mapping of keys, not {found}", hint)

    def group(self, node: Fields, path: str, *, together: bool) -> list[Group]:
        """The groups of one mapping: a single one if its keys go `together`."""
        if not together:
            items = node.entries.items()
            return [group for name, entry in items for group in self.crossed(name, entry, path)]
        axes = [self.axis(name, entry, path) for name, entry in node.entries.items()]
        known = [axis for axis in axes if axis is not None]
        for axis in known[1:]:
            first = known[0]
            if len(axis.settings) != len(first.settings):
                message = (
                    "goes through its keys together, and "
                    f"'{axis.key}' has {count_text(len(axis.settings), 'value')} where "
                    f"'{first.key}' has {len(first.settings)}"
                )
                at = node.entries[axis.key].node
                self.report("E-SWEEP", path, at, message, "give each of them as many")
                return []
        return self.grouped(known, node, path) if len(known) == len(axes) else []

    def crossed(self, name: str, entry: Entry, path: str) -> list[Group]:
        """A group of one axis."""
        axis = self.axis(name, entry, path)
        return [] if axis is None else self.grouped([axis], Fields({name: entry}), path)

    def axis(self, name: str, entry: Entry, path: str) -> Axis | None:
        """The axis of a key, or None once it is reported."""
        wanted = self.kind.field(name)
        if wanted is None:
            self.unknown(name, entry, path)
            return None
        key, before = f"{path}.{name}", len(self.diagnostics)
        settings = self.settings(entry.node, wanted, key)
        if settings is None or len(self.diagnostics) > before:
            return None
        return Axis(name, settings)

    def grouped(self, axes: list[Axis], node: Fields, path: str) -> list[Group]:
        """The group of `axes`, unless it has the same settings twice."""
        seen: set[str] = set()
        for settings in zip(*(axis.settings for axis in axes), strict=True):
            identity = repr([setting.value for setting in settings])
            if identity in seen:
                last = axes[-1].key
                shown = " with ".join(_shown(setting) for setting in settings)
                key = f"{path}.{last}" if len(axes) == 1 else path
                at = settings[-1].node or node.entries[last].node
                self.report("E-SWEEP", key, at, f"has {shown} twice", "keep one of them")
                return []
            seen.add(identity)
        return [Group(tuple(axes))]

    def unknown(self, name: str, entry: Entry, path: str) -> None:
        """Reports a key that cannot be swept."""
        known = [f.name for f in self.kind.fields]
        last = {f.rpartition(".")[2]: f for f in reversed(known)}  # the first of equal names
        near = last.get(name) or nearest(name, known)
        message = f"unknown key {shorten(name)} in '{path}'"
        hint = f"did you mean '{near}'?" if near else f"the keys are {', '.join(known)}"
        if name in ("name", "description", "extends"):
            message = f"'{path}' cannot go through '{name}', which says what the spec is"
            hint = "sweep the keys in which the specs differ"
        self.diagnostics.append(
            Diagnostic("E-KEY", message, entry.key_span, f"{path}.{name}", hint=hint)
        )

    def settings(self, node: Node, wanted: Field, key: str) -> tuple[Setting, ...] | None:
        """The values that stand at a key; None where one of them is wrong."""
        match node:
            case Broken():
                return None
            case Items(items=()):
                self.report("E-SWEEP", key, node, "goes through no value", "list one or more")
                return None
            case Items(items=items) if not _is_one_value(node, wanted):
                settings = tuple(self.setting(item, wanted, key) for item in items)
                return None if None in settings else tuple(s for s in settings if s is not None)
            case Fields() if _is_range(node):
                return self.range(node, wanted, key)
            case Fields() if isinstance(wanted.kind, Section) and self.nested(node, wanted, key):
                return None
        one = self.setting(node, wanted, key)
        return None if one is None else (one,)

    def setting(self, node: Node, wanted: Field, key: str) -> Setting | None:
        """One value; null leaves a key of the spec out."""
        if isinstance(node, Scalar) and node.value is None and wanted.name not in REQUIRED:
            return Setting(None, None)
        value = self.check(node, wanted, key)
        return None if value is None else Setting(value, node)

    def nested(self, node: Fields, wanted: Field, key: str) -> bool:
        """Reports lists and ranges below a key, which belong on axes of their own."""
        assert isinstance(wanted.kind, Section)  # noqa: S101 - the caller asked
        found = False
        for name, entry in node.entries.items():
            inner, below = wanted.kind.field(name), entry.node
            if inner is None:
                continue
            if isinstance(inner.kind, Section) and isinstance(below, Fields):
                deeper = Field(f"{wanted.name}.{name}", inner.kind, "")
                found |= self.nested(below, deeper, f"{key}.{name}")
            elif isinstance(below, Items) or _is_range(below):
                message = "has several values, and stands inside a single one"
                hint = f"write {wanted.name}.{name}: …, with a dot"
                self.report("E-SWEEP", f"{key}.{name}", below, message, hint)
                found = True
        return found

    def range(self, node: Fields, wanted: Field, key: str) -> tuple[Setting, ...] | None:
        """The values of ``{from, to, step}`` or ``{from, to, factor}``."""
        if not isinstance(wanted.kind, RANGED):
            self.report("E-SWEEP", key, node, "takes no range, as its values are no numbers",
                        "list the values")  # fmt: skip
            return None
        ends: dict[str, int | float] = {}
        for name, entry in node.entries.items():
            below, value = f"{key}.{name}", entry.node
            if name not in RANGE:
                message = f"unknown key {shorten(name)} in the range '{key}'"
                self.diagnostics.append(
                    Diagnostic("E-KEY", message, entry.key_span, below, hint=_RANGE_HINT)
                )
                continue
            number = self.check(value, Field(name, _range_kind(name, wanted), ""), below)
            if number is not None:
                ends[name] = number
        if len(ends) < len(node.entries):
            return None
        if message := _wrong_range(ends):
            self.report("E-SWEEP", key, node, message, _RANGE_HINT)
            return None
        whole = isinstance(wanted.kind, Integer)
        numbers = _numbers(ends, whole)
        if len(numbers) > MAX_SETTINGS:
            self.report("E-SWEEP", key, node, f"has more than {MAX_SETTINGS} values", _RANGE_HINT)
            return None
        scalars = [Scalar(number, str(number), node.span) for number in numbers]
        settings = [self.setting(scalar, wanted, key) for scalar in scalars]
        return None if None in settings else tuple(s for s in settings if s is not None)

    def where(self, node: Node, path: str) -> None:
        """Collects the texts of the conditions."""
        for item in node.items if isinstance(node, Items) else (node,):
            if self.check(item, _CONDITION, path) is not None and isinstance(item, Scalar):
                self.conditions.append(item)

    def distinct(self, node: Fields, path: str) -> None:
        """Reports keys that stand on two axes, or inside another axis's key."""
        found: dict[str, Entry] = {}
        for name, entry in _all_keys(node):
            for other in found:
                if name == other or name.startswith(f"{other}.") or other.startswith(f"{name}."):
                    message = f"'{name}' is swept twice"
                    if name != other:
                        message = f"'{name}' and '{other}' are both swept, and one is in the other"
                    key, hint = f"{path}.{name}", "keep one of the two"
                    self.diagnostics.append(
                        Diagnostic("E-SWEEP", message, entry.key_span, key, hint=hint)
                    )
                    break
            found.setdefault(name, entry)


REQUIRED = frozenset({"heads", "batch", "q_len", "kv_len", "threads", "target", *RANGE})


def _all_keys(node: Fields) -> Iterator[tuple[str, Entry]]:
    for name, entry in node.entries.items():
        if name in GROUPS:
            inner = entry.node
            for part in inner.items if isinstance(inner, Items) else (inner,):
                if isinstance(part, Fields):
                    yield from part.entries.items()
        elif name != WHERE:
            yield name, entry


def _is_range(node: Node) -> bool:
    return isinstance(node, Fields) and "from" in node.entries


def _is_one_value(node: Items, wanted: Field) -> bool:
    """Whether a list is a value itself, as that of ``outputs`` is, and not a list of values."""
    return isinstance(wanted.kind, (Words, Shape)) and not any(
        isinstance(item, Items) or (isinstance(item, Scalar) and item.value is None)
        for item in node.items
    )


def _range_kind(name: str, wanted: Field) -> Integer | Number:
    whole = isinstance(wanted.kind, Integer)
    if name == "factor":
        return Number(above=1.0)
    if name == "step":
        return Integer(1) if whole else Number(above=0.0)
    return Integer(-1) if whole else Number()


def _wrong_range(ends: dict[str, int | float]) -> str:
    """What is wrong with a range whose parts are right, or nothing."""
    if "to" not in ends:
        return "is a range without 'to'"
    if "step" in ends and "factor" in ends:
        return "is a range with both 'step' and 'factor'"
    if "step" not in ends and "factor" not in ends:
        return "is a range without 'step' or 'factor'"
    if ends["to"] < ends["from"]:
        return f"is a range from {ends['from']:g} down to {ends['to']:g}"
    if "factor" in ends and ends["from"] <= 0:
        return f"is a range by a factor, and starts at {ends['from']:g}"
    return ""


def _numbers(ends: dict[str, int | float], whole: bool) -> list[int | float]:
    """The values of a range, both ends included; at most one more than are allowed."""
    first, last = ends["from"], ends["to"]
    tolerance = 0 if whole else 1e-9 * max(abs(first), abs(last))
    found: dict[int | float, None] = {}
    for i in range(MAX_SETTINGS + 1):
        value = first * ends["factor"] ** i if "factor" in ends else first + i * ends["step"]
        if value > last + tolerance:
            break
        found[round(value) if whole else float(f"{value:.12g}")] = None
    return list(found)


def _shown(setting: Setting) -> str:
    if setting.node is None:
        return "null"
    return setting.node.shown if isinstance(setting.node, Scalar) else describe(setting.node)
