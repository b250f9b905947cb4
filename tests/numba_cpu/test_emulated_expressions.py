"""Generated kernels of scores and masks that a spec spells out, against the oracle.

Every attention variant here is one line of the expression language. The emulation checks each
access, so an index that leaves a side input fails here wherever its pair is masked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulation import emulate, run

from attngen.accuracy import core_bound
from attngen.driver import Stages, run_stages
from attngen.ir.attention import AttentionIR
from attngen.ir.bounds import Lengths, shape_of
from attngen.reference import reference_attention
from attngen.spec.model import ScheduleOverride
from attngen.targets import AVX2, GENERIC

BASE: dict[str, Any] = {"name": "drawn", "heads": 4, "kv_heads": 2, "head_dim": 8, "value_dim": 5}
DOC = {"doc": {"shape": ["batch", "kv_len"], "dtype": "int"}}
VARIANTS: dict[str, dict[str, Any]] = {
    "prefix": {"prefix": 5},
    "chunk": {"causal": True, "chunk": 8},
    "dilation": {"window": {"left": 12}, "dilation": 3},
    "global": {"window": {"left": 4, "right": 4}, "global_tokens": 2},
    "alibi": {"causal": True, "bias": "alibi"},
    "off_by_one": {"causal": True, "activation": "softmax_off_by_one"},
    "off_by_one_window": {
        "window": {"left": 6, "right": -1},
        "mask": "k != q",
        "softcap": 2.0,
        "bias": "alibi",
        "activation": "softmax_off_by_one",
    },
    "sigmoid": {"causal": True, "activation": "sigmoid", "bias": "alibi"},
    "sigmoid_bias": {"window": {"left": 9}, "activation": "sigmoid", "activation_bias": 0.5},
    "relu": {"causal": True, "softcap": 3.0, "activation": "relu"},
    "relu_documents": {"inputs": DOC, "mask": "doc[b, k] == 1", "activation": "relu"},
    "relu_everywhere": {"activation": "relu", "scale": 0.7},
    "differential": {"causal": True, "differential": {"lambda": "per_head"}, "bias": "alibi"},
    "differential_list": {
        "kv_heads": 4,
        "window": {"left": 6, "right": 2},
        "softcap": 3.0,
        "scale": "per_head",
        "differential": {"lambda": [0.5, -1.0, 0.0, 0.8]},
    },
    "differential_sigmoid": {
        "inputs": DOC,
        "mask": "doc[b, k] == 1",
        "activation": "sigmoid",
        "differential": {"lambda": 0.7},
    },
    "differential_alone": {"differential": {"lambda": 0.9}, "activation": "softmax_off_by_one"},
    "t5_decoder": {"causal": True, "bias": "t5", "t5": {"buckets": 8, "max_distance": 20}},
    "t5_encoder": {"bias": "t5", "t5": {"buckets": 8, "max_distance": 20}, "scale": 1.0},
    "learned_scale": {"causal": True, "scale": "per_head", "softcap": 3.0},
    "listed_scales": {"scale": [0.5, -1.0, 0.0, 2.5], "window": {"left": 9}},
    "alibi_after_softcap": {"softcap": 2.0, "bias": "alibi"},
    "document": {"inputs": DOC, "mask": "doc[b, max(q, 0)] == doc[b, k]", "causal": True},
    "not_document": {"inputs": DOC, "mask": "doc[b, k] != 1 and doc[b, k] <= 2"},
    "key_start": {
        "inputs": {"begin": {"shape": ["kv_len"], "dtype": "int"}},
        "mask": "begin[max(q, 0)] <= k <= q",
    },
    "lengths": {
        "inputs": {"length": {"shape": ["batch"], "dtype": "int"}},
        "mask": "k < length[b]",
    },
    "padding": {
        "inputs": {"real": {"shape": ["batch", "kv_len"], "dtype": "bool"}},
        "mask": "real[b, k]",
    },
    "relative": {
        "inputs": {"bias": {"shape": ["heads", 17]}},
        "score": "score + bias[h, min(max(q - k, -8), 8) + 8]",
    },
    "guarded": {
        "inputs": {"bias": {"shape": ["heads", 17]}},
        "score": "score + (bias[h, q - k + 8] if abs(q - k) <= 8 else -1.5)",
    },
    "masked_out_of_range": {
        "inputs": {"bias": {"shape": ["heads", 9]}},
        "mask": "0 <= q - k < 9",
        "score": "score + bias[h, q - k]",
    },
    "natten": {"mask": "abs(q // 6 - k // 6) <= 1 and abs(q % 6 - k % 6) <= 1"},
    "per_head": {
        "parameters": {"near": 3},
        "mask": "(q - k <= near or h >= 2) and (k <= q if kv_h == 0 else h % 2 == 1 or q <= k)",
    },
    "functions": {
        "score": "score * sigmoid(0.1 * (q - k)) + log2(1 + abs(q - k)) - sqrt(k) + exp(-0.5 * k)"
        " + tanh(score) + exp2(-k) + log(1 + k) + floor(0.3 * score) + min(score, 0.5, q) / 3"
    },
    "casts": {
        "score": "score + int(k < 5) + float(q % 3) + int(2.5 * tanh(score)) + max(-score, b)"
    },
    "choice": {"score": "max(score, 0) if (k < q) == (h < 2) else -0.25 * abs(score)"},
    "loaded_choice": {
        "inputs": {
            **DOC,
            "strength": {"shape": ["batch", "heads", "kv_len"]},
            "table": {"shape": [3, 2], "dtype": "int"},
        },
        "score": "score * strength[b, h, k] + slopes[doc[b, k] % 3, int(q < k)]",
    },
    "tree": {
        "inputs": {"parent": {"shape": ["kv_len"], "dtype": "int"}},
        "mask": "k == q or k == parent[max(q, 0)] or k == parent[parent[max(q, 0)]]",
    },
    "all_of_one_head": {"mask": "h == 1"},
    "nothing": {"mask": "k > q and k < q"},
    "layer_of_all": {
        "inputs": {**DOC, "bias": {"shape": ["heads", "q_len", "kv_len"]}},
        "mask": "doc[b, k] <= 2 or not k < q",
        "score": "score + bias[h, q - (kv_len - q_len), k]",
        "softcap": 3.0,
        "bias": "alibi",
        "sink": True,
        "causal": True,
    },
}
VARIANTS["loaded_choice"]["inputs"]["slopes"] = VARIANTS["loaded_choice"]["inputs"].pop("table")
SHAPES = [(1, 1, 1), (2, 5, 9), (1, 9, 5), (2, 33, 40), (1, 3, 70), (2, 2, 0)]


def side_inputs(ir: AttentionIR, lengths: Lengths, seed: int) -> dict[str, np.ndarray] | None:
    if not ir.inputs:
        return None
    rng = np.random.default_rng(seed)
    arrays = {}
    for given in ir.inputs:
        shape = shape_of(ir, given, lengths)
        if given.values is not None:
            continue
        if given.name in ("doc", "slopes"):
            arrays[given.name] = np.sort(rng.integers(0, 4, shape), axis=-1)
        elif given.name in ("begin", "parent"):
            arrays[given.name] = np.maximum(np.arange(*shape) - rng.integers(1, 7, shape), 0)
        elif given.dtype == "int64":
            arrays[given.name] = rng.integers(0, lengths.kv_len + 2, shape)
        elif given.dtype == "bool":
            arrays[given.name] = rng.random(shape) < 0.6
        else:
            arrays[given.name] = rng.standard_normal(shape).astype(ir.dtype.accumulator)
    return arrays


def compiled(variant: str, target: Any, **overrides: int) -> Stages:
    chosen = tuple(ScheduleOverride("cpu", name, value) for name, value in overrides.items())
    return run_stages({**BASE, **VARIANTS[variant]}, target=target, overrides=chosen)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("target", "overrides"),
    [
        (AVX2, {"tile_scalars": 2, "tile_vectors": 1, "block_q": 8, "block_kv": 4, "split_kv": 16}),
        (GENERIC, {}),
    ],
    ids=["small_tiles", "scalars"],
)
def test_kernels_agree_with_the_reference(
    variant: str, target: Any, overrides: dict[str, int]
) -> None:
    stages = compiled(variant, target, **overrides)
    ir = stages.simplified
    kernels = emulate(stages.package, stages.schedule.lanes.value, ir.dtype.accumulator)
    for number, (batch, q_len, kv_len) in enumerate(SHAPES):
        rng = np.random.default_rng(number)
        q = rng.standard_normal((batch, q_len, ir.query_heads, ir.head_dim)).astype(np.float32)
        k = rng.standard_normal((batch, kv_len, ir.key_heads, ir.head_dim)).astype(np.float32)
        v = rng.standard_normal((batch, kv_len, ir.kv_heads, ir.value_dim)).astype(np.float32)
        sink = rng.standard_normal(ir.heads).astype(np.float32) if ir.sink else None
        given = side_inputs(ir, Lengths(batch, q_len, kv_len), number)
        if variant == "masked_out_of_range" and q_len > kv_len:
            continue
        want, want_lse = reference_attention(ir, q, k, v, sink, inputs=given)
        bound = 4 * core_bound(ir, q, k, v, given) + 2e-6
        for name in ("flash_forward", "split_kv"):
            module = getattr(kernels, name)
            if name == "split_kv" and q_len * ir.group > module.MAX_ROWS:
                continue
            out, lse = run(module, q, k, v, sink, inputs=given)
            np.testing.assert_allclose(out, want, rtol=0, atol=bound, err_msg=f"{name} {number}")
            if ir.activation is not None:
                assert np.isnan(lse).all()  # poisoned, and nobody writes to it
                continue
            np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(want_lse))
            assert not out[np.isneginf(want_lse[:, :: ir.maps]).swapaxes(1, 2)].any()
