"""``workers.py`` of a generated package: how kernels start threads and read their arguments."""

from __future__ import annotations

from dataclasses import dataclass

from attngen.ir.kernel import SourceFile
from attngen.render import render


@dataclass(frozen=True, slots=True)
class WorkersContext:
    """``workers.py.jinja`` has no variables."""


def workers_file() -> SourceFile:
    """The module that starts workers; the same in every package."""
    return SourceFile("workers.py", render("numba_cpu/workers.py.jinja", WorkersContext()))
