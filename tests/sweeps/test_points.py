"""From a plan to its points: which there are, which are possible, and what finding them costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sweeps.fakes import BASE, MACHINE

from attngen.errors import SpecError
from attngen.spec.reader import read_spec, read_sweep
from attngen.sweeps import points as module
from attngen.sweeps.points import Call, Defaults, Points, find_points


def points(sweep: dict[str, Any], machine: Any = MACHINE, **base: Any) -> Points:
    return find_points(read_sweep({**BASE, **base, "sweep": sweep}), Defaults(), machine)


def keys(found: Points) -> list[tuple[Any, ...]]:
    return [tuple(job.point.keys.values()) for job in found.jobs]


def test_axes_are_crossed_in_the_order_of_the_text() -> None:
    found = points({"head_dim": [16, 32], "zip": {"q_len": [1, 2], "kv_len": [3, 4]}})
    assert keys(found) == [(16, 1, 3), (16, 2, 4), (32, 1, 3), (32, 2, 4)]
    assert [job.point.index for job in found.jobs] == [0, 1, 2, 3]
    assert len({job.point.name for job in found.jobs}) == 4


def test_call_sizes_come_from_axes_then_from_defaults() -> None:
    (first, _) = points({"q_len": [5, 6]}).jobs
    assert first.point.call == Call(1, 5, 5, 1, "cpu")
    plan = read_sweep({**BASE, "sweep": {"threads": [2]}})
    (only,) = find_points(plan, Defaults(3, 7, 9, 1), MACHINE).jobs
    assert only.point.call == Call(3, 7, 9, 2, "cpu")


def test_a_job_carries_the_whole_spec_as_plain_data() -> None:
    sweep = {"window": [{"left": 3}], "outputs": [["out", "lse"]], "schedule.cpu.block_q": [96]}
    (job,) = points(sweep, softcap=5, schedule={"cpu": {"block_kv": 64}}).jobs
    spec = read_spec(job.values)
    assert spec == read_spec(
        {
            **BASE,
            "softcap": 5,
            "window": {"left": 3},
            "outputs": ["out", "lse"],
            "schedule": {"cpu": {"block_kv": 64, "block_q": 96}},
        }
    )
    assert (job.schedule["block_q"], job.schedule["block_kv"]) == (96, 64)
    assert job.sizes["head_dim"] == 16


@pytest.mark.parametrize(
    ("sweep", "reason", "hint", "code"),
    [
        ({"kv_heads": [3]}, "'kv_heads' must divide 'heads', and 3", "1, 2 or 4", "E-HEADS"),
        ({"head_dim": [None]}, "'head_dim' is missing", "add the width of a head", "E-MISSING"),
        ({"schedule.cpu.block_q": [100]}, "'block_q' is 100, and must be a multiple of", "96 or",
         "E-SCHEDULE"),
        ({"threads": [5]}, "5 threads are more than the 4 cores", "1 to 4", "E-THREADS"),
        ({"target": ["cuda"]}, "CPU alone", "target: cpu", "E-TARGET"),
        ({"mask": ["k < doc[k]"]}, "'mask' takes an element of 'doc'", "declare it", "E-EXPR"),
    ],
)  # fmt: skip
def test_impossible_points_are_listed_with_their_reason(
    sweep: dict[str, Any], reason: str, hint: str, code: str
) -> None:
    found = points({**sweep, "q_len": [1, 2]})
    wrong = [one for one in found.impossible if one.code == code]
    assert len(wrong) == 2
    for one in wrong:
        assert reason in one.reason
        assert hint in one.hint


def test_a_call_that_no_memory_holds_is_impossible() -> None:
    small = replace(MACHINE, memory=1 << 20)
    found = points({"q_len": [16, 1 << 20]}, small)
    assert keys(found) == [(16,)]
    assert found.impossible[0].code == "E-MEMORY"
    assert "its arrays take 1.00 GiB, and the machine has 1.00 MiB" in found.impossible[0].reason


def test_conditions_leave_points_out() -> None:
    found = points(
        {
            "heads": [4, 8, 16],
            "head_dim": [16, 32, 64],
            "q_len": [16, 64],
            "where": ["heads * head_dim == 256", "q_len > head_dim or not causal"],
        },
        causal=True,
    )
    assert keys(found) == [(8, 32, 64), (16, 16, 64)]
    assert found.excluded == 16
    assert [job.point.index for job in found.jobs] == [0, 1]


def test_conditions_read_defaults_windows_decisions_and_parameters() -> None:
    sweep = {
        "window.left": [None, 7, 15],
        "schedule.cpu.block_q": [None, 96],
        "parameters.size": [2, 4],
        "where": "kv_heads == heads and value_dim == 16 and dilation == 1 and d_model == 0 and "
        "window_left == 7 and block_q == 0 and size > 2 and scale == 0.25 and softcap == 0",
    }
    found = points(sweep, mask="k % size == 0", parameters={"size": 1})
    assert keys(found) == [(7, None, 4)]


def test_a_condition_may_divide_by_a_size() -> None:
    found = points({"kv_heads": [1, 2, 3, 4], "where": "heads % kv_heads == 0"})
    assert keys(found) == [(1,), (2,), (4,)]
    assert not found.impossible


def test_conditions_of_call_sizes_alone() -> None:
    found = points({"q_len": [1, 2, 3], "kv_len": [1, 2, 3], "where": "q_len <= kv_len"})
    assert len(found) == 6


def test_the_same_point_has_the_same_name_in_another_plan() -> None:
    first = points({"head_dim": [16, 32], "q_len": [5]}).jobs[1]
    second = points({"q_len": [4, 5], "head_dim": [32]}).jobs[1]
    assert first.point.keys == second.point.keys
    assert first.point.name == second.point.name
    assert first.point.name != points({"head_dim": [32], "q_len": [4]}).jobs[0].point.name


def test_points_that_share_machine_code_name_one_kernel() -> None:
    found = points({"head_dim": [16, 32], "q_len": [1, 8, 64, 256], "batch": [1, 2]})
    assert len(found.jobs) == 16
    assert len({job.kernel for job in found.jobs}) == 4  # two widths, few and many rows


def test_ten_thousand_points_judge_each_spec_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"propose": 0, "elaborate": 0}
    for name in calls:
        original = getattr(module, name)

        def counted(*args: Any, name: str = name, original: Any = original) -> Any:
            calls[name] += 1
            return original(*args)

        monkeypatch.setattr(module, name, counted)
    found = points(
        {
            "head_dim": {"from": 8, "to": 400, "step": 8},
            "kv_heads": [1, 2],
            "q_len": {"from": 1, "to": 50, "step": 1},
            "batch": [1, 2],
        }
    )
    assert len(found) == 10_000
    assert found.judged == 100
    assert calls == {"propose": 100, "elaborate": 100}


def test_specs_are_judged_without_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("validation lowers nothing")

    monkeypatch.setattr("attngen.lowering.lower", never)
    monkeypatch.setattr("attngen.passes.simplify", never)
    size = {"from": 1, "to": 50, "step": 1}
    found = points({"heads": size, "head_dim": size})
    assert (len(found.jobs), found.judged) == (2500, 2500)


def test_too_many_combinations_are_refused() -> None:
    size = {"from": 1, "to": 2000, "step": 1}
    with pytest.raises(SpecError, match=r"4,000,000 combinations"):
        points({"heads": size, "head_dim": size})
