"""Cases from the field: inputs that other attention libraries got wrong, with exact results.

Each ``data/NAME.npz`` holds q, k, v as (batch, heads, length, width), those of bfloat16 as their
bits under names that end in ``__bf16``, and ``expected`` and ``lse`` in float64;
``data/manifest.json`` holds the spec, the tolerances and what to look at. Here they
come in the layout of the calls: (batch, length, heads, width). Use::

    @pytest.mark.parametrize("case", FIELD_CASES, ids=str)
    def test_...(case):
        arrays = case.load()
        attention = attngen.compile(case.spec)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Arrays:
    """Inputs in the case's dtype; expected and lse (batch, heads, q_len) in float64."""

    q: npt.NDArray[Any]
    k: npt.NDArray[Any]
    v: npt.NDArray[Any]
    expected: npt.NDArray[np.float64]
    lse: npt.NDArray[np.float64]


@dataclass(frozen=True)
class FieldCase:
    """One case; `spec` is a mapping that the reader takes, with its name."""

    name: str
    spec: dict[str, Any]
    atol: float
    rtol: float
    note: str

    def __str__(self) -> str:
        return self.name

    def load(self) -> Arrays:
        """The case's arrays, freshly read."""
        with np.load(DATA / f"{self.name}.npz") as file:
            named = {
                name.removesuffix("__bf16"): (
                    file[name].view(ml_dtypes.bfloat16) if name.endswith("__bf16") else file[name]
                )
                for name in file
            }
            q, k, v, expected = (
                np.ascontiguousarray(named[name].swapaxes(1, 2))
                for name in ("q", "k", "v", "expected")
            )
            return Arrays(q, k, v, expected, file["lse"])

    def check(self, out: npt.NDArray[Any], lse: npt.NDArray[Any] | None = None) -> None:
        """Compare with what is right; rows that attend to nothing must be exactly 0 and -inf."""
        arrays = self.load()
        np.testing.assert_allclose(
            out.astype(np.float64), arrays.expected, atol=self.atol, rtol=self.rtol
        )
        dead = np.isneginf(arrays.lse).swapaxes(1, 2)
        assert not np.any(out[dead])
        if lse is not None:
            np.testing.assert_allclose(lse, arrays.lse, atol=self.atol, rtol=self.rtol)


def _listed() -> tuple[FieldCase, ...]:
    entries = json.loads((DATA / "manifest.json").read_text())
    return tuple(
        FieldCase(**entry | {"spec": {"name": entry["name"]} | entry["spec"]}) for entry in entries
    )


FIELD_CASES = _listed()
