"""Reads a spec: from a file, a name or a mapping to a checked Spec.

Input: YAML or plain Python data. Output: a :class:`~attngen.spec.model.Spec`, or one SpecError that
carries every mistake found, each with its place. Steps: find the file, load it over what it
extends, check each value against the table of fields, then the rules between keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attngen.errors import CallTypeError, Diagnostic, SpecError
from attngen.spec.inherit import Loaded, load_file, load_mapping
from attngen.spec.model import Spec
from attngen.spec.rules import Rules
from attngen.spec.search import locate
from attngen.spec.values import check_values


def read_spec(source: str | Path | Mapping[str, Any]) -> Spec:
    """The spec that `source` means.

    Args:
        source: a path; a text that ends in ``.yaml`` or ``.yml``, has a path separator or is a
            file's name; the name of a spec on the search path (the working folder's ``specs/``,
            then those that ship); or a mapping as ``yaml.safe_load`` returns it.

    Raises:
        SpecError: with all mistakes of the spec and of those it extends.
        CallTypeError: if `source` is none of these.
    """
    if isinstance(source, Mapping):
        return _judge(load_mapping(source), "attention")
    if not isinstance(source, (str, Path)):
        found = type(source).__name__
        raise CallTypeError(f"a spec is a path, a name or a mapping, not a value of type {found}")
    path = source if isinstance(source, Path) else locate(source)
    if isinstance(path, Diagnostic):
        raise SpecError([path])
    return _judge(load_file(path), path.stem)


def _judge(loaded: Loaded, default_name: str) -> Spec:
    if loaded.root is None:
        raise SpecError(loaded.diagnostics)
    values, wrong_values = check_values(loaded.root)
    rules = Rules(loaded.root, values, default_name, loaded.complete)
    spec = rules.build()
    found = (*loaded.diagnostics, *wrong_values, *rules.diagnostics)
    if found or spec is None:
        raise SpecError(_in_reading_order(found))
    return spec


def _in_reading_order(diagnostics: tuple[Diagnostic, ...]) -> list[Diagnostic]:
    """Each mistake once, file by file in the order of lines; those without a place come last."""
    files = {d.span.source.name: None for d in diagnostics if d.span}
    order = {name: index for index, name in enumerate(files)}

    def place(diagnostic: Diagnostic) -> tuple[int, int, int]:
        span = diagnostic.span
        return (order[span.source.name], span.line, span.column) if span else (len(order), 0, 0)

    return sorted(dict.fromkeys(diagnostics), key=place)
