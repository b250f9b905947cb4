"""What each head attends to, against softmax written down once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures.specs import ir_of

from attngen.errors import CallTypeError, CallValueError, SpecError
from attngen.ir.attention import AttentionIR
from attngen.pictures.attention_maps import MOST, attention_maps
from attngen.spec.elaborate import elaborate
from attngen.spec.reader import read_spec

CORE: dict[str, Any] = {"name": "core", "heads": 4, "kv_heads": 2, "head_dim": 8, "causal": True}


def core(**more: Any) -> AttentionIR:
    return elaborate(read_spec({**CORE, **more}))


def arrays(q_len: int, kv_len: int, *batch: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "q": rng.standard_normal((*batch, q_len, 4, 8)),
        "k": rng.standard_normal((*batch, kv_len, 2, 8)),
    }


def probabilities(q: Any, k: Any, sink: Any = None) -> Any:
    """(heads, q_len, kv_len), causal with the last query at the last key."""
    q_len, kv_len = q.shape[0], k.shape[0]
    scores = np.einsum("qhd,khd->hqk", q, k.repeat(2, axis=1)) / np.sqrt(8)
    visible = np.arange(kv_len)[None] <= np.arange(q_len)[:, None] + kv_len - q_len
    power = np.where(visible, np.exp(scores), 0)
    extra = 0 if sink is None else np.exp(sink)[:, None, None]
    return power / (power.sum(axis=2, keepdims=True) + extra)


def test_a_short_sequence_is_shown_as_it_is() -> None:
    data = arrays(7, 9)
    maps = attention_maps(core(), data)
    expected = probabilities(data["q"], data["k"])
    np.testing.assert_allclose(maps.probabilities, expected, rtol=1e-12)
    assert maps.queries.tolist() == list(range(7))
    assert maps.edges.tolist() == list(range(10))
    assert maps.kv_heads == (0, 0, 1, 1)
    before = np.arange(2, 9)[:, None] - np.arange(9)
    np.testing.assert_allclose(maps.distance, (expected * before).sum((1, 2)) / 7, rtol=1e-12)
    assert maps.sink_share.tolist() == [0, 0, 0, 0]


def test_of_a_long_one_some_queries_and_groups_of_keys() -> None:
    data = arrays(450, 1000)
    maps = attention_maps(core(), data)
    expected = probabilities(data["q"], data["k"])[:, maps.queries]
    assert maps.probabilities.shape == (4, MOST, MOST)
    assert (maps.queries[0], maps.queries[-1]) == (0, 449)
    assert (maps.edges[0], maps.edges[-1]) == (0, 1000)
    added = np.add.reduceat(expected, maps.edges[:-1], axis=2)
    np.testing.assert_allclose(maps.probabilities, added, rtol=1e-9, atol=1e-15)
    before = 550 + maps.queries[:, None] - np.arange(1000)
    np.testing.assert_allclose(maps.distance, (expected * before).sum((1, 2)) / MOST, rtol=1e-9)


def test_a_sink_takes_its_share() -> None:
    data = arrays(5, 5)
    sink = np.array([-9.0, 0.0, 2.0, 9.0])
    maps = attention_maps(core(sink=True), {**data, "sink": sink})
    expected = probabilities(data["q"], data["k"], sink)
    np.testing.assert_allclose(maps.probabilities, expected, rtol=1e-12)
    np.testing.assert_allclose(maps.sink_share, 1 - expected.sum(2).mean(1), rtol=1e-9)


def test_without_a_softmax_weights_are_what_they_are() -> None:
    data = arrays(5, 5)
    weights = attention_maps(core(activation="sigmoid"), data).probabilities
    scores = np.einsum("qhd,khd->hqk", data["q"], data["k"].repeat(2, axis=1)) / np.sqrt(8)
    expected = np.where(np.tri(5) > 0, 1 / (1 + np.exp(np.log(5) - scores)), 0)
    np.testing.assert_allclose(weights, expected, rtol=1e-12)
    shifted = attention_maps(core(activation="softmax_off_by_one"), data)
    zero = attention_maps(core(sink=True), {**data, "sink": np.zeros(4)})
    np.testing.assert_allclose(shifted.probabilities, zero.probabilities, rtol=1e-12)
    np.testing.assert_allclose(shifted.sink_share, zero.sink_share, rtol=1e-12)


def test_rows_that_see_nothing_are_empty() -> None:
    maps = attention_maps(core(mask="q > 2"), arrays(5, 5))
    assert not maps.probabilities[:, :3].any()
    np.testing.assert_allclose(maps.probabilities[:, 3:].sum(2), 1)
    empty = attention_maps(core(mask="k < 0"), arrays(5, 5))
    assert not empty.probabilities.any()
    assert empty.distance.tolist() == [0, 0, 0, 0]


def test_the_first_of_a_batch_with_its_side_inputs() -> None:
    inputs = {"doc": {"shape": ["batch", "kv_len"], "dtype": "int"}}
    ir = core(mask="doc[b, q] == doc[b, k]", inputs=inputs)
    batch = arrays(6, 6, 2)
    doc = np.array([[0, 0, 1, 1, 2, 2], [0] * 6])
    whole = attention_maps(ir, {**batch, "doc": doc})
    one = attention_maps(ir, {"q": batch["q"][0], "k": batch["k"][0], "doc": doc[0]})
    np.testing.assert_array_equal(whole.probabilities, one.probabilities)
    assert not whole.probabilities[:, 2:, :2].any()


def test_a_layer_projects_first() -> None:
    ir = elaborate(read_spec({**CORE, "d_model": 12}))
    rng = np.random.default_rng(5)
    x, w_q, w_k = (rng.standard_normal(s) for s in ((300, 12), (12, 32), (12, 16)))
    bias = rng.standard_normal(32)
    maps = attention_maps(ir, {"x": x, "w_q": w_q, "w_k": w_k, "q_bias": bias})
    q = (x @ w_q + bias).reshape(300, 4, 8)
    direct = attention_maps(ir, {"q": q, "k": (x @ w_k).reshape(300, 2, 8)})
    np.testing.assert_allclose(maps.probabilities, direct.probabilities, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k": None}, CallTypeError, "'k' must be among the arrays, which are q"),
        ({"q": None}, CallTypeError, "there must be 'q' and 'k' among the arrays, which are k"),
        ({"extra": np.ones(3)}, CallTypeError, "'extra' is not part of this spec"),
        ({"q": np.ones((5, 32))}, CallValueError, "'q' must have 3 or 4 axes, not 2"),
        ({"q": np.ones((2, 5, 4, 8))}, CallValueError, "'q' has 4 axes and 'k' 3"),
        ({"q": np.ones((5, 3, 8))}, CallValueError, "'q' must have shape"),
        ({"sink": np.ones(4)}, CallTypeError, "'sink' is not part of this spec"),
    ],
)
def test_mistakes(change: dict[str, Any], error: type[Exception], message: str) -> None:
    data = {**arrays(5, 5), **change}
    with pytest.raises(error, match=message):
        attention_maps(core(), {name: array for name, array in data.items() if array is not None})


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_heads_are_drawn_to_a_file(ending: str, tmp_path: Path) -> None:
    from attngen.pictures.heads_figure import save_heads

    ir = ir_of("sinks")
    rng = np.random.default_rng(7)
    q, k = rng.standard_normal((40, 8, 64)), rng.standard_normal((40, 2, 64))
    path = tmp_path / f"heads{ending}"
    save_heads(attention_maps(ir, {"q": q, "k": k, "sink": np.zeros(8)}), path)
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[ending]
    assert path.read_bytes().startswith(start)


def test_another_ending_is_refused(tmp_path: Path) -> None:
    from attngen.pictures.heads_figure import save_heads

    maps = attention_maps(core(), arrays(3, 3))
    with pytest.raises(CallValueError, match=r"must end in \.png, \.svg or \.pdf"):
        save_heads(maps, tmp_path / "heads.bmp")


def test_two_maps_a_head_are_refused() -> None:
    with pytest.raises(SpecError, match="'differential' makes two"):
        attention_maps(core(differential={"lambda": 0.8}), arrays(3, 3))
