"""Hold a result to a bound for each of its elements, as the outputs of halves have them."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_within(result: Any, want: Any, bounds: Any, what: str = "") -> None:
    """Check ``|result - want| <= bounds``, element by element; NaN and infinities must agree."""
    result, want = result.astype(np.float64), np.asarray(want, np.float64)
    assert result.shape == want.shape, what
    same = (result == want) | (np.isnan(result) & np.isnan(want))
    with np.errstate(invalid="ignore"):  # infinity less infinity
        errors = np.where(same, 0.0, np.abs(result - want))
    bad = ~(errors <= bounds)
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        bound = np.broadcast_to(bounds, want.shape)[at]
        raise AssertionError(
            f"{what}: {bad.sum()} of {bad.size} elements are wrong; {result[at]!r} at {at} is not "
            f"within {bound:.3g} of {want[at]!r}"
        )
