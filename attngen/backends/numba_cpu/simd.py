"""The context of the vector-intrinsics templates, from an accumulator type and a vector width."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attngen.backends.numba_cpu.approximations import polynomials
from attngen.dtypes import DType
from attngen.ir.kernel import SourceFile
from attngen.render import render

# ln 2 in two parts, the first short enough for n times it to be exact (Cody & Waite, 1980).
_LN2_HIGH_WIDE, _LN2_LOW_WIDE = 0.6931471803691238, 1.9082149292705877e-10


@dataclass(frozen=True, slots=True)
class SimdContext:
    """Variables of ``simd.py.jinja``.

    Attributes:
        isa, lanes: instruction set (for the reader) and elements in a vector.
        element, bits, bytes, llvm_element: an element's NumPy name, sizes and llvmlite type.
        exp2, tanh, tanh_limit, tanh_one: approximations.
        log2e, two_log2e, minus_ln2_high, minus_ln2_low: constants; -ln 2 is the sum of the last.
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
    log2e: float
    two_log2e: float
    minus_ln2_high: float
    minus_ln2_low: float
    mantissa_bits: int
    least_exponent: float
    greatest_exponent: float


@dataclass(frozen=True, slots=True)
class ScalarContext:
    """Variables of ``scalar.py.jinja``; see :class:`SimdContext`."""

    element: str
    exp2: tuple[float, ...]
    least_exponent: float


def simd_file(dtype: DType, lanes: int, isa: str) -> SourceFile:
    """``simd.py`` for vectors of `lanes` elements of `dtype`'s accumulator; scalars for 1."""
    wide = dtype.accumulator == "float64"
    fit = polynomials(dtype)
    least, greatest = (-1022.0, 1023.0) if wide else (-126.0, 127.0)
    # A high part of ln 2 with so few digits that n times it is exact for every exponent n.
    ln2_high = _LN2_HIGH_WIDE if wide else 355 / 512
    ln2_low = _LN2_LOW_WIDE if wide else math.log(2.0) - ln2_high
    if lanes == 1:
        scalar = ScalarContext(
            element=dtype.accumulator,
            exp2=fit.exp2,
            least_exponent=least,
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
        log2e=math.log2(math.e),
        two_log2e=2.0 * math.log2(math.e),
        minus_ln2_high=-ln2_high,
        minus_ln2_low=-ln2_low,
        mantissa_bits=52 if wide else 23,
        least_exponent=least,
        greatest_exponent=greatest,
    )
    return SourceFile("simd.py", render("numba_cpu/simd.py.jinja", context))
