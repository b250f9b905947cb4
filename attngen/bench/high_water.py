"""How far a call makes this process's memory rise above what stood before.

Output: bytes, from Linux's own high-water mark, which is reset just before the call; None on other
systems. Workspaces that our kernels keep between calls, and free memory that the allocator holds,
are given back first, so that using them counts.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from attngen.loader import NAMESPACE

_RESET = Path("/proc/self/clear_refs")
T = TypeVar("T")


def can_measure() -> bool:
    """Whether this system tells."""
    return _RESET.exists()


def measure_rise(call: Callable[[], T]) -> tuple[T, int]:
    """What `call` gives, and by how many bytes memory rose while it ran."""
    _drop_workspaces()
    gc.collect()
    _return_free_memory()
    before = _status("VmRSS")
    _RESET.write_text("5", encoding="ascii")
    result = call()
    return result, max(0, _status("VmHWM") - before)


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(field)


def _drop_workspaces() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{NAMESPACE}.") and hasattr(module, "_pool"):
            module._pool.free.clear()


def _return_free_memory() -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
