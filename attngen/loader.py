"""From a folder of generated source to an imported package.

Input: a folder that holds ``__init__.py``. Output: its module, named after the folder and its
content (``attngen_generated.mha_4096_<digest>``). Invariants: nothing but numpy, numba and the
package's own modules is imported; two versions of a package never meet under one name; tracebacks
show the real files; loading the same content from the same folder again gives the same module.

Byte code is kept beside the source like Python's own, but sealed: Python runs a damaged ``.pyc``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
import os
import re
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from attngen.cache import sealed
from attngen.cache.machine_code import seal_modules

NAMESPACE = "attngen_generated"


def load(folder: Path) -> ModuleType:
    """Import the generated package in `folder`.

    Args:
        folder: it holds ``__init__.py``; machine code is kept in its ``__pycache__``.

    Raises:
        FileNotFoundError: there is no generated package in `folder`.
    """
    folder = folder.absolute()
    digest = _package_digest(folder)
    with _lock:
        key = (folder, digest)
        if key not in _loaded:
            _loaded[key] = _import(_free_name(folder, digest), folder, digest)
        return _loaded[key]


def _free_name(folder: Path, digest: str) -> str:
    # Machine code is tied to the module's name, so that must not depend on where the cache is,
    # except for a second copy of a package in one process.
    stem = re.sub(r"\W", "_", folder.name)
    name = f"{NAMESPACE}.{stem}_{digest[:8]}"
    if name in sys.modules:
        name += "_" + hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    return name


def _import(name: str, folder: Path, digest: str) -> ModuleType:
    _register_namespace()
    init = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name,
        init,
        loader=_Loader(name, str(init)),
        submodule_search_locations=[str(folder)],
    )
    if spec is None or spec.loader is None:
        raise FileNotFoundError(init)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for loaded in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
            del sys.modules[loaded]
        raise
    parts = [m for n, m in sys.modules.items() if n == name or n.startswith(f"{name}.")]
    seal_modules(parts, digest)
    return module


class _Loader(SourceFileLoader):
    """Python's loader of source files, with sealed byte code."""

    def get_code(self, fullname: str) -> CodeType | None:
        """The module's code, from its sealed file if that was made from this very source."""
        path = Path(self.get_filename(fullname))
        source = path.read_bytes()
        context = b"\0".join((importlib.util.MAGIC_NUMBER, str(path).encode(), source))
        cached = path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.code"
        payload = sealed.read(cached, context)
        if payload is not None:
            code: CodeType = marshal.loads(payload)  # noqa: S302 - sealed: the bytes we wrote
            return code
        code = self.source_to_code(source, str(path))
        if not sys.dont_write_bytecode:
            with contextlib.suppress(OSError):  # as Python does: it is only slower without
                cached.parent.mkdir(exist_ok=True)
                sealed.write(cached, context, marshal.dumps(code))
        return code


class _Finder(MetaPathFinder):
    """Finds the submodules of loaded packages, so that they use the same loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module inside a loaded package; None for every other module."""
        del target
        parent, _, stem = fullname.rpartition(".")
        if not fullname.startswith(f"{NAMESPACE}.") or not path:
            return None
        loader = getattr(sys.modules.get(parent), "__loader__", None)
        file = Path(path[0]) / f"{stem}.py"
        if not isinstance(loader, _Loader) or not file.is_file():
            return None
        return importlib.util.spec_from_file_location(
            fullname, file, loader=_Loader(fullname, str(file))
        )


def _register_namespace() -> None:
    if NAMESPACE not in sys.modules:
        namespace = ModuleType(NAMESPACE, "Packages that attngen generated and loaded.")
        namespace.__path__ = []
        sys.modules[NAMESPACE] = namespace
        sys.meta_path.insert(0, _Finder())


def _package_digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted([folder / "__init__.py", *folder.glob("*.py")]):
        total.update(path.name.encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


_loaded: dict[tuple[Path, str], ModuleType] = {}
_lock = threading.RLock()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
