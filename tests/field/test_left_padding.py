"""Chunks counted from the first token of a batch that is padded on the left, as in Llama 4."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import Kernels, kernels_once
from numba_cpu.emulation import emulate, run

from attngen.driver import run_stages
from attngen.reference import reference_attention
from attngen.spec.model import ScheduleOverride
from attngen.targets import AVX512

CORE = {"extends": "chunked_padded", "heads": 2, "kv_heads": 1, "head_dim": 4, "value_dim": 8}
# Which keys each of the last queries of 8 tokens sees, in chunks of 3, after 4 pads and after none.
SEEN = (
    [[], [], [], [], [4], [4, 5], [4, 5, 6], [7]],
    [[0], [0, 1], [0, 1, 2], [3], [3, 4], [3, 4, 5], [6], [6, 7]],
)


def one_hot(batch: int, q_len: int, kv_len: int):
    """q and k of zeros, so that all keys a query sees weigh alike, and V that tells which."""
    q = np.zeros((batch, q_len, 2, 4), np.float32)
    k = np.zeros((batch, kv_len, 1, 4), np.float32)
    v = np.broadcast_to(np.eye(kv_len, dtype=np.float32)[:, None], (batch, kv_len, 1, kv_len))
    return q, k, v.copy()


def weights(seen: list[list[int]], kv_len: int):
    rows = np.zeros((len(seen), kv_len))
    for row, keys in zip(rows, seen, strict=True):
        row[keys] = 1 / max(1, len(keys))
    return rows


def outputs(kernel: str, span: int, value_dim: int, q, k, v, pad) -> Any:
    chosen = {"lanes": 4, "tile_scalars": 1, "tile_vectors": 1, "block_q": 4, "block_kv": 2}
    overrides = tuple(
        ScheduleOverride("cpu", name, x)
        for name, x in {**chosen, "split_kv": 4, "short_rows": 64}.items()
    )
    spec = {**CORE, "value_dim": value_dim, "parameters": {"span": span}}
    stages = run_stages(spec, target=AVX512, overrides=overrides)
    module = getattr(emulate(stages.package, 4, "float32"), kernel)
    return run(module, q, k, v, inputs={"pad": np.array(pad)})[0]


@pytest.mark.parametrize("kernel", ["flash_forward", "split_kv"])
def test_prefill(kernel: str) -> None:
    out = outputs(kernel, 3, 8, *one_hot(2, 8, 8), [4, 0])
    for b, seen in enumerate(SEEN):
        for head in range(2):
            np.testing.assert_allclose(out[b, :, head], weights(seen, 8), atol=1e-6)


@pytest.mark.parametrize("kernel", ["flash_forward", "split_kv"])
def test_decoding(kernel: str) -> None:
    out = outputs(kernel, 4, 9, *one_hot(2, 1, 9), [7, 0])
    np.testing.assert_allclose(out[0, 0], weights([[7, 8]] * 2, 9), atol=1e-6)
    np.testing.assert_allclose(out[1, 0], weights([[8]] * 2, 9), atol=1e-6)


@pytest.fixture(scope="module")
def kernels(kernel_cache) -> Kernels:
    spec = {**CORE, "name": "chunks_of_seven", "parameters": {"span": 7}}
    return kernels_once(kernel_cache, spec, compiled=())


@pytest.mark.numba
@pytest.mark.parametrize(("q_len", "kv_len"), [(150, 150), (90, 150), (1, 150), (4, 33)])
def test_compiled(kernels: Kernels, q_len: int, kv_len: int) -> None:
    q, k, v, _ = kernels.arrays(3, q_len, kv_len)
    pad = np.array([0, 11, kv_len])
    for b, padding in enumerate(pad):
        k[b, :padding] = v[b, :padding] = np.nan  # never seen
    out, lse = kernels.attention(q, k, v, pad=pad, return_lse=True)
    want, want_lse = reference_attention(kernels.ir, q, k, v, inputs={"pad": pad})
    np.testing.assert_allclose(out, want, atol=2e-5)
    np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(want_lse))
    assert not out[2].any()
