"""Features × shapes × schedules: generated kernels, run as plain Python, against the oracle.

The emulation checks every access, so a kernel that reads past a row or uses what it never wrote
fails here even where its result happens to be right.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases.cases import FIELD_CASES
from closeness import assert_within
from emulation import emulate, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attngen.accuracy import core_bound, element_bounds
from attngen.driver import Stages, run_stages
from attngen.reference import reference_attention
from attngen.spec.model import ScheduleOverride
from attngen.spec.search import spec_names
from attngen.targets import AVX2, AVX512, GENERIC, NEON


def emulated(stages: Stages):
    return emulate(stages.package, stages.schedule.lanes.value, stages.simplified.dtype.accumulator)


def overrides(**values: int) -> tuple[ScheduleOverride, ...]:
    return tuple(ScheduleOverride("cpu", name, value) for name, value in values.items())


def random_arrays(stages: Stages, batch: int, q_len: int, kv_len: int, seed: int):
    ir, rng = stages.simplified, np.random.default_rng(seed)
    dtype = ir.dtype.numpy

    def normal(*shape: int):
        return rng.standard_normal(shape).astype(dtype)

    q = normal(batch, q_len, ir.query_heads, ir.head_dim)
    k = normal(batch, kv_len, ir.key_heads, ir.head_dim)
    v = normal(batch, kv_len, ir.kv_heads, ir.value_dim)
    sink = rng.standard_normal(ir.heads).astype(ir.dtype.accumulator) if ir.sink else None
    return q, k, v, sink


def check(stages: Stages, q, k, v, sink, got) -> None:
    ir = stages.simplified
    want, want_lse = reference_attention(ir, q, k, v, sink)
    out, lse = got
    bound = core_bound(ir, q, k, v)
    assert_within(out, want, element_bounds(ir, bound, want))
    if ir.activation is not None:
        assert np.isnan(lse).all()  # nobody writes to it
        return
    empty = np.isneginf(want_lse)
    np.testing.assert_array_equal(np.isneginf(lse), empty)
    scale = bound / float(np.abs(v).max()) + 1e-6 if v.size else 0.0
    np.testing.assert_allclose(lse[~empty], want_lse[~empty], rtol=1e-6, atol=scale)
    empty = empty[:, :: ir.maps]  # the maps of a head see the same keys
    assert not out[empty.swapaxes(1, 2)].any()  # exactly 0, where nothing may be attended to


@st.composite
def features(draw: st.DrawFn) -> dict[str, object]:
    kv_heads = draw(st.integers(1, 3))
    spec: dict[str, object] = {
        "name": "drawn",
        "heads": kv_heads * draw(st.integers(1, 3)),
        "kv_heads": kv_heads,
        "head_dim": draw(st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17])),
        "value_dim": draw(st.sampled_from([1, 2, 5, 8, 11, 16, 19])),
        "causal": draw(st.sampled_from([False, True, "top_left"])),
        "dtype": draw(st.sampled_from(["float32", "float64", "float16", "bfloat16"])),
        "activation": draw(
            st.sampled_from(["softmax", "softmax", "softmax_off_by_one", "sigmoid", "relu"])
        ),
    }
    if draw(st.integers(0, 3)) == 0:
        spec["differential"] = {"lambda": draw(st.sampled_from([0, 0.8, -0.5]))}
    sinks = spec["activation"] == "softmax" and "differential" not in spec
    spec["sink"] = sinks and draw(st.booleans())
    if draw(st.booleans()):
        spec["window"] = {"left": draw(st.integers(-1, 20)), "right": draw(st.integers(-1, 20))}
    if draw(st.booleans()):
        spec["softcap"] = draw(st.sampled_from([0.5, 5.0, 50.0]))
    if draw(st.booleans()):
        spec["scale"] = draw(st.sampled_from([0.0, -0.7, 0.1, 3.0]))
    return spec


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, int]:
    lanes = draw(st.sampled_from([1, 2, 4, 8]))
    vectors = draw(st.integers(1, 3))
    scalars = draw(st.integers(1, 7))
    return {
        "lanes": lanes,
        "tile_scalars": scalars,
        "tile_vectors": vectors,
        "block_q": lanes * vectors * draw(st.integers(1, 4)),
        "block_kv": scalars * draw(st.integers(1, 5)),
        "short_rows": draw(st.sampled_from([1, 5, 64, 1024])),
        "split_kv": lanes * draw(st.integers(1, 6)),
        "gemm_tile_rows": 1,
        "gemm_tile_vectors": 1,
        "gemm_block_m": 8,
        "gemm_block_n": 64,
        "gemm_block_k": 8,
    }


lengths = st.one_of(st.integers(0, 9), st.integers(0, 60))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(features(), schedules(), st.integers(0, 2), lengths, lengths, st.integers(0, 2**32))
def test_flash_kernel_equals_the_oracle(spec, schedule, batch, q_len, kv_len, seed):
    stages = run_stages(spec, target=AVX512, overrides=overrides(**schedule))
    q, k, v, sink = random_arrays(stages, batch, q_len, kv_len, seed)
    workers = 1 + seed % 5  # which shape the blocks of rows
    check(stages, q, k, v, sink, run(emulated(stages).flash_forward, q, k, v, sink, workers))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    features(), schedules(), st.integers(0, 2), st.integers(0, 9), lengths, st.integers(0, 2**32)
)
def test_split_kernel_equals_the_oracle(spec, schedule, batch, q_len, kv_len, seed):
    schedule["short_rows"] = 1024
    stages = run_stages(spec, target=AVX512, overrides=overrides(**schedule))
    q, k, v, sink = random_arrays(stages, batch, q_len, kv_len, seed)
    check(stages, q, k, v, sink, run(emulated(stages).split_kv, q, k, v, sink))


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON, GENERIC], ids=lambda t: t.isa)
@pytest.mark.parametrize("name", spec_names())
def test_shipped_specs_with_the_targets_own_tiles(name, target):
    whole = run_stages(name, target=target)
    stages = run_stages(_narrowed(whole), target=target)
    q, k, v, sink = random_arrays(stages, 1, 21, 37, seed=5)
    modules = emulated(stages)
    check(stages, q, k, v, sink, run(modules.flash_forward, q, k, v, sink))
    q = q[:, : stages.schedule.short_rows.value // stages.simplified.group]
    check(stages, q, k, v, sink, run(modules.split_kv, q, k, v, sink))


def _narrowed(stages: Stages) -> dict[str, object]:
    """The spec as a core with fewer, narrower heads: the emulation is slow."""
    spec, ratio = stages.spec, min(stages.simplified.group, 9)
    narrow: dict[str, object] = {
        "name": spec.name,
        "heads": ratio,
        "kv_heads": 1,
        "head_dim": 16,
        "causal": False if spec.causal == "none" else spec.causal,
        "sink": spec.sink,
        "activation": spec.activation,
        "dtype": spec.dtype.name,
    }
    if spec.window:
        narrow["window"] = {"left": min(spec.window.left, 9), "right": spec.window.right}
    if spec.softcap:
        narrow["softcap"] = spec.softcap
    if spec.differential is not None:
        narrow["differential"] = {"lambda": 0.6}
    return narrow


@pytest.mark.parametrize("case", FIELD_CASES, ids=str)
@pytest.mark.parametrize("smallest", [False, True], ids=["own-tiles", "smallest-tiles"])
def test_field_cases(case, smallest):
    tiles = {"lanes": 4, "tile_scalars": 1, "tile_vectors": 1, "block_q": 4, "block_kv": 1}
    chosen = {**tiles, "split_kv": 4} if smallest else {"lanes": 4}
    chosen["short_rows"] = 1024
    stages = run_stages(case.spec, target=NEON, overrides=overrides(**chosen))
    arrays = case.load()
    if arrays.q.size * arrays.k.shape[1] > 500_000:
        pytest.skip("too large to emulate; the compiled kernels take it")
    modules = emulated(stages)
    case.check(*run(modules.flash_forward, arrays.q, arrays.k, arrays.v))
    if arrays.q.shape[1] * stages.simplified.group <= 1024:
        case.check(*run(modules.split_kv, arrays.q, arrays.k, arrays.v))


def _layouts(array):
    """The same values in every layout a caller may bring."""
    yield "contiguous", array
    yield "heads first", np.ascontiguousarray(array.swapaxes(1, 2)).swapaxes(1, 2)
    yield "Fortran", np.asfortranarray(array)
    yield "reversed", np.ascontiguousarray(array[::-1, ::-1, ::-1, ::-1])[::-1, ::-1, ::-1, ::-1]
    wide = np.full((*array.shape[:3], 2 * array.shape[3]), np.nan, array.dtype)
    wide[..., ::2] = array
    yield "every other", wide[..., ::2]


def test_any_strides_give_the_same_bits():
    spec = {"heads": 4, "kv_heads": 2, "head_dim": 9, "value_dim": 6, "causal": True}
    stages = run_stages(spec, target=NEON, overrides=overrides(block_kv=8))
    q, k, v, _ = random_arrays(stages, 2, 7, 13, seed=1)
    module = emulated(stages).flash_forward
    want, want_lse = run(module, q, k, v)
    for (name, q2), (_, k2), (_, v2) in zip(_layouts(q), _layouts(k), _layouts(v), strict=True):
        out, lse = run(module, q2, k2, v2)
        np.testing.assert_array_equal(out, want, err_msg=name)
        np.testing.assert_array_equal(lse, want_lse, err_msg=name)


def test_broadcast_keys_and_read_only_inputs():
    stages = run_stages({"heads": 2, "head_dim": 8}, target=NEON)
    q, k, v, _ = random_arrays(stages, 3, 5, 9, seed=2)
    k2, v2 = (np.broadcast_to(a[:1], a.shape) for a in (k, v))
    q.flags.writeable = False
    module = emulated(stages).flash_forward
    check(stages, q, k2, v2, None, run(module, q, k2, v2))


@pytest.mark.parametrize("activation", ["softmax", "softmax_off_by_one", "sigmoid", "relu"])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["k", "v"])
def test_what_a_row_may_not_see_does_not_reach_it(poison, where, activation):
    spec = {"heads": 2, "kv_heads": 1, "head_dim": 8, "causal": True, "window": {"left": 5}}
    spec["activation"] = activation
    stages = run_stages(spec, target=NEON, overrides=overrides(block_kv=8, split_kv=8))
    q, k, v, _ = random_arrays(stages, 1, 20, 20, seed=3)
    clean, _ = reference_attention(stages.simplified, q, k, v)
    {"k": k, "v": v}[where][0, 9, 0, :] = poison
    seen = np.zeros(20, bool)
    seen[9:15] = True  # positions 9 … 14 see key 9
    modules = emulated(stages)
    out, _ = run(modules.flash_forward, q, k, v)
    np.testing.assert_allclose(out[0, ~seen], clean[0, ~seen], atol=1e-5)
    if np.isnan(poison) and (where, activation) != ("v", "relu"):  # whose weight may be 0
        assert np.isnan(out[0, seen]).all()
    if activation in ("sigmoid", "relu"):
        return  # weights that depend on the number of keys: other keys, other results
    for row in range(20):
        short, _ = run(modules.split_kv, q[:, row : row + 1], k[:, : row + 1], v[:, : row + 1])
        np.testing.assert_allclose(
            short[0, 0], out[0, row], atol=1e-5, equal_nan=True, err_msg=f"row {row}"
        )


def test_nothing_beyond_the_arrays_is_read():
    stages = run_stages({"heads": 1, "head_dim": 5, "causal": True}, target=NEON)
    buffer = np.full((3, 50, 3, 5), np.nan, np.float32)
    rng = np.random.default_rng(4)
    buffer[1, 10:27, 1] = rng.standard_normal((17, 5))
    view = buffer[1:2, 10:27, 1:2]
    module = emulated(stages).flash_forward
    check(stages, view, view, view, None, run(module, view, view, view))


def test_a_row_has_the_same_bits_in_every_batch():
    spec = {"heads": 4, "kv_heads": 2, "head_dim": 8, "causal": True, "window": {"left": 17}}
    stages = run_stages(spec, target=NEON, overrides=overrides(block_kv=8))
    q, k, v, _ = random_arrays(stages, 2, 40, 40, seed=6)
    module = emulated(stages).flash_forward
    whole, _ = run(module, q, k, v, workers=1)
    for first, last in [(0, 40), (3, 40), (17, 31), (39, 40)]:
        # The last query stands at the last key, so rows up to `last` come with keys up to it.
        part, _ = run(module, q[1:, first:last], k[1:, :last], v[1:, :last])
        np.testing.assert_array_equal(part[0], whole[1, first:last])
