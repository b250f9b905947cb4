"""Parallel kernels that survive several Python threads and a fork.

Numba has three threading layers. *tbb* survives both, though not together: where other threads have
run kernels it cannot be shut down for the fork, and one child in a hundred waits for ever for a
lock that a thread of its parent held. *omp* (GNU OpenMP) kills a forked child that runs a parallel
kernel after its parent has; *workqueue* aborts the process when two Python threads run parallel
kernels at once. So tbb is loaded where pip put it, which Numba does not search; in such children
kernels run without threads; with workqueue kernels run one at a time.

Input: the environment and Numba's settings, which a user may have set and which count.
Output: :func:`prepare`, called before the first kernel; :func:`guard` and :func:`must_be_serial`,
asked at each call. Invariant: no thread setting of the process, of torch or of BLAS is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attngen.errors import TargetError

_TBB_FILES = {"linux": "libtbb.so.12", "darwin": "libtbb.12.dylib", "win32": "tbb12.dll"}
_OLDEST_TBB = 12060  # what Numba needs: TBB 2021.6
_NO_GUARD: AbstractContextManager[object] = contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class ThreadProblem:
    """Something that makes parallel kernels slower or less safe, and what to do about it."""

    fact: str
    action: str


@dataclass(frozen=True, slots=True)
class ThreadState:
    """How parallel kernels run in this process.

    Attributes:
        layer: ``tbb``, ``omp`` or ``workqueue``; empty if none can be started.
        threads: threads a kernel uses unless told otherwise.
        tbb: the TBB library that was loaded; None if there is none.
        problems: empty where everything is as it should be.
    """

    layer: str
    threads: int
    tbb: str | None
    problems: tuple[ThreadProblem, ...]


def prepare() -> None:
    """Choose and start Numba's threading layer, once a process; cheap when repeated.

    Raises:
        TargetError: the user asked for a layer that cannot be started, or for no compiler.
    """
    if _state.layer:
        return
    with _state.lock:
        if _state.layer:
            return
        settings = _numba_settings()
        if settings.DISABLE_JIT:
            raise TargetError(
                "Numba's compiler is off (NUMBA_DISABLE_JIT), and kernels are made of vector "
                "instructions, which Python cannot run; unset NUMBA_DISABLE_JIT"
            )
        started_before = _started_layer() is not None
        wanted = str(settings.THREADING_LAYER).lower()
        try:
            if wanted not in ("omp", "workqueue") and load_tbb():
                _start_layer()
            else:
                _start_layer_aside()
        except ValueError as error:
            raise TargetError(
                f"Numba cannot start the threading layer {wanted!r} ({error}); "
                "unset NUMBA_THREADING_LAYER, or: pip install tbb"
            ) from error
        _state.layer = _started_layer() or ""
        _state.serial = _state.is_child and started_before and _dies_in_child(_state.layer)


def guard() -> AbstractContextManager[object]:
    """What a parallel kernel must run inside: a lock where the layer needs one."""
    _state.users.add(threading.get_ident())
    return _state.kernel_lock if _state.layer == "workqueue" else _NO_GUARD


def must_be_serial() -> bool:
    """Whether a kernel may not use threads: in a child that was forked from threads at work.

    That is a child forked after OpenMP had started, or after another thread that is still there had
    used tbb.
    """
    return _state.serial


def state() -> ThreadState:
    """Start the threading layer if need be, and report it."""
    import numba

    try:
        prepare()
    except TargetError as error:
        return ThreadState("", 1, load_tbb(), (ThreadProblem(str(error), "see above"),))
    return ThreadState(_state.layer, numba.get_num_threads(), load_tbb(), tuple(_problems()))


def _problems() -> Iterator[ThreadProblem]:
    install = "pip install tbb"
    if _state.layer != "tbb" and load_tbb():
        install = "unset NUMBA_THREADING_LAYER before the process starts"
    if _state.layer == "omp" and sys.platform == "linux":
        yield ThreadProblem(
            "with OpenMP, a process forked after the first kernel runs kernels without threads",
            f"{install}; or start processes with 'spawn' or 'forkserver'",
        )
    if _state.layer == "workqueue":
        yield ThreadProblem(
            "with Numba's workqueue, kernels of several Python threads run one after the other, "
            "and other parallel Numba code at the same time aborts the process",
            install,
        )
    limit = _cpu_limit()
    if limit is not None and limit < _launched_threads():
        yield ThreadProblem(
            f"the container may use {limit:g} CPUs, and {_launched_threads()} threads are started",
            f"set NUMBA_NUM_THREADS={max(1, int(limit))}",
        )


@functools.cache
def load_tbb() -> str | None:
    """Load TBB so that Numba finds it; the library that was loaded, or None.

    pip puts it into the environment's ``lib``, where the dynamic linker does not look. A library
    that is already loaded satisfies every later request for its name.
    """
    name = _TBB_FILES.get(sys.platform)
    if name is None:
        return None
    for candidate in [*_installed_tbb(name), name]:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
            if library.TBB_runtime_interface_version() >= _OLDEST_TBB:
                return candidate
    return None


def _installed_tbb(name: str) -> Iterator[str]:
    folder = Path(sys.prefix, "Library/bin" if sys.platform == "win32" else "lib")
    if (folder / name).is_file():
        yield str(folder / name)
        return
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("tbb") or ():
            if file.name == name:
                yield str(Path(file.locate()).resolve())


def _start_layer() -> None:
    import numba

    numba.get_num_threads()


def _start_layer_aside() -> None:
    """Start Numba's layer in a thread of its own, which keeps OpenMP's settings clean.

    Numba's start calls ``omp_set_num_threads``, which holds for the calling thread: in ours, it
    would change how many threads other OpenMP code of the process uses.
    """
    failures: list[ValueError] = []

    def start() -> None:
        try:
            _start_layer()
        except ValueError as error:
            failures.append(error)

    thread = threading.Thread(target=start, name="attngen-start-threads")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _started_layer() -> str | None:
    import numba.np.ufunc.parallel

    parallel: Any = numba.np.ufunc.parallel
    try:
        return str(parallel.threading_layer())
    except ValueError:
        return None


def _dies_in_child(layer: str) -> bool:
    return layer == "omp" and sys.platform == "linux"


def _numba_settings() -> Any:
    import numba.core.config

    return numba.core.config


def _launched_threads() -> int:
    return int(_numba_settings().NUMBA_NUM_THREADS)


def _cpu_limit() -> float | None:
    """CPUs that a container's quota allows; None without a quota."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


class _State:
    """What this process knows; a forked child starts with its parent's knowledge and new locks."""

    def __init__(self) -> None:
        self.layer = ""
        self.serial = False
        self.is_child = False
        self.users: set[int] = set()  # threads that have run kernels
        self.shared = False  # whether others than the one that forks are among them
        self.lock = threading.Lock()
        self.kernel_lock = threading.RLock()

    def before_fork(self) -> None:
        others = self.users - {threading.get_ident()}
        self.shared = not others.isdisjoint(sys._current_frames())

    def after_fork(self) -> None:
        self.is_child = True
        self.serial = (
            self.serial or _dies_in_child(self.layer) or (self.layer == "tbb" and self.shared)
        )
        self.users = set()
        self.lock = threading.Lock()
        self.kernel_lock = threading.RLock()


_state = _State()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_state.before_fork, after_in_child=_state.after_fork)
