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
        return np.dtype(self.name)


FLOAT32 = DType("float32", 4, "float32")
FLOAT64 = DType("float64", 8, "float64")

DTYPES: dict[str, DType] = {d.name: d for d in (FLOAT32, FLOAT64)}
