"""Cases from the field about lengths, bands and what a spec may ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import kernels_once
from numba_cpu.emulation import emulate, run

import attngen
from attngen.cache import Cache
from attngen.dense_mask import NAME, with_dense_mask
from attngen.driver import Stages, run_stages
from attngen.errors import CallValueError, SpecError
from attngen.reference import reference_attention
from attngen.spec.model import ScheduleOverride
from attngen.targets import AVX512


@pytest.mark.parametrize("p", [0, 0.0, 0.1, 1.0, -1, 1.5, float("nan"), None])
def test_dropout_is_refused_whatever_it_is(p: Any) -> None:
    with pytest.raises(SpecError) as caught:
        run_stages({"heads": 2, "head_dim": 8, "dropout": p})
    (found,) = caught.value.diagnostics
    assert (found.code, found.key) == ("E-LATER", "dropout")
    assert "belongs to training" in found.hint


def banded(name: str, size: int = 96):
    """(size, size): who sees whom, so that the first tiles of late rows are empty, or many are."""
    i, j = np.arange(size)[:, None], np.arange(size)
    return {
        "near": (i - j >= 0) & (i - j < 10),
        "at the end": (j >= size - 7) | (i + j < 0),
        "in the middle": (i >= 0) & (j >= 40) & (j < 53),
        "every other tile": (j // 16 + i // 16) % 2 == 0,
        "one key": j == (7 * i + 90) % size,
        "nothing for some": (i % 16 < 3) & (j > 80),
    }[name]


BANDS = ("near", "at the end", "in the middle", "every other tile", "one key", "nothing for some")


@pytest.mark.parametrize("band", BANDS)
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiles_without_a_key_come_first_last_and_between(band: str, kind: str, dtype: str) -> None:
    for block in (16, 32, 64, 128):
        tiles = {"tile_scalars": 4, "tile_vectors": 2, "block_q": 16, "block_kv": block}
        chosen = {"lanes": 4, **tiles, "split_kv": block, "short_rows": 1024}
        overrides = tuple(ScheduleOverride("cpu", n, x) for n, x in chosen.items())
        spec = run_stages({"heads": 1, "head_dim": 3, "dtype": dtype}).spec
        stages = Stages(spec, AVX512, overrides, "bool" if kind == "bool" else "float")
        mask = banded(band)[None, None]
        if kind == "float":
            mask = np.where(mask, 0, -np.inf).astype(dtype)
        rng = np.random.default_rng(1)
        q, k, v = (rng.standard_normal((1, 96, 1, 3)).astype(dtype) for _ in range(3))
        modules = emulate(stages.package, 4, dtype)
        ir = with_dense_mask(run_stages(spec).ir, "bool")
        want, want_lse = reference_attention(ir, q, k, v, inputs={NAME: banded(band)[None, None]})
        for module in (modules.flash_forward, modules.split_kv):
            out, lse = run(module, q, k, v, inputs={NAME: mask})
            np.testing.assert_allclose(out, want, atol=3e-6)
            np.testing.assert_allclose(lse, want_lse, rtol=1e-5, atol=1e-5)
            assert not out[0, np.isneginf(want_lse[0, 0])].any()


FIXED = {
    "name": "of_64_keys",
    "heads": 2,
    "head_dim": 8,
    "score": "score + pairs[q, k]",
    "inputs": {"pairs": {"shape": [64, 64]}},
}


@pytest.mark.numba
def test_one_callable_for_every_length_in_every_order(kernel_cache) -> None:
    spec = {"name": "any_length", "heads": 2, "head_dim": 8, "causal": True}
    kernels = kernels_once(kernel_cache, spec)
    for length in (1024, 200, 1024, 1, 1023, 1025, 0, 3):
        arrays = kernels.arrays(1, length, length, seed=length)
        out, lse = kernels.attention(*arrays[:3], return_lse=True)
        kernels.check(arrays, out, lse, what=str(length))


@pytest.mark.numba
def test_a_fixed_size_refuses_other_lengths_and_names_both(kernel_cache) -> None:
    kernels = kernels_once(kernel_cache, FIXED, compiled=())
    pairs = np.zeros((64, 64), np.float32)
    for length in (65, 128, 64, 63):
        arrays = kernels.arrays(1, length, length)[:3]
        if length <= 64:
            assert np.isfinite(kernels.attention(*arrays, pairs=pairs)).all()
            continue
        with pytest.raises(CallValueError) as caught:
            kernels.attention(*arrays, pairs=pairs)
        assert "0 to 63" in str(caught.value)
        assert str(length - 1) in str(caught.value)


@pytest.mark.numba
def test_a_changed_spec_of_the_same_name_is_another_kernel(kernel_cache, tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((9, 2, 8), dtype=np.float32) for _ in range(3))
    found = []
    for text in ("heads: 2\nhead_dim: 8\n", "heads: 2\nhead_dim: 8\ncausal: true\n"):
        path.write_text(text)
        found.append(attngen.compile(path, cache=Cache(kernel_cache)))
    old, new = (attention(q, k, v) for attention in found)
    np.testing.assert_allclose(new[-1], old[-1], atol=1e-6)
    np.testing.assert_allclose(new[0], v[0], atol=1e-6)
    assert np.abs(old[0] - v[0]).max() > 0.1
