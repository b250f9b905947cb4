"""A later benchmark against an earlier one: what counts as a loss, and what cannot be compared."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attngen import cli
from attngen.bench.compare import Comparison, compare, interval, read_document, table
from attngen.errors import CallValueError

ENVIRONMENT = {"cpu": "a chip", "cores": 2, "load": 0.1, "versions": {"numba": "1"}}


def times(median: float, spread: float = 0.02, runs: int = 15) -> list[float]:
    return (median * (1 + spread * np.linspace(-1, 1, runs))).tolist()


def document(**lines: list[float]) -> dict[str, Any]:
    return {
        "suite": "quick",
        "environment": copy.deepcopy(ENVIRONMENT),
        "lines": [
            {
                "case": {"label": label},
                "threads": 2,
                "results": [{"who": "attngen", "timing": seconds}, {"who": "torch", "timing": [9]}],
            }
            for label, seconds in lines.items()
        ],
    }


def verdicts(found: Comparison) -> dict[str, str]:
    return {change.name.removesuffix(", 2 threads"): change.verdict for change in found.changes}


def test_verdicts() -> None:
    old = document(up=times(1.0), down=times(1.0), level=times(1.0), noisy=times(1.0), gone=[1.0])
    new = document(
        up=times(1.2), down=times(0.8), level=times(1.03), noisy=times(1.2, 0.5), fresh=[1.0]
    )
    found = compare(old, new)
    assert verdicts(found) == {
        "up": "slower",
        "down": "faster",
        "level": "same",
        "noisy": "same",
        "gone": "gone",
        "fresh": "new",
    }
    assert found.lost
    assert [c.is_loss for c in found.changes] == [True, False, False, False, True, False]
    up = found.changes[0]
    assert up.ratio == pytest.approx(1.2)
    assert up.low is not None
    assert up.high is not None
    assert up.low < 1.2 < up.high
    assert [row[3] for row in table(found).rows] == list(verdicts(found).values())


def test_nothing_lost_where_all_is_the_same_or_faster() -> None:
    old = document(a=times(1.0), b=times(1.0))
    assert not compare(old, document(a=times(1.0), b=times(0.5))).lost
    assert not compare(old, old).lost


def test_tolerance_is_what_may_change() -> None:
    old, new = document(a=times(1.0, 0.001)), document(a=times(1.08, 0.001))
    assert compare(old, new, tolerance=0.05).lost
    assert not compare(old, new, tolerance=0.1).lost


def test_a_line_that_is_no_longer_measured_is_a_loss() -> None:
    old, new = document(a=times(1.0), b=times(1.0)), document(a=times(1.0), b=times(1.0))
    new["lines"][1]["results"][0]["timing"] = None
    assert verdicts(compare(old, new)) == {"a": "same", "b": "gone"}


def test_the_interval_covers_the_true_ratio() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(60):
        old = np.exp(rng.normal(0.0, 0.1, 15)).tolist()
        new = (1.3 * np.exp(rng.normal(0.0, 0.1, 15))).tolist()
        low, high = interval(old, new)
        hits += low <= 1.3 <= high
    assert hits >= 55
    assert interval(old, new) == interval(old, new)


def test_suites_of_processes_are_compared_too() -> None:
    old = {
        "suite": "start",
        "environment": ENVIRONMENT,
        "lines": [
            {"who": "attngen", "label": "layer, warm", "seconds": times(0.5)},
            {"who": "torch-sdpa", "label": "attention", "seconds": times(0.5)},
        ],
    }
    new = copy.deepcopy(old)
    new["lines"][0]["seconds"] = times(0.8)
    new["lines"][1]["seconds"] = times(5.0)
    assert {c.name: c.verdict for c in compare(old, new).changes} == {"layer, warm": "slower"}
    line = {"who": "attngen", "label": "call", "threads": 1, "bytes": 100, "reason": None}
    memory = {**old, "suite": "memory", "lines": [line]}
    more = {**memory, "lines": [{**line, "bytes": 200}]}
    assert {c.name: c.verdict for c in compare(memory, more).changes} == {
        "call, 1 thread": "slower"
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"suite": "core"}, "expected suite 'quick', got 'core'"),
        ({"environment": {**ENVIRONMENT, "cpu": "another"}}, "measured on another machine"),
        ({"environment": {**ENVIRONMENT, "cores": 4}}, "measured on another machine"),
        ({"lines": []}, "no line in common"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict[str, Any], said: str) -> None:
    new = document(a=times(1.0))
    with pytest.raises(CallValueError, match=said):
        compare({**new, **change}, new)


def test_notes_say_what_else_changed() -> None:
    old, new = document(a=[1.0]), document(a=[1.0])
    old["environment"]["versions"] = {"numba": "0", "torch": "2"}
    new["environment"]["load"] = 3.0
    assert compare(old, new).notes == (
        "numba was 0, and is 1",
        "torch was 2, and is not installed",
        "the machine was busy now (load 3.0)",
    )


@pytest.mark.parametrize("text", ["", "[]", '{"suite": "core"}'])
def test_a_file_that_is_no_benchmark_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CallValueError, match="--compare: "):
        read_document(path)


@pytest.mark.parametrize(("median", "code"), [(1.0, 0), (2.0, 1), (0.5, 0)])
def test_a_loss_is_exit_code_one(
    median: float,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(document(work=times(1.0))), encoding="utf-8")
    measured = (True, document(work=times(median)), [], "on a chip")
    monkeypatch.setattr("attngen.cli.bench._measure", lambda *_: measured)
    arguments = ["bench", "--suite", "quick", "--peers", "none"]
    assert cli.run([*arguments, "--compare", str(old), "--json", str(new)]) == code
    captured = capsys.readouterr()
    assert f"{median:.3f}" in captured.out
    assert ("slower than" in captured.err) == bool(code)
    (change,) = json.loads(new.read_text("utf-8"))["comparison"]["changes"]
    assert change["ratio"] == pytest.approx(median)


def test_a_missing_file_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attngen.cli.bench._measure", lambda *_: pytest.fail("measured"))
    missing = str(tmp_path / "old.json")
    assert cli.run(["bench", "--suite", "quick", "--peers", "none", "--compare", missing]) == 1
    assert "cannot be read" in capsys.readouterr().err
