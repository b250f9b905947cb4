"""Test modules of different folders are collected side by side, so their names differ."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from repo.generated import ROOT


def test_no_two_test_modules_have_one_name() -> None:
    places: dict[str, list[Path]] = defaultdict(list)
    for path in (ROOT / "tests").rglob("test_*.py"):
        places[path.name].append(path.relative_to(ROOT))
    assert [paths for paths in places.values() if len(paths) > 1] == []
