"""The storage types of inputs and outputs, and the type their sums are kept in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """A storage type: its NumPy name, bytes an element, and the name of the accumulator type."""

    name: str
    itemsize: int
    accumulator: str

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype of arrays in this type."""
        if self.name == "bfloat16":
            import ml_dtypes  # it gives NumPy this dtype, and takes a while to load

            bfloat16: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(self.name)

    @property
    def is_half(self) -> bool:
        """Whether elements are converted where they are read and rounded where they are written."""
        return self.name != self.accumulator

    @property
    def rounding(self) -> tuple[float, float]:
        """How far rounding a sum to this type moves it: by a share of it, and near 0 by so much."""
        return _ROUNDING.get(self.name, (0.0, 0.0))


FLOAT32 = DType("float32", 4, "float32")
FLOAT64 = DType("float64", 8, "float64")
FLOAT16 = DType("float16", 2, "float32")
BFLOAT16 = DType("bfloat16", 2, "float32")

DTYPES: dict[str, DType] = {d.name: d for d in (FLOAT32, FLOAT64, FLOAT16, BFLOAT16)}

# Half of the last place: relative in the normal numbers, absolute below them.
_ROUNDING = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 2.0**-134)}
