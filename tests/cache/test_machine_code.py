"""Machine code on disk: used when it is whole and of this package, compiled again otherwise."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attngen.cache import Cache, CacheKey, CacheWarning, sealed
from attngen.ir.kernel import SourceFile, SourcePackage
from attngen.loader import load

pytestmark = pytest.mark.numba

ADD = """
from numba import njit

from .helper import increment


@njit(cache=True)
def add(a):
    return increment(a[0])
"""
HELPER = """
from numba import njit


@njit(cache=True)
def increment(x):
    return x + {step}
"""


def publish(folder: Path, step: int = 1) -> Path:
    files = {"__init__": "from .add import add", "add": ADD, "helper": HELPER.format(step=step)}
    sources = tuple(SourceFile(f"{name}.py", text) for name, text in files.items())
    return Cache(folder).publish(CacheKey("demo", ()), SourcePackage("demo", sources))


RUN = """
import json, sys
from pathlib import Path
import numpy as np
from attngen.loader import load
add = load(Path(sys.argv[1])).add
print(json.dumps([add(np.ones(1)), sum(add.stats.cache_hits.values())]))
"""


def run(path: Path, **environment: str) -> tuple[float, int]:
    """The result and the number of cache hits of a new process."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, str(path)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    value, hits = json.loads(done.stdout)
    return value, hits


def files(path: Path) -> list[Path]:
    return sorted((path / "__pycache__").glob("add.add-*.kernel"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda p: os.truncate(p, p.stat().st_size // 2),
    "empty": lambda p: os.truncate(p, 0),
    "changed": flip,
    "another function's": lambda p: p.write_bytes(
        next(p.parent.glob("helper.*.kernel")).read_bytes()
    ),
}


@pytest.mark.slow
def test_a_new_process_takes_the_machine_code(tmp_path: Path) -> None:
    path = publish(tmp_path)
    assert run(path) == (2.0, 0)
    assert run(path) == (2.0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_machine_code_is_compiled_again(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    path = publish(tmp_path)
    run(path)
    (file,) = files(path)
    good = file.stat().st_size
    damage(file)
    assert run(path) == (2.0, 0)
    assert file.stat().st_size == pytest.approx(good, rel=0.1)
    assert run(path) == (2.0, 1)


@pytest.mark.slow
def test_a_change_in_a_helper_counts(tmp_path: Path) -> None:
    path = publish(tmp_path)
    assert run(path) == (2.0, 0)
    assert publish(tmp_path, step=2) == path
    assert run(path) == (3.0, 0)


@pytest.mark.slow
def test_two_cpus_share_a_folder(tmp_path: Path) -> None:
    path = publish(tmp_path)
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert [run(path, **generic), run(path)] == [(2.0, 0), (2.0, 0)]
    assert len(files(path)) == 2
    assert [run(path, **generic), run(path)] == [(2.0, 1), (2.0, 1)]


@pytest.mark.slow
def test_the_users_numba_folder_counts(tmp_path: Path) -> None:
    path = publish(tmp_path / "cache")
    chosen = {"NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    assert [run(path, **chosen), run(path, **chosen)] == [(2.0, 0), (2.0, 1)]
    assert files(path) == []


@pytest.mark.slow
def test_a_moved_cache_keeps_its_machine_code(tmp_path: Path) -> None:
    path = publish(tmp_path / "here")
    run(path)
    (tmp_path / "here").rename(tmp_path / "there")
    moved = tmp_path / "there" / path.relative_to(tmp_path / "here")
    assert run(moved) == (2.0, 1)


def test_a_full_disk_costs_the_file_and_not_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    add = load(publish(tmp_path)).add
    monkeypatch.setattr(sealed, "replace_file", no_space)
    with pytest.warns(CacheWarning, match="machine code cannot be written") as caught:
        assert add(np.ones(1)) == 2.0
    assert len(caught) == 1


def test_an_entry_removed_while_in_use_is_not_half_made_again(tmp_path: Path) -> None:
    path = publish(tmp_path)
    add = load(path).add
    Cache(tmp_path).clear()
    assert add(np.ones(1)) == 2.0
    assert not path.exists()


def test_recompiling_forgets_what_was_kept(tmp_path: Path) -> None:
    path = publish(tmp_path)
    add = load(path).add
    add(np.ones(1))
    add(np.ones(1, np.int64))
    assert len(files(path)) == 2
    add._cache.flush()
    assert files(path) == []
