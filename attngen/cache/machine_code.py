"""Numba's compiled functions on disk, each in one sealed file.

Numba keeps an index and numbered data files per function. It unpickles whatever they hold, so a
truncated file is an exception in the user's call and a damaged one runs as machine code; two
processes that compile different signatures at once can swap each other's data; and a change in an
imported module goes unseen. Here each compiled signature is a file of its own, named and sealed by
everything it was made from.

Input: the modules of a loaded package. Output: their dispatchers, reading and writing such files.
Invariants: what is loaded is byte for byte what was written for this signature, this package text
and these versions; anything else counts as not there. Failing to write never fails a call.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from attngen.cache import sealed
from attngen.cache.folder import warn_once

_SUFFIX = ".kernel"


def seal_modules(modules: Iterable[ModuleType], package_digest: str) -> None:
    """Give every caching dispatcher of `modules` a sealed store.

    Args:
        modules: the package and its submodules; those without Numba functions are left alone.
        package_digest: digest of the package's whole text.
    """
    if "numba" not in sys.modules:
        return
    from numba.core.caching import FunctionCache
    from numba.core.dispatcher import Dispatcher

    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Dispatcher):
                function: Any = value
                if type(function._cache) is FunctionCache:
                    function._cache = SealedFunctionCache(function._cache, package_digest)


class SealedFunctionCache:
    """Stands in for Numba's cache of one function (``numba.core.caching.FunctionCache``).

    It keeps Numba's choice of folder, so ``NUMBA_CACHE_DIR`` counts, and Numba's way to take a
    compiled function apart and put it together.
    """

    def __init__(self, replaced: Any, package_digest: str) -> None:
        import llvmlite
        import numba

        function = replaced._py_func
        self._numba = replaced
        self._folder = Path(replaced.cache_path)
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._made_from = (
            f"{package_digest} {function.__module__}.{function.__qualname__} "
            f"{numba.__version__} {llvmlite.__version__} {sys.implementation.cache_tag}"
        )
        self._enabled = True

    @property
    def cache_path(self) -> str:
        """The folder of the files."""
        return str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function for `sig`, or None if it must be compiled."""
        target_context.refresh()
        if not self._enabled:
            return None
        path, context = self._place(sig, target_context.codegen())
        payload = sealed.read(path, context)
        if payload is None:
            return None
        reduced = pickle.loads(payload)  # noqa: S301 - sealed: these are the bytes we wrote
        return self._numba._impl.rebuild(target_context, reduced)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled function `data` for `sig`."""
        from numba.core import serialize

        if not self._enabled or not self._numba._impl.check_cachable(data):
            return
        path, context = self._place(sig, data.codegen)
        payload: bytes = serialize.dumps(self._numba._impl.reduce(data))  # type: ignore[no-untyped-call] # Numba's own pickler
        try:
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir()
            sealed.write(path, context, payload)
        except FileNotFoundError:
            pass  # the entry was removed while it was in use: nothing to keep it beside
        except OSError as error:
            warn_once(f"machine code cannot be written to {self._folder} ({error})")

    def enable(self) -> None:
        """Read and write files."""
        self._enabled = True

    def disable(self) -> None:
        """Neither read nor write files."""
        self._enabled = False

    def flush(self) -> None:
        """Forget every compiled signature of this function."""
        for path in self._folder.glob(f"{self._name}-*{_SUFFIX}"):
            path.unlink(missing_ok=True)

    def _place(self, sig: Any, codegen: Any) -> tuple[Path, bytes]:
        context = f"{self._made_from} {self._numba._index_key(sig, codegen)!r}".encode()
        name = f"{self._name}-{hashlib.sha256(context).hexdigest()[:16]}{_SUFFIX}"
        return self._folder / name, context
