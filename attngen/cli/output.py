"""Printing: plain lines, tables for people, JSON for programs.

Colour and box lines appear on a terminal only; ``NO_COLOR`` is honoured. stdout carries the answer,
stderr everything else.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from attngen.bench.report import Table

_PIPE_WIDTH = 200
_TEXT_WIDTH = 100  # of running text in a pipe


def say(text: str = "") -> None:
    """A line of the answer."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """A line about what is going on, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:
    """One JSON value; nothing else belongs on stdout then."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def console() -> Console:
    """A Rich console on stdout; into a pipe it is wide, so that no cell is cut."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, highlight=False, no_color="NO_COLOR" in os.environ or None)


def text_width() -> int:
    """Columns for running text: those of the terminal, in a pipe 100."""
    if not sys.stdout.isatty():
        return _TEXT_WIDTH
    return shutil.get_terminal_size((_TEXT_WIDTH, 24)).columns


def say_rows(rows: list[tuple[str, ...]], *, indent: str = "  ") -> None:
    """Aligned columns without lines, the last one wrapped at the edge of the terminal."""
    if not rows:
        return
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    edge = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 0
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        start = indent + "  ".join(cells) + ("  " if cells else "")
        say(_wrapped(start, row[-1], edge).rstrip())


def say_table(table: Table) -> None:
    """A table with a title and notes."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD)
    for i, column in enumerate(table.columns):
        grid.add_column(Text(column), justify="left" if i == 0 else "right", no_wrap=i > 0)
    for row in table.rows:
        grid.add_row(*(Text(cell) for cell in row))
    out = console()
    out.print(grid)
    for text in table.notes:
        out.print(Text(f"  {text}"))
    if table.notes:
        out.print()


def _wrapped(start: str, text: str, edge: int) -> str:
    import textwrap

    if edge <= len(start) + 20:
        return start + text
    return textwrap.fill(
        text, edge, initial_indent=start, subsequent_indent=" " * len(start), break_long_words=False
    )
