"""The context of the vector-intrinsics templates, from an accumulator type and a vector width."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attngen.backends.numba_cpu.approximations import polynomials
from attngen.dtypes import DType
from attngen.ir.kernel import SourceFile
from attngen.render import render


@dataclass(frozen=True, slots=True)
class SimdContext:
    """Variables of ``simd.py.jinja``.

    Attributes:
        isa, lanes: instruction set (for the reader) and elements in a vector.
        element, bits, bytes, llvm_element: an element's NumPy name, sizes and llvmlite type.
        exp2, tanh, tanh_limit, tanh_one, two_log2e: approximations.
        mantissa_bits, least_exponent, greatest_exponent: the floating-point format.
    """

    isa: str
    lanes: int
    element: str
    bits: int
    bytes: int
    llvm_element: str
    exp2: tuple[float, ...]
    tanh: tuple[float, ...]
    tanh_limit: float
    tanh_one: float
    two_log2e: float
    mantissa_bits: int
    least_exponent: float
    greatest_exponent: int


@dataclass(frozen=True, slots=True)
class ScalarContext:
    """Variables of ``scalar.py.jinja``; see :class:`SimdContext`."""

    element: str
    exp2: tuple[float, ...]
    tanh: tuple[float, ...]
    tanh_limit: float
    tanh_one: float
    two_log2e: float
    least_exponent: float
    greatest_exponent: int


def simd_file(dtype: DType, lanes: int, isa: str) -> SourceFile:
    """``simd.py`` for vectors of `lanes` elements of `dtype`'s accumulator; scalars for 1."""
    wide = dtype.accumulator == "float64"
    fit = polynomials(dtype)
    least, greatest = (-1022.0, 1023) if wide else (-126.0, 127)
    two_log2e = 2.0 * math.log2(math.e)
    if lanes == 1:
        scalar = ScalarContext(
            element=dtype.accumulator,
            exp2=fit.exp2,
            tanh=fit.tanh,
            tanh_limit=fit.tanh_limit,
            tanh_one=fit.tanh_one,
            two_log2e=two_log2e,
            least_exponent=least,
            greatest_exponent=greatest,
        )
        return SourceFile("simd.py", render("numba_cpu/scalar.py.jinja", scalar))
    context = SimdContext(
        isa=isa,
        lanes=lanes,
        element=dtype.accumulator,
        bits=64 if wide else 32,
        bytes=8 if wide else 4,
        llvm_element="DoubleType" if wide else "FloatType",
        exp2=fit.exp2,
        tanh=fit.tanh,
        tanh_limit=fit.tanh_limit,
        tanh_one=fit.tanh_one,
        two_log2e=two_log2e,
        mantissa_bits=52 if wide else 23,
        least_exponent=least,
        greatest_exponent=greatest,
    )
    return SourceFile("simd.py", render("numba_cpu/simd.py.jinja", context))
