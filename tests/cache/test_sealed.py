"""Sealed files: whole and of the right context, or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from attngen.cache import sealed

PAYLOAD = bytes(range(256)) * 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    sealed.write(tmp_path / "file", b"context", PAYLOAD)
    return tmp_path / "file"


def test_the_payload_comes_back(path: Path) -> None:
    assert sealed.read(path, b"context") == PAYLOAD
    sealed.write(path, b"context", b"")
    assert sealed.read(path, b"context") == b""


def test_another_context_is_a_miss(path: Path) -> None:
    assert sealed.read(path, b"contexT") is None


def test_context_and_payload_do_not_run_together(path: Path) -> None:
    sealed.write(path, b"ab", b"c")
    assert sealed.read(path, b"a") is None


def test_a_missing_file_is_a_miss(tmp_path: Path) -> None:
    assert sealed.read(tmp_path / "none", b"") is None


@pytest.mark.parametrize("position", [0, 16, 47, 48, 1000, -1])
def test_any_changed_byte_is_a_miss_and_the_file_goes(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    assert sealed.read(path, b"context") is None
    assert not path.exists()


@pytest.mark.parametrize("size", [0, 1, 40, 48, 49, 2000])
def test_any_truncation_is_a_miss(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
    assert sealed.read(path, b"context") is None


def test_a_failed_write_leaves_the_old_content(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(sealed.os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        sealed.write(path, b"context", b"new")
    assert sealed.read(path, b"context") == PAYLOAD
    assert [p.name for p in path.parent.iterdir()] == ["file", "tmp"]
