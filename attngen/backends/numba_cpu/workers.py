"""``workers.py``: what every kernel of a package starts its threads and reads its arguments with."""

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
