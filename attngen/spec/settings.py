"""Settings from outside a file, such as ``window.left=255`` on a command line.

Input: a loaded tree and texts ``key=value``, whose values are YAML. Output: the tree with them in
place; a mistake in one points into its text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from attngen.errors import Diagnostic
from attngen.source import SourceText, Span
from attngen.spec.inherit import Loaded
from attngen.spec.nodes import Entry, Fields, Scalar, merge
from attngen.spec.yaml_nodes import read_yaml


def with_settings(loaded: Loaded, texts: Iterable[str], below: str = "") -> Loaded:
    """`loaded` with each of `texts` over it.

    Args:
        loaded: its root is None where there is nothing to check, and stays so.
        texts: ``key=value`` with a dotted key; null takes the key out.
        below: a key of the spec whose mapping gets the settings as they are, dots and all.
    """
    root, diagnostics = loaded.root, list(loaded.diagnostics)
    for text in texts:
        key, equals, value = text.partition("=")
        source = SourceText("(setting)", f"{key.strip()}: {value.strip()}")
        if not equals or not key.strip() or not value.strip():
            span = Span(SourceText("(setting)", text), 1, 1, max(len(text), 1))
            message = "a setting is KEY=VALUE"
            diagnostics.append(Diagnostic("E-SETTING", message, span, hint="such as head_dim=64"))
            continue
        node, wrong = read_yaml(source)
        diagnostics += wrong
        entry = node.entries.get(key.strip()) if node else None
        if root is not None and entry is not None:
            path = [below, key.strip()] if below else key.strip().split(".")
            root = _put(root, path, entry)
    return replace(loaded, root=root, diagnostics=tuple(diagnostics))


def _put(root: Fields, path: list[str], entry: Entry) -> Fields:
    first, *rest = path
    if rest:
        old = root.entries.get(first)
        inner = old.node if old and isinstance(old.node, Fields) else Fields(span=root.span)
        below = Entry(old.key_span if old else entry.key_span, _put(inner, rest, entry))
        return Fields({**root.entries, first: below}, root.span)
    if isinstance(entry.node, Scalar) and entry.node.value is None:
        return Fields({k: e for k, e in root.entries.items() if k != first}, root.span)
    if first in root.entries:
        return Fields({**root.entries, first: entry}, root.span)
    return merge(root, Fields({first: entry}, root.span))
