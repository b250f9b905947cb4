"""Lines of text with subscripts and italics, measured and cut to size.

Input: text or a formula in a small notation (``Q_{0} K_{0}^{T}``). Output: a :class:`Line`, which
knows how wide it is at most. Lone capitals of a formula are its matrices and are set in italics.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from attngen.pictures.metrics import Face, text_width

Shift: TypeAlias = Literal["", "sub", "sup"]
Tone: TypeAlias = Literal["ink", "muted", "q", "k", "v", "weight", "mask", "softmax"]

SMALL = 0.72
"""The size of a subscript beside its line's."""
_PIECES = re.compile(
    r"_\{(?P<sub>[^}]*)\}|\^\{(?P<sup>[^}]*)\}|(?P<matrix>\b[A-Z](?![A-Za-z0-9']))"
)


@dataclass(frozen=True, slots=True)
class Run:
    """Characters that are set alike."""

    text: str
    shift: Shift = ""
    italic: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text: what is in it and how it is set."""

    runs: tuple[Run, ...]
    size: float = 13.0
    face: Face = "regular"
    tone: Tone = "ink"

    @property
    def width(self) -> float:
        """The most it takes up."""
        return sum(
            text_width(run.text, self.size * (SMALL if run.shift else 1), self.face)
            for run in self.runs
        )

    @property
    def height(self) -> float:
        """From one line to the next."""
        return 1.36 * self.size

    @property
    def text(self) -> str:
        """Its characters alone."""
        return "".join(run.text for run in self.runs)

    def fitted(self, width: float, least: float = 9.0) -> Line:
        """The same, smaller until it fits `width`, and cut short where `least` does not."""
        line = self
        while line.width > width and line.size > least:
            line = replace(line, size=max(least, line.size - 0.5))
        while line.width > width and len(line.text) > 1:
            *kept, last = (run for run in line.runs if run.text not in ("", "…"))
            line = replace(line, runs=(*kept, replace(last, text=last.text[:-1]), Run("…")))
        return line


def plain(text: str, size: float = 13.0, tone: Tone = "ink", face: Face = "regular") -> Line:
    """`text` as it is."""
    return Line((Run(text),), size, face, tone)


def formula(text: str, size: float = 14.0, tone: Tone = "ink") -> Line:
    """A formula: ``_{…}`` is set below the line, ``^{…}`` above, matrices in italics."""
    runs = []
    end = 0
    for found in _PIECES.finditer(text):
        if found.start() > end:
            runs.append(Run(text[end : found.start()]))
        end = found.end()
        if found["matrix"]:
            runs.append(Run(found["matrix"], italic=True))
        elif found["sub"] is not None:
            runs.append(Run(found["sub"], "sub"))
        else:
            runs.append(Run(found["sup"], "sup"))
    if end < len(text):
        runs.append(Run(text[end:]))
    return Line(tuple(runs), size, "regular", tone)


def code_lines(text: str, width: float, size: float = 12.0, tone: Tone = "ink") -> list[Line]:
    """An expression in lines that fit `width`, broken at spaces where that is possible."""
    columns = max(8, int(width / text_width("0", size, "mono")))
    # wider symbols than ASCII's count as two columns, so that no line is underestimated
    padded = re.sub(r"[^\x00-\x7f]", lambda found: found[0] + "\0", text)
    parts = textwrap.wrap(padded, columns, break_long_words=True, break_on_hyphens=False)
    return [plain(part.replace("\0", ""), size, tone, "mono") for part in parts]


def prose_lines(text: str, width: float, size: float = 13.0, tone: Tone = "muted") -> list[Line]:
    """`text` in lines that fit `width`; Chinese breaks anywhere, other words at spaces."""
    lines = [""]
    for word in re.findall(r"[⺀-鿿＀-￯]\s*|[^\s⺀-鿿＀-￯]+\s*", text):
        if lines[-1] and text_width((lines[-1] + word).rstrip(), size) > width:
            lines.append("")
        lines[-1] += word
    return [plain(line.rstrip(), size, tone).fitted(width) for line in lines if line]
