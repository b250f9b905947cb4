"""Reads a spec: from a file, a name or a mapping to a checked Spec.

Input: YAML or plain Python data. Output: a :class:`~attngen.spec.model.Spec`, or one SpecError that
carries every mistake found, each with its place. Steps: find the file, load it over what it
extends, check each value against the table of fields, then the rules between keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attngen.errors import CallTypeError, Diagnostic, SpecError
from attngen.source import Span
from attngen.spec.conditions import read_conditions
from attngen.spec.inherit import Loaded, load_file, load_mapping
from attngen.spec.model import Spec
from attngen.spec.nodes import Fields
from attngen.spec.rules import Rules
from attngen.spec.search import locate
from attngen.spec.settings import with_settings
from attngen.spec.sweep import SweepPlan
from attngen.spec.values import check_values
from attngen.spec.values import read_sweep as values_of_sweep


def read_spec(source: str | Path | Mapping[str, Any], settings: Iterable[str] = ()) -> Spec:
    """The spec that `source` means; what it says under ``sweep`` is checked and left out.

    Args:
        source: a path; a text that ends in ``.yaml`` or ``.yml``, has a path separator or is a
            file's name; the name of a spec on the search path (the working folder's ``specs/``,
            then those that ship); or a mapping as ``yaml.safe_load`` returns it.
        settings: texts such as ``window.left=255``, which win over what the spec says; null takes
            a key out.

    Raises:
        SpecError: with all mistakes of the spec and of those it extends.
        CallTypeError: if `source` is none of these.
    """
    return _judge(_load(source, settings))[0]


def read_sweep(source: str | Path | Mapping[str, Any], settings: Iterable[str] = ()) -> SweepPlan:
    """The sweep that `source`, as for :func:`read_spec`, states.

    Args:
        source: as above.
        settings: texts such as ``head_dim=[64, 128]``: axes beside or in place of the spec's own.

    Raises:
        SpecError: with all mistakes of the spec; it has no ``sweep`` and there are no `settings`.
        CallTypeError: if `source` is none of these.
    """
    named = _load(source, (), sweep=settings)
    return _judge(named, wants_sweep=True)[1]


@dataclass(frozen=True, slots=True)
class _Named:
    """What was loaded, the name that its file gives it, and that file."""

    loaded: Loaded
    name: str
    path: Path | None = None


def _load(
    source: str | Path | Mapping[str, Any], settings: Iterable[str], sweep: Iterable[str] = ()
) -> _Named:
    if isinstance(source, Mapping):
        found = _Named(load_mapping(source), "attention")
    elif isinstance(source, (str, Path)):
        path = source if isinstance(source, Path) else locate(source)
        if isinstance(path, Diagnostic):
            raise SpecError([path])
        found = _Named(load_file(path), path.stem, path)
    else:
        kind = type(source).__name__
        raise CallTypeError(f"a spec is a path, a name or a mapping, not a value of type {kind}")
    loaded = with_settings(found.loaded, settings)
    return replace(found, loaded=with_settings(loaded, sweep, below="sweep"))


def _judge(named: _Named, *, wants_sweep: bool = False) -> tuple[Spec, SweepPlan]:
    loaded = named.loaded
    if loaded.root is None:
        raise SpecError(loaded.diagnostics)
    swept = loaded.root.entries.get("sweep")
    root = Fields({k: e for k, e in loaded.root.entries.items() if k != "sweep"}, loaded.root.span)
    values, wrong_values = check_values(loaded.root)
    rules = Rules(root, values, named.name, loaded.complete)
    spec = rules.build()
    found = [*loaded.diagnostics, *wrong_values, *rules.diagnostics]
    text = root.span.source.text if root.span and named.path else ""
    plan = SweepPlan(root, values, named.name, (), origin=str(named.path or ""), text=text)
    if swept is not None:
        sweep = values_of_sweep(swept.node)
        axes = [axis for group in sweep.groups for axis in group.axes]
        conditions, wrong = read_conditions(sweep.conditions, values, axes)
        found += wrong
        plan = replace(plan, groups=sweep.groups, conditions=conditions)
    elif wants_sweep:
        found.append(_no_sweep(loaded.root))
    if found or spec is None:
        raise SpecError(_in_reading_order(tuple(found)))
    return spec, plan


def _no_sweep(root: Fields) -> Diagnostic:
    span = Span(root.span.source, 1, 1) if root.span else None
    hint = "add one, such as sweep: {head_dim: [64, 128], q_len: [512, 2048]}"
    return Diagnostic("E-MISSING", "'sweep' is missing, and says what to measure", span, "sweep",
                      hint=hint)  # fmt: skip


def _in_reading_order(diagnostics: tuple[Diagnostic, ...]) -> list[Diagnostic]:
    """Each mistake once, file by file in the order of lines; those without a place come last."""
    files = {d.span.source.name: None for d in diagnostics if d.span}
    order = {name: index for index, name in enumerate(files)}

    def place(diagnostic: Diagnostic) -> tuple[int, int, int]:
        span = diagnostic.span
        return (order[span.source.name], span.line, span.column) if span else (len(order), 0, 0)

    return sorted(dict.fromkeys(diagnostics), key=place)
