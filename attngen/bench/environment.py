"""What a benchmark ran on: enough to judge whether two results may be compared."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("attngen", "numpy", "numba", "llvmlite", "torch", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Environment:
    """The machine, the versions and the moment.

    Attributes:
        cores: cores this process may use.
        load: the machine's load average over a minute, where the system tells; well above zero
            before a run means that the times are not to be trusted.
        versions: installed packages of :data:`PACKAGES`.
    """

    cpu: str
    cores: int
    system: str
    python: str
    load: float | None
    date: str
    versions: dict[str, str]


def environment() -> Environment:
    """This process's environment, now."""
    return Environment(
        cpu=cpu_name(),
        cores=usable_cores(),
        system=platform.platform(),
        python=platform.python_version(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        versions=versions(),
    )


def usable_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Versions of the installed packages that matter."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def cpu_name() -> str:
    """The CPU as its vendor calls it."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
