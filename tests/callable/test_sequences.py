"""Key lengths and packed sequences: each sequence on its own, whatever it is stored with."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiling import kernels_once

from attngen.accuracy import core_bound
from attngen.errors import CallTypeError, CallValueError
from attngen.reference import reference_attention

CAUSAL = {"name": "sequences", "heads": 4, "kv_heads": 2, "head_dim": 16, "causal": True}

pytestmark = pytest.mark.numba


@pytest.fixture(scope="module")
def kernels(kernel_cache):
    return kernels_once(kernel_cache, CAUSAL)


def check(kernels, got, got_lse, q, k, v):
    """Compare one sequence, (length, heads, width), with the oracle."""
    if not len(q):
        return
    want, want_lse = reference_attention(kernels.ir, q, k, v)
    np.testing.assert_allclose(got, want, rtol=0, atol=core_bound(kernels.ir, q, k, v))
    np.testing.assert_array_equal(np.isneginf(got_lse), np.isneginf(want_lse))
    live = np.isfinite(want_lse)
    np.testing.assert_allclose(got_lse[live], want_lse[live], atol=1e-5)


@pytest.mark.parametrize("q_len", [1, 4, 70])
@pytest.mark.parametrize("integers", [np.int64, np.int32, np.uint8])
def test_lengths_bound_the_keys_of_each_batch_index(kernels, q_len, integers):
    q, k, v, _ = kernels.arrays(5, q_len, 150, seed=q_len)
    lengths = np.array([150, 0, 1, 3, 77], integers)
    for b, length in enumerate(lengths):
        k[b, length:] = v[b, length:] = np.nan  # never read
    out, lse = kernels.attention(q, k, v, lengths=lengths, return_lse=True)
    for b, length in enumerate(lengths):
        check(kernels, out[b], lse[b], q[b], k[b, :length], v[b, :length])


@pytest.mark.parametrize(
    ("q_sizes", "k_sizes"),
    [
        ((1, 0, 1), (3, 0, 5)),
        ((0, 1, 0, 1), (0, 3, 0, 5)),
        ((1, 2, 1, 2), (0, 2, 0, 2)),
        ((0, 0), (0, 4)),
        ((70, 5, 0, 130), (70, 9, 3, 129)),
        ((49,) * 7, (50,) * 7),
    ],
)
def test_packed_sequences_do_not_see_each_other(kernels, q_sizes, k_sizes):
    q, k, v, _ = kernels.arrays(1, sum(q_sizes), sum(k_sizes), seed=len(q_sizes))
    q, k, v = q[0], k[0], v[0]
    q_ends, k_ends = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (q_sizes, k_sizes))
    poisoned = np.full((sum(q_sizes), 4, 16), np.nan, np.float32)
    out, lse = kernels.attention(
        q, k, v, cu_seqlens=(q_ends, k_ends), return_lse=True, out=poisoned
    )
    assert out is poisoned
    for i in range(len(q_sizes)):
        queries, keys = slice(*q_ends[i : i + 2]), slice(*k_ends[i : i + 2])
        check(kernels, out[queries], lse[:, queries], q[queries], k[keys], v[keys])


def test_one_cumulative_array_serves_queries_and_keys(kernels):
    q, k, v, _ = kernels.arrays(1, 30, 30)
    ends = np.array([0, 7, 30])
    both = kernels.attention(q[0], k[0], v[0], cu_seqlens=(ends, ends))
    np.testing.assert_array_equal(kernels.attention(q[0], k[0], v[0], cu_seqlens=ends), both)


MISTAKES = {
    "lengths without a batch": (
        False,
        {"lengths": np.array([3])},
        CallTypeError,
        "lengths: expected a batch of sequences; slice k and v instead",
    ),
    "lengths of another batch": (
        True,
        {"lengths": np.array([3])},
        CallValueError,
        "lengths: expected shape (2,), got (1,)",
    ),
    "float lengths": (
        True,
        {"lengths": np.array([1.0, 2.0])},
        CallTypeError,
        "lengths: expected integers, got float64",
    ),
    "too long": (
        True,
        {"lengths": np.array([1, 10])},
        CallValueError,
        "lengths: expected 0 to 9 keys, got 10",
    ),
    "negative length": (
        True,
        {"lengths": np.array([-1, 3])},
        CallValueError,
        "lengths: expected 0 to 9 keys, got -1",
    ),
    "lengths in a list": (
        True,
        {"lengths": [3, 4]},
        CallTypeError,
        "lengths: expected a NumPy array of integers, got a list; pass numpy.array(lengths)",
    ),
    "cumulative lengths in a list": (
        False,
        {"cu_seqlens": [0, 9]},
        CallTypeError,
        "cu_seqlens: expected a NumPy array of integers, got a list; pass numpy.array(cu_seqlens)",
    ),
    "cumulative lengths in a tuple": (
        False,
        {"cu_seqlens": (0, 9)},
        CallValueError,
        "cu_seqlens: expected a pair of arrays (queries, keys), got a tuple of 2; pass one array "
        "as numpy.array(cu_seqlens)",
    ),
    "lists in a pair": (
        False,
        {"cu_seqlens": ([0, 9], [0, 9])},
        CallTypeError,
        "cu_seqlens: expected a NumPy array of integers, got a list",
    ),
    "three of them": (
        False,
        {"cu_seqlens": (np.array([0, 9]),) * 3},
        CallValueError,
        "cu_seqlens: expected a pair of arrays (queries, keys), got a tuple of 3",
    ),
    "packed with a batch": (
        True,
        {"cu_seqlens": np.array([0, 9])},
        CallTypeError,
        "cu_seqlens: expected packed arrays without a batch axis",
    ),
    "not from 0": (
        False,
        {"cu_seqlens": np.array([1, 9])},
        CallValueError,
        "cu_seqlens: expected 0 to 9 queries, got 1 to 9",
    ),
    "decreasing": (
        False,
        {"cu_seqlens": np.array([0, 5, 4, 9])},
        CallValueError,
        "cu_seqlens: expected no sequence of negative length, got 5 and then 4 at index 2",
    ),
    "unequal numbers": (
        False,
        {"cu_seqlens": (np.array([0, 9]), np.array([0, 4, 9]))},
        CallValueError,
        "cu_seqlens: expected as many sequences of queries as of keys, got 1 and 2",
    ),
    "both": (
        False,
        {"cu_seqlens": np.array([0, 9]), "lengths": np.array([9])},
        CallTypeError,
        "cu_seqlens: expected none beside 'lengths'; pass one of them",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(kernels, name):
    batched, arguments, error, message = MISTAKES[name]
    q, k, v, _ = kernels.arrays(2, 9, 9)
    arrays = (q, k, v) if batched else (q[0], k[0], v[0])
    with pytest.raises(error, match=re.escape(message)):
        kernels.attention(*arrays, **arguments)
