"""The compiled PTX of every feature against the float64 reference, in emulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu.emulation import Call, Emulated, emulated, random_call, reference, run
from gpu.fake_driver import FakeDriver

from attngen.accuracy import core_bound, element_bounds
from attngen.targets import SM_80, SM_90A

pytestmark = pytest.mark.numba

CORE: dict[str, Any] = {"heads": 4, "kv_heads": 2, "head_dim": 40, "value_dim": 24}
DOCUMENTS: dict[str, Any] = {
    **CORE,
    "causal": "top_left",
    "mask": "doc[b, q] == doc[b, k] or k < first",
    "parameters": {"first": 4},
    "inputs": {"doc": {"shape": ["batch", "kv_len"], "dtype": "int"}},
}
EVERYTHING: dict[str, Any] = {
    **CORE,
    "sink": True,
    "softcap": 20,
    "score": "score + weight * bias[h, k] * (k - q) if allow[b, k] else -abs(score)",
    "mask": "q - k < 30 and allow[b, k] or k % 7 == 0",
    "parameters": {"weight": 0.01},
    "inputs": {
        "bias": {"shape": ["heads", "kv_len"]},
        "allow": {"shape": ["batch", "kv_len"], "dtype": "bool"},
    },
}
FUNCTIONS = (
    "tanh(score) + exp(-abs(q - k)) + sigmoid(score) + sqrt(abs(score)) + floor(score)"
    " + log(1 + abs(q - k)) + int(score) + min(score, 1) + exp2(-abs(score)) + (q - k) / kv_len"
)

FEATURES: dict[str, dict[str, Any]] = {
    "full": CORE,
    "causal": {**CORE, "causal": True},
    "top_left": {**CORE, "causal": "top_left"},
    "window": {**CORE, "window": {"left": 20, "right": 3}},
    "chunk": {**CORE, "chunk": 32, "causal": True},
    "dilation": {**CORE, "dilation": 4, "window": {"left": 64}, "global_tokens": 2},
    "prefix": {**CORE, "prefix": 32, "causal": True},
    "softcap": {**CORE, "softcap": 15},
    "alibi": {**CORE, "bias": "alibi", "causal": True},
    "sink": {**CORE, "sink": True, "causal": True},
    "documents": DOCUMENTS,
    "everything": EVERYTHING,
    "everything in float64": {**EVERYTHING, "dtype": "float64"},
    "float64": {**CORE, "dtype": "float64", "causal": True},
    "functions": {**CORE, "score": FUNCTIONS},
    "off by one": {**CORE, "activation": "softmax_off_by_one", "causal": True},
    "sigmoid": {**CORE, "activation": "sigmoid", "activation_bias": -2, "causal": True},
    "relu": {**CORE, "activation": "relu"},
    "bfloat16": {**EVERYTHING, "dtype": "bfloat16"},
    "float16": {**CORE, "dtype": "float16", "causal": True},
    "mqa": {"heads": 6, "kv_heads": 1, "head_dim": 16, "causal": True},
    "odd sizes": {"heads": 2, "head_dim": 33, "value_dim": 7},
}


def check(kernel: Emulated, call: Call, **more: Any) -> None:
    out, lse = run(kernel, call, **more)
    expected, expected_lse = reference(kernel, call)
    assert_close(kernel, call, out, lse, expected, expected_lse)


def assert_close(
    kernel: Emulated, call: Call, out: Any, lse: Any, expected: Any, expected_lse: Any
) -> None:
    bound = core_bound(kernel.ir, call.q, call.k, call.v, call.inputs)
    off = np.abs(out.astype(np.float64) - expected)
    assert (off <= element_bounds(kernel.ir, bound, expected)).all(), off.max()
    if kernel.ir.activation is not None:
        return
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-5, atol=bound)
    dead = np.isneginf(expected_lse)
    assert np.array_equal(np.isneginf(lse), dead)
    assert not out.swapaxes(1, 2)[dead].any()


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature(feature: str) -> None:
    kernel = emulated(FEATURES[feature])
    check(kernel, random_call(kernel.ir, 2, 75, 90))


@pytest.mark.parametrize(("q_len", "kv_len"), [(1, 1), (1, 200), (90, 33), (64, 64), (65, 129)])
def test_lengths(q_len: int, kv_len: int) -> None:
    kernel = emulated(FEATURES["causal"])
    check(kernel, random_call(kernel.ir, 1, q_len, kv_len))


@pytest.mark.parametrize("feature", ["causal", "documents"])
def test_no_keys_give_zeros(feature: str) -> None:
    kernel = emulated(FEATURES[feature])
    call = random_call(kernel.ir, 1, 5, 0)
    out, lse = run(kernel, call)
    assert not out.any()
    assert np.isneginf(lse).all()


def test_several_panels_of_value_columns() -> None:
    kernel = emulated({"heads": 1, "head_dim": 24, "value_dim": 40}, value_panel=16)
    check(kernel, random_call(kernel.ir, 1, 20, 40))


def test_wide_heads() -> None:
    kernel = emulated({"heads": 1, "head_dim": 257, "value_dim": 300})
    check(kernel, random_call(kernel.ir, 1, 20, 40))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_dense_masks(kind: Any) -> None:
    kernel = emulated(FEATURES["causal"], mask_array=kind)
    call = random_call(kernel.ir, 2, 33, 70)
    check(kernel, call)


def test_another_schedule_and_target() -> None:
    blocks = {"block_q": 16, "block_kv": 32, "depth": 16, "warps": 2}
    kernel = emulated(EVERYTHING, SM_90A, **blocks)
    check(kernel, random_call(kernel.ir, 1, 40, 70))


def test_key_lengths_leave_the_rest_unread() -> None:
    kernel = emulated(EVERYTHING)
    call = random_call(kernel.ir, 3, 20, 90)
    lengths = np.array([90, 0, 33], np.int32)
    for b, length in enumerate(lengths):
        call.k[b, length:] = np.nan
        call.v[b, length:] = np.nan
    driver = FakeDriver()
    out, lse = run(kernel, call, driver, lengths=driver.put(lengths))
    for b, length in enumerate(lengths):
        inputs = {
            "bias": call.inputs["bias"][:, :length],
            "allow": call.inputs["allow"][b : b + 1, :length],
        }
        alone = Call(
            call.q[b : b + 1],
            call.k[b : b + 1, :length],
            call.v[b : b + 1, :length],
            call.sink,
            inputs,
        )
        expected, expected_lse = reference(kernel, alone)
        assert_close(kernel, alone, out[b : b + 1], lse[b : b + 1], expected, expected_lse)


@pytest.mark.parametrize("longest", [None, 40])
def test_packed_sequences(longest: int | None) -> None:
    kernel = emulated(FEATURES["window"])
    q_ends = np.array([0, 40, 40, 57, 60], np.int32)
    k_ends = np.array([0, 10, 30, 95, 95], np.int32)
    call = random_call(kernel.ir, 1, 60, 95)
    driver = FakeDriver()
    ends = (driver.put(q_ends), driver.put(k_ends))
    out, lse = run(kernel, call, driver, cu_seqlens=ends, longest=longest)
    for i in range(len(q_ends) - 1):
        queries = slice(q_ends[i], q_ends[i + 1])
        keys = slice(k_ends[i], k_ends[i + 1])
        if queries.start == queries.stop:
            continue
        alone = Call(call.q[:, queries], call.k[:, keys], call.v[:, keys])
        expected, expected_lse = reference(kernel, alone)
        assert_close(kernel, alone, out[:, queries], lse[:, :, queries], expected, expected_lse)


def test_any_strides() -> None:
    kernel = emulated(FEATURES["causal"])
    call = random_call(kernel.ir, 2, 20, 30)
    heads_first = [x.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3) for x in (call.q, call.k)]
    reversed_v = call.v[:, ::-1, :, ::-1].copy()[:, ::-1, :, ::-1]
    check(kernel, Call(*heads_first, reversed_v))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_a_masked_key_holds_reaches_no_other_row(value: float) -> None:
    kernel = emulated(FEATURES["causal"])
    call = random_call(kernel.ir, 1, 40, 40)
    clean, _ = run(kernel, call)
    call.v[0, 20] = value
    call.k[0, 30] = np.nan
    out, _ = run(kernel, call)
    assert np.array_equal(out[:, :20], clean[:, :20])
    assert not np.isfinite(out[:, 20:30]).any()
    assert np.isnan(out[:, 30:]).all()


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    kernel = emulated(FEATURES["causal"])
    call = random_call(kernel.ir, 1, 75, 90)
    out, lse = run(kernel, call)
    last = Call(call.q[:, -7:], call.k, call.v)
    alone, alone_lse = run(kernel, last)
    assert np.array_equal(alone, out[:, -7:])
    assert np.array_equal(alone_lse, lse[:, :, -7:])


def test_shared_memory_has_no_bank_conflicts_in_loops() -> None:
    kernel = emulated({"heads": 1, "head_dim": 64}, SM_80)
    driver = FakeDriver()
    run(kernel, random_call(kernel.ir, 1, 64, 64), driver)
    (report,) = driver.reports
    assert not report.conflicts(in_loops_only=True), report.conflict_lines()


def test_what_a_key_holds_reaches_all_who_attend_to_it_however_small_its_weight() -> None:
    kernel = emulated(FEATURES["causal"])
    call = random_call(kernel.ir, 1, 40, 40)
    call.q[:] = 1
    call.k[0, 20] = -100  # its weight rounds to 0
    clean, _ = run(kernel, call)
    assert np.isfinite(clean).all()
    call.v[0, 20] = np.inf
    out, _ = run(kernel, call)
    assert np.array_equal(out[:, :20], clean[:, :20])
    assert np.isnan(out[:, 20:]).all()
