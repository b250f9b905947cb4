"""Polynomials for exp2 and tanh, highest power first.

Fitted with the Remez exchange algorithm in 60-digit arithmetic for least relative error; the error
beside each is that of the polynomial alone, before rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

from attngen.dtypes import DType


@dataclass(frozen=True, slots=True)
class Polynomials:
    """Coefficients for one accumulator type.

    Attributes:
        exp2: P with 2^f ≈ 1 + f·P(f) on |f| ≤ 1/2.
        tanh: P with tanh x ≈ x + x³·P(x²) on |x| ≤ `tanh_limit`.
        tanh_limit: where tanh changes from the polynomial to 1 - 2/(exp(2|x|) + 1).
        tanh_one: from here on tanh is 1 in this type.
    """

    exp2: tuple[float, ...]
    tanh: tuple[float, ...]
    tanh_limit: float
    tanh_one: float


_FLOAT32 = Polynomials(
    exp2=(  # relative error 2.6e-9
        0.00015594677893006258,
        0.0013406643871014448,
        0.009617692973559735,
        0.055503105511053535,
        0.24022652782884114,
        0.6931472149679711,
    ),
    tanh=(  # relative error 4.4e-9
        -0.005704988145496291,
        0.0206390884322012,
        -0.05373971549929623,
        0.1333144220357397,
        -0.333332819421992,
    ),
    tanh_limit=0.625,
    tanh_one=10.0,
)

_FLOAT64 = Polynomials(
    exp2=(  # relative error 1.8e-17
        4.0780816273999344e-10,
        7.072570169846752e-09,
        1.0180647562417256e-07,
        1.3215442676609273e-06,
        1.5252727385520852e-05,
        0.00015403530441569955,
        0.0013333558153439506,
        0.009618129107607004,
        0.05550410866479039,
        0.24022650695910097,
        0.6931471805599457,
    ),
    tanh=(  # relative error 1.4e-20
        -3.237203400573982e-06,
        1.374455305431132e-05,
        -3.83771560843931e-05,
        9.667264867584712e-05,
        -0.00023908546158318692,
        0.0005900221728402051,
        -0.0014558339659869844,
        0.0035921280149787763,
        -0.008863235529229275,
        0.021869488536143516,
        -0.05396825396825387,
        0.13333333333333333,
        -0.3333333333333333,
    ),
    tanh_limit=0.55,
    tanh_one=20.0,
)


def polynomials(dtype: DType) -> Polynomials:
    """The polynomials for kernels that accumulate in `dtype.accumulator`."""
    return _FLOAT64 if dtype.accumulator == "float64" else _FLOAT32
