"""Tile maps against every single pair, and against what kernels do when they run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from numba_cpu.emulation import emulate, run

import attngen
from attngen.driver import Stages, run_stages
from attngen.errors import CallTypeError, CallValueError
from attngen.example_inputs import example_inputs
from attngen.ir.bounds import Lengths, index_faults
from attngen.ir.evaluate import evaluate
from attngen.mask_tiles import TileClass
from attngen.side_data import mask_arrays, of_mask
from attngen.spec.model import ScheduleOverride
from attngen.spec.search import spec_names
from attngen.targets import AVX512
from attngen.tile_census import CODES, EMPTY, FULL, PARTIAL
from attngen.tile_maps import TileMap, tile_map

DOC = {"doc": {"shape": ["batch", "kv_len"], "dtype": "int"}}
MASKS: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"causal": True},
    "top_left": {"causal": "top_left"},
    "window": {"causal": True, "window": {"left": 9, "right": 2}},
    "both sides": {"window": {"left": 4, "right": 6}},
    "prefix": {"prefix": 11},
    "chunk": {"chunk": 16},
    "causal chunk": {"chunk": 10, "causal": True},
    "dilation": {"dilation": 3, "window": {"left": 20}},
    "global": {"window": {"left": 5, "right": 5}, "global_tokens": 3},
    "documents": {"mask": "doc[b, q] == doc[b, k]", "inputs": DOC, "causal": True},
    "packed documents": {
        "mask": "doc[q] == doc[k]",
        "inputs": {"doc": {"shape": ["kv_len"], "dtype": "int"}},
    },
    "lengths": {
        "mask": "k < length[b]",
        "inputs": {"length": {"shape": ["batch"], "dtype": "int"}},
    },
    "some keys": {
        "mask": "real[b, k]",
        "inputs": {"real": {"shape": ["batch", "kv_len"], "dtype": "bool"}},
    },
    "heads": {"mask": "q - k < 3 * (h + 1) and k <= q"},
    "kv heads": {"mask": "abs(q - k) < 4 + 8 * kv_h"},
    "heads by table": {
        "mask": "q - k < reach[h]",
        "inputs": {"reach": {"shape": ["heads"], "dtype": "int"}},
    },
    "natten": {"mask": "abs(q // 8 - k // 8) <= 2 and abs(q % 8 - k % 8) <= 2"},
    "tree": {
        "mask": "k < 5 or k == q or k == prev[b, q]",
        "inputs": {"prev": {"shape": ["batch", "kv_len"], "dtype": "int"}},
    },
    "nothing": {"mask": "k > kv_len"},
    "the last only": {"mask": "k == kv_len - 1"},
}


def stages_of(mask: str, heads: int, kv_heads: int, schedule: dict[str, int]) -> Stages:
    spec = {"name": "mapped", "heads": heads, "kv_heads": kv_heads, "head_dim": 2, **MASKS[mask]}
    overrides = tuple(ScheduleOverride("cpu", n, value) for n, value in schedule.items())
    return run_stages(spec, target=AVX512, overrides=overrides)


@st.composite
def schedules(draw: st.DrawFn) -> dict[str, int]:
    lanes, vectors = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 2))
    scalars = draw(st.integers(1, 5))
    return {
        "lanes": lanes,
        "tile_scalars": scalars,
        "tile_vectors": vectors,
        "block_q": lanes * vectors * draw(st.integers(1, 5)),
        "block_kv": scalars * draw(st.integers(1, 9)),
    }


def truth(stages: Stages, tiles: TileMap, data: dict[str, Any], b: int, kv_h: int) -> np.ndarray:
    """(rows, keys): which row of a key and value head attends to which key."""
    q_len, kv_len = tiles.lengths.q_len, tiles.lengths.kv_len
    rows = np.arange(q_len * tiles.group)[:, None]
    env = {
        **data,
        "b": b,
        "kv_h": kv_h,
        "h": kv_h * tiles.group + rows % tiles.group,
        "q": rows // tiles.group + tiles.offset,
        "k": np.arange(kv_len)[None],
        "q_len": q_len,
        "kv_len": kv_len,
    }
    attends = np.asarray(evaluate(stages.ir.mask, env, np.False_), np.bool_)
    return np.broadcast_to(attends, (rows.size, kv_len))


def inputs_for(stages: Stages, lengths: Lengths) -> dict[str, Any]:
    """Side inputs for a call; a draw with queries before key 0 has none where the mask reads q."""
    assume(not index_faults(of_mask(stages.ir), lengths, {}) or lengths.q_len <= lengths.kv_len)
    return example_inputs(stages.ir, lengths)


calls = st.tuples(st.integers(0, 3), st.integers(0, 45), st.integers(0, 45))
heads_of = st.sampled_from([(1, 1), (2, 2), (3, 1), (6, 2)])


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(MASKS)), heads_of, schedules(), calls, st.integers(1, 4))
def test_a_map_is_true_of_every_pair(mask, heads, schedule, call, workers) -> None:
    stages, (batch, q_len, kv_len) = stages_of(mask, *heads, schedule), call
    lengths = Lengths(batch, q_len, kv_len)
    inputs = inputs_for(stages, lengths)
    data = mask_arrays(stages.ir, inputs, lengths)
    tiles = tile_map(stages, q_len, kv_len, batch, inputs=inputs, workers=workers)
    pairs = 0
    for b in range(batch):
        for kv_h in range(heads[1]):
            attends, codes = truth(stages, tiles, data, b, kv_h), tiles.one(b, kv_h)
            pairs += attends.sum() * (heads[0] // heads[1] // tiles.group)
            seen = np.zeros_like(attends)
            for (row, column), code in np.ndenumerate(codes):
                place = (
                    slice(row * tiles.panel_rows, (row + 1) * tiles.panel_rows),
                    slice(column * tiles.block_kv, (column + 1) * tiles.block_kv),
                )
                seen[place] = code != EMPTY
                if code == FULL:  # all of what the task's last key leaves of the tile
                    kept = attends[place].any(axis=0)
                    assert attends[place][:, kept].all()
                    assert kept[: kept.sum()].all()
                    assert kept.any()
            assert not (attends & ~seen).any()
    assert tiles.pairs == pairs


def counted(stages: Stages, call: tuple[int, int, int], workers: int, inputs: Any) -> Counter[str]:
    """How many tiles an emulated kernel computes, and in how many it runs mask code."""
    batch, q_len, kv_len = call
    ir, rng = stages.simplified, np.random.default_rng(0)
    module = emulate(
        stages.package, stages.schedule.lanes.value, ir.dtype.accumulator
    ).flash_forward
    found: Counter[str] = Counter()

    def counting(name: str, function: Any) -> Any:
        def wrapper(work: Any, *arguments: Any) -> Any:
            first, last = arguments[1:3] if name == "visited" else arguments[:2]
            found[name] += first < last
            return function(work, *arguments)

        return wrapper

    module.softmax_panel = counting("visited", module.softmax_panel)
    if hasattr(module, "mask_panel"):
        module.mask_panel = counting("masked", module.mask_panel)
    q = rng.standard_normal((batch, q_len, ir.heads, ir.head_dim), dtype=np.float32)
    k, v = (
        rng.standard_normal((batch, kv_len, ir.kv_heads, ir.head_dim), dtype=np.float32)
        for _ in range(2)
    )
    run(module, q, k, v, workers=workers, inputs=inputs if ir.inputs else None)
    return found


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(MASKS)), heads_of, schedules(), calls, st.integers(1, 4))
@example("chunk", (1, 1), {"lanes": 4, "block_q": 48, "block_kv": 40}, (1, 45, 45), 1)
@example("documents", (6, 2), {"lanes": 2, "block_q": 12, "block_kv": 8}, (2, 45, 40), 3)
def test_a_map_says_what_the_kernel_does(mask, heads, schedule, call, workers) -> None:
    schedule = {"tile_scalars": 1, "tile_vectors": 1, **schedule}
    stages, (batch, q_len, kv_len) = stages_of(mask, *heads, schedule), call
    inputs = inputs_for(stages, Lengths(batch, q_len, kv_len))
    tiles = tile_map(stages, q_len, kv_len, batch, inputs=inputs, workers=workers)
    every = [tiles.one(b, kv_h) for b in range(batch) for kv_h in range(heads[1])]
    found = counted(stages, call, workers, inputs)
    if batch and q_len:
        assert found["visited"] == sum(int((codes != EMPTY).sum()) for codes in every)
        assert found["masked"] == sum(int((codes == PARTIAL).sum()) for codes in every)


def test_shares_of_a_causal_map() -> None:
    schedule = {"lanes": 4, "tile_vectors": 1, "tile_scalars": 4, "block_q": 4, "block_kv": 4}
    tiles = attngen.tile_map({"heads": 1, "head_dim": 4, "causal": True}, 16, schedule=schedule)
    assert [CODES[code] for code in tiles.one()[1]] == [
        TileClass.FULL,
        TileClass.PARTIAL,
        TileClass.EMPTY,
        TileClass.EMPTY,
    ]
    assert tiles.visited == 10 / 16
    assert tiles.masked == 4 / 16
    assert tiles.attending == 136 / 256
    assert tiles.query_edges.tolist() == tiles.key_edges.tolist() == [0, 4, 8, 12, 16]


def test_positions_of_a_call_with_a_cache() -> None:
    tiles = tile_map("gqa", 10, 300)
    assert tiles.offset == 290
    assert (tiles.query_edges[0], tiles.query_edges[-1]) == (290, 300)
    assert tiles.key_edges[-1] == 300


def test_each_batch_element_has_its_own_documents() -> None:
    doc = np.array([np.zeros(600), np.arange(600) // 100], np.int64)
    tiles = tile_map("document", 600, batch=2, inputs={"doc": doc})
    assert tiles.codes.shape[:2] == (2, 1)
    assert not tiles.example
    one_document, six = tiles.one(0), tiles.one(1)
    assert (one_document != EMPTY).sum() > (six != EMPTY).sum()
    assert tiles.one(1, 15) is not None
    with pytest.raises(CallValueError, match="batch: expected an index from 0 to 1, got 2"):
        tiles.one(2)
    with pytest.raises(CallValueError, match="kv_heads: expected an index from 0 to 15, got 16"):
        tiles.one(0, 16)


def test_mistakes_in_side_inputs() -> None:
    with pytest.raises(CallTypeError, match="'doc' must be given"):
        tile_map("document", 8, inputs={})
    with pytest.raises(CallTypeError, match="'dog' is not part of this spec"):
        tile_map("document", 8, inputs={"dog": np.zeros((1, 8), int)})
    with pytest.raises(CallValueError, match="must have shape"):
        tile_map("document", 8, inputs={"doc": np.zeros((1, 9), int)})
    tile_map("document", 8, inputs={"doc": np.zeros(8, int)})  # the batch of one may be left out


def test_what_only_the_score_reads_is_not_needed() -> None:
    assert tile_map("relative_bias", 300, inputs={}).visited == 1
    assert not tile_map("relative_bias", 300).example


def test_maps_of_long_sequences_are_quick_and_those_of_huge_ones_refused() -> None:
    assert tile_map("window", 1 << 17).visited < 0.01
    with pytest.raises(CallValueError, match=r"a map of \d+ tiles is too large"):
        tile_map("window", 1 << 30)


@pytest.mark.parametrize("name", spec_names())
def test_every_shipped_spec_has_examples_of_its_inputs_and_a_map(name: str) -> None:
    ir = run_stages(name).ir
    for sizes in (Lengths(2, 64, 64), Lengths(1, 64, 64)):
        found = example_inputs(ir, sizes)
        again = example_inputs(ir, sizes, np.random.default_rng(0))
        assert all((found[key] == again[key]).all() for key in found)
        tiles = tile_map(name, sizes.q_len, sizes.kv_len, sizes.batch)
        assert 0 <= tiles.attending <= 1


def test_examples_are_told_from_their_use() -> None:
    lengths = Lengths(3, 200, 200)
    doc = example_inputs(run_stages("document").ir, lengths)["doc"]
    assert (np.diff(doc, axis=1) >= 0).all()
    assert len(np.unique(doc)) > 2
    tree = example_inputs(run_stages("tree").ir, lengths)
    assert (tree["prev"] < np.maximum(1, np.arange(200))).all()
    assert (tree["prompt"] >= 100).all()
    assert (tree["prompt"] <= 200).all()


def test_an_example_that_would_be_read_outside_is_refused() -> None:
    spec = {
        "heads": 1,
        "head_dim": 2,
        "inputs": {
            "far": {"shape": ["batch"], "dtype": "int"},
            "few": {"shape": [3], "dtype": "bool"},
        },
        "mask": "few[far[b] + 1000]",
    }
    with pytest.raises(CallTypeError, match="axis 0 of 'few' has 3 elements"):
        tile_map(spec, 8)
