"""Loads a spec's file and all that it extends into one tree.

Input: a file or a mapping. Output: the merged tree, whose places point into the file that holds
each value, and everything that went wrong on the way. `name` and `description` say what one file
is, so they are not inherited.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attngen.errors import Diagnostic
from attngen.source import SourceText, Span
from attngen.spec.nodes import Fields, Scalar, from_mapping, merge, shorten
from attngen.spec.search import locate_parent
from attngen.spec.yaml_nodes import read_yaml

MAX_BYTES = 64 << 10
MAX_PARENTS = 32
_OWN_KEYS = frozenset({"name", "description", "extends"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tree and its mistakes so far.

    Attributes:
        root: the merged tree; None where there is nothing to check.
        complete: whether every parent was read, so that a key not found is truly missing.
    """

    root: Fields | None
    complete: bool
    diagnostics: tuple[Diagnostic, ...]


def load_file(path: Path) -> Loaded:
    """The tree of the file at `path` over those it extends."""
    root, diagnostics = _read_file(path, None)
    return _with_parents(root, diagnostics, path)


def load_mapping(mapping: Mapping[Any, object]) -> Loaded:
    """The tree of a Python mapping over those it extends, relative to the working folder."""
    root, diagnostics = from_mapping(mapping)
    return _with_parents(root, diagnostics, None)


def _with_parents(root: Fields | None, found: tuple[Diagnostic, ...], path: Path | None) -> Loaded:
    diagnostics = list(found)
    chain = [path] if path else []
    layer, child = root, path
    while root is not None and layer is not None and "extends" in layer.entries:
        node = layer.entries["extends"].node
        if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.value:
            return Loaded(root, False, tuple(diagnostics))  # the check of values says why
        parent = locate_parent(node.value, child, node.span)
        if isinstance(parent, Diagnostic):
            return Loaded(root, False, (*diagnostics, parent))
        if problem := _chain_problem(chain, parent, node.span):
            return Loaded(root, False, (*diagnostics, problem))
        chain.append(parent)
        layer, problems = _read_file(parent, node.span)
        diagnostics += problems
        if layer is None:
            return Loaded(root, False, tuple(diagnostics))
        kept = {k: e for k, e in layer.entries.items() if k not in _OWN_KEYS}
        root, child = merge(Fields(kept, layer.span), root), parent
        own = layer.entries.get("extends")
        if own is not None and not _is_text(own.node):
            message = "'extends' must be a spec's name or path"
            diagnostics.append(Diagnostic("E-TYPE", message, own.node.span, "extends"))
            return Loaded(root, False, tuple(diagnostics))
    return Loaded(root, True, tuple(diagnostics))


def _is_text(node: object) -> bool:
    return isinstance(node, Scalar) and isinstance(node.value, str) and node.value != ""


def _chain_problem(chain: list[Path], parent: Path, span: Span | None) -> Diagnostic | None:
    real = os.path.realpath(parent)
    if any(os.path.realpath(p) == real for p in chain):
        names = " -> ".join(p.name for p in (*chain, parent))
        message = f"'extends' goes in a circle: {names}"
        return Diagnostic("E-CYCLE", message, span, "extends", hint="let one of them stand alone")
    if len(chain) > MAX_PARENTS:
        message = f"'extends' goes on for more than {MAX_PARENTS} files"
        return Diagnostic("E-CYCLE", message, span, "extends")
    return None


def _read_file(path: Path, span: Span | None) -> tuple[Fields | None, tuple[Diagnostic, ...]]:
    """The tree of one file; `span` is the ``extends`` that named it."""
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"cannot read {shorten(name, 200)}: {reason}"
        return None, (Diagnostic("E-FILE", message, span, hint=_file_hint(path)),)
    if len(data) > MAX_BYTES:
        message = f"{shorten(name, 200)} is larger than 64 KiB, and a spec is a few lines"
        return None, (Diagnostic("E-FILE", message, span),)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        source = SourceText(name, data.decode("utf-8", "replace"))
        before = data[: error.start].decode("utf-8", "replace").splitlines(keepends=True) or [""]
        if before[-1].endswith(("\n", "\r")):
            before.append("")
        place = Span(source, len(before), len(before[-1]) + 1)
        message = f"not UTF-8: byte 0x{data[error.start]:02X} cannot stand here"
        return None, (Diagnostic("E-UTF8", message, place, hint="save the file as UTF-8"),)
    return read_yaml(SourceText(name, text))


def _file_hint(path: Path) -> str:
    if os.path.isdir(path):
        return "name a file in that folder"
    folder = path.parent
    return f"there is no folder {shorten(str(folder), 200)}" if not os.path.isdir(folder) else ""
