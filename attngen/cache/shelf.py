"""One folder of entries: staged aside, published by one rename, verified whenever they are read.

Input: a root folder, keys and packages. Output: folders of verified entries::

    <root>/kernels/<name>-<digest16>/manifest.json    key, and the digest of every file
                                    /<package files>
                                    /__pycache__/     sealed byte code and machine code
          /kernels/.tmp-<random>/                     being written, or being removed

Invariants: a folder under its final name was complete when it got that name; whatever fails its
check is moved aside and removed. Every method may raise OSError: the caller decides what then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from attngen.cache.key import CacheKey
from attngen.cache.sealed import TEMPORARY
from attngen.errors import InternalError
from attngen.ir.kernel import SourcePackage

MANIFEST = "manifest.json"
_FORMAT = 1
_STALE_SECONDS = 600.0  # a writer needs milliseconds between its temporary folder and the rename
_PUBLISH_TRIES = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A verified entry: its key, where it is, and its files with their digests."""

    key: CacheKey
    path: Path
    files: tuple[tuple[str, str], ...]

    @property
    def size(self) -> int:
        """Bytes on disk, machine code included."""
        total = 0
        for file in self.path.rglob("*"):
            with contextlib.suppress(OSError):
                total += file.stat().st_size if file.is_file() else 0
        return total


class Damaged(Exception):  # noqa: N818 - a finding, and never an error that a user meets
    """An entry is not what its manifest says: where it is, and in what."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Shelf:
    """The entries under one root folder."""

    root: Path

    @property
    def kernels(self) -> Path:
        """The folder that holds the entries."""
        return self.root / "kernels"

    def find(self, key: CacheKey) -> Path | None:
        """The folder of `key` if it is there and whole; what is there but damaged is removed."""
        path = self.kernels / key.folder_name
        try:
            entry = read_entry(path)
            if entry.key != key:
                raise Damaged(path, "its manifest holds another key")
        except FileNotFoundError:
            return None
        except Damaged:
            with contextlib.suppress(OSError):  # a folder that only lets us read keeps it
                self.remove(path)
            return None
        return path

    def publish(self, key: CacheKey, package: SourcePackage) -> Path:
        """Put `package` under `key`; an equal entry that stands is left untouched."""
        final = self.kernels / key.folder_name
        wanted = _digests(package)
        staging = self._temporary()
        try:
            self._sweep(now=staging.stat().st_mtime)
            _write(staging, key, package, wanted)
            for _ in range(_PUBLISH_TRIES):
                if self._stands(final, key, wanted):
                    return final
                try:
                    os.rename(staging, final)
                except OSError:
                    if not final.exists():
                        raise
                    continue  # another process was faster: look at what it published
                return final
            raise OSError(f"cannot publish {final}: something keeps putting other content there")
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _stands(self, path: Path, key: CacheKey, files: tuple[tuple[str, str], ...]) -> bool:
        """Whether `path` is exactly this entry; anything else there is removed."""
        try:
            entry = read_entry(path)
        except FileNotFoundError:
            return False
        except Damaged:
            self.remove(path)
            return False
        if entry.key == key and entry.files == files:
            return True
        self.remove(path)
        return False

    def items(self) -> Iterator[Entry | Damaged]:
        """Every entry in the order of names, whole or damaged."""
        for path in self._folders():
            try:
                yield read_entry(path)
            except FileNotFoundError:
                continue  # removed by another process since we looked
            except Damaged as damage:
                yield damage

    def remove(self, path: Path) -> None:
        """Remove an entry: out of sight in one step, then from the disk."""
        trash = self._temporary()
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, trash / "entry")
        shutil.rmtree(trash, ignore_errors=True)

    def sweep(self) -> None:
        """Remove every temporary folder, also those that a writer may still be using."""
        self._sweep(now=float("inf"))

    def _temporary(self) -> Path:
        folder = self.kernels / f"{TEMPORARY}{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        return folder

    def _folders(self) -> list[Path]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(p for p in self.kernels.iterdir() if not p.name.startswith(TEMPORARY))
        return []

    def _sweep(self, now: float) -> None:
        # `now` is a time of the disk's own clock: with a network folder, ours may differ.
        for path in self.kernels.glob(f"{TEMPORARY}*"):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > _STALE_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


def read_entry(path: Path) -> Entry:
    """The entry in `path`, with every file verified against the manifest.

    Raises:
        FileNotFoundError: there is no such folder.
        Damaged: it is not what its manifest says.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        if manifest["format"] != _FORMAT:
            raise Damaged(path, f"its format is {manifest['format']}, not {_FORMAT}")
        key = CacheKey(str(manifest["name"]), tuple((str(n), str(v)) for n, v in manifest["key"]))
        files = tuple((str(n), str(v)) for n, v in manifest["files"].items())
    except (FileNotFoundError, NotADirectoryError):
        if path.is_dir():
            raise Damaged(path, "it has no manifest") from None
        if path.exists():
            raise Damaged(path, "it is no folder") from None
        raise FileNotFoundError(path) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(path, f"its manifest is unreadable ({error})") from error
    except OSError as error:
        raise Damaged(path, f"its manifest cannot be read ({error})") from error
    if key.folder_name != path.name:
        raise Damaged(path, "its manifest belongs to another entry")
    for name, digest in files:
        try:
            content = (path / name).read_bytes()
        except OSError as error:
            raise Damaged(path, f"{name} cannot be read ({error.strerror})") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise Damaged(path, f"{name} has changed")
    return Entry(key, path, files)


def _digests(package: SourcePackage) -> tuple[tuple[str, str], ...]:
    return tuple(
        (file.path, hashlib.sha256(file.text.encode()).hexdigest())
        for file in sorted(package.files, key=lambda f: f.path)
    )


def _write(
    folder: Path, key: CacheKey, package: SourcePackage, digests: tuple[tuple[str, str], ...]
) -> None:
    for file in package.files:
        relative = PurePosixPath(file.path)
        if relative.is_absolute() or ".." in relative.parts or file.path == MANIFEST:
            raise InternalError(f"a generated file may not be called {file.path!r}")
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.text.encode())
    manifest = {
        "format": _FORMAT,
        "name": key.name,
        "key": [list(field) for field in key.fields],
        "files": dict(digests),
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=True) + "\n"
    (folder / MANIFEST).write_text(text, "utf-8")
