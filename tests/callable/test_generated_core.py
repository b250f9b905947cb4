"""The callable over real kernels: layouts, threads, fork, pickle, damaged machine code."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import attngen
from attngen import loader
from attngen.backends.numba_cpu import threads
from attngen.cache import Cache

pytestmark = [pytest.mark.numba, pytest.mark.slow]

RNG = np.random.default_rng(5)
Q, K, V = (
    RNG.standard_normal((2, 37, h, d), dtype="float32") for h, d in ((4, 16), (2, 16), (2, 24))
)


@pytest.fixture(scope="module")
def attention(tmp_path_factory: pytest.TempPathFactory):
    spec = {
        "name": "callable_test",
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "value_dim": 24,
        "causal": True,
        "sink": True,
    }
    return attngen.compile(spec, cache=Cache(tmp_path_factory.mktemp("cache")))


SINK = np.array([0, 1, -2, -np.inf], "float32")


def expected(q, k, v):
    q, k, v = (a.astype("float64") for a in (q, k, v))
    k, v = np.repeat(k, 2, 2), np.repeat(v, 2, 2)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / 4
    q_len, kv_len = s.shape[-2:]
    s = np.where(np.tri(q_len, kv_len, kv_len - q_len, dtype=bool), s, -np.inf)
    total = np.exp(s).sum(-1, keepdims=True)
    below = total + np.exp(SINK.astype("float64"))[:, None, None]
    p = np.exp(s) / np.where(below == 0, 1, below)
    with np.errstate(divide="ignore"):
        return np.einsum("bhqk,bkhd->bqhd", p, v), np.log(total)[..., 0]


def strided(a: np.ndarray) -> np.ndarray:
    wide = np.full((*a.shape[:-1], a.shape[-1] * 3), np.nan, a.dtype)
    wide[..., ::3] = a
    return wide[..., ::3]


def read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "plain": lambda a: a,
    "fortran": np.asfortranarray,
    "read-only": read_only,
    "strided": strided,
    "all reversed": lambda a: a[::-1, ::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1, ::-1],
    "heads first": lambda a: a.swapaxes(1, 2).copy().swapaxes(1, 2),
}


@pytest.mark.parametrize("q_len", [37, 1], ids=["prefill", "decode"])
@pytest.mark.parametrize("view", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_any_layout(attention, view: Callable[[np.ndarray], np.ndarray], q_len: int) -> None:
    q = Q[:, :q_len]
    out = np.full((2, q_len, 4, 48), np.nan, "float32")[..., ::2]
    sink = SINK[::-1].copy()[::-1]
    _, lse = attention(view(q), view(K), view(V), sink=sink, out=out, return_lse=True)
    want, want_lse = expected(q, K, V)
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-4, atol=1e-5)


def test_one_key_for_all_by_stride_zero(attention) -> None:
    k, v = (np.broadcast_to(a[:, :1], a.shape) for a in (K, V))
    np.testing.assert_allclose(
        attention(Q, k, v, sink=SINK), expected(Q, k, v)[0], rtol=1e-4, atol=1e-5
    )


def test_more_queries_than_keys_leaves_rows_empty(attention) -> None:
    out, lse = attention(Q, K[:, :5], V[:, :5], sink=SINK, return_lse=True)
    assert not out[:, :32].any()
    assert np.isneginf(lse[..., :32]).all()
    np.testing.assert_allclose(out, expected(Q, K[:, :5], V[:, :5])[0], rtol=1e-4, atol=1e-5)


def test_threads_agree_to_the_bit(attention) -> None:
    want = attention(Q, K, V, sink=SINK)
    with ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(lambda _: attention(Q, K, V, sink=SINK), range(64)))
    assert all(np.array_equal(out, want) for out in outs)


def test_one_thread_agrees_to_the_bit(attention) -> None:
    for q in (Q, Q[:, :1].copy()):
        out = np.empty((*q.shape[:-1], 24), "float32")
        attention._package.attend(q, K, V, out, None, SINK, workers=1)
        assert np.array_equal(out, attention(q, K, V, sink=SINK))


def test_a_forked_child(attention) -> None:
    want = attention(Q, K, V, sink=SINK)
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(attention(Q, K, V, sink=SINK), want) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not threads.must_be_serial()


def test_a_spawned_worker_elsewhere(
    attention, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(tmp_path / "cache"))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        out = pool.apply(attention, (Q, K, V), {"sink": SINK})
    assert np.array_equal(out, attention(Q, K, V, sink=SINK))


def test_damaged_machine_code_is_compiled_again(attention) -> None:
    want = attention(Q, K, V, sink=SINK)
    folder = attention.source_path
    kernels = sorted((folder / "__pycache__").glob("*.kernel"))
    assert kernels
    damaged = {}
    for path in kernels:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
        damaged[path] = bytes(content)
    # As a new process would, under the name that the machine code belongs to.
    name = attention._package.__name__
    for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
        del sys.modules[module]
    again = loader._import(name, folder, loader._package_digest(folder))
    out = np.empty((*Q.shape[:-1], 24), "float32")
    again.attend(Q, K, V, out, None, SINK)
    assert np.array_equal(out, want)
    healed = [p for p in kernels if p.exists() and p.read_bytes() != damaged[p]]
    assert healed, "no damaged file was noticed"
