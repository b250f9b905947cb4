"""A series keeps every line that it took, whatever happens to the process or the disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from attngen.errors import SweepError
from attngen.sweeps.series import Writer, find_series, last_lines, read_series

INFO = {"name": "tiny", "digest": "0123456789abcdef"}


def line(number: int, status: str = "ok") -> dict[str, Any]:
    return {"point": f"p{number}", "index": number, "status": status, "keys": {"n": number}}


def written(folder: Path, *numbers: int) -> Path:
    with Writer(folder, INFO) as writer:
        for number in numbers:
            writer.append(line(number))
        assert writer.folder is not None
        return writer.folder


def test_lines_are_there_as_soon_as_they_are_taken(tmp_path: Path) -> None:
    with Writer(tmp_path, INFO) as writer:
        for number in range(3):
            writer.append(line(number))
            assert [r["index"] for r in read_series(tmp_path / "tiny-01234567").results] == [
                *range(number + 1)
            ]


def test_a_series_is_continued(tmp_path: Path) -> None:
    created = read_series(written(tmp_path, 0, 1)).info["created"]
    with Writer(tmp_path, INFO) as writer:
        assert set(writer.done) == {"p0", "p1"}
        writer.add_environment("print", {"cpu": "x"})
        writer.append(line(2))
    found = read_series(written(tmp_path, 3))
    assert [r["index"] for r in found.results] == [0, 1, 2, 3]
    assert found.info["created"] == created
    assert found.info["environments"] == {"print": {"cpu": "x"}}


@pytest.mark.parametrize("torn", ["{", '{"point": "p2", "index": 2', '{"point": "p2"}', "\0\0\0"])
def test_half_a_line_at_the_end_is_cut_off(tmp_path: Path, torn: str) -> None:
    path = written(tmp_path, 0, 1) / "results.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(torn)
    assert len(read_series(path.parent).results) == 2
    written(tmp_path, 2)
    lines = path.read_text("utf-8").splitlines()
    assert [json.loads(text)["index"] for text in lines] == [0, 1, 2]


def test_a_whole_last_line_that_is_no_result_is_cut_off_too(tmp_path: Path) -> None:
    path = written(tmp_path, 0) / "results.jsonl"
    with path.open("ab") as file:
        file.write(b"\0" * 40 + b"\n")
    assert [r["index"] for r in read_series(written(tmp_path, 1)).results] == [0, 1]


def test_damage_in_the_middle_is_no_reason_to_throw_the_rest_away(tmp_path: Path) -> None:
    path = written(tmp_path, 0, 1, 2) / "results.jsonl"
    text = path.read_text("utf-8").replace('"index":1', '"index":')
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SweepError, match=r"line 2 of .* is damaged"), Writer(tmp_path, INFO):
        pass
    assert path.read_text("utf-8") == text


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with Writer(tmp_path, INFO):
        other = Writer(tmp_path, INFO)
        with pytest.raises(SweepError, match=r"another sweep is writing to .*tiny-01234567"), other:
            pass
    written(tmp_path, 0)


def test_another_plan_is_another_series_beside_it(tmp_path: Path) -> None:
    written(tmp_path, 0)
    with Writer(tmp_path, {**INFO, "digest": "fedcba9876543210"}) as other:
        assert not other.done
        other.append(line(5))
    names = [path.name for path in find_series(tmp_path)]
    assert sorted(names) == ["tiny-01234567", "tiny-fedcba98"]
    assert find_series(tmp_path / names[0]) == [tmp_path / names[0]]
    assert len(read_series(tmp_path / "tiny-01234567").results) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_clear_error_and_keeps_what_is_there(tmp_path: Path) -> None:
    with Writer(tmp_path, INFO) as writer:
        writer.append(line(0))
        kept, writer._file = writer._file, os.open("/dev/full", os.O_RDWR)
        with pytest.raises(SweepError, match=r"No space left on device; the 1 that are there"):
            writer.append(line(1))
        os.close(writer._file)
        writer._file = kept
    assert [r["index"] for r in read_series(tmp_path / "tiny-01234567").results] == [0]


def test_what_was_written_of_a_line_that_did_not_fit_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    with Writer(tmp_path, INFO) as writer:
        writer.append(line(0))

        def half(file: int, data: bytes) -> int:
            if len(data) < 20:
                raise OSError(28, "No space left on device")
            return real(file, data[:20])

        monkeypatch.setattr("attngen.sweeps.series.os.write", half)
        with pytest.raises(SweepError, match="can no longer be written"):
            writer.append(line(1))
        monkeypatch.undo()
        writer.append(line(2))
    path = tmp_path / "tiny-01234567" / "results.jsonl"
    assert [json.loads(text)["index"] for text in path.read_text("utf-8").splitlines()] == [0, 2]


@pytest.mark.parametrize("folder", ["/proc/attngen", "a-file"])
def test_a_folder_that_cannot_be_written_is_a_clear_error(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").write_text("", encoding="utf-8")
    with pytest.raises(SweepError, match=r"results cannot be written to .*; name a folder"):
        Writer(Path(folder), INFO).__enter__()


def test_no_folder_keeps_lines_in_memory() -> None:
    with Writer(None, INFO) as writer:
        writer.append(line(0))
        assert set(writer.done) == {"p0"}


def test_the_last_line_of_a_point_counts() -> None:
    lines = [line(1, "failed"), line(0), line(1)]
    assert [(r["index"], r["status"]) for r in last_lines(lines)] == [(0, "ok"), (1, "ok")]


def test_a_folder_without_a_series_says_so(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="holds no series"):
        read_series(tmp_path)
    assert find_series(tmp_path) == []
