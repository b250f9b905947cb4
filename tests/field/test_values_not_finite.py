"""NaN and infinities in V reach all rows that attend to them, however small the weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba_cpu.emulation import emulate, run

from attngen.driver import run_stages
from attngen.reference import reference_attention
from attngen.spec.model import ScheduleOverride
from attngen.targets import AVX512

KERNELS = ("flash_forward", "split_kv")
MASKS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": {"left": 6}},
    "bottom rows": {"mask": "k < 3 or q > 9"},
    "every other": {"mask": "(q + k) % 2 == 0"},
    "with a score": {"causal": True, "bias": "alibi"},
}
WEIGHTS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "sink": {"sink": True},
    "relu": {"activation": "relu"},
    "sigmoid": {"activation": "sigmoid"},
}
TILES = {"lanes": 4, "tile_scalars": 2, "tile_vectors": 1, "block_q": 8, "split_kv": 8}
KEY = 5


def computed(kernel: str, block_kv: int, value: float, spec: dict[str, Any], key: int = KEY):
    """(out, what is right, the same without it) where one value is `value`, and its weight tiny."""
    chosen = {**TILES, "block_kv": block_kv, "short_rows": 1024}
    overrides = tuple(ScheduleOverride("cpu", name, x) for name, x in chosen.items())
    whole = {"heads": 2, "kv_heads": 1, "head_dim": 4, "value_dim": 3, "scale": 1.0, **spec}
    stages = run_stages(whole, target=AVX512, overrides=overrides)
    rng = np.random.default_rng(0)
    q = np.ones((1, 16, 2, 4), np.float32)
    k, v = (rng.standard_normal((1, 16, 1, n)).astype(np.float32) for n in (4, 3))
    k[0, key] = -300  # the weight underflows: exp(-1200), relu and sigmoid too
    v[0, key, 0, 1] = value
    ir = stages.simplified
    sink = np.zeros(2, np.float32) if ir.sink else None
    modules = emulate(stages.package, 4, "float32")
    inputs: dict[str, Any] = {"inputs": {}} if ir.inputs else {}
    out, _ = run(getattr(modules, kernel), q, k, v, sink, **inputs)
    want, _ = reference_attention(ir, q, k, v, sink)
    clean = v.copy()
    clean[0, key] = 0
    finite, _ = reference_attention(ir, q, k, clean, sink)
    return out, want, finite


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("block_kv", [2, 8, 16])
@pytest.mark.parametrize("kernel", KERNELS)
def test_whatever_the_weight(
    kernel: str, block_kv: int, value: float, mask: str, weights: str
) -> None:
    spec = {**MASKS[mask], **WEIGHTS[weights]}
    out, want, finite = computed(kernel, block_kv, value, spec)
    np.testing.assert_array_equal(np.isfinite(out), np.isfinite(want))
    hidden = np.isfinite(want)
    assert hidden[..., [0, 2]].all()
    assert hidden[..., 1].any() == (mask != "no mask")
    assert not hidden[..., 1].all()
    np.testing.assert_allclose(out[hidden], finite[hidden], atol=1e-5)


@pytest.mark.parametrize("key", [0, 7, 8, 15])
@pytest.mark.parametrize("kernel", KERNELS)
def test_wherever_the_key_is(kernel: str, key: int) -> None:
    spec = {"mask": "(q + k) % 3 != 0", "causal": True}
    out, want, finite = computed(kernel, 8, np.nan, spec, key)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    seen = np.isfinite(want)
    np.testing.assert_allclose(out[seen], finite[seen], atol=1e-5)
