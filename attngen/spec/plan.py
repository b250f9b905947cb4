"""The parts of a sweep: axes, how they are combined, and what must hold.

Input: none; :mod:`attngen.spec.sweep_reader` makes these. Output: immutable values. Invariants: no
key stands on two axes, and the axes of a group have the same number of settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from attngen.ir.expr import Expr
from attngen.spec.axes import CALL_KEYS
from attngen.spec.nodes import Node


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of an axis; None leaves the key out.

    Attributes:
        node: where it stands, for the messages about it.
    """

    value: Any
    node: Node | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Axis:
    """A key, dotted, and the values that it goes through."""

    key: str
    settings: tuple[Setting, ...]

    @property
    def of_call(self) -> bool:
        """Whether the key is a size of the call and not a key of the spec."""
        return self.key in CALL_KEYS


@dataclass(frozen=True, slots=True)
class Group:
    """Axes that walk together; different groups are crossed."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """How many settings each axis has."""
        return len(self.axes[0].settings)


@dataclass(frozen=True, slots=True)
class Condition:
    """A truth value over the sizes of a point, as text and as an expression."""

    text: str
    expr: Expr
