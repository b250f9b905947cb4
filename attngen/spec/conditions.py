"""The conditions of a sweep: expressions over the sizes of a point.

Input: their texts and the axes. Output: expressions, every mistake at its place, and the numbers
that an expression reads at a point. A key that is not given counts as what stands in for it
(`kv_heads` as `heads`), and as 0 where nothing does; `window.left` is read as ``window_left``, and
a scheduling decision by its own name, 0 where the heuristic takes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from attngen.errors import Diagnostic
from attngen.ir.expr import DataType
from attngen.ir.ranges import Range
from attngen.spec.expressions import parse
from attngen.spec.field_kinds import SIZE_MAX, Integer, Section
from attngen.spec.fields import SPEC
from attngen.spec.nodes import Scalar
from attngen.spec.places import span_inside
from attngen.spec.plan import Axis, Condition
from attngen.spec.vocabulary import Scope

_SIZES = ("heads", "kv_heads", "head_dim", "value_dim", "dilation")
_COUNTS = ("d_model", "prefix", "chunk", "global_tokens")
_CALL = ("batch", "q_len", "kv_len", "threads")


def _decisions() -> tuple[str, ...]:
    """The scheduling decisions that are numbers."""
    schedule = SPEC.field("schedule")
    cpu = schedule.kind.field("cpu") if schedule and isinstance(schedule.kind, Section) else None
    fields = cpu.kind.fields if cpu and isinstance(cpu.kind, Section) else ()
    return tuple(f.name for f in fields if isinstance(f.kind, Integer))


def numbers_at(values: Mapping[str, Any]) -> dict[str, int | float | bool]:
    """What a condition reads of a spec with these values; the call's sizes are not among them."""
    heads, d_model = values.get("heads", 1), values.get("d_model", 0)
    head_dim = values.get("head_dim", max(1, d_model // heads))
    window, causal = values.get("window", {}), values.get("causal", "prefix" in values)
    cpu = values.get("schedule", {}).get("cpu", {})
    return {
        **{k: v for k, v in values.get("parameters", {}).items() if isinstance(v, (int, float))},
        **{name: values.get(name, 0) for name in _COUNTS},
        **{name: cpu.get(name, 0) for name in _decisions()},
        "heads": heads,
        "kv_heads": values.get("kv_heads", heads),
        "head_dim": head_dim,
        "value_dim": values.get("value_dim", head_dim),
        "dilation": values.get("dilation", 1),
        "window_left": window.get("left", -1),
        "window_right": window.get("right", -1),
        "scale": _real(values.get("scale", 1 / math.sqrt(head_dim))),
        "softcap": float(values.get("softcap", 0.0)),
        "causal": causal is not False,
        "sink": values.get("sink", False) is True,
    }


def _real(value: object) -> float:
    """A number as it is; NaN, of which no comparison holds, for one of each head."""
    return float(value) if isinstance(value, (int, float)) else math.nan


def read_conditions(
    nodes: Iterable[Scalar], values: Mapping[str, Any], axes: Iterable[Axis]
) -> tuple[tuple[Condition, ...], tuple[Diagnostic, ...]]:
    """The conditions that `nodes` are, in a spec with these values and axes."""
    conditions: list[Condition] = []
    diagnostics: list[Diagnostic] = []
    if not (nodes := tuple(nodes)):
        return (), ()
    scope = _scope(values, tuple(axes))
    for node in nodes:
        text = str(node.value)
        parsed = parse(text, scope)
        if parsed.expr is not None:
            conditions.append(Condition(text, parsed.expr))
        for mistake in parsed.mistakes:
            span = node.span
            if node.place is not None:
                span = span_inside(text, node.place, mistake.start, mistake.length) or span
            message = f"'sweep.where' {mistake.message}"
            diagnostics.append(
                Diagnostic("E-EXPR", message, span, "sweep.where", hint=mistake.hint)
            )
    return tuple(conditions), tuple(diagnostics)


def _scope(values: Mapping[str, Any], axes: tuple[Axis, ...]) -> Scope:
    """The names of a condition, each with its type and its least and greatest value."""
    own = numbers_at(values)
    swept: dict[str, list[Any]] = {}
    for axis in axes:
        if not axis.key.startswith(("schedule", "window", "parameters")) or "." in axis.key:
            name = name_of(axis.key)
            absent = None if name in _SIZES else 0
            found = [absent if s.value is None else s.value for s in axis.settings]
            swept[name] = [value for value in found if isinstance(value, (int, float))]
    for axis in axes:  # parameters that only the sweep has
        if axis.key.startswith("parameters."):
            own.setdefault(name_of(axis.key), 0)
    types: dict[str, DataType] = {}
    ranges: dict[str, Range] = {}
    for name in (*own, *_CALL):
        numbers = [*swept.get(name, ()), *([own[name]] if name in own else [])]
        types[name] = _type(numbers)
        if types[name] == "int64":
            least = 1 if name in (*_SIZES, *_CALL) else min(0, *numbers)
            known = numbers and (name in values or name in swept)
            ranges[name] = (min(numbers), max(numbers)) if known else (least, SIZE_MAX)
    return Scope("where", "truth", variables=types, ranges=ranges, noun="condition")


def name_of(key: str) -> str:
    """What a condition calls a dotted key: ``window_left``, and the last word of others."""
    return key.replace(".", "_") if key.startswith("window.") else key.rpartition(".")[2]


def _type(values: list[Any]) -> DataType:
    if any(isinstance(value, float) for value in values):
        return "float"
    return "bool" if values and all(isinstance(value, bool) for value in values) else "int64"
