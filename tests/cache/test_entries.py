"""Publishing, finding and healing entries."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from attngen.cache import Cache, CacheKey
from attngen.cache.shelf import MANIFEST
from attngen.errors import InternalError
from attngen.ir.kernel import SourceFile, SourcePackage

Damage = Callable[[Path], object]


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file."""
    stats = {p: p.stat() for p in folder.rglob("*")}
    return {str(p): (s.st_ino, s.st_mtime_ns) for p, s in stats.items()}


def leftovers(cache: Cache) -> list[Path]:
    assert cache.folder is not None
    return list((cache.folder / "kernels").glob(".tmp-*"))


def edit_manifest(path: Path, **changes: object) -> None:
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps(manifest | changes))


def replace_by_file(path: Path) -> None:
    for child in path.iterdir():
        child.unlink()
    path.rmdir()
    path.write_text("not a folder")


DAMAGES: dict[str, Damage] = {
    "truncated": lambda p: os.truncate(p / "add.py", 5),
    "emptied": lambda p: os.truncate(p / "add.py", 0),
    "one byte": lambda p: (p / "add.py").write_bytes((p / "add.py").read_bytes()[:-1] + b"\r"),
    "missing file": lambda p: (p / "add.py").unlink(),
    "no manifest": lambda p: (p / MANIFEST).unlink(),
    "truncated manifest": lambda p: os.truncate(p / MANIFEST, 40),
    "binary manifest": lambda p: (p / MANIFEST).write_bytes(b"\xff\x00"),
    "manifest of another shape": lambda p: (p / MANIFEST).write_text("[1]"),
    "manifest without files": lambda p: edit_manifest(p, files=None),
    "another format": lambda p: edit_manifest(p, format=0),
    "another key": lambda p: edit_manifest(p, key=[["spec", "2"]]),
    "a file in its place": replace_by_file,
}


def test_what_was_published_is_found(tmp_path: Path, key: CacheKey, package: SourcePackage) -> None:
    cache = Cache(tmp_path / "cache")
    assert cache.find(key) is None
    path = cache.publish(key, package)
    assert cache.find(key) == path == tmp_path / "cache" / "kernels" / key.folder_name
    assert {f.path: (path / f.path).read_text() for f in package.files} == {
        f.path: f.text for f in package.files
    }
    assert leftovers(cache) == []


def test_an_equal_package_is_not_written_again(
    tmp_path: Path, key: CacheKey, package: SourcePackage
) -> None:
    cache = Cache(tmp_path)
    path = cache.publish(key, package)
    before = state(path)
    assert cache.publish(key, package) == path
    assert state(path) == before


def test_another_text_under_the_same_key_replaces_the_entry(
    tmp_path: Path, key: CacheKey, package: SourcePackage
) -> None:
    cache = Cache(tmp_path)
    cache.publish(key, SourcePackage("demo", (SourceFile("__init__.py", "old = 1\n"),)))
    path = cache.publish(key, package)
    assert cache.find(key) == path
    assert (path / "add.py").is_file()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_entry_is_removed_and_rebuilt(
    damage: Damage, tmp_path: Path, key: CacheKey, package: SourcePackage
) -> None:
    cache = Cache(tmp_path)
    path = cache.publish(key, package)
    damage(path)
    assert cache.find(key) is None
    assert not path.exists()
    damage(cache.publish(key, package))
    assert cache.publish(key, package) == path
    assert cache.find(key) == path
    assert leftovers(cache) == []


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_verify_reports_and_removes_damage_only(
    damage: Damage, tmp_path: Path, key: CacheKey, package: SourcePackage
) -> None:
    cache = Cache(tmp_path)
    path = cache.publish(key, package)
    whole = cache.publish(CacheKey("other", (("spec", "1"),)), package)
    damage(path)
    (finding,) = cache.verify()
    assert (finding.path, finding.removed) == (path, True)
    assert finding.problem
    assert [e.path for e in cache.entries()] == [whole]
    assert cache.verify() == ()


def test_clear_removes_everything(tmp_path: Path, key: CacheKey, package: SourcePackage) -> None:
    cache = Cache(tmp_path)
    assert (cache.clear(), cache.entries(), cache.verify()) == (0, (), ())
    path = cache.publish(key, package)
    (path.parent / ".tmp-1").mkdir()
    assert cache.entries()[0].size >= sum(len(f.text) for f in package.files)
    assert cache.clear() == 1
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["../outside.py", "/outside.py", MANIFEST])
def test_files_stay_inside_their_package(name: str, tmp_path: Path, key: CacheKey) -> None:
    with pytest.raises(InternalError, match="may not be called"):
        Cache(tmp_path).publish(key, SourcePackage("demo", (SourceFile(name, ""),)))


def test_only_old_leftovers_are_swept_while_others_may_write(
    tmp_path: Path, key: CacheKey, package: SourcePackage
) -> None:
    cache = Cache(tmp_path)
    kernels = tmp_path / "kernels"
    old, young = kernels / ".tmp-old", kernels / ".tmp-young"
    for path in (old, young):
        (path / "deep").mkdir(parents=True)
    os.utime(old, (time.time() - 3600,) * 2)
    cache.publish(key, package)
    assert (old.exists(), young.exists()) == (False, True)


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from attngen.cache import Cache, CacheKey
from attngen.ir.kernel import SourceFile, SourcePackage
os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
key = CacheKey("demo", (("spec", "1"),))
Cache(Path(sys.argv[1])).publish(key, SourcePackage("demo", (SourceFile("__init__.py", "x = 1"),)))
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_nothing_that_is_used(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_WRITER, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    cache, key = Cache(tmp_path), CacheKey("demo", (("spec", "1"),))
    (left,) = leftovers(cache)
    assert (cache.find(key), cache.entries()) == (None, ())
    package = SourcePackage("demo", (SourceFile("__init__.py", "x = 1"),))
    assert cache.publish(key, package) == cache.find(key)
    assert cache.verify() == ()
    assert not left.exists()


RACING_WRITER = """
import sys, time
from pathlib import Path
from attngen.cache import Cache, CacheKey
from attngen.ir.kernel import SourceFile, SourcePackage
cache = Cache(Path(sys.argv[1]))
files = (SourceFile("__init__.py", "x = 1"), SourceFile("big.py", "#" * 100_000))
sys.stdin.readline()
for i in range(60):
    key = CacheKey("demo", (("spec", str(i)),))
    path = cache.publish(key, SourcePackage("demo", files))
    if i % 5 == 0:
        (path / "big.py").write_text("damaged")  # the others must heal it
    assert (path / "__init__.py").exists() or i % 5 == 0
"""


@pytest.mark.slow
def test_processes_publishing_at_once_all_succeed(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", RACING_WRITER, str(tmp_path)]
    writers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    results = [w.communicate("go\n", timeout=60)[1] for w in writers]
    assert [w.returncode for w in writers] == [0, 0, 0], results
    cache = Cache(tmp_path)
    cache.verify()
    whole = {e.key.fields[0][1] for e in cache.entries()}
    assert whole >= {str(i) for i in range(60) if i % 5}
    assert leftovers(cache) == []
