"""Source text, spans in it, and the one place that draws a caret under a mistake.

Input: a text with a display name, and 1-based positions in it. Output: a :class:`Span` that errors
carry, and :func:`caret_block`, the two lines a reader sees under an error message.
"""

from __future__ import annotations

from dataclasses import dataclass

_WIDEST = 160  # characters of a line that are shown
_CONTEXT = 80  # of them before the mistake, in a line that is cut


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text someone wrote: its display name (usually a path) and its lines."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Line `number` (1-based) without its line end; empty past the end."""
        lines = self.text.splitlines()
        return lines[number - 1] if 1 <= number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """Where something stands: 1-based line and column, and how many characters it covers."""

    source: SourceText
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


def caret_block(span: Span) -> str:
    """The source line of `span` with a caret under its first character.

    Tabs are kept in the pad, so that the caret lines up in every terminal. A long line is cut to
    the part around the mistake, and characters that a terminal would act on are replaced.
    """
    text = span.source.line(span.line)
    column = span.column - 1
    start = column - _CONTEXT if len(text) > _WIDEST and column > _CONTEXT else 0
    text, column = text[start : start + _WIDEST], column - start
    text = "".join(c if c == "\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    gutter = f"{span.line:>5} | "
    pad = "".join("\t" if c == "\t" else " " for c in text[:column])
    marks = "^" + "~" * (min(span.length, max(len(text) - column, 1)) - 1)
    return f"{gutter}{text}\n{' ' * (len(gutter) - 2)}| {pad}{marks} here"
