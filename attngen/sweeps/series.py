"""A series: one sweep's results in a folder, kept line by line whatever happens.

A folder of sweeps holds one folder a series, named by the spec and a digest of all that makes
results comparable: the plan, the settings and the versions. In it are ``series.json`` (what was
swept, and the machines that measured) and ``results.jsonl`` (a line a finished point).

Invariants: a line is written whole and reaches the disk before the next is made; what a killed
process left of a line is cut off when the series is continued; one process at a time writes.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from attngen.errors import SweepError

FORMAT = 1
INFO, RESULTS, LOCK = "series.json", "results.jsonl", ".lock"


@dataclass(frozen=True, slots=True)
class Series:
    """A series as it stands on disk.

    Attributes:
        info: what ``series.json`` says.
        results: the lines that are whole, in the order in which they were written.
    """

    folder: Path
    info: dict[str, Any]
    results: list[dict[str, Any]]


def find_series(folder: Path) -> list[Path]:
    """The series in `folder`, oldest first; `folder` itself where it is one."""
    if (folder / INFO).is_file():
        return [folder]
    found = [path.parent for path in folder.glob(f"*/{INFO}")]
    return sorted(found, key=lambda path: (_created(path), path.name))


def read_series(folder: Path) -> Series:
    """The series in `folder`; half a line at its end is passed over.

    Raises:
        SweepError: there is none, or it cannot be read.
    """
    try:
        info = json.loads((folder / INFO).read_text("utf-8"))
        lines, _ = _whole_lines(folder / RESULTS)
    except (OSError, ValueError) as error:
        raise SweepError(f"{folder} holds no series of results: {error}") from error
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise SweepError(f"{folder} was written by another version of attngen")
    return Series(folder, info, lines)


class Writer:
    """Adds to a series; it is made if need be. Use it in a with block.

    Args:
        folder: of the sweeps, or None to keep everything in memory.
        info: what ``series.json`` will say; has ``name`` and ``digest``.

    Raises:
        SweepError: the folder cannot be written, or another process writes to the series.
    """

    def __init__(self, folder: Path | None, info: Mapping[str, Any]) -> None:
        self.info: dict[str, Any] = {"format": FORMAT, **info}
        self.results: list[dict[str, Any]] = []
        self.folder = folder / f"{info['name']}-{info['digest'][:8]}" if folder else None
        self._file: int | None = None
        self._lock: FileLock | None = None

    def __enter__(self) -> Writer:
        if self.folder is None:
            return self
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.folder / LOCK)
            self._lock.acquire(timeout=0)
            self._continue(self.folder)
        except Timeout as error:
            message = f"another sweep is writing to {self.folder}; wait for it, or use another -o"
            raise SweepError(message) from error
        except ValueError as error:
            self._release()
            raise SweepError(f"the series cannot be continued: {error}") from error
        except OSError as error:
            self._release()
            raise SweepError(
                f"results cannot be written to {self.folder}: {error.strerror or error}; "
                "name a folder that can be, with -o"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    @property
    def done(self) -> dict[str, dict[str, Any]]:
        """The last line of each point, by the point's name."""
        return {line["point"]: line for line in self.results}

    def append(self, line: dict[str, Any]) -> None:
        """Keep `line`, on disk before this returns.

        Raises:
            SweepError: it cannot be written; everything before it is kept.
        """
        if self._file is not None:
            data = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            start = os.lseek(self._file, 0, os.SEEK_END)
            try:
                _write_all(self._file, data)
                os.fsync(self._file)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, start)
                raise self._full(error) from error
        self.results.append(line)

    def add_environment(self, digest: str, facts: Mapping[str, Any]) -> None:
        """Say in ``series.json`` what the lines with that fingerprint were measured on.

        Raises:
            SweepError: it cannot be written.
        """
        known = self.info.setdefault("environments", {})
        if known.get(digest) == facts:
            return
        known[digest] = dict(facts)
        if self.folder is not None:
            try:
                self._write_info(self.folder)
            except OSError as error:
                raise self._full(error) from error

    def _continue(self, folder: Path) -> None:
        path = folder / INFO
        with contextlib.suppress(FileNotFoundError):
            known = json.loads(path.read_text("utf-8"))
            self.info |= {key: known[key] for key in ("created", "environments") if key in known}
        self.info.setdefault("created", _now())
        self._write_info(folder)
        self._file = os.open(folder / RESULTS, os.O_RDWR | os.O_CREAT, 0o666)
        self.results, whole = _whole_lines(folder / RESULTS)
        if whole < os.fstat(self._file).st_size:
            os.ftruncate(self._file, whole)
            os.fsync(self._file)

    def _write_info(self, folder: Path) -> None:
        text = json.dumps(self.info, indent=1, ensure_ascii=False) + "\n"
        new = folder / f"{INFO}.new"
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / INFO)

    def _full(self, error: OSError) -> SweepError:
        return SweepError(
            f"results can no longer be written to {self.folder}: {error.strerror or error}; "
            f"the {len(self.results)} that are there are kept, and the same command continues "
            "after them"
        )

    def _release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _write_all(file: int, data: bytes) -> None:
    """Write `data` with as few calls as the system lets us: one, unless a signal comes."""
    while data:
        data = data[os.write(file, data) :]


def _whole_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The results in a file and the bytes that they take; it may end in half a line."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    lines: list[dict[str, Any]] = []
    whole = 0
    parts = data.split(b"\n")
    for number, part in enumerate(parts[:-1], 1):
        try:
            parsed = json.loads(part)
            lines.append({**parsed, "point": parsed["point"]})
        except (ValueError, TypeError, KeyError) as error:
            if number == len(parts) - 1:  # a disk that lost power may have kept its end alone
                break
            message = f"line {number} of {path} is damaged; repair it, or move the file away"
            raise ValueError(message) from error
        whole += len(part) + 1
    return lines, whole


def last_lines(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last line of each point, in the order of the plan."""
    return sorted({line["point"]: line for line in results}.values(), key=lambda r: r["index"])


def _created(folder: Path) -> str:
    try:
        return str(json.loads((folder / INFO).read_text("utf-8")).get("created", ""))
    except (OSError, ValueError):
        return ""


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
