"""The tree a spec is read from, the same for a YAML file and for a Python mapping.

Input: a mapping (YAML text comes through :mod:`attngen.spec.yaml_nodes`). Output: nodes that know
their value, how it was written, and where. A mistake found while the tree is built leaves a
:class:`Broken` node, so that it is reported once and later checks pass over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from attngen.errors import Diagnostic
from attngen.source import Span
from attngen.spec.places import TextPlace
from attngen.spec.spelling import Spelling

MAX_DEPTH = 24
MAX_NODES = 10_000
FOREIGN = ()  # stands for a value that no key takes, such as a date


@dataclass(frozen=True, slots=True)
class Scalar:
    """None, a truth value, a number or a text; a value of no such kind is :data:`FOREIGN`.

    Attributes:
        shown: how the value was written, short enough for a message.
        spelling: set where YAML 1.1 and YAML 1.2 read the scalar differently.
        place: for a text, what it was read from.
    """

    value: object
    shown: str
    span: Span | None = None
    spelling: Spelling | None = None
    place: TextPlace | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping, with the place of the key and its value."""

    key_span: Span | None
    node: Node


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping whose keys are texts, in the order in which they were written."""

    entries: dict[str, Entry] = field(default_factory=dict)
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """A value that cannot be read; the mistake is already reported."""

    span: Span | None = None


Node: TypeAlias = Scalar | Items | Fields | Broken


def shorten(text: str, limit: int = 40) -> str:
    """`text` quoted for a message: escaped where unprintable, and cut where long."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")


def describe(node: Node) -> str:
    """What stands there, as the end of a sentence "..., not <this>"."""
    match node:
        case Items():
            return "a list"
        case Fields():
            return "a mapping"
        case Broken():
            return "an unreadable value"
        case Scalar(value=None):
            return "null"
        case Scalar(value="", shown=shown):
            return f"the empty text {shown}"
        case Scalar(value=str(), shown=shown):
            return f"the text {shown}"
        case Scalar(shown=shown):
            return shown


def merge(parent: Fields, child: Fields) -> Fields:
    """`child` over `parent`: mappings merge key by key, everything else replaces."""
    entries = dict(parent.entries)
    for key, entry in child.entries.items():
        below = entries.pop(key, None)  # popped, so that a key stands where it was written last
        node = entry.node
        if below is not None and isinstance(below.node, Fields) and isinstance(node, Fields):
            node = merge(below.node, node)
        entries[key] = Entry(entry.key_span, node)
    return Fields(entries, child.span)


def span_of(root: Fields, *path: str) -> Span | None:
    """Where the value at `path` stands, or the innermost mapping that lacks the rest of it."""
    return node_at(root, *path).span


def node_at(root: Fields, *path: str) -> Node:
    """The node at `path`, or the innermost mapping that lacks the rest of it."""
    node: Node = root
    for key in path:
        if not isinstance(node, Fields) or key not in node.entries:
            break
        node = node.entries[key].node
    return node


def from_mapping(mapping: Mapping[Any, object]) -> tuple[Fields, tuple[Diagnostic, ...]]:
    """The tree of a Python mapping, and what cannot be in a spec at all."""
    builder = _MappingReader()
    node = builder.convert(mapping, "", 0)
    return (node if isinstance(node, Fields) else Fields()), tuple(builder.diagnostics)


class _MappingReader:
    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.nodes = 0
        self.overflowed = False

    def convert(self, value: object, path: str, depth: int) -> Node:
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            if not self.overflowed:
                self.overflowed = True
                self.diagnostics.append(
                    Diagnostic(
                        "E-ALIAS",
                        "the spec contains itself or is far too large",
                        hint=f"keep it within {MAX_DEPTH} levels and {MAX_NODES} values",
                    )
                )
            return Broken()
        if isinstance(value, Mapping):
            return self._fields(value, path, depth)
        if isinstance(value, (list, tuple)):
            return Items(tuple(self.convert(item, path, depth + 1) for item in value))
        return Scalar(*_python_scalar(value))

    def _fields(self, mapping: Mapping[Any, object], path: str, depth: int) -> Fields:
        entries: dict[str, Entry] = {}
        for key, value in mapping.items():
            if not isinstance(key, str):
                self.diagnostics.append(
                    Diagnostic(
                        "E-KEY",
                        f"a key must be a text, not {_python_scalar(key)[1]}",
                        key=path,
                        hint="keys are words such as heads",
                    )
                )
                continue
            below = f"{path}.{key}" if path else key
            entries[str(key)] = Entry(None, self.convert(value, below, depth + 1))
        return Fields(entries)


def _python_scalar(value: object) -> tuple[object, str]:
    """The value as a spec means it, and how to show it."""
    match value:
        case None:
            return None, "null"
        case bool():
            return value, "true" if value else "false"
        case int():
            return int(value), shown_int(int(value))
        case float():
            return float(value), str(float(value)).replace("inf", ".inf").replace("nan", ".nan")
        case str():
            return str(value), shorten(str(value))
        case _:
            return FOREIGN, f"a value of type {type(value).__module__}.{type(value).__name__}"


def shown_int(value: int) -> str:
    """`value` in digits; by its size where that would fill the screen."""
    if value.bit_length() <= 128:
        return str(value)
    return f"{'-' if value < 0 else ''}2**{value.bit_length() - 1} or more"
