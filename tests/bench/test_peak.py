"""The measuring loops compile for every width and give rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attngen.backends.numba_cpu.peak import _fma_kernel, measure_bandwidth, measure_fma
from attngen.backends.numba_cpu.probe import probe
from attngen.dtypes import FLOAT32, FLOAT64, DType
from attngen.targets import GENERIC

pytestmark = pytest.mark.numba


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_rates_are_positive(dtype: DType) -> None:
    for target in (probe(), GENERIC):
        assert 0 < measure_fma(target, dtype=dtype) < float("inf")


def test_threads_and_memory() -> None:
    target = replace(probe(), l3_bytes=0)
    assert 0 < measure_fma(target, threads=2) < float("inf")
    assert 0 < measure_bandwidth(target, threads=2) < float("inf")


def test_the_loop_does_its_multiply_adds() -> None:
    # every chain tends to x / (1 - x) = 1 for x = 1/2, and their sum is what comes back
    kernel = _fma_kernel(4, True, "float64")
    assert kernel(100, 0.5) == pytest.approx(12.0)
    assert np.isfinite(kernel(0, 0.5))
