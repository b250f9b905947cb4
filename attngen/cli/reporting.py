"""``report``: series of results as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attngen.cli.output import note


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What 'attngen sweep -o DIR' wrote, or one series."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The page; report.html in DIR by default.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="DIR",
            help="Compare with these series; those in DIR with each other by default.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write one HTML page about series of results: tables, plots, comparisons, commands."""
    from attngen.report import report_page

    page = report_page(folder, against)
    path = folder / "report.html" if output is None else output
    path.write_text(page, encoding="utf-8", newline="\n")
    note(f"written to {path}")
