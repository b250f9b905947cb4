"""What a picture is made of: boxes with lines of text in them, and connections between them.

Input and output: frozen values in the picture's own units, x to the right and y down. Invariants,
which tests check for every spec: a box's texts and children lie inside it, its children and a
picture's boxes do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from attngen.pictures.rich import Line

Kind: TypeAlias = Literal[
    "clear", "data", "weight", "q", "k", "v", "panel", "card", "step", "mask", "softmax", "bias"
]
WireKind: TypeAlias = Literal["data", "q", "k", "v"]
Anchor: TypeAlias = Literal["start", "middle", "end"]
_PADDING = 10.0


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle by its upper left corner and size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The x of its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The y of its lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """The x of its middle."""
        return self.x + self.width / 2

    def inside(self, other: Rect, slack: float = 0.01) -> bool:
        """Whether it lies within `other`."""
        return (
            self.x >= other.x - slack
            and self.y >= other.y - slack
            and self.right <= other.right + slack
            and self.bottom <= other.bottom + slack
        )

    def overlaps(self, other: Rect) -> bool:
        """Whether they share more than an edge."""
        return (
            self.x < other.right - 0.01
            and other.x < self.right - 0.01
            and self.y < other.bottom - 0.01
            and other.y < self.bottom - 0.01
        )


@dataclass(frozen=True, slots=True)
class Text:
    """A line at its place: `y` is the base line, `x` the point that `anchor` says."""

    line: Line
    x: float
    y: float
    anchor: Anchor = "start"

    @property
    def extent(self) -> Rect:
        """The most that it covers."""
        width, size = self.line.width, self.line.size
        left = {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return Rect(self.x - left, self.y - 0.8 * size, width, 1.05 * size)


@dataclass(frozen=True, slots=True)
class Cells:
    """Filled squares, as of a mask: an SVG path in the colour of `tone`, `alpha` of 1 opaque."""

    path: str
    tone: Literal["q", "k", "mask", "unknown", "frame"]
    alpha: float = 1.0


@dataclass(frozen=True, slots=True)
class Box:
    """A box; `name` is for tests and for those who edit the picture."""

    name: str
    rect: Rect
    kind: Kind
    texts: tuple[Text, ...] = ()
    children: tuple[Box, ...] = ()
    cells: tuple[Cells, ...] = ()

    def walk(self) -> Iterator[Box]:
        """The box and everything in it, outside first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Wire:
    """A connection through `points`, with an arrow at its end."""

    points: tuple[tuple[float, float], ...]
    kind: WireKind = "data"


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it."""

    name: str
    description: str
    width: float
    height: float
    boxes: tuple[Box, ...] = ()
    wires: tuple[Wire, ...] = field(default=())

    def walk(self) -> Iterator[Box]:
        """Every box, outer ones first."""
        for box in self.boxes:
            yield from box.walk()


def stacked(rect: Rect, lines: Sequence[Line]) -> tuple[Text, ...]:
    """`lines` in the middle of `rect`, one below the other, made smaller where they must be."""
    fitted = [line.fitted(rect.width - 2 * _PADDING) for line in lines]
    return tuple(_down(fitted, rect, rect.middle, "middle"))


def listed(rect: Rect, lines: Sequence[Line], padding: float = _PADDING) -> tuple[Text, ...]:
    """`lines` at the left of `rect`, one below the other, in its middle from top to bottom."""
    fitted = [line.fitted(rect.width - 2 * padding) for line in lines]
    return tuple(_down(fitted, rect, rect.x + padding, "start"))


def aside(rect: Rect, line: Line) -> tuple[Text, ...]:
    """`line` at the right of `rect`."""
    fitted = line.fitted(rect.width / 2)
    return tuple(_down([fitted], rect, rect.right - _PADDING, "end"))


def _down(lines: Iterable[Line], rect: Rect, x: float, anchor: Anchor) -> Iterator[Text]:
    lines = list(lines)
    y = rect.y + (rect.height - sum(line.height for line in lines)) / 2
    for line in lines:
        yield Text(line, x, y + line.height / 2 + 0.35 * line.size, anchor)
        y += line.height
