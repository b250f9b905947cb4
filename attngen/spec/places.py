"""Where a stretch of a YAML text stands in its file, whatever style the text is written in.

Input: a scalar's value and the stretch of the file it was read from. Output: a span for a part of
the value. Plain, quoted and block scalars are followed character by character, across folded lines
and doubled quotes; in a double-quoted text with escapes the whole value is the place.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.source import SourceText, Span


@dataclass(frozen=True, slots=True)
class TextPlace:
    """The stretch of a file that a scalar was read from.

    Attributes:
        start: its first character in the file, from 0; that of an anchor, quote or block sign if
            it has any.
        end: the character after it.
        style: the quote or block sign, or None.
    """

    source: SourceText
    start: int
    end: int
    style: str | None


def span_inside(value: str, place: TextPlace, offset: int, length: int) -> Span | None:
    """The span of value[offset : offset + length]; None where it cannot be told."""
    positions = _positions(value, place)
    if positions is None or offset >= len(positions):
        return None
    first = positions[offset]
    last = positions[min(offset + max(length, 1), len(positions)) - 1]
    lines = f"{place.source.text[:first]}.".splitlines()
    one_line = len(f"{place.source.text[:last]}.".splitlines()) == len(lines)
    return Span(place.source, len(lines), len(lines[-1]), last - first + 1 if one_line else 1)


def _positions(value: str, place: TextPlace) -> list[int] | None:
    """Where each character of `value` stands in the file."""
    text, end = place.source.text, place.end
    at = _after_anchor(text, place.start)
    if place.style in ("'", '"'):
        at, end = at + 1, end - 1
    elif place.style is not None:  # the rest of a block's first line is no part of it
        at = text.find("\n", at) + 1
    positions: list[int] = []
    for character in value:
        if not character.isspace():
            while at < end and text[at].isspace():
                at += 1
            if at >= end or text[at] != character:
                return None
        positions.append(min(at, len(text) - 1))
        if not character.isspace():
            at += 2 if place.style == "'" and character == "'" else 1
    return positions


def _after_anchor(text: str, at: int) -> int:
    """Where a scalar begins whose anchor, if it has one, stands at `at`."""
    if text[at : at + 1] != "&":
        return at
    while at < len(text) and not text[at].isspace():
        at += 1
    while at < len(text) and text[at].isspace():
        at += 1
    return at
