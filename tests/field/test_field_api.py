"""Cases from the field about lengths, bands and what a spec may ask for."""

from __future__ import annotations

from itertools import pairwise
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


def emulated(spec: dict[str, Any], **more: int) -> tuple[Any, Stages]:
    """The modules of a spec's kernels with small tiles, and its stages."""
    tiles = {"tile_scalars": 4, "tile_vectors": 2, "block_q": 16, "block_kv": 16, "split_kv": 16}
    chosen = {"lanes": 4, "short_rows": 1024, **tiles, **more}
    overrides = tuple(ScheduleOverride("cpu", n, x) for n, x in chosen.items())
    stages = run_stages(spec, target=AVX512, overrides=overrides)
    return emulate(stages.package, 4, stages.simplified.dtype.accumulator), stages


def merged(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    """Two partial results as one: outputs (1, S, 1, D) and natural-log LSE (1, 1, S)."""
    (out, lse), (out2, lse2) = one, other
    top = np.maximum(lse, lse2)
    top = np.where(np.isneginf(top), 0, top)
    weight, weight2 = np.exp(lse - top), np.exp(lse2 - top)
    total = weight + weight2
    with np.errstate(divide="ignore", invalid="ignore"):
        share, share2 = (
            np.where(total > 0, w / total, 0)[..., None].swapaxes(1, 2) for w in (weight, weight2)
        )
        return share * out + share2 * out2, np.where(total > 0, top + np.log(total), -np.inf)


@pytest.mark.parametrize("kernel", ["flash_forward", "split_kv"])
@pytest.mark.parametrize("cuts", [(0, 40), (13, 40), (13, 13, 29), (40,), (1, 2, 39)])
def test_parts_merge_by_their_lse_in_any_order(kernel: str, cuts: tuple[int, ...]) -> None:
    spec = {"heads": 1, "head_dim": 5, "causal": True}
    modules, _ = emulated(spec)
    mask = {**spec, "mask": "k >= low[b] and k < high[b]"}
    mask["inputs"] = {name: {"shape": ["batch"], "dtype": "int"} for name in ("low", "high")}
    parts, _ = emulated(mask)
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((1, 40, 1, 5)).astype(np.float32) for _ in range(3))
    whole = run(getattr(modules, kernel), q, k, v)
    edges = [0, *cuts, 40]
    found = []
    for low, high in pairwise(edges):
        given = {"low": np.array([low]), "high": np.array([high])}
        found.append(run(getattr(parts, kernel), q, k, v, inputs=given))
    assert any(np.isneginf(lse).any() for _, lse in found)
    for order in (found, found[::-1]):
        total = order[0]
        for part in order[1:]:
            total = merged(total, part)
        np.testing.assert_allclose(total[0], whole[0], atol=2e-6)
        np.testing.assert_allclose(total[1], whole[1], atol=2e-6)


@pytest.mark.parametrize("left", [-1, 0, 1, 7, 8, 100])
@pytest.mark.parametrize("right", [-1, 0, 2])
@pytest.mark.parametrize(("q_len", "kv_len"), [(8, 8), (1, 20), (3, 10)])
def test_windows_keep_as_many_keys_as_they_say(
    left: int, right: int, q_len: int, kv_len: int
) -> None:
    modules, _ = emulated(
        {"heads": 1, "head_dim": 2, "value_dim": kv_len, "window": {"left": left, "right": right}}
    )
    q, k = (np.zeros((1, n, 1, 2), np.float32) for n in (q_len, kv_len))
    v = np.eye(kv_len, dtype=np.float32)[None, :, None]
    i, j = np.arange(q_len)[:, None] + kv_len - q_len, np.arange(kv_len)
    seen = (j >= (i - left if left >= 0 else 0)) & (j <= (i + right if right >= 0 else kv_len))
    for module in (modules.flash_forward, modules.split_kv):
        out, _ = run(module, q, k, v)
        np.testing.assert_array_equal(out[0, :, 0] > 0, np.broadcast_to(seen, (q_len, kv_len)))


@pytest.mark.parametrize("keys", [255, 256, 257, 512, 4096])
def test_equal_weights_of_many_keys_add_up(keys: int) -> None:
    modules, _ = emulated({"heads": 1, "head_dim": 2}, block_kv=128, split_kv=128)
    q, k = (np.zeros((1, n, 1, 2), np.float32) for n in (1, keys))
    v = np.ones((1, keys, 1, 2), np.float32)
    for module in (modules.flash_forward, modules.split_kv):
        assert (run(module, q, k, v)[0] == 1).all()


@pytest.mark.parametrize("size", [1e18, 1e19, 3e19])
def test_scores_beyond_the_format_are_infinite(size: float) -> None:
    modules, _ = emulated({"heads": 1, "head_dim": 4, "scale": 1.0})
    q = np.full((1, 2, 1, 4), size, np.float32)
    k = np.full((1, 3, 1, 4), size, np.float32)
    v = np.ones((1, 3, 1, 4), np.float32)
    for module in (modules.flash_forward, modules.split_kv):
        out, lse = run(module, q, k, v)
        if size < 5e18:
            np.testing.assert_allclose(out, 1, rtol=1e-6)
        else:  # inf - inf, as IEEE 754 has it, and never a number that looks right
            assert np.isnan(out).all()
            assert not np.isfinite(lse).any()
