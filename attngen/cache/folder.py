"""Where the cache is, and the private folder that serves where it cannot be written.

Input: the environment. Output: folders. Invariants: a default folder is absolute or None; the
private folder is made at most once, shared with forked children, removed when the process that
made it ends, and announced by one warning.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import warnings
from pathlib import Path

import platformdirs

from attngen.errors import CacheError

VARIABLE = "ATTNGEN_CACHE_DIR"


class CacheWarning(UserWarning):
    """Compiled kernels cannot be kept: they work, and are compiled again by the next process."""


def default_folder() -> Path | None:
    """``$ATTNGEN_CACHE_DIR``, else the platform's cache folder; None if there is no home at all."""
    chosen = os.environ.get(VARIABLE)
    try:
        folder = Path(os.path.expanduser(chosen or platformdirs.user_cache_path("attngen")))
    except RuntimeError:  # neither HOME nor an entry for this user; older versions keep the "~"
        return None
    return None if folder.parts[:1] == ("~",) else folder.absolute()


def private_folder() -> Path:
    """The folder of this process for what cannot be kept.

    Raises:
        CacheError: not even a temporary folder can be made.
    """
    with _lock:
        if not _private or not _private[-1].is_dir():
            try:
                _private.append(Path(tempfile.mkdtemp(prefix="attngen-")))
            except OSError as error:
                raise nowhere(error) from error
            atexit.register(_remove, _private[-1], os.getpid())
        return _private[-1]


def existing_private_folder() -> Path | None:
    """That folder, if this process or the one it was forked from has made it."""
    return _private[-1] if _private and _private[-1].is_dir() else None


def nowhere(error: OSError) -> CacheError:
    """The error for a machine on which nothing can be written at all."""
    return CacheError(
        f"generated code can be written neither to the cache nor to a temporary folder ({error}); "
        f"set {VARIABLE} to a folder with space that this user may write"
    )


def warn_once(reason: str) -> None:
    """Say, once a process, that kernels are not kept, and why."""
    with _lock:
        first = not _warned
        _warned.append(reason)
    if first:
        warnings.warn(
            f"compiled kernels are not kept: {reason}. Every process compiles them again; "
            f"set {VARIABLE} to a folder that this user may write",
            CacheWarning,
            stacklevel=2,
        )


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child inherits this handler
        shutil.rmtree(folder, ignore_errors=True)


_lock = threading.Lock()
_private: list[Path] = []
_warned: list[str] = []


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
