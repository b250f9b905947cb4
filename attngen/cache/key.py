"""The key of a cache entry: everything that shaped the source and the machine code, by name.

Input: the IR, schedule and target of a compilation, and the digest of the templates. Output: a
:class:`CacheKey`, an ordered list of named texts. Invariant: two compilations that could differ in
one byte of source or machine code differ in a field, and each field says which decision it was.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attngen import fingerprint
from attngen.ir.attention import AttentionIR
from attngen.ir.schedule import Schedule
from attngen.targets import CpuTarget, Target

# These choose how kernels run or where Numba writes, and not what it generates.
_RUN_TIME_OPTIONS = frozenset(
    {
        "NUMBA_CACHE_DIR",
        "NUMBA_DEBUG_CACHE",
        "NUMBA_NUM_THREADS",
        "NUMBA_THREADING_LAYER",
        "NUMBA_THREADING_LAYER_PRIORITY",
    }
)


@dataclass(frozen=True, slots=True)
class CacheKey:
    """What an entry was made from.

    Attributes:
        name: the kernel's name; part of the folder's name and of the digest.
        fields: (field, text) in a fixed order.
    """

    name: str
    fields: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """SHA-256 over name and fields, as 64 hexadecimal digits."""
        return fingerprint.digest((self.name, self.fields))

    @property
    def folder_name(self) -> str:
        """The name of this entry's folder: readable, and unique by its digest."""
        return f"{self.name}-{self.digest[:16]}"


def key_for(ir: AttentionIR, schedule: Schedule, target: Target, templates: str) -> CacheKey:
    """The key of compiling `ir` with `schedule` for `target`.

    Args:
        ir: what is computed; every field becomes a field of the key (``spec.heads``).
        schedule: how; every decision becomes a field (``schedule.block_q``).
        target: its LLVM CPU and features, or its architecture, are what machine code is for.
        templates: digest of the texts of all templates.
    """
    import llvmlite
    import numba
    import numpy as np

    fields = [
        *_flatten("spec", ir),
        *((f"schedule.{name}", _text(d.value)) for name, d in schedule.decisions()),
        ("templates", templates),
        ("compiler", compiler_digest()),
        ("attngen", _attngen_version()),
        ("numba", numba.__version__),
        ("llvmlite", llvmlite.__version__),
        ("numpy", np.__version__),
        ("python", f"{sys.implementation.cache_tag} {platform.python_version()}"),
        ("platform", f"{sys.platform} {platform.machine()}"),
        *_machine(target),
        ("compile_options", _compile_options()),
    ]
    return CacheKey(ir.name, tuple(fields))


def _machine(target: Target) -> Iterator[tuple[str, str]]:
    if isinstance(target, CpuTarget):
        yield "cpu", target.llvm_cpu
        yield "cpu_features", target.llvm_features
        return
    yield "gpu", target.arch
    for package in ("numba-cuda", "nvidia-nvjitlink", "nvidia-nvvm"):
        yield package, _version(package)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _flatten(prefix: str, value: AttentionIR) -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(value):
        if field.compare:
            yield f"{prefix}.{field.name}", _text(getattr(value, field.name))


def _text(value: object) -> str:
    plain = fingerprint.canonical(value)
    return plain if isinstance(plain, str) else json.dumps(plain, sort_keys=True)


def _compile_options() -> str:
    """Numba's settings from the environment that could shape machine code."""
    return " ".join(
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith("NUMBA_") and name not in _RUN_TIME_OPTIONS
    )


@functools.cache
def _attngen_version() -> str:
    try:
        return importlib.metadata.version("attngen")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"


@functools.cache
def compiler_digest() -> str:
    """Digest of attngen's own source: in a checkout the version does not change with every edit."""
    package = Path(__file__).resolve().parents[1]
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        total.update(path.relative_to(package).as_posix().encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
