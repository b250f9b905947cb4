"""A picture as SVG text: one group a box, with its rectangle and its texts.

Input: a :class:`Picture`. Output: a well-formed document that names fonts and fetches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import dist
from typing import TypeAlias
from xml.sax.saxutils import escape, quoteattr

from attngen.pictures.rich import SMALL, Line
from attngen.pictures.shapes import Box, Picture, Text, Wire
from attngen.render import render

Point: TypeAlias = tuple[float, float]

_CORNER = 7.0
_DOWN, _UP = 0.24, 0.4  # of the size, for what is set below and above the line
_ROUND = {"panel": 12, "card": 10, "clear": 0}


@dataclass(frozen=True, slots=True)
class SvgRun:
    """A piece of a line: attributes with a space in front, and the escaped text."""

    attributes: str
    text: str


@dataclass(frozen=True, slots=True)
class SvgText:
    """A line of text."""

    x: str
    y: str
    size: str
    classes: str
    runs: tuple[SvgRun, ...]


@dataclass(frozen=True, slots=True)
class SvgCells:
    """Cells of a small grid."""

    path: str
    tone: str
    alpha: str


@dataclass(frozen=True, slots=True)
class SvgBox:
    """A box with what is in it."""

    name: str
    kind: str
    x: str
    y: str
    width: str
    height: str
    corner: str
    cells: tuple[SvgCells, ...]
    texts: tuple[SvgText, ...]


@dataclass(frozen=True, slots=True)
class SvgWire:
    """A connection."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class SvgContext:
    """What the template reads; see there."""

    width: str
    height: str
    title: str
    description: str
    boxes: tuple[SvgBox, ...]
    wires: tuple[SvgWire, ...]


def svg_text(picture: Picture) -> str:
    """`picture` as a document."""
    return render(
        "pictures/dataflow.svg.jinja",
        SvgContext(
            width=_number(picture.width),
            height=_number(picture.height),
            title=escape(picture.name),
            description=escape(" ".join(picture.description.split())),
            boxes=tuple(_box(box) for box in picture.walk()),
            wires=tuple(_wire(wire) for wire in picture.wires),
        ),
    )


def _box(box: Box) -> SvgBox:
    rect = box.rect
    return SvgBox(
        name=quoteattr(box.name),
        kind=box.kind,
        x=_number(rect.x),
        y=_number(rect.y),
        width=_number(rect.width),
        height=_number(rect.height),
        corner=str(_ROUND.get(box.kind, 7)),
        cells=tuple(SvgCells(c.path, c.tone, f"{c.alpha:g}") for c in box.cells),
        texts=tuple(_text(text) for text in box.texts),
    )


def _text(text: Text) -> SvgText:
    line = text.line
    return SvgText(
        x=_number(text.x),
        y=_number(text.y),
        size=_number(line.size),
        classes=f"{line.face} {line.tone} {text.anchor}",
        runs=tuple(_runs(line)),
    )


def _runs(line: Line) -> list[SvgRun]:
    runs, at = [], 0.0
    for run in line.runs:
        wanted = {"": 0.0, "sub": _DOWN * line.size, "sup": -_UP * line.size}[run.shift]
        attributes = ""
        if wanted != at:
            attributes += f' dy="{_number(wanted - at)}"'
        if run.shift:
            attributes += f' font-size="{_number(line.size * SMALL)}"'
        if run.italic:
            attributes += ' font-style="italic"'
        runs.append(SvgRun(attributes, escape(run.text)))
        at = wanted
    return runs


def _wire(wire: Wire) -> SvgWire:
    """The points of `wire` with its corners rounded."""
    first, *_, last = points = wire.points
    path = f"M{_point(first)}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        reach = min(_CORNER, dist(before, corner) / 2, dist(corner, after) / 2)
        start, stop = _towards(corner, before, reach), _towards(corner, after, reach)
        path += f"L{_point(start)}Q{_point(corner)} {_point(stop)}"
    return SvgWire(f"{path}L{_point(last)}", wire.kind)


def _towards(start: Point, end: Point, distance: float) -> Point:
    share = distance / dist(start, end)
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])


def _point(point: Point) -> str:
    return f"{_number(point[0])} {_number(point[1])}"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
