"""``from attngen.kernels import name``: any spec on the search path, and help with wrong names."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import attngen.kernels


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Path]]:
    """The files that the driver was asked to compile, in a folder with a spec of its own."""
    asked: list[Path] = []
    driver = types.ModuleType("attngen.driver")
    driver.compile_spec = lambda path: asked.append(path) or f"compiled {path.stem}"
    monkeypatch.setitem(sys.modules, "attngen.driver", driver)
    monkeypatch.chdir(tmp_path)
    Path("specs").mkdir()
    Path("specs/mine.yaml").write_text("heads: 2\nhead_dim: 8\n")
    before = set(vars(attngen.kernels))
    yield asked
    for name in set(vars(attngen.kernels)) - before:
        delattr(attngen.kernels, name)


def test_names_compile_once(compiled: list[Path]) -> None:
    from attngen.kernels import mha_4096, mine

    assert (mha_4096, mine) == ("compiled mha_4096", "compiled mine")
    assert attngen.kernels.mine is mine
    assert [p.name for p in compiled] == ["mha_4096.yaml", "mine.yaml"]


def test_dir_lists_the_search_path(compiled: list[Path]) -> None:
    assert {"mine", "mha_4096"} <= set(dir(attngen.kernels))
    assert compiled == []


def test_a_wrong_import_names_the_nearest(compiled: list[Path]) -> None:
    with pytest.raises(ImportError, match="no spec called 'mha_496'; did you mean 'mha_4096'"):
        from attngen.kernels import mha_496  # noqa: F401
    assert compiled == []


def test_a_wrong_attribute_names_the_nearest(compiled: list[Path]) -> None:
    with pytest.raises(AttributeError, match="did you mean 'mine'"):
        _ = attngen.kernels.minee
    with pytest.raises(AttributeError, match=r"on the search path are: .*mha_4096"):
        _ = attngen.kernels.xyzzyxyzzy
    assert not hasattr(attngen.kernels, "__wrapped__")
    assert compiled == []


def test_reloading_is_harmless(compiled: list[Path]) -> None:
    assert importlib.reload(attngen.kernels) is attngen.kernels
    assert compiled == []
