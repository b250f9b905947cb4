"""Loading a folder as a package."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attngen.cache import Cache, CacheKey
from attngen.ir.kernel import SourceFile, SourcePackage
from attngen.loader import NAMESPACE, load


def publish(folder: Path, key: CacheKey, **files: str) -> Path:
    sources = tuple(SourceFile(f"{name}.py", text) for name, text in files.items())
    return Cache(folder).publish(key, SourcePackage(key.name, sources))


def test_a_package_and_its_modules(tmp_path: Path, key: CacheKey, package: SourcePackage) -> None:
    path = Cache(tmp_path).publish(key, package)
    module = load(path)
    assert module.add(1, 2) == 3
    assert module.__name__.startswith(f"{NAMESPACE}.{key.folder_name.replace('-', '_')}")
    assert module.__file__ == str(path / "__init__.py")
    assert sys.modules[module.__name__] is module
    assert load(path) is module
    assert pickle.loads(pickle.dumps(module.add)) is module.add  # noqa: S301 - our own bytes
    assert importlib.import_module(module.__name__) is module


def test_two_versions_live_side_by_side(tmp_path: Path, key: CacheKey) -> None:
    first = load(publish(tmp_path / "1", key, __init__="from .part import x", part="x = 1"))
    second = load(publish(tmp_path / "2", key, __init__="from .part import x", part="x = 2"))
    copy = load(publish(tmp_path / "3", key, __init__="from .part import x", part="x = 2"))
    assert (first.x, second.x, copy.x) == (1, 2, 2)
    assert len({first.__name__, second.__name__, copy.__name__}) == 3


def test_an_edited_folder_is_loaded_anew(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("from .part import x\n")
    (tmp_path / "part.py").write_text("x = 1\n")
    before = load(tmp_path)
    (tmp_path / "part.py").write_text("x = 2\n")
    assert (before.x, load(tmp_path).x) == (1, 2)


def test_tracebacks_show_the_generated_line(tmp_path: Path, key: CacheKey) -> None:
    path = publish(
        tmp_path, key, __init__="from .part import f", part="def f():\n    return 1 / 0\n"
    )
    with pytest.raises(ZeroDivisionError) as caught:
        load(path).f()
    text = "".join(traceback.format_exception(caught.value))
    assert f'File "{path / "part.py"}", line 2' in text
    assert "return 1 / 0" in text


def test_a_failing_import_leaves_nothing_behind(tmp_path: Path, key: CacheKey) -> None:
    path = publish(tmp_path, key, __init__="from . import part\n1 / 0", part="")
    before = set(sys.modules)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            load(path)
    assert {m for m in set(sys.modules) - before if key.digest[:16] in m} == set()


def test_a_folder_without_a_package(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"attngen-sealed-1", b"\0" * 4096])
def test_damaged_byte_code_is_not_run(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "__init__.py").write_text("x = 1\n")
    load(tmp_path)
    (code,) = (tmp_path / "__pycache__").iterdir()
    good = code.read_bytes()
    code.write_bytes(damage or good[:-7])
    forget(tmp_path)
    assert load(tmp_path).x == 1
    assert code.read_bytes() == good


def forget(folder: Path) -> None:
    """As if the process were new."""
    from attngen import loader

    for key in [k for k in loader._loaded if k[0] == folder]:
        del sys.modules[loader._loaded.pop(key).__name__]


def test_threads_get_one_module(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("import time\n\ntime.sleep(0.05)\n")
    with ThreadPoolExecutor(8) as pool:
        modules = {id(m) for m in pool.map(load, [tmp_path] * 8)}
    assert len(modules) == 1


def test_a_lock_held_while_forking_does_not_hang_the_child(tmp_path: Path) -> None:
    from attngen import loader

    (tmp_path / "__init__.py").write_text("x = 1\n")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(loader._lock.acquire).result()  # held by a thread the child does not have
        try:
            child = os.fork()
            if not child:
                os._exit(0 if load(tmp_path).x == 1 else 1)
            assert os.waitpid(child, 0)[1] == 0
        finally:
            pool.submit(loader._lock.release).result()
