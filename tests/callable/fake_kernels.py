"""Compiled attentions with kernels of a few lines, so that calls alone are tested."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from attngen.attention import Attention, Compiled, make
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import DOT, TRUE
from attngen.ir.schedule import CpuSchedule, Decision
from attngen.loader import load
from attngen.spec.elaborate import activation_of
from attngen.spec.model import Spec

FAKE = '''
"""What a generated package exports, in NumPy: full attention."""

import numpy as np


def attend(q, k, v, out, lse=None, sink=None):
    for array in (q, k, v, out):
        assert type(array) is np.ndarray and array.ndim == 4
    group = q.shape[2] // k.shape[2]
    s = np.einsum("bqhd,bkhd->bhqk", q, np.repeat(k, group, 2)) / np.sqrt(q.shape[-1])
    top = s.max(-1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    if lse is not None:
        lse[:] = (top + np.log(total))[..., 0]
    if sink is not None:
        total = total + np.exp(sink[:, None, None] - top)
    out[:] = np.einsum("bhqk,bkhd->bqhd", p / total, np.repeat(v, group, 2))


def pack_weight(w):
    return np.array(w, order="C")


def layer(x, context, weights, out, lse, sink):
    def project(a, w, bias, heads):
        y = a @ w if bias is None else a @ w + bias
        return y.reshape(*a.shape[:2], heads, -1)

    q = project(x, weights.q, weights.q_bias, HEADS)
    k = project(context, weights.k, weights.k_bias, KV_HEADS)
    v = project(context, weights.v, weights.v_bias, KV_HEADS)
    heads = np.empty((*q.shape[:-1], v.shape[-1]), q.dtype)
    attend(q, k, v, heads, lse, sink)
    out[:] = project(heads.reshape(*x.shape[:2], -1), weights.o, weights.o_bias, 1)[:, :, 0]
'''


PARALLEL = (
    FAKE
    + """

from numba import get_num_threads, njit, prange


@njit(cache=True)
def _attend_share(q, k, v, out, worker, workers):
    batch, q_len, heads, head_dim = q.shape
    group = heads // k.shape[2]
    for task in range(worker, batch * q_len * heads, workers):
        b, i, h = task // (q_len * heads), task // heads % q_len, task % heads
        total = 0.0
        for j in range(k.shape[1]):
            dot = 0.0
            for d in range(head_dim):
                dot += q[b, i, h, d] * k[b, j, h // group, d]
            p = np.exp(dot / np.sqrt(head_dim))
            total += p
            for d in range(v.shape[3]):
                before = 0.0 if j == 0 else out[b, i, h, d]
                out[b, i, h, d] = before + p * v[b, j, h // group, d]
        for d in range(v.shape[3]):
            out[b, i, h, d] /= total


@njit(parallel=True, cache=True)
def _attend(q, k, v, out, workers):
    for worker in prange(workers):
        _attend_share(q, k, v, out, worker, workers)


def attend(q, k, v, out, lse=None, sink=None, workers=None):
    if workers == 1:
        _attend_share(q, k, v, out, 0, 1)
    else:
        _attend(q, k, v, out, get_num_threads())
"""
)


def compile_fake(folder: str, options: dict[str, Any]) -> Attention:
    """A stand-in for the driver, importable as a recipe must be."""
    sizes = {"heads": 4, "kv_heads": 2, "head_dim": 8, "value_dim": 6}
    given = {k: v for k, v in options.items() if k not in ("lanes", "parallel")}
    spec = Spec(name="demo", scope="layer" if "d_model" in options else "core", **(sizes | given))
    ir = AttentionIR(
        spec.name,
        spec.dtype,
        spec.heads,
        spec.kv_heads,
        spec.head_dim,
        spec.value_dim,
        spec.d_model,
        1 / math.sqrt(spec.head_dim),
        DOT,
        TRUE,
        "bottom_right",
        spec.sink,
        "2",
        spec.outputs,
        activation=activation_of(spec),
    )
    lanes = options.get("lanes", 8)
    schedule = CpuSchedule(
        **{
            f.name: Decision(lanes if f.name == "lanes" else 4, "default", "a test")
            for f in dataclasses.fields(CpuSchedule)
        }
    )
    kernels = PARALLEL if options.get("parallel") else FAKE
    text = f"{kernels}\n\nHEADS, KV_HEADS = {spec.heads}, {spec.kv_heads}\n"
    path = Path(folder) / f"fake_{spec.heads}_{spec.kv_heads}"
    path.mkdir(exist_ok=True)
    if not (path / "__init__.py").exists():
        (path / "__init__.py").write_text(text)
    recipe = (compile_fake, (folder, options))
    return make(Compiled(spec, ir, schedule, load(path), path, lambda: "because", recipe))
