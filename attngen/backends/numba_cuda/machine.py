"""The modules of a generated CUDA package that are the same in all: ``build.py``, ``launch.py``."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from attngen.backends.numba_cuda.pins import INSTALL
from attngen.ir.kernel import SourceFile
from attngen.render import render


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Variables of ``build.py.jinja``, which documents them."""

    install: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """``launch.py.jinja`` has no variables."""


def _install_lines() -> tuple[str, ...]:
    """The command in pieces that fit a line; all but the last end with a space."""
    lines = textwrap.wrap(INSTALL, 80, break_on_hyphens=False)
    return (*(f"{line} " for line in lines[:-1]), lines[-1])


def machine_files() -> tuple[SourceFile, ...]:
    """The modules that compile kernels and launch them."""
    return (
        SourceFile("build.py", render("numba_cuda/build.py.jinja", BuildContext(_install_lines()))),
        SourceFile("launch.py", render("numba_cuda/launch.py.jinja", LaunchContext())),
    )
