"""Look over the installation and the machine, and say what to do about each problem.

Output: :class:`Diagnosis`, a list of findings: facts that are fine, warnings (slower or less
convenient) and problems (something will fail). Nothing is changed, and each check stands alone, so
that a broken part does not hide the rest.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from attngen.formatting import bytes_text

Level: TypeAlias = Literal["ok", "warning", "problem"]

REQUIRED = (
    *("numpy", "numba", "llvmlite", "jinja2", "pyyaml"),
    *("typer", "rich", "platformdirs", "filelock"),
)
OPTIONAL = {
    "tbb": "threads that survive fork",
    "torch": "bench peer",
    "onnxruntime": "bench peer",
    "distributed": "sweeps on a cluster",
    "pyarrow": "results as Parquet",
}
_LITTLE_SPACE = 100 << 20


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: what was looked at, what was found, and what to do if that is not fine."""

    subject: str
    level: Level
    fact: str
    action: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found."""

    checks: tuple[Check, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing found will make work fail."""
        return all(check.level != "problem" for check in self.checks)


def diagnose() -> Diagnosis:
    """Run every check."""
    return Diagnosis(tuple(check for part in _PARTS for check in _guarded(part)))


def _guarded(part: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    subject = part.__name__.strip("_").replace("_", " ")
    try:
        yield from part()
    except Exception as error:  # noqa: BLE001 - a check that fails is a finding
        text = f"{type(error).__name__}: {error}"
        yield Check(subject, "problem", text, "see the message; reinstall what it names")


def _versions() -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} at {sys.executable}")
    for name in REQUIRED:
        version = _version(name)
        if version is None:
            yield Check(name, "problem", "not installed", f"pip install {name}")
        else:
            yield Check(name, "ok", version)
    for name, purpose in OPTIONAL.items():
        yield Check(name, "ok", _version(name) or f"not installed (optional: {purpose})")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> Iterator[Check]:
    from attngen.backends.numba_cpu.probe import probe
    from attngen.bench.environment import cpu_name

    target = probe()
    yield Check("cpu", "ok", f"{cpu_name()}, {target.cores} usable cores")
    if target.isa == "generic":
        yield Check(
            "cpu features",
            "warning",
            f"no vector instructions known for {target.llvm_cpu or platform.machine()}",
            "kernels run on scalars, slowly; NUMBA_CPU_NAME and NUMBA_CPU_FEATURES, if you set "
            "them, decide this",
        )
    else:
        vectors = f"{target.vector_registers} vectors of {target.vector_bytes} bytes"
        yield Check("cpu features", "ok", f"{target.isa}: {vectors} ({target.llvm_cpu})")
    sizes = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    caches = ", ".join(f"L{i + 1} {bytes_text(n) if n else '?'}" for i, n in enumerate(sizes))
    yield Check("caches", "ok", caches)


def _templates() -> Iterator[Check]:
    from attngen.resources import specs_dir, templates_dir

    yield Check("templates", "ok", str(templates_dir()))
    yield Check("specs", "ok", str(specs_dir()))


def _threads() -> Iterator[Check]:
    from attngen.backends.numba_cpu.threads import state

    found = state()
    if found.layer:
        tbb = f", {found.tbb}" if found.layer == "tbb" and found.tbb else ""
        yield Check("threading layer", "ok", f"{found.layer}, {found.threads} threads{tbb}")
    for problem in found.problems:
        level: Level = "warning" if found.layer else "problem"
        yield Check("threads", level, problem.fact, problem.action)


def _kernel() -> Iterator[Check]:
    """Numba compiles and runs vector code at all."""
    from attngen.backends.numba_cpu.peak import measure_fma
    from attngen.backends.numba_cpu.probe import probe
    from attngen.formatting import rate_text

    yield Check("fma peak", "ok", f"{rate_text(measure_fma(probe()))} on one core, measured")


def _cuda() -> Iterator[Check]:
    yield Check("cuda", "ok", "no CUDA backend in this version; kernels run on the CPU")


def _cache() -> Iterator[Check]:
    import shutil

    from attngen.cache import Cache

    cache = Cache()
    if cache.folder is None:
        yield Check(
            "cache",
            "warning",
            "no folder to keep kernels in, so each process compiles anew",
            "set ATTNGEN_CACHE_DIR to a folder that can be written",
        )
        return
    existing = next(path for path in (cache.folder, *cache.folder.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        yield Check(
            "cache",
            "warning",
            f"{existing} cannot be written, so each process compiles anew",
            "set ATTNGEN_CACHE_DIR to a folder that can be written, or change its owner",
        )
        return
    size = bytes_text(_folder_size(cache.folder))
    yield Check("cache", "ok", f"{cache.folder}: {len(cache.entries())} kernels, {size}")
    free = shutil.disk_usage(existing).free
    if free < _LITTLE_SPACE:
        yield Check(
            "cache",
            "warning",
            f"only {bytes_text(free)} free on its disk",
            "free some space, or: attngen cache clear",
        )


def _folder_size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except OSError:  # removed meanwhile, by another process
            continue
    return total


def _shadowed_settings() -> Iterator[Check]:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        yield Check(
            "environment",
            "problem",
            "NUMBA_DISABLE_JIT is set, so Numba compiles nothing",
            "unset NUMBA_DISABLE_JIT",
        )


_PARTS: tuple[Callable[[], Iterator[Check]], ...] = (
    _versions,
    _shadowed_settings,
    _cpu,
    _templates,
    _threads,
    _kernel,
    _cuda,
    _cache,
)
