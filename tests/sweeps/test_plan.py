"""From the text of a sweep to its axes, groups and conditions, and the spec at each choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attngen.errors import SpecError
from attngen.resources import specs_dir
from attngen.spec.model import Spec, Window
from attngen.spec.plan import Axis
from attngen.spec.reader import read_spec, read_sweep
from attngen.spec.sweep import SweepPlan

BASE: dict[str, Any] = {"heads": 8, "head_dim": 64}


def plan(sweep: dict[str, Any], **base: Any) -> SweepPlan:
    return read_sweep({**BASE, **base, "sweep": sweep})


def values(axis: Axis) -> list[Any]:
    return [setting.value for setting in axis.settings]


def axis(sweep: dict[str, Any], **base: Any) -> list[Any]:
    (only,) = plan(sweep, **base).axes
    return values(only)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([64, 128], [64, 128]),
        (64, [64]),
        ({"from": 64, "to": 256, "step": 64}, [64, 128, 192, 256]),
        ({"from": 64, "to": 255, "step": 64}, [64, 128, 192]),
        ({"from": 64, "to": 64, "step": 1}, [64]),
        ({"from": 16, "to": 128, "factor": 2}, [16, 32, 64, 128]),
        ({"from": 100, "to": 340, "factor": 1.5}, [100, 150, 225, 338]),
        ({"from": 1, "to": 4, "factor": 1.1}, [1, 2, 3, 4]),
    ],
)
def test_values_of_a_size(given: Any, expected: list[int]) -> None:
    found = axis({"head_dim": given})
    assert found == expected
    assert all(type(value) is int for value in found)


def test_a_range_of_real_numbers_has_both_ends_and_no_rounding_noise() -> None:
    assert axis({"softcap": {"from": 0.1, "to": 0.7, "step": 0.2}}) == [0.1, 0.3, 0.5, 0.7]
    assert axis({"scale": {"from": 0.1, "to": 10, "factor": 10}}) == [0.1, 1.0, 10.0]


def test_keys_below_the_top_and_values_that_are_mappings_lists_or_nothing() -> None:
    found = plan(
        {
            "window": [None, {"left": 63, "right": 0}],
            "schedule.cpu.block_q": [None, 96],
            "parameters.size": [1, 2.5],
            "outputs": [["out"], ["out", "lse"]],
            "causal": [True, "top_left"],
            "mask": ["k % size == 0"],
        },
        parameters={"size": 3},
        mask="k % size == 1",
    )
    assert [values(a) for a in found.axes] == [
        [None, {"left": 63, "right": 0}],
        [None, 96],
        [1, 2.5],
        [("out",), ("out", "lse")],
        [True, "top_left"],
        ["k % size == 0"],
    ]
    assert axis({"outputs": ["out", "lse"]}) == [("out", "lse")]


def test_groups_are_crossed_and_the_axes_of_a_zip_walk_together() -> None:
    found = plan(
        {
            "q_len": [1, 2],
            "cross": {"batch": [1, 2], "threads": [1, 2]},
            "zip": [
                {"heads": [4, 8], "head_dim": [128, 64]},
                {"kv_len": [5, 6], "sink": [True, False]},
            ],
        }
    )
    assert [[a.key for a in group.axes] for group in found.groups] == [
        ["q_len"],
        ["batch"],
        ["threads"],
        ["heads", "head_dim"],
        ["kv_len", "sink"],
    ]
    assert found.size == 2**5


def test_a_value_may_come_back_beside_another_in_a_zip() -> None:
    found = plan({"zip": {"heads": [8, 8, 4], "head_dim": [64, 32, 64]}})
    assert found.size == 3


def test_ten_thousand_values_are_read_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = 0

    def counted(value: object) -> str:
        nonlocal shown
        shown += 1
        return repr(value)

    monkeypatch.setattr("attngen.spec.sweep_reader.repr", counted, raising=False)
    assert len(axis({"q_len": {"from": 1, "to": 10_000, "step": 1}})) == 10_000
    assert shown <= 20_000  # once when checked and once when kept


def test_the_spec_itself_is_as_if_there_were_no_sweep() -> None:
    spec = read_spec({**BASE, "sweep": {"heads": [3], "causal": [True]}})
    assert spec == read_spec(BASE)


def test_the_spec_at_a_choice() -> None:
    found = plan(
        {"window.left": [3], "schedule.cpu.block_q": [96], "causal": [False], "q_len": [7]},
        window={"right": 0},
        causal=True,
        schedule={"cpu": {"block_kv": 64}},
    )
    chosen = {a.key: a.settings[0] for a in found.axes}
    spec = found.spec_at(chosen)
    assert isinstance(spec, Spec)
    assert (spec.window, spec.causal) == (Window(3, 0), "none")
    assert [(o.name, o.value) for o in spec.schedule] == [("block_kv", 64), ("block_q", 96)]
    assert found.spec_at({}) == read_spec(
        {**BASE, "window": {"right": 0}, "causal": True, "schedule": {"cpu": {"block_kv": 64}}}
    )


def test_nothing_takes_a_key_out() -> None:
    found = plan({"window": [None], "softcap": [None]}, window={"left": 3}, softcap=5)
    spec = found.spec_at({a.key: a.settings[0] for a in found.axes})
    assert isinstance(spec, Spec)
    assert spec.window is None
    assert spec.softcap is None


def test_a_broken_rule_points_at_the_value_in_the_sweep(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("heads: 8\nhead_dim: 64\nsweep:\n  kv_heads: [2, 3]\n", encoding="utf-8")
    found = read_sweep(path)
    (kv_heads,) = found.axes
    assert isinstance(found.spec_at({"kv_heads": kv_heads.settings[0]}), Spec)
    wrong = found.spec_at({"kv_heads": kv_heads.settings[1]})
    assert isinstance(wrong, tuple)
    assert wrong[0].render().splitlines()[:3] == [
        f"{path}:4:17: error: 'kv_heads' must divide 'heads', and 3 does not divide 8",
        "    4 |   kv_heads: [2, 3]",
        "      |                 ^ here",
    ]


def test_a_spec_without_a_sweep_says_so() -> None:
    with pytest.raises(SpecError, match="'sweep' is missing"):
        read_sweep("gqa")


def test_settings_add_axes_and_replace_them() -> None:
    found = read_sweep({**BASE, "sweep": {"q_len": [1, 2]}}, ["head_dim=[32, 64]", "q_len=5"])
    assert {a.key: values(a) for a in found.axes} == {"q_len": [5], "head_dim": [32, 64]}
    assert [a.key for a in read_sweep("gqa", ["head_dim=[32, 64]"]).axes] == ["head_dim"]


def test_settings_win_over_a_spec() -> None:
    spec = read_spec("window", ["window.left=3", "causal=null", "schedule.cpu.block_q=96"])
    assert spec.window is not None
    assert (spec.window.left, spec.causal, spec.schedule[0].value) == (3, "none", 96)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("head_dim", "a setting is KEY=VALUE"),
        ("head_dim=", "a setting is KEY=VALUE"),
        ("head_dim=wide", "'head_dim' must be an integer, not the text 'wide'"),
        ("head_dims=3", "unknown key 'head_dims'"),
        ("window.left=-5", "'window.left' must be at least -1, not -5"),
        ("head_dim=[", "not valid YAML"),
    ],
)
def test_a_mistake_in_a_setting_is_shown_in_its_text(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec("gqa", [text])
    assert said in str(caught.value)
    assert "(setting):1:" in str(caught.value)


def test_a_sweep_is_inherited_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "parent.yaml").write_text(
        "heads: 8\nhead_dim: 64\nsweep: {q_len: [1, 2], batch: [1]}\n", encoding="utf-8"
    )
    child = tmp_path / "child.yaml"
    child.write_text("extends: parent\nsweep: {q_len: [3]}\n", encoding="utf-8")
    assert {a.key: values(a) for a in read_sweep(child).axes} == {"batch": [1], "q_len": [3]}


def test_the_shipped_sweep_is_one() -> None:
    found = read_sweep(specs_dir() / "sweep_head_dim.yaml")
    assert found.size > 20
    assert found.conditions
