"""A sweep as a spec states it, and the spec at each of its points.

Input: a tree, its checked values, and the parts of its ``sweep``. Output: an immutable
:class:`SweepPlan`, and for each choice of settings a Spec or the rules that it breaks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attngen.errors import Diagnostic
from attngen.spec.axes import CALL_KEYS
from attngen.spec.model import Spec
from attngen.spec.nodes import Entry, Fields, Node
from attngen.spec.plan import Axis, Condition, Group, Setting
from attngen.spec.rules import Rules


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """A sweep and the spec that it varies.

    Attributes:
        root: the tree of the spec without ``sweep``, for places.
        values: the checked values of its keys.
        default_name: the spec's name where it gives none.
        groups: crossed with each other.
        conditions: a point for which one of them is false is none.
        origin: the file that the spec was read from, as the caller named it; empty for a mapping.
        text: the text of that file; empty for a mapping.
    """

    root: Fields
    values: Mapping[str, Any]
    default_name: str
    groups: tuple[Group, ...]
    conditions: tuple[Condition, ...] = ()
    origin: str = ""
    text: str = ""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, in the order in which they were written."""
        return tuple(axis for group in self.groups for axis in group.axes)

    @property
    def size(self) -> int:
        """How many points there are before any condition."""
        return math.prod(group.size for group in self.groups)

    def values_at(self, chosen: Mapping[str, Setting]) -> dict[str, Any]:
        """The values of the spec's keys with those of `chosen` in their place."""
        values: dict[str, Any] = dict(self.values)
        for key, setting in chosen.items():
            if key not in CALL_KEYS:
                _put(values, key.split("."), setting.value)
        return values

    def spec_at(self, chosen: Mapping[str, Setting]) -> Spec | tuple[Diagnostic, ...]:
        """The spec with the settings of `chosen`, or why there is none; it has to be elaborated."""
        root = self.root
        for key, setting in chosen.items():
            if key not in CALL_KEYS:
                root = _with_node(root, key.split("."), setting.node)
        rules = Rules(root, self.values_at(chosen), self.default_name, complete=True)
        spec = rules.build()
        return spec if spec is not None and not rules.diagnostics else tuple(rules.diagnostics)


def _put(values: dict[str, Any], path: list[str], value: object) -> None:
    """Set or (None) take out what stands at `path`; mappings on the way are copied."""
    first, *rest = path
    if rest:
        below = dict(values.get(first) or {})
        _put(below, rest, value)
        values[first] = below
    elif value is None:
        values.pop(first, None)
    else:
        values[first] = value


def _with_node(root: Fields, path: list[str], node: Node | None) -> Fields:
    """`root` with `node` (None: nothing) at `path`."""
    first, *rest = path
    entries = dict(root.entries)
    old = entries.get(first)
    if rest:
        below = old.node if old and isinstance(old.node, Fields) else Fields(span=root.span)
        entries[first] = Entry(old.key_span if old else None, _with_node(below, rest, node))
    elif node is None:
        entries.pop(first, None)
    else:
        entries[first] = Entry(old.key_span if old else None, node)
    return Fields(entries, root.span)
