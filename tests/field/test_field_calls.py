"""Cases from the field through the callable and, with many tiles, through emulated kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from cases.calls import FIELD_CALLS, FieldCall
from compiling import compile_once
from numba_cpu.emulation import emulate, run

from attngen.dense_mask import NAME
from attngen.driver import Stages, run_stages
from attngen.reference import reference_attention
from attngen.spec.model import ScheduleOverride
from attngen.targets import AVX512

LOOSE_LSE = {"C02_finfo_min_row"}  # the LSE of its first row is beyond what base 2 can hold
TILES = {
    "smallest": {"tile_scalars": 1, "tile_vectors": 1, "block_q": 4, "block_kv": 1, "split_kv": 4},
    "16": {"tile_scalars": 4, "tile_vectors": 1, "block_q": 16, "block_kv": 16, "split_kv": 16},
    "own": {},
}


def staged(case: FieldCall, dtype: str, tiles: dict[str, int]) -> Stages:
    """The stages of a case's spec with its kind of mask array."""
    chosen = {**tiles, "lanes": 4, "short_rows": 1024}
    overrides = tuple(ScheduleOverride("cpu", name, value) for name, value in chosen.items())
    stages = run_stages(case.spec_of(dtype), target=AVX512, overrides=overrides)
    mask = case.arguments().get("mask")
    if mask is None:
        return stages
    return dataclasses.replace(stages, mask_array="bool" if mask.dtype == bool else "float")


def side_inputs(case: FieldCall, dtype: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """What kernels get beside q, k and v; the mask with all its elements."""
    given = case.arguments(dtype)
    given.pop("lengths", None)
    if "mask" in given:
        given[NAME] = np.ascontiguousarray(np.broadcast_to(given.pop("mask"), shape))
    return given


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize("case", FIELD_CALLS, ids=str)
def test_emulated_kernels(case: FieldCall, tiles: str, dtype: str) -> None:
    arrays = case.load()
    if arrays.q.shape[1] > 100 and (tiles, dtype) != ("own", "float32"):
        pytest.skip("too large to emulate more than once; the compiled kernels take it")
    stages = staged(case, dtype, TILES[tiles])
    q, k, v = (array.astype(dtype) for array in (arrays.q, arrays.k, arrays.v))
    shape = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    given = side_inputs(case, dtype, shape)
    modules = emulate(stages.package, 4, stages.simplified.dtype.accumulator)
    lengths = case.arguments().get("lengths")
    more: dict[str, Any] = {"inputs": given} if given or stages.simplified.inputs else {}
    if lengths is not None:
        more["table"] = modules.sequences.padded(q.shape[1], lengths)
    for kernel in ("flash_forward", "split_kv"):
        if kernel == "split_kv" and q.shape[1] > 100:
            continue
        out, lse = run(getattr(modules, kernel), q, k, v, **more)
        case.check(out, None if case.name in LOOSE_LSE else lse)


@pytest.mark.parametrize("case", FIELD_CALLS, ids=str)
def test_reference(case: FieldCall) -> None:
    arrays = case.load()
    shape = (arrays.q.shape[0], arrays.q.shape[2], arrays.q.shape[1], arrays.k.shape[1])
    given = side_inputs(case, "float32", shape)
    lengths = case.arguments().get("lengths")
    for ir in (staged(case, "float32", {}).ir, staged(case, "float32", {}).simplified):
        for b in range(shape[0]):
            end = None if lengths is None else lengths[b]
            mine = {n: a[b : b + 1] if a.shape[0] == shape[0] else a for n, a in given.items()}
            q, k, v = (x[b : b + 1] for x in (arrays.q, arrays.k[:, :end], arrays.v[:, :end]))
            out, _ = reference_attention(ir, q, k, v, inputs=mine)
            np.testing.assert_allclose(out[0], arrays.expected[b], atol=case.atol, rtol=case.rtol)


@pytest.mark.numba
@pytest.mark.slow
@pytest.mark.parametrize("case", FIELD_CALLS, ids=str)
def test_compiled(case: FieldCall, kernel_cache: Any) -> None:
    attention = compile_once(kernel_cache, case.spec_of("float32"))
    arrays = case.load()
    out, lse = attention(arrays.q, arrays.k, arrays.v, return_lse=True, **case.arguments())
    case.check(out, None if case.name in LOOSE_LSE else lse)
    assert not np.isnan(lse).any()
