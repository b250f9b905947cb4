"""Where nothing can be written: everything still works, and one warning says what that costs."""

from __future__ import annotations

import errno
import os
import pwd
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from attngen.cache import Cache, CacheKey, CacheWarning, default_folder, folder
from attngen.errors import CacheError
from attngen.ir.kernel import SourcePackage


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """A folder that nobody can make, root included."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "cache"


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_unwritable_folder_warns_once_and_works(
    unwritable: Path, key: CacheKey, package: SourcePackage
) -> None:
    cache = Cache(unwritable)
    with pytest.warns(CacheWarning, match=str(unwritable)) as caught:
        path = cache.publish(key, package)
    assert len(caught) == 1
    assert Cache(unwritable).find(key) == path
    Cache(unwritable).publish(CacheKey("other", ()), package)  # warnings are errors here
    assert (path / "add.py").is_file()
    assert (cache.entries(), cache.verify(), cache.clear()) == ((), (), 0)


def test_the_variable_chooses_and_its_failure_is_named(
    unwritable: Path,
    tmp_path: Path,
    key: CacheKey,
    package: SourcePackage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(tmp_path / "mine"))
    assert Cache().folder == tmp_path / "mine"
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(unwritable))
    with pytest.warns(CacheWarning, match=f"{unwritable}.*ATTNGEN_CACHE_DIR"):
        Cache().publish(key, package)


def test_the_default_folder_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", "here")
    assert default_folder() == tmp_path / "here"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", "~/cache")
    assert default_folder() == tmp_path / "cache"
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", "")
    found = default_folder()
    assert found is not None
    assert found.is_absolute()
    assert found.name == "attngen"


def test_a_user_without_any_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: CacheKey, package: SourcePackage
) -> None:
    def nobody(_: int) -> object:
        raise KeyError("uid not found")

    for variable in ("HOME", "XDG_CACHE_HOME", "ATTNGEN_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.chdir(tmp_path)
    cache = Cache()
    assert cache.folder is None
    with pytest.warns(CacheWarning, match="no home folder") as caught:
        path = cache.publish(key, package)
    assert len(caught) == 1
    assert cache.find(key) == path
    assert not (tmp_path / "~").exists()


def test_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: CacheKey, package: SourcePackage
) -> None:
    full = tmp_path / "full"
    write = Path.write_bytes
    monkeypatch.setattr(
        Path, "write_bytes", lambda p, c: no_space() if full in p.parents else write(p, c)
    )
    cache = Cache(full)
    with pytest.warns(CacheWarning, match="No space left"):
        path = cache.publish(key, package)
    assert cache.find(key) == path
    assert list((full / "kernels").iterdir()) == []


def test_nowhere_to_write_at_all_is_an_error_with_advice(
    monkeypatch: pytest.MonkeyPatch, unwritable: Path, key: CacheKey, package: SourcePackage
) -> None:
    monkeypatch.setattr(folder.tempfile, "mkdtemp", no_space)
    with (
        pytest.warns(CacheWarning),
        pytest.raises(CacheError, match=r"No space left.*set ATTNGEN_CACHE_DIR"),
    ):
        Cache(unwritable).publish(key, package)


def test_an_entry_that_may_only_be_read_is_copied_with_its_machine_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: CacheKey, package: SourcePackage
) -> None:
    path = Cache(tmp_path / "cache").publish(key, package)
    (path / "__pycache__").mkdir()
    (path / "__pycache__" / "add.kernel").write_text("machine code")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.warns(CacheWarning, match="may only be read") as caught:
        copies = {Cache(tmp_path / "cache").find(key) for _ in range(2)}
    assert len(caught) == 1
    (copy,) = copies
    assert copy is not None
    assert (copy.name, copy.parent == path.parent) == (path.name, False)
    assert (copy / "__pycache__" / "add.kernel").read_text() == "machine code"


def test_damage_that_cannot_be_removed_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: CacheKey, package: SourcePackage
) -> None:
    cache = Cache(tmp_path)
    path = cache.publish(key, package)
    (path / "add.py").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", no_space)
        assert cache.find(key) is None
        assert [f.removed for f in cache.verify()] == [False]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.publish(key, package) == path


PRIVATE = """
import os, sys
from pathlib import Path
from attngen.cache import Cache, CacheKey
from attngen.ir.kernel import SourceFile, SourcePackage
package = SourcePackage("demo", (SourceFile("__init__.py", "x = 1"),))
path = Cache().publish(CacheKey("demo", ()), package)
child = os.fork()
if not child:
    assert Cache().publish(CacheKey("demo", ()), package) == path
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert (path / "__init__.py").is_file(), "the child removed its parent's folder"
print(path)
"""


@pytest.mark.slow
def test_the_private_folder_goes_with_its_process(unwritable: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "ATTNGEN_CACHE_DIR": str(unwritable), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PRIVATE], env=environment, capture_output=True, text=True, check=True
    )
    path = Path(done.stdout.strip())
    assert path.is_relative_to(tmp_path)
    assert not path.exists()
    assert done.stderr.count("CacheWarning") == 1
