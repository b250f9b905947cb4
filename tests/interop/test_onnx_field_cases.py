"""Cases from the field through ONNX's door: alignment, short caches, masks of every kind."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from cases.cases import FIELD_CASES
from interop.conformance import LAYOUTS, compiler

from attngen.errors import CallTypeError
from attngen.interop.onnx import run_attention

pytestmark = pytest.mark.numba

CASES = {case.name: case for case in FIELD_CASES}


def softmax_of(q, k, v, attends, added=0.0):
    """Attention in float64 of (batch, heads, length, size) where `attends`."""
    scores = np.einsum("bhsd,bhtd->bhst", q.astype("f8"), k.astype("f8")) / np.sqrt(q.shape[3])
    scores = np.where(attends, scores + added, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return weights @ v.astype("f8")


@pytest.mark.parametrize("shape", ["q2kv5", "q5kv2"])
def test_alignment_is_the_operators_own(shape: str, kernel_cache: Path) -> None:
    """C04: top-left without a cache; with valid lengths the last query sees the last key."""
    compile_spec = compiler(kernel_cache)
    for alignment in ("top_left", "bottom_right"):
        case = CASES[f"C04_{shape}_{alignment}"]
        arrays = case.load()
        q, k, v = (a.swapaxes(1, 2) for a in (arrays.q, arrays.k, arrays.v))
        lengths = None if alignment == "top_left" else np.full(len(q), k.shape[2])
        for layout in LAYOUTS.values():
            y = run_attention(
                {"is_causal": 1},
                *map(layout, (q, k, v)),
                nonpad_kv_seqlen=lengths,
                compiler=compile_spec,
            ).Y
            case.check(y.swapaxes(1, 2))


def test_rows_before_the_first_valid_key_are_zero(kernel_cache: Path) -> None:
    """C06: the offset of a batch index may be negative."""
    rng = np.random.default_rng(6)
    q = rng.standard_normal((3, 2, 4, 8), dtype="f4")
    k, v = (rng.standard_normal((3, 2, 6, 8), dtype="f4") for _ in range(2))
    lengths = np.array([2, 4, 6])
    place = np.arange(4)[:, None] + (lengths - 4)[:, None, None, None]
    valid = np.arange(6) < lengths[:, None, None, None]
    for layout in LAYOUTS.values():
        y = run_attention(
            {"is_causal": 1},
            *map(layout, (q, k, v)),
            nonpad_kv_seqlen=lengths,
            compiler=compiler(kernel_cache),
        ).Y
        np.testing.assert_allclose(
            y, softmax_of(q, k, v, (np.arange(6) <= place) & valid), rtol=1e-5, atol=1e-6
        )
        assert not y[0, :, :2].any()
        np.testing.assert_allclose(y[0, :, 2], v[0, :, 0], rtol=1e-6)


@pytest.mark.parametrize("causal", [0, 1])
def test_masks_and_causal_compose(causal: int, kernel_cache: Path) -> None:
    """C35: a mask beside is_causal takes more pairs away; floats are added to those that are left.

    C36: true attends; numbers are added, be they 0 and 1; whole numbers are refused.
    """
    rng = np.random.default_rng(35)
    q, k, v = (rng.standard_normal((2, 2, 8, 8), dtype="f4") for _ in range(3))
    lower = np.tril(np.ones((8, 8), bool)) if causal else np.ones((8, 8), bool)
    no_key_2 = np.arange(8) != 2
    only_later = np.ones((8, 8), bool)
    only_later[3, :4] = False
    masks = (no_key_2, only_later, rng.random((2, 1, 1, 8)) < 0.5)
    for mask, layout in itertools.product(masks, LAYOUTS.values()):

        def attention(given):
            arrays = map(layout, (q, k, v))  # noqa: B023 - called in this iteration
            spec = {"is_causal": causal}
            return run_attention(spec, *arrays, given, compiler=compiler(kernel_cache)).Y

        chosen = attention(layout(mask))
        np.testing.assert_allclose(chosen, softmax_of(q, k, v, lower & mask), rtol=1e-5, atol=1e-6)
        taken = np.where(mask, np.float32(0), np.float32(-np.inf))
        np.testing.assert_allclose(attention(layout(taken)), chosen, rtol=1e-5, atol=1e-6)
        zero_one = attention(layout(mask.astype("f4")))
        np.testing.assert_allclose(zero_one, softmax_of(q, k, v, lower, mask), rtol=1e-5, atol=1e-6)
        assert np.abs(zero_one - chosen).max() > 1e-3
        message = "attn_mask: expected bool (True attends) or float32 (added to the scores), as Q"
        with pytest.raises(CallTypeError, match=re.escape(message)):
            attention(mask.astype("i8"))
    if causal:
        assert not attention(only_later)[:, :, 3].any(), "a row without keys"
