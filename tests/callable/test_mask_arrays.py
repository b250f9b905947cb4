"""Mask arrays: boolean ones select, float ones are added, in every shape that broadcasts."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiling import kernels_once

from attngen.attention import Attention
from attngen.errors import CallTypeError, CallValueError

SPEC = {"name": "mask_arrays", "heads": 4, "kv_heads": 2, "head_dim": 16, "causal": True}
BATCH, HEADS, KEYS, WIDTH = 2, 4, 60, 16

pytestmark = pytest.mark.numba


@pytest.fixture(scope="module")
def attention(kernel_cache) -> Attention:
    return kernels_once(kernel_cache, SPEC, compiled=("flash_forward",)).attention


def arrays(q_len: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((BATCH, q_len, HEADS, WIDTH), dtype="f4")
    k, v = (rng.standard_normal((BATCH, KEYS, 2, WIDTH), dtype="f4") for _ in range(2))
    return q, k, v, rng


def expected(q, k, v, mask):
    k, v = (np.repeat(a, 2, axis=2).astype("f8") for a in (k, v))
    scores = np.einsum("bshd,bthd->bhst", q.astype("f8"), k) / np.sqrt(WIDTH)
    q_len = q.shape[1]
    causal = np.arange(KEYS) <= np.arange(q_len)[:, None] + KEYS - q_len
    scores = np.where(causal, scores, -np.inf)
    scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.einsum("bhst,bthd->bshd", weights, v)


SHAPES = ["k", "1 k", "q k", "h q k", "b 1 1 k", "b 1 q k", "1 h q k", "b h q k", "b h q 1", "1"]


@pytest.mark.parametrize("q_len", [50, 2])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [bool, np.float32])
def test_every_shape_that_broadcasts(attention, kind, shape, q_len) -> None:
    q, k, v, rng = arrays(q_len)
    sizes = {"b": BATCH, "h": HEADS, "q": q_len, "k": KEYS, "1": 1}
    mask = rng.standard_normal([sizes[axis] for axis in shape.split()]).astype("f4")
    mask = mask > -0.5 if kind is bool else mask
    out = attention(q, k, v, mask=mask)
    np.testing.assert_allclose(out, expected(q, k, v, mask), atol=5e-6)


@pytest.mark.parametrize("kind", [bool, np.float32])
def test_broadcast_reversed_and_read_only_masks(attention, kind) -> None:
    q, k, v, rng = arrays(50)
    mask = rng.standard_normal((50, KEYS)).astype("f4")
    mask = mask > 0 if kind is bool else mask
    want = attention(q, k, v, mask=mask)
    spread = np.broadcast_to(mask, (BATCH, HEADS, 50, KEYS))
    turned = np.ascontiguousarray(mask[::-1, ::-1])[::-1, ::-1]
    for same in (spread, turned, np.asfortranarray(mask)):
        np.testing.assert_array_equal(attention(q, k, v, mask=same), want)


@pytest.mark.parametrize("rows", [[0], [25], [49], [3, 4, 5], list(range(50))])
def test_rows_that_may_see_nothing_are_zero(attention, rows) -> None:
    q, k, v, _ = arrays(50)
    mask = np.ones((50, KEYS), bool)
    mask[rows] = False
    added = np.where(mask, np.float32(0), np.float32(-np.inf))
    for array in (mask, added):
        out, lse = attention(q, k, v, mask=array, return_lse=True)
        assert not out[:, rows].any()
        assert np.isneginf(lse[:, :, rows]).all()
        np.testing.assert_allclose(out, expected(q, k, v, mask), atol=5e-6)


def test_a_float_mask_of_0_and_1_is_added(attention) -> None:
    q, k, v, rng = arrays(50)
    mask = rng.random((50, KEYS)) < 0.5
    added = mask.astype("f4")
    np.testing.assert_allclose(attention(q, k, v, mask=added), expected(q, k, v, added), atol=5e-6)


def test_nan_behind_a_boolean_mask_is_not_seen(attention) -> None:
    q, k, v, _ = arrays(50)
    mask = np.ones(KEYS, bool)
    mask[[5, 30]] = False
    clean = attention(q, k, v, mask=mask)
    k[:, [5, 30]] = v[:, [5, 30]] = np.nan
    np.testing.assert_allclose(attention(q, k, v, mask=mask), clean, atol=5e-6)


MISTAKES = {
    "integers": (
        np.ones((50, KEYS), np.int64),
        CallTypeError,
        "mask: expected bool (True attends) or float32 (added to the scores), got int64; say "
        "which is meant: mask.astype(bool)",
    ),
    "another float": (
        np.ones((50, KEYS)),
        CallTypeError,
        "mask: expected dtype float32, got float64",
    ),
    "no broadcast": (
        np.ones((3, 50, KEYS), bool),
        CallValueError,
        "mask: expected a shape that broadcasts to (batch, heads, q_len, kv_len) = "
        "(2, 4, 50, 60), got (3, 50, 60)",
    ),
    "a list": ([True], CallTypeError, "mask: expected a NumPy array, got a list"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(attention, name) -> None:
    mask, error, message = MISTAKES[name]
    q, k, v, _ = arrays(50)
    with pytest.raises(error, match=re.escape(message)):
        attention(q, k, v, mask=mask)
