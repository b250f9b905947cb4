"""Source text, spans in it, and the one place that draws a caret under a mistake.

Input: a text with a display name, and 1-based positions in it. Output: a :class:`Span` that errors
carry, and :func:`caret_block`, the two lines a reader sees under an error message.
"""

from __future__ import annotations

from dataclasses import dataclass


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

    Tabs are kept in the pad, so that the caret lines up in every terminal.
    """
    text = span.source.line(span.line)
    gutter = f"{span.line:>5} | "
    pad = "".join("\t" if c == "\t" else " " for c in text[: span.column - 1])
    marks = "^" + "~" * (min(span.length, max(len(text) - span.column + 1, 1)) - 1)
    return f"{gutter}{text}\n{' ' * (len(gutter) - 2)}| {pad}{marks} here"
