"""Packages and keys for the cache's tests; no test touches the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from attngen.cache import CacheKey, folder
from attngen.ir.kernel import SourceFile, SourcePackage

INIT = '"""Demo."""\n\nfrom .add import add\n\n__all__ = ["add"]\n'


@pytest.fixture
def package() -> SourcePackage:
    add = '"""Adds."""\n\n\ndef add(a, b):\n    return a + b\n'
    return SourcePackage("demo", (SourceFile("__init__.py", INIT), SourceFile("add.py", add)))


@pytest.fixture
def key() -> CacheKey:
    return CacheKey("demo", (("spec", "1"), ("schedule.block_q", "96"), ("numba", "0.68.1")))


@pytest.fixture(autouse=True)
def fresh_fallback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test starts as a process does: nothing warned of, no private folder."""
    monkeypatch.setattr(folder, "_private", [])
    monkeypatch.setattr(folder, "_warned", [])
    monkeypatch.setattr(folder.tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
