"""The cache as the compiler uses it: find, publish, list, verify, clear, and why something missed.

Input: keys and packages. Output: folders to import. Invariant: `publish` always gives a folder that
can be imported and written to; where the cache's own folder cannot be written, that is a private
folder of this process, and one :class:`CacheWarning` says so.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from attngen.cache import folder as folders
from attngen.cache.key import CacheKey
from attngen.cache.shelf import MANIFEST, Entry, Shelf
from attngen.ir.kernel import SourcePackage


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of a key that differs from an entry's: its text there (old) and here (new)."""

    field: str
    old: str | None
    new: str | None

    @property
    def summary(self) -> str:
        """The change in one line; of long comma-separated lists only what differs."""
        if self.old is None or self.new is None:
            return f"{self.field}: {_short(self.old)} → {_short(self.new)}"
        old, new = self.old.split(","), self.new.split(",")
        if min(len(old), len(new)) < 4:
            return f"{self.field}: {_short(self.old)} → {_short(self.new)}"
        gone = [f"without {item}" for item in old if item not in new]
        come = [f"with {item}" for item in new if item not in old]
        return f"{self.field}: {_short(', '.join(gone + come))}"


@dataclass(frozen=True, slots=True)
class Difference:
    """Why a key is not in the cache.

    Attributes:
        nearest: the entry that differs in the fewest fields; None in an empty cache.
        changes: those fields; empty if `nearest` is the key's own entry, so nothing is missing.
    """

    nearest: Entry | None
    changes: tuple[FieldChange, ...]

    @property
    def is_hit(self) -> bool:
        """Whether the key itself is in the cache."""
        return self.nearest is not None and not self.changes


@dataclass(frozen=True, slots=True)
class Finding:
    """A damaged entry: where, what is wrong, and whether it could be removed."""

    path: Path
    problem: str
    removed: bool


class Cache:
    """Generated packages by key, in `folder` (default: the platform's cache folder)."""

    def __init__(self, folder: Path | None = None) -> None:
        root = folder.absolute() if folder else folders.default_folder()
        self._shelf = Shelf(root) if root else None

    @property
    def folder(self) -> Path | None:
        """The cache's folder, made on first use; None if this user has no home at all."""
        return self._shelf.root if self._shelf else None

    def find(self, key: CacheKey) -> Path | None:
        """The verified folder of `key`, or None; a damaged entry is removed."""
        if self._shelf:
            path = self._shelf.find(key)
            if path:
                return path if os.access(path, os.W_OK) else self._copy(path)
        private = folders.existing_private_folder()
        return Shelf(private).find(key) if private else None

    def publish(self, key: CacheKey, package: SourcePackage) -> Path:
        """Store `package` under `key` and give its folder.

        Raises:
            CacheError: neither the cache nor a temporary folder can be written.
        """
        if self._shelf:
            try:
                return self._shelf.publish(key, package)
            except OSError as error:
                reason = f"the cache folder {self.folder} cannot be written ({error})"
        else:
            reason = "this user has no home folder to keep them in"
        folders.warn_once(reason)
        try:
            return Shelf(folders.private_folder()).publish(key, package)
        except OSError as error:
            raise folders.nowhere(error) from error

    def _copy(self, path: Path) -> Path:
        """A private copy of an entry that may be read only: machine code is written beside it."""
        folders.warn_once(f"the cache folder {self.folder} may only be read")
        target = Shelf(folders.private_folder()).kernels / path.name
        try:
            return Path(shutil.copytree(path, target, dirs_exist_ok=True))
        except OSError as error:
            raise folders.nowhere(error) from error

    def entries(self) -> tuple[Entry, ...]:
        """Every whole entry, by name."""
        return tuple(i for i in self._shelf.items() if isinstance(i, Entry)) if self._shelf else ()

    def verify(self) -> tuple[Finding, ...]:
        """Check every entry; remove the damaged ones and what killed writers left."""
        if not self._shelf:
            return ()
        findings = []
        for item in self._shelf.items():
            if isinstance(item, Entry):
                continue
            try:
                self._shelf.remove(item.path)
            except OSError:
                findings.append(Finding(item.path, item.problem, removed=False))
            else:
                findings.append(Finding(item.path, item.problem, removed=True))
        self._shelf.sweep()
        return tuple(findings)

    def clear(self) -> int:
        """Remove every entry and every leftover; how many entries there were.

        Raises:
            OSError: an entry cannot be removed.
        """
        items = tuple(self._shelf.items()) if self._shelf else ()
        if self._shelf:
            for item in items:
                self._shelf.remove(item.path)
            self._shelf.sweep()
        return len(items)

    def why(self, key: CacheKey) -> Difference:
        """The entry nearest to `key` (same name first) and each field in which it differs."""
        nearest = min(
            self.entries(),
            key=lambda e: (e.key.name != key.name, len(_changes(e.key, key)), -_written(e)),
            default=None,
        )
        return Difference(nearest, _changes(nearest.key, key) if nearest else ())


def _changes(old: CacheKey, new: CacheKey) -> tuple[FieldChange, ...]:
    before, after = dict(old.fields), dict(new.fields)
    before["name"], after["name"] = old.name, new.name
    return tuple(
        FieldChange(field, before.get(field), after.get(field))
        for field in dict.fromkeys((*after, *before))
        if before.get(field) != after.get(field)
    )


def _written(entry: Entry) -> float:
    try:
        return (entry.path / MANIFEST).stat().st_mtime
    except OSError:
        return 0.0


def _short(text: str | None, limit: int = 160) -> str:
    if text is None:
        return "(absent)"
    text = text or "(empty)"
    return text if len(text) <= limit else f"{text[:limit]}…"
