"""A sweep from its spec to its table: no point is lost or repeated, whatever stops it."""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sweeps.fakes import BASE, FakeEngine

from attngen.errors import CallValueError, SweepError
from attngen.spec.reader import read_spec, read_sweep
from attngen.sweeps import run as module
from attngen.sweeps.measure import Options
from attngen.sweeps.points import Defaults
from attngen.sweeps.run import Progress, Sweep, sweep
from attngen.sweeps.series import find_series, read_series

MANY = {"head_dim": [16, 32], "kv_heads": [1, 3, 4], "q_len": {"from": 1, "to": 20, "step": 1}}


def ready(
    engine: FakeEngine, folder: Path | None, axes: dict[str, Any] | None = None, **more: Any
) -> Sweep:
    plan = read_sweep({**BASE, "sweep": axes or MANY})
    return Sweep(plan, engine, Defaults(), Options(), folder, **more)


def series(folder: Path) -> list[dict[str, Any]]:
    (path,) = find_series(folder)
    return read_series(path).results


def test_every_point_has_one_result(tmp_path: Path) -> None:
    engine = FakeEngine()
    found = ready(engine, tmp_path)
    results = list(found)
    assert len(results) == len(found.points) == 120
    assert sum(result.status == "impossible" for result in results) == 40
    assert len(engine.measured) == len(set(engine.measured)) == 80
    assert len(series(tmp_path)) == 120


@pytest.mark.parametrize("stop", [0, 1, 7])
def test_an_interrupted_sweep_is_continued_without_loss_or_repetition(
    stop: int, tmp_path: Path
) -> None:
    first, second, third = FakeEngine(interrupt_after=stop), FakeEngine(), FakeEngine()
    with pytest.raises(KeyboardInterrupt):
        ready(first, tmp_path).run()
    kept = [line["point"] for line in series(tmp_path) if line["status"] == "ok"]
    assert kept == first.measured
    table = ready(second, tmp_path).run()
    assert not set(first.measured) & set(second.measured)
    assert len(first.measured) + len(second.measured) == 80
    lines = [line["point"] for line in series(tmp_path)]
    assert len(lines) == len(set(lines)) == table.rows == 120
    assert ready(third, tmp_path).run() == table
    assert third.measured == []


def test_who_stops_asking_stops_the_sweep(tmp_path: Path) -> None:
    found = iter(ready(FakeEngine(), tmp_path, {"q_len": [1, 2, 3]}))
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert len(series(tmp_path)) == 3  # a batch was measured, and is kept
    again = FakeEngine()
    assert ready(again, tmp_path, {"q_len": [1, 2, 3]}).run().rows == 3
    assert again.measured == []


def test_a_changed_plan_setting_or_version_is_a_new_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes = {"q_len": [1, 2]}
    ready(FakeEngine(), tmp_path, axes).run()
    ready(FakeEngine(), tmp_path, {"q_len": [1, 2, 3]}).run()
    plan = read_sweep({**BASE, "sweep": axes})
    Sweep(plan, FakeEngine(), Defaults(), Options(rounds=9), tmp_path).run()
    monkeypatch.setattr(module, "source_digest", lambda: "another version")
    engine = FakeEngine()
    ready(engine, tmp_path, axes).run()
    assert len(engine.measured) == 2
    assert [len(read_series(p).results) for p in find_series(tmp_path)].count(2) == 3
    assert len(find_series(tmp_path)) == 4


def test_failed_points_are_measured_again_on_request_only(tmp_path: Path) -> None:
    axes = {"q_len": [1, 2, 3]}
    table = ready(FakeEngine(fail={"q_len": 2}), tmp_path, axes).run()
    assert table["status"] == ["ok", "failed", "ok"]
    assert table["reason"] == [None, "it broke", None]
    again = FakeEngine()
    ready(again, tmp_path, axes).run()
    assert again.measured == []
    table = ready(again, tmp_path, axes, retry_failed=True).run()
    assert len(again.measured) == 1
    assert table["status"] == ["ok", "ok", "ok"]


def test_a_disk_that_fills_up_ends_in_a_clear_error_with_what_was_measured_kept(
    tmp_path: Path,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = 40_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(SweepError, match=r"can no longer be written.*are kept"):
            ready(FakeEngine(), tmp_path).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    kept = series(tmp_path)
    assert 40 < len(kept) < 120
    engine = FakeEngine()
    assert ready(engine, tmp_path).run().rows == 120
    assert len(engine.measured) == 120 - len(kept)


def test_results_say_where_they_come_from_and_how_to_get_them_again(tmp_path: Path) -> None:
    path = tmp_path / "my spec.yaml"
    path.write_text(
        "name: mine\nheads: 4\nhead_dim: 16\nsweep:\n"
        "  window: [null, {left: 3}]\n  mask: ['k < q']\n"
        "  schedule.cpu.block_q: [96]\n  q_len: [5]\n  threads: [2]\n",
        encoding="utf-8",
    )
    found = Sweep(read_sweep(path), FakeEngine(), Defaults(), Options(), None)
    for result, job in zip(found, found.points.jobs, strict=True):
        assert (result.data["fingerprint"], result.data["machine"]) == ("print-1", "kind-a")
        words = shlex.split(result.data["command"])
        assert words[:3] == ["attngen", "run", str(path)]
        assert words[-8:] == [
            *("--q-len", "5", "--kv-len", "5"),
            *("--batch", "1", "--threads", "2"),
        ]
        settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        assert read_spec(path, settings) == read_spec(job.values)


def test_progress_counts_what_is_done(tmp_path: Path) -> None:
    axes, told = {"kv_heads": [1, 3], "q_len": [1, 2]}, []
    ready(FakeEngine(), tmp_path, axes, progress=told.append).run()
    assert told[0] == Progress(2, 4, "starting")
    assert told[-1].done == 4
    assert [p.done for p in told] == sorted(p.done for p in told)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"peers": ["jax"]}, "peers: expected some of torch, flex, onnxruntime"),
        ({"batch": 0}, "batch: expected 1 or more, got 0"),
        ({"threads": -1}, "threads: expected 1 or more, got -1"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(CallValueError, match=said):
        sweep({**BASE, "sweep": {"q_len": [1]}}, **arguments)


def test_nothing_is_written_before_the_first_result_is_asked_for(tmp_path: Path) -> None:
    found = sweep({**BASE, "sweep": {"q_len": [1]}}, folder=tmp_path / "new")
    assert len(found.points) == 1
    assert not (tmp_path / "new").exists()


def test_importing_attngen_imports_no_part_of_a_sweep() -> None:
    code = (
        "import sys, attngen, attngen.sweeps.run; "
        "print([m for m in ('distributed', 'dask', 'pandas', 'polars', 'pyarrow', 'torch') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
