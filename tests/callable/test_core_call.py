"""Calling a core: shapes, strides, outputs, and every mistake by name."""

from __future__ import annotations

import copy
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from attngen.errors import CallTypeError, CallValueError

RNG = np.random.default_rng(1)


def arrays(batch: int | None = None, q_len: int = 3, kv_len: int = 5, dtype: str = "float32"):
    lead = () if batch is None else (batch,)
    shapes = ((*lead, q_len, 4, 8), (*lead, kv_len, 2, 8), (*lead, kv_len, 2, 6))
    return tuple(RNG.standard_normal(s).astype(dtype) for s in shapes)


def expected(q, k, v):
    q, k, v = (a.astype("float64") for a in (q, k, v))
    k, v = np.repeat(k, 2, -2), np.repeat(v, 2, -2)
    s = np.einsum("...qhd,...khd->...hqk", q, k) / np.sqrt(8)
    lse = np.log(np.exp(s).sum(-1))
    return np.einsum("...hqk,...khd->...qhd", np.exp(s - lse[..., None]), v), lse


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", [None, 1, 3])
def test_output_and_lse(build, batch: int | None, dtype: str) -> None:
    attention = build(dtype=dtype)
    q, k, v = arrays(batch, dtype=dtype)
    out, lse = attention(q, k, v, return_lse=True)
    want, want_lse = expected(q, k, v)
    assert (out.dtype, out.shape, lse.dtype, lse.shape) == (
        q.dtype,
        want.shape,
        q.dtype,
        want_lse.shape,
    )
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(attention(q, k, v), out)


def test_the_spec_decides_whether_lse_is_returned(build) -> None:
    attention = build(outputs=("out", "lse"))
    assert isinstance(attention(*arrays()), tuple)
    assert isinstance(attention(*arrays(), return_lse=False), np.ndarray)
    assert isinstance(attention(*arrays(), return_lse=np.True_), tuple)


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def strided(a):
    wide = np.zeros((*a.shape[:-1], a.shape[-1] * 3), a.dtype)
    wide[..., ::3] = a
    return wide[..., ::3]


def memory_mapped(a):
    return a.view(np.memmap)


@pytest.mark.parametrize(
    "view",
    [
        np.asfortranarray,
        read_only,
        strided,
        memory_mapped,
        lambda a: a[..., ::-1].copy()[..., ::-1],
        lambda a: a.swapaxes(0, 1).copy().swapaxes(0, 1),
    ],
    ids=["fortran", "read-only", "strided", "subclass", "reversed", "heads first"],
)
def test_any_layout(build, view) -> None:
    q, k, v = arrays()
    want = build()(q, k, v)
    out = build()(view(q), view(k), view(v))
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)
    assert type(out) is np.ndarray


def test_broadcast_input(build) -> None:
    q, k, v = arrays(batch=2)
    shared = np.broadcast_to(k[:1], k.shape)
    np.testing.assert_array_equal(build()(q, shared, v), build()(q, shared.copy(), v))


@pytest.mark.parametrize(
    ("batch", "q_len", "kv_len"), [(2, 0, 5), (2, 3, 0), (0, 3, 5), (None, 0, 0)]
)
def test_empty(build, batch: int | None, q_len: int, kv_len: int) -> None:
    q, k, v = arrays(batch, q_len, kv_len)
    out, lse = build()(q, k, v, return_lse=True)
    assert out.shape == (*q.shape[:-1], 6)
    assert lse.shape == (*q.shape[:-3], 4, q_len)
    assert not out.any()
    assert np.isneginf(lse).all()


def test_out_is_written_and_returned(build) -> None:
    q, k, v = arrays(batch=2)
    out = np.full((2, 3, 4, 12), np.nan, "float32")[..., ::2]
    assert build()(q, k, v, out=out) is out
    np.testing.assert_array_equal(out, build()(q, k, v))
    empty = np.full((2, 3, 4, 6), np.nan, "float32")
    build()(q, k[:, :0], v[:, :0], out=empty)
    assert not empty.any()


def test_sink(build) -> None:
    attention = build(sink=True)
    q, k, v = arrays()
    sink = np.array([0, 1, -1, -np.inf], "float32")
    out, lse = attention(q, k, v, sink=sink, return_lse=True)
    want, want_lse = expected(q, k, v)
    share = 1 / (1 + np.exp(sink - want_lse.T))
    np.testing.assert_allclose(out, want * share[..., None], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-4, atol=1e-5)


class Foreign:
    """Stands for another library's array."""

    def __array__(self) -> np.ndarray:
        raise AssertionError("it must not be converted in silence")


def torch_like() -> object:
    return type("Tensor", (), {"__module__": "torch"})()


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, "float32")


def odd_addresses() -> np.ndarray:
    return np.zeros(3 * 4 * 8 * 4 + 1, "int8")[1:].view("float32").reshape(3, 4, 8)


Q, K, V = f32(3, 4, 8), f32(5, 2, 8), f32(5, 2, 6)

MISTAKES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "list": (
        {"q": [[[0.0]]]},
        CallTypeError,
        "q: expected a NumPy array, got a list; pass a NumPy",
    ),
    "none": ({"v": None}, CallTypeError, "v: expected a NumPy array, got None"),
    "torch": (
        {"k": torch_like()},
        CallTypeError,
        "got torch.Tensor; pass k.detach().cpu().numpy()",
    ),
    "foreign": ({"q": Foreign()}, CallTypeError, "Foreign; pass numpy.asarray(q)"),
    "masked": ({"q": np.ma.masked_array(Q)}, CallTypeError, "pass q.filled(...)"),
    "dtype": (
        {"v": V.astype("float64")},
        CallTypeError,
        "v: expected dtype float32, got float64; pass v.astype('float32'), or say 'dtype: float64'",
    ),
    "float16": ({"q": Q.astype("float16")}, CallTypeError, "got float16; pass q.astype('float32')"),
    "byte order": ({"q": Q.astype(">f4")}, CallTypeError, "got float32 in foreign byte order"),
    "odd addresses": ({"q": odd_addresses()}, CallValueError, "aligned"),
    "two dimensions": (
        {"q": f32(3, 32)},
        CallValueError,
        "q: expected (q_len, heads, head_dim) or (batch, q_len, heads, head_dim), got 2 dim",
    ),
    "five dimensions": ({"k": f32(1, 1, 5, 2, 8)}, CallValueError, "k: expected (kv_len, kv_heads"),
    "heads": ({"q": f32(3, 5, 8)}, CallValueError, "q: expected heads 4, got 5 (shape (3, 5, 8)"),
    "kv heads": ({"v": f32(5, 4, 6)}, CallValueError, "v: expected kv_heads 2, got 4"),
    "head_dim": ({"k": f32(5, 2, 9)}, CallValueError, "k: expected head_dim 8, got 9"),
    "value_dim": ({"v": f32(5, 2, 8)}, CallValueError, "v: expected value_dim 6, got 8"),
    "heads first": ({"q": f32(4, 3, 8)}, CallValueError, "pass q.swapaxes(-3, -2), which copies"),
    "batch, heads first": ({"q": f32(1, 4, 3, 8)}, CallValueError, "pass q.swapaxes(-3, -2)"),
    "heads not split": (
        {"q": f32(2, 3, 32)},
        CallValueError,
        "split the heads, q.reshape(*q.shape[:-1], 4, 8)",
    ),
    "kv_len": ({"v": f32(6, 2, 6)}, CallValueError, "v: expected kv_len 5, as k has, got 6"),
    "batch missing": (
        {"q": f32(2, 3, 4, 8)},
        CallValueError,
        "k: expected 4 dimensions, as q has (a batch, shape (2, 3, 4, 8)), got 3",
    ),
    "batch not expected": ({"v": f32(1, 5, 2, 6)}, CallValueError, "v: expected 3 dimensions"),
    "batch differs": (
        {"q": f32(2, 3, 4, 8), "k": f32(2, 5, 2, 8), "v": f32(1, 5, 2, 6)},
        CallValueError,
        "v: expected batch 2, as q has, got 1",
    ),
    "out shape": (
        {"out": f32(3, 4, 8)},
        CallValueError,
        "out: expected shape (3, 4, 6), got (3, 4, 8)",
    ),
    "out dtype": ({"out": np.zeros((3, 4, 6))}, CallTypeError, "out: expected dtype float32"),
    "out kind": ({"out": [0]}, CallTypeError, "out: expected a NumPy array"),
    "out read-only": ({"out": read_only(f32(3, 4, 6))}, CallValueError, "can be written"),
    "lse flag": ({"return_lse": 1}, CallTypeError, "return_lse: expected True or False, got 1"),
    "sink not in spec": ({"sink": f32(4)}, CallTypeError, "'sink': say 'sink: true' in the spec"),
    "misspelt": ({"return_lsee": True}, CallTypeError, "did you mean 'return_lse'?"),
    "torch's keyword": ({"is_causal": True}, CallTypeError, "say 'causal: true' in the spec"),
    "dropout": ({"dropout_p": 0.1}, CallTypeError, "not supported"),
    "no such thing": (
        {"zzz": 1},
        CallTypeError,
        "the keywords are cu_seqlens, lengths, mask, out, return_lse, sink",
    ),
}


@pytest.mark.parametrize(("change", "error", "text"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes(build, change: dict[str, Any], error: type[Exception], text: str) -> None:
    arguments = {"q": Q, "k": K, "v": V} | change
    with pytest.raises(error, match=re.escape(text)):
        build()(**arguments)


@pytest.mark.parametrize("activation", ["sigmoid", "relu"])
def test_there_is_no_lse_without_a_softmax(build, activation: str) -> None:
    attention = build(activation=activation)
    assert attention(Q, K, V, return_lse=False).shape == (3, 4, 6)
    with pytest.raises(CallTypeError, match="no log-sum-exp where 'activation'"):
        attention(Q, K, V, return_lse=True)


HALVES = tuple(a.astype(ml_dtypes.bfloat16) for a in (Q, K, V))
IN_BFLOAT16 = {
    "float32": (Q, "got float32; pass q.astype(ml_dtypes.bfloat16), or say 'dtype: float32' in"),
    "float16": (
        Q.astype("float16"),
        "q: expected dtype bfloat16, got float16; pass q.astype(ml_dtypes.bfloat16), or say",
    ),
    "bits": (
        HALVES[0].view("uint16"),
        "got uint16; pass q.view(ml_dtypes.bfloat16), if these are its bits",
    ),
    "loaded": (  # what NumPy makes of a file with bfloat16
        HALVES[0].view("V2"),
        "got void16; pass q.view(ml_dtypes.bfloat16), if these are its bits",
    ),
    "torch": (
        type("Tensor", (), {"__module__": "torch", "dtype": "torch.bfloat16"})(),
        "pass q.detach().cpu().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)",
    ),
}


@pytest.mark.parametrize(("q", "text"), IN_BFLOAT16.values(), ids=IN_BFLOAT16.keys())
def test_mistakes_where_the_spec_says_bfloat16(build, q: object, text: str) -> None:
    with pytest.raises(CallTypeError, match=re.escape(text)):
        build(dtype="bfloat16")(q, *HALVES[1:])


def test_what_is_in_the_type_of_the_sums_where_the_spec_says_a_half(build) -> None:
    attention = build(dtype="float16", sink=True)
    q, k, v = (a.astype("float16") for a in (Q, K, V))
    sink = np.zeros(4, "float32")
    out, lse = attention(q, k, v, sink=sink, return_lse=True)
    assert (out.dtype, lse.dtype) == (np.float16, np.float32)
    with pytest.raises(CallTypeError, match="sink: expected dtype float32, got float16"):
        attention(q, k, v, sink=sink.astype("float16"))
    with pytest.raises(CallTypeError, match="out: expected dtype float16, got float32"):
        attention(q, k, v, sink=sink, out=np.zeros((3, 4, 6), "float32"))
    with pytest.raises(CallTypeError, match="mask: expected dtype float32, got float16"):
        attention(q, k, v, sink=sink, mask=np.zeros((3, 5), "float16"))


def test_halves_where_the_spec_says_float32(build) -> None:
    text = "q: expected dtype float32, got bfloat16; pass q.astype('float32'), or say"
    with pytest.raises(CallTypeError, match=re.escape(text)):
        build()(*HALVES)


@pytest.mark.parametrize(
    ("sink", "error", "text"),
    [
        (None, CallTypeError, "missing argument 'sink'"),
        (f32(3), CallValueError, "sink: expected shape (4,), got (3,)"),
        (np.zeros(4), CallTypeError, "sink: expected dtype float32, got float64"),
        (0.0, CallTypeError, "sink: expected a NumPy array, got a float"),
    ],
)
def test_sink_mistakes(build, sink: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        build(sink=True)(Q, K, V, sink=sink)


def test_out_must_not_overlap_an_input(build) -> None:
    buffer = f32(5, 2, 14)
    k, v = buffer[..., :8], buffer[..., 8:]
    out = build(heads=2)(f32(5, 2, 8), k, v.copy(), out=v)  # beside k, and not in it
    assert out is v
    with pytest.raises(CallValueError, match=r"out: expected memory of its own.* v lies in"):
        build(heads=2)(f32(5, 2, 8), k, v, out=v)


def test_out_must_have_distinct_elements(build) -> None:
    shared = np.lib.stride_tricks.as_strided(f32(6), (3, 4, 6), (0, 0, 4))
    with pytest.raises(CallValueError, match="strides"):
        build()(Q, K, V, out=shared)


def test_a_missing_argument_is_named(build) -> None:
    with pytest.raises(TypeError, match="'v'"):
        build()(Q, K)


def test_a_core_has_no_weights(build) -> None:
    with pytest.raises(CallTypeError, match="demo is a core"):
        build().bind(None)


def test_attributes(build) -> None:
    attention = build()
    assert (attention.spec.heads, attention.schedule.lanes.value) == (4, 8)
    assert attention.explain() == "because"
    assert "def attend(q, k, v, out" in attention.source
    assert (attention.source_path / "__init__.py").is_file()
    assert repr(attention) == "<attngen core 'demo': heads=4, kv_heads=2, head_dim=8, float32>"


def test_pickle_and_copy(build) -> None:
    attention = build()
    q, k, v = arrays()
    again = pickle.loads(pickle.dumps(attention))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(again(q, k, v), attention(q, k, v))
    assert copy.copy(attention) is copy.deepcopy(attention) is attention


def test_threads(build) -> None:
    attention = build()
    inputs = [arrays(batch=2) for _ in range(32)]
    with ThreadPoolExecutor(8) as pool:
        outs = list(pool.map(lambda a: attention(*a), inputs))
    for out, (q, k, v) in zip(outs, inputs, strict=True):
        np.testing.assert_allclose(out, expected(q, k, v)[0], rtol=1e-4, atol=1e-5)
