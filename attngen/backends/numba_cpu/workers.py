"""The modules of a generated package that are the same in all: ``workers.py``, ``sequences.py``."""

from __future__ import annotations

from dataclasses import dataclass

from attngen.ir.kernel import SourceFile
from attngen.render import render


@dataclass(frozen=True, slots=True)
class NoContext:
    """``workers.py.jinja`` and ``sequences.py.jinja`` have no variables."""


def workers_file() -> SourceFile:
    """The module that starts workers; the same in every package."""
    return SourceFile("workers.py", render("numba_cpu/workers.py.jinja", NoContext()))


def sequences_file() -> SourceFile:
    """The module that says which queries and keys belong together; the same in every package."""
    return SourceFile("sequences.py", render("numba_cpu/sequences.py.jinja", NoContext()))
