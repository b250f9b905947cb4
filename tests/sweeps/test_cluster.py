"""A Dask cluster as an engine: one real one whose worker is killed, and what can go wrong."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweeps.fakes import BASE, MACHINE

from attngen.errors import SweepError
from attngen.spec.reader import read_sweep
from attngen.sweeps import cluster as module
from attngen.sweeps.cluster import ClusterEngine, _take, _Task, _Worker, connect
from attngen.sweeps.points import Defaults, Job, Machine, find_points
from attngen.sweeps.run import sweep
from attngen.sweeps.series import find_series, read_series
from attngen.targets import AVX512

ROOT = Path(__file__).resolve().parents[2]
SPEC = {
    "name": "clustered",
    "heads": 2,
    "head_dim": 16,
    "causal": True,
    "sweep": {"q_len": {"from": 20, "to": 40, "step": 1}, "threads": [1]},
}


@pytest.fixture
def _cluster_environment(monkeypatch: pytest.MonkeyPatch, kernel_cache: Path) -> Iterator[None]:
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(kernel_cache))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # killing a worker leaves its sockets to the collector
        yield


@pytest.mark.numba
@pytest.mark.slow
@pytest.mark.usefixtures("_cluster_environment")
@pytest.mark.filterwarnings("ignore")
def test_the_points_of_a_worker_that_is_killed_are_measured_by_another(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = sweep(SPEC, folder=tmp_path, rounds=1, scheduler=client)
        killed = ""
        for result in found:
            if not killed:
                addresses = client.scheduler_info(n_workers=-1)["workers"]
                (killed,) = (a for a in addresses if a != result.data["worker"])
                (process,) = client.run(os.getpid, workers=[killed]).values()
                os.kill(process, signal.SIGKILL)
        table = found.table
    (series,) = find_series(tmp_path)
    lines = read_series(series).results
    assert len(lines) == len({line["point"] for line in lines}) == table.rows == 21
    assert table["status"] == ["ok"] * 21
    again = [line for line in lines if line["attempt"] > 1]
    assert again, "the killed worker was measuring a batch"
    assert killed not in {line["worker"] for line in again}
    environments = read_series(series).info["environments"]
    for line in lines:
        assert line["worker"].startswith("tcp://")
        assert environments[line["fingerprint"]]["machine"] == line["machine"]


class _Future:
    """Done at once, with a value or an error."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def done(self) -> bool:
        return True

    def cancel(self, force: bool = False) -> None:
        del force

    def result(self) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class _Client:
    """Workers that answer as `outcomes` says, by address, one after the other."""

    def __init__(self, workers: dict[str, _Worker], outcomes: dict[str, list[Any]]) -> None:
        self.workers, self.outcomes = workers, outcomes
        self.sent: list[tuple[str, int]] = []

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1
        return {"workers": dict.fromkeys(self.workers)}

    def run(self, function: Any, workers: list[str], on_error: str) -> dict[str, _Worker]:
        del function, on_error
        return {address: self.workers[address] for address in workers}

    def submit(self, function: Any, jobs: list[Any], *_: Any, **more: Any) -> _Future:
        del function
        (address,) = more["workers"]
        assert more["allow_other_workers"] is False
        self.sent.append((address, len(jobs)))
        outcome = self.outcomes[address].pop(0) if self.outcomes[address] else None
        if outcome is None:
            outcome = {"lines": [{"status": "ok"}] * len(jobs), "speeds": None}
        return _Future(outcome)


def worker(name: str, cores: int = 4) -> _Worker:
    return _Worker(name, {"machine": name}, Machine(AVX512, cores))


def engine(client: _Client, monkeypatch: pytest.MonkeyPatch, patience: float = 0.0) -> Any:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(module, "connect", lambda scheduler: scheduler)
    return ClusterEngine(client, patience)


def batch(*lengths: int, threads: int = 1) -> tuple[Job, ...]:
    plan = read_sweep({**BASE, "sweep": {"q_len": list(lengths), "threads": [threads]}})
    return find_points(plan, Defaults(), MACHINE).jobs


def lost() -> Exception:
    return pytest.importorskip("distributed").CancelledError("gone")


def run(who: Any, batches: list[tuple[Job, ...]]) -> list[Any]:
    from attngen.sweeps.measure import Options

    return list(who.measure(batches, Options(), {}, lambda _: None))


def test_a_lost_batch_goes_to_another_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    client = _Client({"a": worker("x"), "b": worker("y")}, {"a": [lost()], "b": []})
    found = run(engine(client, monkeypatch), [batch(1, 2)])
    assert [(m.worker, m.attempt, m.fingerprint) for m in found] == [("b", 2, "y")]
    assert client.sent == [("a", 2), ("b", 2)]


def test_a_batch_that_costs_several_workers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    client = _Client({"a": worker("x")}, {"a": [lost(), lost(), lost()]})
    (only,) = run(engine(client, monkeypatch, 5.0), [batch(1, 2)])
    assert only.attempt == 3
    assert [line["status"] for line in only.lines] == ["failed", "failed"]
    assert only.lines[0]["reason"] == "3 workers were lost while they measured its batch"


def test_what_a_worker_raises_is_the_result_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    client = _Client({"a": worker("x")}, {"a": [ModuleNotFoundError("No module named 'attngen'")]})
    first, second = run(engine(client, monkeypatch), [batch(1), batch(2)])
    assert first.lines[0]["reason"] == "ModuleNotFoundError: No module named 'attngen'"
    assert second.lines[0]["status"] == "ok"


def test_a_cluster_without_workers_ends_in_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = engine(_Client({}, {}), monkeypatch)
    with pytest.raises(SweepError, match="the cluster has no workers"):
        nobody.machine()
    with pytest.raises(SweepError, match=r"has lost its workers; .*the same command continues"):
        run(nobody, [batch(1)])


def test_a_worker_gets_no_batch_that_needs_more_cores_than_it_has() -> None:
    waiting = deque([_Task(batch(1, threads=4)), _Task(batch(2, threads=2))])
    taken = _take(waiting, "a", worker("small", cores=2))
    assert taken is not None
    assert taken.batch[0].point.call.threads == 2
    assert _take(waiting, "a", worker("small", cores=2)) is None
    assert len(waiting) == 1


def test_points_are_judged_by_the_machine_with_the_most_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = _Client({"a": worker("x", 2), "b": worker("y", 8)}, {"a": [], "b": []})
    assert engine(client, monkeypatch).machine().cores == 8


def test_without_dask_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SweepError, match=r"pip install 'attngen\[sweep\]'"):
        connect("tcp://127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(module, "_CONNECT_SECONDS", 0.3)
    with pytest.raises(SweepError, match="no Dask scheduler answers at tcp://127"):
        connect("tcp://127.0.0.1:1")
