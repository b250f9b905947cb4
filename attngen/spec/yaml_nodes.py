"""YAML text to a tree of nodes with places, and every mistake that is YAML's own.

Input: the text of one file. Output: its mapping as :class:`~attngen.spec.nodes.Fields` and the
diagnostics of what YAML makes easy to get wrong: duplicate keys, tabs, several documents, tags,
keys that are not text, aliases that recurse or explode. Anchors, aliases and merge keys work, and
a key beside a merge key overrides what it merges.
"""

from __future__ import annotations

import math
import re

import yaml

from attngen.errors import Diagnostic
from attngen.source import SourceText, Span
from attngen.spec.nodes import (
    FOREIGN,
    MAX_DEPTH,
    MAX_NODES,
    Broken,
    Entry,
    Fields,
    Items,
    Node,
    Scalar,
    shorten,
    shown_int,
)
from attngen.spec.places import TextPlace
from attngen.spec.spelling import spelling_of

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_READ_AS = {
    "null": "null",
    "bool": "a truth value",
    "int": "a number",
    "float": "a number",
    "timestamp": "a date",
}


class _Composer(yaml.SafeLoader):
    """PyYAML's composer with a limit on nesting, where it would run out of stack."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, f"more than {MAX_DEPTH} levels", mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_yaml(source: SourceText) -> tuple[Fields | None, tuple[Diagnostic, ...]]:
    """The mapping in `source` (None where there is none to check), and YAML's own mistakes."""
    documents, failure = _documents(source)
    if failure is not None:
        return None, (failure,)
    start = Span(source, 1, 1)
    if not documents or _is_empty(documents[0]):
        return None, (Diagnostic("E-EMPTY", "the spec is empty", start, hint=_SMALLEST),)
    reader = _TreeReader(source)
    for extra in documents[1:]:
        reader.report(
            "E-DOCUMENTS",
            extra,
            "a second YAML document starts here, and a spec is one document",
            "take out the line --- and what follows, or put it in a file of its own",
        )
    root = reader.convert(documents[0])
    if isinstance(root, Fields):
        return root, tuple(reader.diagnostics)
    if not isinstance(root, Broken):
        found = "list" if isinstance(root, Items) else "single value"
        reader.report(
            "E-MAPPING", documents[0], f"a spec is a mapping of keys, not a {found}", _SMALLEST
        )
    return None, tuple(reader.diagnostics)


_SMALLEST = "the smallest spec is heads: 32 and head_dim: 128, on two lines"


def _documents(source: SourceText) -> tuple[list[yaml.Node], Diagnostic | None]:
    loader: _Composer | None = None
    nodes: list[yaml.Node] = []
    try:
        loader = _Composer(source.text)
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                nodes.append(node)
    except yaml.YAMLError as error:
        return [], _syntax_error(source, error)
    except (ValueError, OverflowError) as error:  # PyYAML lets these out of escapes and directives
        mark = loader.get_mark() if loader else None
        span = _span(source, mark) if mark else Span(source, 1, 1)
        return [], Diagnostic("E-YAML", f"not valid YAML: {error}", span)
    return nodes, None


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "" and node.style is None


def _syntax_error(source: SourceText, error: yaml.YAMLError) -> Diagnostic:
    """PyYAML's error in our words where it is a well-known trap, else in its own."""
    if isinstance(error, yaml.reader.ReaderError):
        before = source.text[: int(error.position)].splitlines() or [""]
        span = Span(source, len(before), len(before[-1]) + 1)
        message = f"the character U+{ord(source.text[int(error.position)]):04X} is not allowed"
        return Diagnostic("E-YAML", message, span, hint="take the character out")
    mark = getattr(error, "problem_mark", None)
    span = _span(source, mark) if mark is not None else Span(source, 1, 1)
    if mark is not None and source.text[mark.index : mark.index + 1] == "\t":
        hint = "use spaces, with two for each level"
        return Diagnostic("E-YAML", "YAML takes no tab here", span, hint=hint)
    problem = getattr(error, "problem", None) or str(error)
    context, began = getattr(error, "context", None), getattr(error, "context_mark", None)
    note = f"{context}, which starts on line {began.line + 1}" if context and began else ""
    return Diagnostic("E-YAML", f"not valid YAML: {problem}", span, note=note)


def _span(source: SourceText, start: yaml.Mark, end: yaml.Mark | None = None) -> Span:
    length = end.column - start.column if end is not None and end.line == start.line else 1
    return Span(source, start.line + 1, start.column + 1, max(length, 1))


class _TreeReader:
    """Converts composed nodes and collects what is wrong with them."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.diagnostics: dict[Diagnostic, None] = {}  # a set that keeps their order
        self.resolver = yaml.resolver.Resolver()
        self.open: set[int] = set()
        self.nodes = 0

    def report(self, code: str, node: yaml.Node, message: str, hint: str = "") -> None:
        """Adds a mistake at `node`, once however often an alias brings it back."""
        self.diagnostics[Diagnostic(code, message, self.span(node), hint=hint)] = None

    def span(self, node: yaml.Node) -> Span:
        end = node.end_mark if isinstance(node, yaml.ScalarNode) else None
        return _span(self.source, node.start_mark, end)

    def convert(self, node: yaml.Node) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            if self.nodes == MAX_NODES + 1:
                message = f"aliases make this more than {MAX_NODES} values"
                self.report("E-ALIAS", node, message, "write out the few values that are meant")
            return Broken(self.span(node))
        if id(node) in self.open:
            self.report("E-ALIAS", node, "an alias in this value stands for the value itself")
            return Broken(self.span(node))
        if not self.has_own_tag(node):
            message = f"a spec takes no YAML tags, and this has {_tag_shown(node)}"
            self.report("E-TAG", node, message, "take the tag out; text can be put in quotes")
            return Broken(self.span(node))
        self.open.add(id(node))
        try:
            return self.convert_untagged(node)
        finally:
            self.open.discard(id(node))

    def convert_untagged(self, node: yaml.Node) -> Node:
        if isinstance(node, yaml.MappingNode):
            return self.fields(node)
        if isinstance(node, yaml.SequenceNode):
            return Items(tuple(self.convert(item) for item in node.value), self.span(node))
        assert isinstance(node, yaml.ScalarNode)  # noqa: S101 the third and last kind of node
        return self.scalar(node)

    def has_own_tag(self, node: yaml.Node) -> bool:
        """Whether the tag is the one that the node's form gives it, and none was written."""
        implicit = (True, False)
        if isinstance(node, yaml.ScalarNode):
            implicit = (node.style is None, node.style is not None)
        value = node.value if isinstance(node, yaml.ScalarNode) else None
        own = self.resolver.resolve(type(node), value, implicit)  # type: ignore[no-untyped-call]
        return bool(node.tag == own)

    def scalar(self, node: yaml.ScalarNode) -> Scalar:
        text, kind, span = str(node.value), node.tag.removeprefix(_TAG), self.span(node)
        spelling = spelling_of(text) if node.style is None else None
        match kind:
            case "str":
                marks = (node.start_mark.index, node.end_mark.index)
                place = TextPlace(self.source, *marks, node.style)
                return Scalar(text, shorten(text), span, spelling, place)
            case "null":
                return Scalar(None, "null", span)
            case "bool":
                return Scalar(text.lower() in ("true", "yes", "on"), text, span, spelling)
            case "int" if spelling is not None:
                return Scalar(spelling.meant, text, span, spelling)
            case "int" if re.fullmatch(r"[-+]?[1-9]\d{40,}", text):
                value = 10**40 if text[0] != "-" else -(10**40)  # out of any range, cheaply
                return Scalar(value, shorten(text)[1:-1], span)
            case "int" if re.fullmatch(r"[-+]?(0|[1-9]\d*)", text):
                return Scalar(int(text), shown_int(int(text)), span)
            case "float" if spelling is not None:
                return Scalar(float(spelling.meant), text, span, spelling)
            case "float" if len(text) <= 400:
                return Scalar(_float(text), shorten(text)[1:-1], span)
            case _:
                return Scalar(FOREIGN, shorten(text), span)

    def fields(self, node: yaml.MappingNode) -> Fields:
        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        lines: dict[tuple[str, str], int] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node)
            if key is None:
                continue
            line = lines.setdefault((key_node.tag, key), key_node.start_mark.line + 1)
            if line != key_node.start_mark.line + 1 or key in entries:
                message = f"key {shorten(key)} stands twice, here and on line {line}"
                self.report("E-DUPLICATE", key_node, message, "keep one of the two")
            elif key_node.tag == _MERGE:
                self.merge(value_node, merged)
            else:
                entries[key] = Entry(self.span(key_node), self.convert(value_node))
        return Fields({**merged, **entries}, self.span(node))

    def key(self, node: yaml.Node) -> str | None:
        """The text of a key, or None once it is reported."""
        hint = "keys are words such as heads"
        if not isinstance(node, yaml.ScalarNode):
            found = "list" if isinstance(node, yaml.SequenceNode) else "mapping"
            self.report("E-KEY", node, f"a key must be a text, not a {found}", hint)
        elif not self.has_own_tag(node):
            self.report(
                "E-TAG", node, f"a spec takes no YAML tags, and this has {_tag_shown(node)}"
            )
        elif node.tag in (f"{_TAG}str", _MERGE):
            return str(node.value)
        else:
            read_as = _READ_AS.get(node.tag.removeprefix(_TAG), "no text")
            message = f"a key must be a text, and YAML reads {shorten(node.value)} as {read_as}"
            self.report("E-KEY", node, message, hint)
        return None

    def merge(self, node: yaml.Node, merged: dict[str, Entry]) -> None:
        """Adds what a merge key brings; of several mappings the first that has a key wins."""
        found = self.convert(node)
        for part in found.items if isinstance(found, Items) else (found,):
            if isinstance(part, Fields):
                for key, entry in part.entries.items():
                    merged.setdefault(key, entry)
            elif not isinstance(part, Broken):
                self.report("E-MERGE", node, "a merge key takes a mapping or a list of mappings")


def _tag_shown(node: yaml.Node) -> str:
    return shorten(str(node.tag).replace(_TAG, "!!"))


def _float(text: str) -> float:
    try:
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return math.nan  # a number in base 60, too long to be one that anybody wrote
