"""float16 and bfloat16: read exactly, summed in float32, rounded once.

What is the same for every dtype (shapes, strides, masks, NaN) is tested beside the other dtypes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from closeness import assert_within
from compiling import KERNELS, Kernels, kernels_once

from attngen.accuracy import core_bound, element_bounds
from attngen.dtypes import DTYPES
from attngen.reference import reference_attention

pytestmark = [pytest.mark.numba, pytest.mark.slow]

HALVES = ("float16", "bfloat16")
UNIT = {name: DTYPES[name].rounding[0] for name in HALVES}
LARGEST = {"float16": 65504.0, "bfloat16": float(2.0**128 - 2.0**120)}
SMALLEST = {name: 2 * DTYPES[name].rounding[1] for name in HALVES}


@pytest.fixture(scope="module", params=HALVES)
def kernels(request: pytest.FixtureRequest, kernel_cache: Path) -> Kernels:
    spec = {"name": f"field_{request.param}", "heads": 1, "head_dim": 64, "dtype": request.param}
    return kernels_once(kernel_cache, spec)


def constant(kernels: Kernels, length: int, value: float) -> Any:
    return np.full((1, length, 1, 64), value).astype(kernels.ir.dtype.numpy)


def both(kernels: Kernels, q: Any, k: Any, v: Any) -> list[tuple[str, Any, Any]]:
    return [(kernel, *kernels.run(kernel, q, k, v)) for kernel in KERNELS]


@pytest.mark.parametrize("keys", [255, 256, 257, 512, 4096])
def test_a_sum_of_many_equal_weights_does_not_stop(kernels: Kernels, keys: int) -> None:
    q, k, v = constant(kernels, 2, 0), constant(kernels, keys, 0), constant(kernels, keys, 1)
    for kernel, out, lse in both(kernels, q, k, v):
        assert (out == 1).all(), kernel
        np.testing.assert_allclose(lse, np.log(keys), rtol=1e-6, err_msg=kernel)


def test_products_beyond_half_precision(kernels: Kernels) -> None:
    """q · k = 64 · 300² = 5.8e6 is no float16; the second key's score is far above the first's."""
    q, k = constant(kernels, 2, 300), constant(kernels, 2, 300)
    v = constant(kernels, 2, 1)
    v[:, 1] = 3
    for kernel, out, _ in both(kernels, q, k, v):
        assert (out == 2).all(), kernel
    k[:, 0] = -300
    for kernel, out, lse in both(kernels, q, k, v):
        assert (out == 3).all(), kernel
        assert np.isfinite(lse).all(), kernel


def test_the_largest_and_the_smallest_numbers(kernels: Kernels) -> None:
    """Averages of them are numbers of the type, and come out as such."""
    name = kernels.ir.dtype.name
    keys = 12
    q, k = constant(kernels, 3, 0), constant(kernels, keys, 0)
    for value in (LARGEST[name], -LARGEST[name], SMALLEST[name], -SMALLEST[name]):
        v = constant(kernels, keys, value)
        assert v.astype(np.float64).flat[0] == value
        for kernel, out, _ in both(kernels, q, k, v):
            want = v[:, :3]
            if abs(value) == LARGEST["bfloat16"]:
                # A sum of those is past the largest float32 as well: infinite, and never NaN.
                assert np.isinf(out.astype(np.float32)).all(), kernel
            else:
                np.testing.assert_array_equal(out, want, err_msg=f"{kernel} {value}")


def test_denormals_are_read_and_written(kernels: Kernels) -> None:
    """An odd multiple of the smallest number times 1/2 is half-way, and rounds to even."""
    smallest = SMALLEST[kernels.ir.dtype.name]
    q, k, v = constant(kernels, 1, 0), constant(kernels, 2, 0), constant(kernels, 2, 0)
    multiples = np.arange(64)
    v[0, 0, 0] = (multiples * smallest).astype(v.dtype)
    want = np.rint(multiples / 2) * smallest  # rounds half-way to even
    for kernel, out, _ in both(kernels, q, k, v):
        np.testing.assert_array_equal(out[0, 0, 0].astype(np.float64), want, err_msg=kernel)


def test_rounding_happens_once(kernels: Kernels) -> None:
    """Nearly every element is the exact result, rounded; no mean is worse than a tenth."""
    ir = kernels.ir
    q, k, v, _ = kernels.arrays(2, kernels.short_rows, 700, 1)
    want, _ = reference_attention(ir, q, k, v)
    rounded = want.astype(np.float32).astype(v.dtype)
    best = np.abs(rounded.astype(np.float64) - want).mean()
    bounds = element_bounds(ir, core_bound(ir, q, k, v), want)
    for kernel, out, _ in both(kernels, q, k, v):
        assert_within(out, want, bounds, kernel)
        assert np.mean(out != rounded) < 0.02, kernel
        assert np.abs(out.astype(np.float64) - want).mean() < 1.1 * best, kernel


def test_bounds_are_as_tight_as_the_last_place(kernels: Kernels) -> None:
    """One place further away is seen, wherever the sums are known well enough."""
    ir = kernels.ir
    q, k, v, _ = kernels.arrays(1, 8, 40, 2)
    want, _ = reference_attention(ir, q, k, v)
    bounds = element_bounds(ir, core_bound(ir, q, k, v), want)
    place = 2 * UNIT[ir.dtype.name] * np.abs(want)
    moved = want + 2 * place
    large = np.abs(want) > 0.2
    assert (np.abs(moved - want) > bounds)[large].all()


def test_scores_from_infinite_keys_follow_the_reference(kernels: Kernels) -> None:
    q, k, v, _ = kernels.arrays(1, 4, 9, 3)
    q[...] = 1
    k[0, 3] = -np.inf  # a score of -inf: no weight
    want, _ = reference_attention(kernels.ir, q, k, v)
    assert np.isfinite(want).all()
    bounds = element_bounds(kernels.ir, 1e-5, want)
    for kernel, out, _ in both(kernels, q, k, v):
        assert_within(out, want, bounds, kernel)


def test_nan_of_any_payload_stays_nan(kernels: Kernels) -> None:
    q, k, v, _ = kernels.arrays(1, 4, 9, 4)
    exponent = 0x7C00 if kernels.ir.dtype.name == "float16" else 0x7F80
    v.view(np.uint16)[0, 3, 0, :2] = exponent | 1, exponent | 0x8001
    for kernel, out, _ in both(kernels, q, k, v):
        assert np.isnan(out[..., :2].astype(np.float32)).all(), kernel
        assert np.isfinite(out[..., 2:].astype(np.float32)).all(), kernel
