"""Finite numbers stay finite: the lowest float as a mask, and whatever else is added to scores."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from compiling import kernels_once
from hypothesis import given, settings
from hypothesis import strategies as st
from numba_cpu.emulation import emulate, run

from attngen.dense_mask import NAME
from attngen.driver import Stages, run_stages
from attngen.ir.expr import Const
from attngen.passes.keep_finite import bounded
from attngen.reference import reference_attention
from attngen.spec.model import ScheduleOverride
from attngen.targets import AVX512

DTYPES = ("float32", "float64")
TILES = {"lanes": 4, "tile_scalars": 2, "tile_vectors": 1, "block_q": 8, "block_kv": 4}
LOWEST = {dtype: float(np.finfo(dtype).min) for dtype in DTYPES}
SIZES = (3, 5, 13)  # batch, queries, keys


def stages_of(dtype: str, mask_array: Any = None, **spec: Any) -> Stages:
    chosen = {**TILES, "split_kv": 8, "short_rows": 1024}
    overrides = tuple(ScheduleOverride("cpu", name, value) for name, value in chosen.items())
    whole = {"heads": 4, "kv_heads": 2, "head_dim": 3, "dtype": dtype, **spec}
    stages = run_stages(whole, target=AVX512, overrides=overrides)
    return dataclasses.replace(stages, mask_array=mask_array)


def arrays(dtype: str, seed: int = 0):
    batch, q_len, kv_len = SIZES
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((batch, q_len, 4, 3)).astype(dtype)
    k, v = (rng.standard_normal((batch, kv_len, 2, 3)).astype(dtype) for _ in range(2))
    return q, k, v


def both_kernels(stages: Stages, q, k, v, inputs):
    modules = emulate(stages.package, 4, stages.simplified.dtype.accumulator)
    more = {"inputs": inputs} if stages.simplified.inputs else {}
    for kernel in ("flash_forward", "split_kv"):
        yield run(getattr(modules, kernel), q, k, v, **more)


def check(stages: Stages, dtype: str, inputs: dict[str, Any]) -> None:
    q, k, v = arrays(dtype)
    want, want_lse = reference_attention(stages.ir, q, k, v, inputs=inputs)
    for out, lse in both_kernels(stages, q, k, v, inputs):
        np.testing.assert_allclose(out, want, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(want_lse))
        assert not np.isnan(lse).any()
        usual = np.abs(want_lse) < 1e30
        np.testing.assert_allclose(lse[usual], want_lse[usual], rtol=1e-5, atol=1e-5)


LEVELS = st.sampled_from(["lowest", "-inf", "0", "1", "-1e30"])


@settings(max_examples=30)
@given(st.sampled_from(DTYPES), st.lists(LEVELS, min_size=65, max_size=65), st.booleans())
def test_masks_of_the_lowest_number(dtype: str, levels: list[str], causal: bool) -> None:
    values = {"lowest": LOWEST[dtype]}
    numbers = [values[x] if x in values else float(x) for x in levels]
    mask = np.array(numbers, dtype).reshape(1, 1, 5, 13)
    mask[:, :, 0] = LOWEST[dtype]  # a whole row, and one of which two keys are left
    mask[:, :, 1] = -np.inf
    mask[:, :, 1, [3, 11]] = LOWEST[dtype]
    mask[:, :, 2] = -np.inf
    every = np.broadcast_to(mask, (3, 4, 5, 13)).copy()
    check(stages_of(dtype, "float", causal=causal), dtype, {NAME: every})


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_of_all_values_where_every_key_has_the_lowest_number(dtype: str) -> None:
    q, k, v = arrays(dtype)
    stages = stages_of(dtype, "float")
    lowest = np.full((3, 4, 5, 13), LOWEST[dtype], dtype)
    for out, lse in both_kernels(stages, q, k, v, {NAME: lowest}):
        mean = np.repeat(v.mean(axis=1), 2, axis=1)[:, None]
        np.testing.assert_allclose(out, np.broadcast_to(mean, out.shape), atol=1e-6)
        assert np.isfinite(lse).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_largest_numbers_of_either_sign(dtype: str, sign: int) -> None:
    bias = np.zeros((4, 13), dtype)
    bias[:, ::3] = sign * -LOWEST[dtype]
    bias[0] = sign * -LOWEST[dtype]
    spec = {"score": "score + bias[h, k]", "inputs": {"bias": {"shape": ["heads", "kv_len"]}}}
    check(stages_of(dtype, **spec), dtype, {"bias": bias})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "score",
    [
        "score + (0 if real[b, k] else lowest)",
        "score + lowest * (1 - int(real[b, k]))",
        "score if real[b, k] else lowest",
        "score + lowest",
        "score - lowest",
        "max(score, lowest)",
    ],
)
def test_large_constants(dtype: str, score: str) -> None:
    real = np.random.default_rng(3).random((3, 13)) < 0.5
    real[1] = False
    spec: dict[str, Any] = {"score": score, "parameters": {"lowest": LOWEST[dtype]}}
    inputs = {}
    if "real" in score:
        spec["inputs"] = {"real": {"shape": ["batch", "kv_len"], "dtype": "bool"}}
        inputs = {"real": real}
    check(stages_of(dtype, **spec), dtype, inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_what_it_is(dtype: str, special: float) -> None:
    bias = np.zeros((4, 13), dtype)
    bias[1, 4] = special
    spec = {"score": "score + bias[h, k]", "inputs": {"bias": {"shape": ["heads", "kv_len"]}}}
    stages = stages_of(dtype, **spec)
    q, k, v = arrays(dtype)
    want, _ = reference_attention(stages.ir, q, k, v, inputs={"bias": bias})
    assert np.isnan(want).any() == (special != -np.inf)
    for out, _ in both_kernels(stages, q, k, v, {"bias": bias}):
        np.testing.assert_allclose(out, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_garbage_behind_minus_infinity_is_not_seen(dtype: str) -> None:
    q, k, v = arrays(dtype)
    mask = np.zeros((3, 4, 5, 13), dtype)
    mask[..., [0, 6, 12]] = -np.inf
    stages = stages_of(dtype, "float", causal=True)
    clean = list(both_kernels(stages, q, k, v, {NAME: mask}))
    k[:, [0, 6, 12]] = v[:, [0, 6, 12]] = np.nan
    for (out, lse), (want, want_lse) in zip(
        both_kernels(stages, q, k, v, {NAME: mask}), clean, strict=True
    ):
        np.testing.assert_allclose(out, want, rtol=1e-6)
        np.testing.assert_allclose(lse, want_lse, rtol=1e-6)


def test_small_numbers_are_left_alone() -> None:
    for spec in ({"bias": "alibi"}, {"softcap": 30.0}, {"scale": 1e30}, {}):
        stages = stages_of("float32", **spec)
        score = stages.ir.score
        assert bounded(score, stages.ir.largest_term, 3.4e38, frozenset({"alibi_slopes"})) is score
    assert bounded(Const(-3e38), 1e38, 3.4e38, frozenset()) == Const(-1e38)
    assert bounded(Const(1e39), 1e38, 3.4e38, frozenset()) == Const(1e39)  # infinite as it is


@pytest.mark.numba
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("q_len", [70, 1])
def test_compiled_kernels(kernel_cache, dtype: str, q_len: int) -> None:
    spec = {"name": f"lowest_{dtype}", "heads": 2, "head_dim": 8, "dtype": dtype}
    attention = kernels_once(kernel_cache, spec, compiled=()).attention
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((n, 2, 8)).astype(dtype) for n in (q_len, 300, 300))
    mask = np.where(rng.random((q_len, 300)) < 0.1, 0, LOWEST[dtype]).astype(dtype)
    mask[0] = LOWEST[dtype]
    out, lse = attention(q, k, v, mask=mask, return_lse=True)
    assert np.isfinite(lse).all()
    np.testing.assert_allclose(out[0], v.mean(axis=0), atol=1e-5)
    dead = np.full((q_len, 300), -np.inf, dtype)
    dead[:, 5] = LOWEST[dtype]
    np.testing.assert_allclose(
        attention(q, k, v, mask=dead), np.broadcast_to(v[5], q.shape), atol=1e-6
    )
