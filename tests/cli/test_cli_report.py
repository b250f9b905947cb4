"""report: a page beside the series, or where one wants it."""

from __future__ import annotations

from pathlib import Path

from cli.runner import Attngen
from report.series import grid, write_series


def test_report_writes_a_page(attngen: Attngen, tmp_path: Path) -> None:
    write_series(tmp_path / "now", grid(), day=2)
    write_series(tmp_path / "before", grid(seed=1), day=1)
    page = tmp_path / "now" / "report.html"
    done = attngen("report", str(tmp_path / "now"))
    assert (done.code, done.out, done.err) == (0, "", f"written to {page}\n")
    alone = page.read_text("utf-8")
    assert alone.startswith("<!DOCTYPE html>")
    assert '"comparisons":[]' in alone
    other = tmp_path / "page.html"
    options = ("--against", str(tmp_path / "before"), "-o", str(other))
    assert attngen("report", str(tmp_path / "now"), *options).code == 0
    assert '"comparisons":[{' in other.read_text("utf-8")


def test_report_of_nothing(attngen: Attngen, tmp_path: Path) -> None:
    done = attngen("report", str(tmp_path))
    assert done.code == 1
    assert done.err.startswith(f"error: {tmp_path} holds no series; 'attngen sweep SPEC -o")
    assert not list(tmp_path.iterdir())
