"""The context of the PTX-intrinsics template, and which functions a kernel imports."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attngen.dtypes import DType
from attngen.ir.kernel import SourceFile
from attngen.render import render

_FUNCTIONS = ("exp", "floor", "log", "log2", "sqrt", "tanh")


@dataclass(frozen=True, slots=True)
class PtxContext:
    """Variables of ``ptx.py.jinja``, which documents them."""

    element: str
    llvm_element: str
    wide: bool
    half: str


def ptx_file(dtype: DType) -> SourceFile:
    """``ptx.py`` for kernels whose sums are in `dtype`'s accumulator."""
    wide = dtype.accumulator == "float64"
    half = "" if dtype.name == dtype.accumulator else dtype.name
    context = PtxContext(dtype.accumulator, "DoubleType" if wide else "FloatType", wide, half)
    return SourceFile("ptx.py", render("numba_cuda/ptx.py.jinja", context))


def function_imports(dtype: DType, lines: tuple[str, ...]) -> tuple[str, ...]:
    """Lines that import the functions that `lines` call from libdevice.

    It names the functions of float32 with an f at the end.
    """
    names = sorted(_called(lines).intersection(_FUNCTIONS), key=lambda name: f"{name}f")
    if dtype.accumulator == "float64":
        return (f"from numba.cuda.libdevice import {', '.join(sorted(names))}",) if names else ()
    return tuple(f"from numba.cuda.libdevice import {name}f as {name}" for name in names)


def ptx_calls(lines: tuple[str, ...]) -> frozenset[str]:
    """The functions of ``ptx.py`` that an expression's code may call."""
    return _called(lines) & {"exp2"}


def _called(lines: tuple[str, ...]) -> frozenset[str]:
    return frozenset(re.findall(r"(\w+)\(", " ".join(lines)))
