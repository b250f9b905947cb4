"""The modules of a generated package that no spec changes: ``workers.py``, ``sequences.py``."""

from __future__ import annotations

from dataclasses import dataclass

from attngen.dtypes import DType
from attngen.ir.kernel import SourceFile
from attngen.render import render


@dataclass(frozen=True, slots=True)
class NoContext:
    """``sequences.py.jinja`` has no variables."""


@dataclass(frozen=True, slots=True)
class WorkersContext:
    """Variables of ``workers.py.jinja``, which documents them."""

    storage: str


def workers_file(dtype: DType) -> SourceFile:
    """The module that starts workers; the same in every package for one `dtype` of arrays."""
    context = WorkersContext(dtype.name if dtype.is_half else "")
    return SourceFile("workers.py", render("numba_cpu/workers.py.jinja", context))


def sequences_file() -> SourceFile:
    """The module that says which queries and keys belong together; the same in every package."""
    return SourceFile("sequences.py", render("numba_cpu/sequences.py.jinja", NoContext()))
