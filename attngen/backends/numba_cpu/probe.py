"""The machine this process runs on, as a :class:`CpuTarget`.

Instruction set and CPU name are what Numba generates code for (they honour ``NUMBA_CPU_NAME`` and
``NUMBA_CPU_FEATURES``); cache sizes come from Linux's sysfs, with common sizes as a fall-back.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

from attngen.targets import CpuTarget

_SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@cache
def probe() -> CpuTarget:
    """The target of this process; probed once."""
    name, features = llvm_host()
    isa, vector_bytes, registers = instruction_set(features, platform.machine())
    caches = cache_sizes(_SYSFS)
    return CpuTarget(
        isa=isa,
        vector_bytes=vector_bytes,
        vector_registers=registers,
        l1_bytes=caches.get(1, 32 << 10),
        l2_bytes=caches.get(2, 512 << 10),
        l3_bytes=caches.get(3, 0),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _count(),
        llvm_cpu=name,
        llvm_features=features,
    )


def _count() -> int:
    return os.cpu_count() or 1


def llvm_host() -> tuple[str, str]:
    """CPU name and feature string that Numba hands to LLVM."""
    import llvmlite.binding as llvm
    from numba.core import config as numba_config

    config: Any = numba_config  # its names are set at run time

    name = config.CPU_NAME or llvm.get_host_cpu_name()
    features = config.CPU_FEATURES
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    return name, features


def instruction_set(features: str, machine: str) -> tuple[str, int, int]:
    """(name, bytes of a vector, vector registers) for LLVM features on a machine type."""
    on = {f[1:] for f in features.split(",") if f.startswith("+")}
    if {"avx512f", "avx512vl", "avx512dq"} <= on:
        return "avx512", 64, 32
    if {"avx2", "fma", "f16c"} <= on:
        return "avx2", 32, 16
    if machine.lower() in ("aarch64", "arm64") and ("neon" in on or not on):
        return "neon", 16, 32
    return "generic", 0, 16


def cache_sizes(folder: Path) -> dict[int, int]:
    """Level -> bytes of the data caches that `folder` (sysfs) describes; empty if it has none."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            text = (index / "size").read_text().strip()
            level = int((index / "level").read_text())
        except (OSError, ValueError):
            continue
        number, unit = text.rstrip("KMG"), text[-1:]
        if number.isdigit():
            sizes[level] = int(number) * _UNITS.get(unit, 1)
    return sizes
