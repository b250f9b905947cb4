"""Elements farther apart than 32 bits can count, in memory that is never touched but there."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from compiling import KERNELS, kernels_once

STEP = 1_200_000_000  # elements from one key to the next: two keys are past 2**31 elements
SPEC = {"name": "huge_strides", "heads": 2, "head_dim": 8, "causal": True}


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory):
    """A float32 array over a sparse file of 12 GB, of which pages appear where they are written."""
    path: Path = tmp_path_factory.mktemp("sparse") / "far"
    size = (2 * STEP + 4096) * 4
    with path.open("wb") as file:
        file.truncate(size)
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system has no sparse files")
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), size)
    yield np.frombuffer(memory, np.float32)
    path.unlink()


@pytest.mark.numba
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("axis", ["length", "head"])
def test_offsets_beyond_32_bits(kernel_cache, far, kernel: str, axis: str) -> None:
    kernels = kernels_once(kernel_cache, SPEC)
    q, k, v, _ = kernels.arrays(1, 3, 3)
    strides = {"length": (0, 4 * STEP, 32, 4), "head": (0, 64, 4 * STEP, 4)}[axis]
    views = []
    for number, array in enumerate((q, k, v)):
        view = np.lib.stride_tricks.as_strided(far[1024 * number :], array.shape, strides)
        view[...] = array
        views.append(view)
    out = np.lib.stride_tricks.as_strided(far[3072:], q.shape, strides)
    lse = np.empty((1, 2, 3), np.float32)
    kernels.run_into(kernel, *views, None, out, lse)
    kernels.check((q, k, v, None), np.array(out), lse)
