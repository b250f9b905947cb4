"""NaN, infinities and extreme numbers: what a row may not see does not reach it.

The rules are those of the reference, which follows IEEE 754 for what a row does see.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from closeness import assert_within
from compiling import KERNELS, Kernels, kernels_once

from attngen.accuracy import element_bounds
from attngen.ir.evaluate import evaluate
from attngen.reference import reference_attention

pytestmark = [pytest.mark.numba, pytest.mark.slow]

SPECS = {  # as in test_compiled_reference.py, so that they are compiled once
    "gqa_causal": {"heads": 6, "kv_heads": 2, "head_dim": 24, "causal": True},
    "halves": {"heads": 6, "kv_heads": 2, "head_dim": 24, "causal": True, "dtype": "float16"},
    "double": {
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 33,
        "value_dim": 7,
        "dtype": "float64",
        "window": {"left": 20, "right": 3},
        "scale": -0.3,
    },
    "everything_own": {
        "heads": 6,
        "kv_heads": 2,
        "head_dim": 17,
        "value_dim": 11,
        "causal": True,
        "window": {"left": 40, "right": 0},
        "softcap": 2.5,
        "sink": True,
    },
    "one_wide": {"heads": 5, "kv_heads": 1, "head_dim": 1, "value_dim": 3, "scale": 0.9},
}
MASKED = ("gqa_causal", "double", "everything_own")


def kernels_of(name: str, cache: Path) -> Kernels:
    return kernels_once(cache, {"name": name, **SPECS[name]})


@pytest.fixture(scope="module", params=SPECS)
def kernels(request: pytest.FixtureRequest, kernel_cache: Path) -> Kernels:
    return kernels_of(request.param, kernel_cache)


@pytest.fixture(scope="module", params=MASKED)
def masked(request: pytest.FixtureRequest, kernel_cache: Path) -> Kernels:
    return kernels_of(request.param, kernel_cache)


def lengths(kernels: Kernels, kernel: str) -> tuple[int, int]:
    return (kernels.short_rows, 290) if kernel == "split_kv" else (150, 160)


def attends(kernels: Kernels, q_len: int, kv_len: int):
    """(q_len, kv_len): which query may see which key."""
    offset = kv_len - q_len if kernels.ir.alignment == "bottom_right" else 0
    env = {"q": np.arange(q_len)[:, None] + offset, "k": np.arange(kv_len)}
    keep = evaluate(kernels.ir.mask, {**env, "q_len": q_len, "kv_len": kv_len})
    return np.broadcast_to(np.asarray(keep, np.bool_), (q_len, kv_len))


def same_kind(got, want) -> None:
    """NaN and infinities in the same places."""
    for of_kind in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(of_kind(got), of_kind(want))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["k", "v", "both"])
def test_hidden_keys_change_no_bit(masked: Kernels, kernel: str, bad: float, where: str) -> None:
    q_len, kv_len = lengths(masked, kernel)
    q, k, v, sink = masked.arrays(1, q_len, kv_len, 1)
    want, want_lse = masked.run(kernel, q, k, v, sink)
    keep = attends(masked, q_len, kv_len)
    keys = {0, kv_len - q_len + 1, kv_len - q_len // 2, kv_len - 1}
    keys = [key for key in keys if not keep[:, key].all()]
    assert keys
    for key in keys:
        hidden = ~keep[:, key]
        bad_k, bad_v = k.copy(), v.copy()
        if where != "v":
            bad_k[:, key] = bad
        if where != "k":
            bad_v[:, key, :, -1] = bad
        out, lse = masked.run(kernel, q, bad_k, bad_v, sink)
        np.testing.assert_array_equal(out[:, hidden], want[:, hidden])
        np.testing.assert_array_equal(lse[:, :, hidden], want_lse[:, :, hidden])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_what_a_row_sees_follows_the_reference(
    kernels: Kernels, kernel: str, bad: float, where: str
) -> None:
    q_len, kv_len = lengths(kernels, kernel)
    arrays = kernels.arrays(1, q_len, kv_len, 2)
    target = arrays["qkv".index(where)]
    target[:, target.shape[1] // 2, 0, 0] = bad
    out, lse = kernels.run(kernel, *arrays)
    want, want_lse = reference_attention(kernels.ir, *arrays)
    same_kind(out, want)
    same_kind(lse, want_lse)
    good = np.isfinite(want)
    assert_within(out[good], want[good], element_bounds(kernels.ir, 1e-4, want[good]))
    good = np.isfinite(want_lse)
    np.testing.assert_allclose(lse[good], want_lse[good], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_query_of_nan_harms_no_other_and_no_empty_row(
    masked: Kernels, kernel: str, bad: float
) -> None:
    q_len = lengths(masked, kernel)[0]
    q, k, v, sink = masked.arrays(1, q_len, q_len // 2 + 1, 3)
    want, want_lse = masked.run(kernel, q, k, v, sink)
    for row in (0, q_len - 1):
        bad_q = q.copy()
        bad_q[:, row] = bad
        out, lse = masked.run(kernel, bad_q, k, v, sink)
        others = np.arange(q_len) != row
        np.testing.assert_array_equal(out[:, others], want[:, others])
        np.testing.assert_array_equal(lse[..., others], want_lse[..., others])
        if not attends(masked, q_len, k.shape[1])[row].any():
            assert not out[:, row].any()
            assert np.isneginf(lse[..., row]).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [1e2, 1e4, 1e8, 1e15])
def test_huge_scores_pick_the_largest_key(kernels: Kernels, kernel: str, size: float) -> None:
    q_len, kv_len = lengths(kernels, kernel)
    q, k, v, sink = kernels.arrays(1, q_len, kv_len, 4)
    q[...] = min(size, float(np.finfo(q.dtype).max))
    k[...] = np.arange(kv_len)[:, None, None]  # scores are `size` and more apart
    out, lse = kernels.run(kernel, q, k, v, sink)
    want, want_lse = reference_attention(kernels.ir, q, k, v, sink)
    assert_within(out, want, element_bounds(kernels.ir, 1e-4, want))
    np.testing.assert_allclose(lse, want_lse, rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_extremes_of_the_format(kernels: Kernels, kernel: str) -> None:
    q_len, kv_len = lengths(kernels, kernel)
    q, k, v, sink = kernels.arrays(1, q_len, kv_len, 5)
    info = np.finfo(q.dtype)
    for tiny in (info.tiny, info.smallest_subnormal, 0.0):
        out, lse = kernels.run(kernel, q * 0 + tiny, k, v, sink)
        kernels.check((q * 0 + tiny, k, v, sink), out, lse)
    for large in (info.max / (2 * kv_len), -info.max / (2 * kv_len)):  # their sum is a number
        some = v.copy()
        some[:, ::3] = large
        out, _ = kernels.run(kernel, q, k, some, sink)
        want, _ = reference_attention(kernels.ir, q, k, some, sink)
        sums = abs(float(large)) * 1e-5 + 1e-4 * np.abs(want)
        assert_within(out, want, element_bounds(kernels.ir, sums, want))


@pytest.mark.parametrize("kernel", KERNELS)
def test_sinks_of_every_size(kernel_cache: Path, kernel: str) -> None:
    kernels = kernels_of("everything_own", kernel_cache)
    q, k, v, _ = kernels.arrays(1, *lengths(kernels, kernel), 6)
    big = float(np.finfo("float32").max)
    for values in (
        [-np.inf] * 6,
        [-big, big, 0, -1e30, 1e30, np.inf],
        [np.inf, -np.inf, 88, -88, 250, -250],
        [np.nan, 0, 0, 0, 0, np.nan],
    ):
        sink = np.array(values, "float32")
        out, lse = kernels.run(kernel, q, k, v, sink)
        want, want_lse = reference_attention(kernels.ir, q, k, v, sink)
        same_kind(out, want)
        good = np.isfinite(want)
        np.testing.assert_allclose(out[good], want[good], rtol=0, atol=2e-5)
        np.testing.assert_allclose(lse, want_lse, rtol=1e-5, atol=1e-5)
