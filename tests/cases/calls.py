"""Cases from the field whose calls bring more than q, k and v: masks, lengths, side inputs.

``data/calls.json`` is as ``data/manifest.json`` (see `cases`), with `given`: the arrays of a case's
file that the call takes, and the keywords under which it takes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from cases.cases import DATA, FieldCase


@dataclass(frozen=True)
class FieldCall(FieldCase):
    """A case with further arguments."""

    given: dict[str, str]

    def arguments(self, dtype: str = "float32") -> dict[str, Any]:
        """The call's keywords; numbers are of that dtype."""
        with np.load(DATA / f"{self.name}.npz") as file:
            found = {keyword: file[name] for name, keyword in self.given.items()}
        return {
            keyword: array.astype(dtype) if array.dtype.kind == "f" else array
            for keyword, array in found.items()
        }

    def spec_of(self, dtype: str) -> dict[str, Any]:
        """The spec for arrays of that dtype."""
        return {**self.spec, "name": f"{self.name}_{dtype}".replace(".", "_"), "dtype": dtype}


FIELD_CALLS = tuple(
    FieldCall(**entry | {"spec": {"name": entry["name"], **entry["spec"]}})
    for entry in json.loads((DATA / "calls.json").read_text())
)
