"""The reference as a callable: what it returns, that it agrees with kernels, what it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiling import compile_once

import attngen
from attngen.cache import Cache
from attngen.driver import run_stages
from attngen.errors import CallTypeError, CallValueError, SpecError

CORE = {
    "name": "looked_into",
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "value_dim": 6,
    "causal": True,
    "softcap": 2.0,
    "dtype": "float64",
}
ALL = ["out", "lse", "logits", "probabilities"]
BATCH, Q_LEN, KV_LEN = 2, 5, 7


def arrays(seed: int = 0):
    rng = np.random.default_rng(seed)
    shapes = ((BATCH, Q_LEN, 4, 8), (BATCH, KV_LEN, 2, 8), (BATCH, KV_LEN, 2, 6))
    return tuple(rng.standard_normal(shape) for shape in shapes)


def spelt_out(q, k, v, attends, added=0.0, sink=None):
    """(out, logits, probabilities) of CORE where `attends`, in NumPy."""
    keys, values = (np.repeat(a, 2, axis=2) for a in (k, v))
    logits = np.einsum("bshd,bthd->bhst", q, keys) / np.sqrt(8)
    logits = np.where(attends, 2 * np.tanh(logits / 2) + added, -np.inf)
    weights = np.where(attends, np.exp(logits), 0.0)
    total = weights.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink)[:, None, None]
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return np.einsum("bhst,bthd->bshd", weights, values), logits, weights


def causal(q_len: int, kv_len: int):
    return np.arange(kv_len) <= np.arange(q_len)[:, None] + kv_len - q_len


def test_outputs_come_in_one_order_whatever_the_spec_lists() -> None:
    q, k, v = arrays()
    found = attngen.interpret(CORE | {"outputs": ALL[::-1]})(q, k, v)
    out, logits, probabilities = spelt_out(q, k, v, causal(Q_LEN, KV_LEN))
    lse = np.log(np.where(np.isneginf(logits), 0, np.exp(logits)).sum(-1))
    for got, want in zip(found, (out, lse, logits, probabilities), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
        assert got.dtype == np.float64


def test_one_output_is_an_array_and_return_lse_adds_one() -> None:
    q, k, v = arrays()
    attention = attngen.interpret(CORE)
    out = attention(q, k, v)
    again, lse = attention(q[0], k[0], v[0], return_lse=True)
    np.testing.assert_allclose(again, out[0], rtol=1e-14)
    assert lse.shape == (4, Q_LEN)
    both = attngen.interpret(CORE | {"outputs": ["out", "lse", "logits"]})
    assert len(both(q, k, v, return_lse=False)) == 2


def test_lengths_masks_and_sinks() -> None:
    q, k, v = arrays()
    rng = np.random.default_rng(1)
    mask = rng.standard_normal((BATCH, 1, Q_LEN, KV_LEN))
    sink = rng.standard_normal(4)
    lengths = np.array([KV_LEN, 3])
    attention = attngen.interpret(CORE | {"sink": True, "outputs": ALL})
    out, _, logits, probabilities = attention(q, k, v, sink=sink, mask=mask, lengths=lengths)
    for b, length in enumerate(lengths):
        attends = np.zeros((Q_LEN, KV_LEN), bool)
        attends[:, :length] = causal(Q_LEN, length)
        one = (a[b : b + 1] for a in (q, k, v))
        want = spelt_out(*one, attends, mask[b], sink)
        for got, expected in zip((out, logits, probabilities), want, strict=True):
            np.testing.assert_allclose(got[b], expected[0], rtol=1e-12, atol=1e-12)
    assert not out[1, : Q_LEN - 3].any(), "rows before the first key attend to nothing"
    assert (probabilities.sum(-1) < 1).all()


def test_side_inputs_and_the_index_of_the_batch() -> None:
    spec = {
        "name": "indexed",
        "heads": 1,
        "head_dim": 2,
        "score": "score + added[b, k]",
        "inputs": {"added": {"shape": ["batch", "kv_len"]}},
        "outputs": ["out", "logits"],
    }
    q, k = np.zeros((2, 1, 1, 2), "f4"), np.zeros((2, 3, 1, 2), "f4")
    added = np.arange(6, dtype="f4").reshape(2, 3)
    _, logits = attngen.interpret(spec)(q, k, k, added=added, lengths=np.array([3, 2]))
    np.testing.assert_array_equal(logits[:, 0, 0], [[0, 1, 2], [3, 4, -np.inf]])


@pytest.mark.numba
def test_it_agrees_with_the_kernels(kernel_cache) -> None:
    q, k, v = arrays()
    lengths, mask = np.array([6, 4]), np.arange(KV_LEN) != 2
    attention = compile_once(kernel_cache, CORE)
    want, want_lse = attngen.interpret(CORE)(q, k, v, mask=mask, lengths=lengths, return_lse=True)
    out, lse = attention(q, k, v, mask=mask, lengths=lengths, return_lse=True)
    np.testing.assert_allclose(out, want, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-12, atol=1e-13)


def test_a_layer() -> None:
    spec = {"name": "tiny", "d_model": 8, "heads": 2, "causal": True, "outputs": ALL}
    attention = attngen.interpret(spec)
    rng = np.random.default_rng(3)
    weights = attngen.Weights.random(attention.spec, rng)
    x, context = (rng.standard_normal((n, 8), dtype="f4") for n in (3, 5))
    out, _, logits, probabilities = attention(x, weights, context=context)
    q, k, v = (
        (a.astype("f8") @ w).reshape(-1, 2, 4)
        for a, w in ((x, weights.q), (context, weights.k), (context, weights.v))
    )
    scores = np.where(causal(3, 5), np.einsum("shd,thd->hst", q, k) / 2, -np.inf)
    np.testing.assert_allclose(logits, scores, rtol=1e-6)
    heads = np.einsum("hst,thd->shd", probabilities, v).reshape(3, 8)
    np.testing.assert_allclose(out, heads @ weights.o, rtol=1e-6)
    np.testing.assert_allclose(probabilities.sum(-1), 1)
    with pytest.raises(CallTypeError, match=r"weights: expected attngen\.Weights, got dict"):
        attention(x, {})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": np.zeros((2, 5, 4, 8), "f4")}, CallTypeError, "q: expected dtype float64"),
        ({"sink": np.zeros(4)}, CallTypeError, "unexpected argument 'sink'"),
        ({"mask": np.zeros((3, KV_LEN))}, CallValueError, "mask: expected a shape"),
        ({"lengths": np.array([8, 0])}, CallValueError, "lengths: expected 0 to 7 keys, got 8"),
        ({"return_lse": 1}, CallTypeError, "return_lse: expected True or False"),
        ({"cu_seqlens": [0, 5]}, CallTypeError, "unexpected keyword argument 'cu_seqlens'"),
    ],
)
def test_mistakes_are_named(change, error, message) -> None:
    q, k, v = arrays()
    call = {"q": q, "k": k, "v": v} | change
    with pytest.raises(error, match=re.escape(message)):
        attngen.interpret(CORE)(**call)


@pytest.mark.parametrize("listed", [["logits"], ["probabilities"], ["logits", "probabilities"]])
def test_fused_kernels_refuse_what_they_never_hold(listed, tmp_path) -> None:
    spec = CORE | {"outputs": ["out", *listed]}
    message = (
        f"'outputs' lists {' and '.join(listed)} of all pairs, which fused kernels never hold\n"
        "  hint: attngen.interpret(spec) computes them; take them out of 'outputs' to compile"
    )
    with pytest.raises(SpecError, match=re.escape(message)):
        attngen.compile(spec, cache=Cache(tmp_path))
    with pytest.raises(SpecError, match="E-OUTPUTS"):
        _ = run_stages(spec).kernel
    assert not list(tmp_path.rglob("*.py")), "nothing was published"
