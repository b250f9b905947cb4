"""The page as text: complete, safe, the same each time, and refused where there is nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from report.series import POINTS, grid, write_series

from attngen.errors import SweepError, TargetError
from attngen.report import report_page


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_all_points_are_on_it(tmp_path: Path) -> None:
    write_series(tmp_path, grid())
    page = report_page(tmp_path)
    assert page.startswith("<!DOCTYPE html>")
    assert "<title>demo – attngen report</title>" in page
    data = data_of(page)
    (series,) = data["series"]
    assert len(series["rows"]) == POINTS + 2
    assert series["rows"][0]["command"].startswith("attngen run specs/demo.yaml --set head_dim=32")
    assert series["left_out"] == [["torch-flex", "torch.compile needs a C++ compiler"]]
    assert data["comparisons"] == []
    assert report_page(tmp_path) == page


def test_nothing_in_a_series_can_break_out_of_it(tmp_path: Path) -> None:
    write_series(tmp_path, grid(), name="a&b<i>")
    page = report_page(tmp_path)
    assert "document.title = 'broken'" in page
    assert "<script>document.title" not in page
    assert "<title>a&amp;b&lt;i&gt; – attngen report</title>" in page


def test_it_asks_for_nothing(tmp_path: Path) -> None:
    write_series(tmp_path, grid())
    page = report_page(tmp_path)
    own = page[: page.index("<script>")] + page[page.rindex("<script>") :]
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", own)
    assert "@import" not in own
    assert "fetch(" not in own


def test_series_of_a_folder_are_compared_the_older_first(tmp_path: Path) -> None:
    write_series(tmp_path, grid({32: 1.5}, seed=1), day=3)
    write_series(tmp_path, grid(), day=2)
    write_series(tmp_path, grid(), name="other", day=4)
    data = data_of(report_page(tmp_path))
    assert [one["id"] for one in data["series"]] == [
        "demo-00000002",
        "demo-00000003",
        "other-00000004",
    ]
    pairs = {(one["first"], one["second"]): one for one in data["comparisons"]}
    assert pairs.keys() == {(0, 1), (0, 2), (1, 2)}
    verdicts = [one["verdict"] for one in pairs[0, 1]["changes"]]
    assert (verdicts.count("faster"), verdicts.count("same")) == (10, 20)


def test_against_another_folder(tmp_path: Path) -> None:
    write_series(tmp_path / "old", grid(), day=1)
    write_series(tmp_path / "new", grid(), day=2)
    one = write_series(tmp_path / "new", grid(), day=3)
    data = data_of(report_page(tmp_path / "new", tmp_path / "old"))
    assert {(c["first"], c["second"]) for c in data["comparisons"]} == {(0, 1), (0, 2)}
    assert data["shown"] == 2
    alone = data_of(report_page(one))
    assert len(alone["series"]) == 1


def test_a_folder_without_series_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="holds no series; 'attngen sweep SPEC -o"):
        report_page(tmp_path)


def test_without_plotly_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_series(tmp_path, grid())
    monkeypatch.setitem(__import__("sys").modules, "plotly.offline", None)
    with pytest.raises(TargetError, match=r"pip install 'attngen\[report\]'"):
        report_page(tmp_path)
