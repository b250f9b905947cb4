"""Batches and the processes that measure them, with a stand-in for the measuring itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sweeps.fakes import BASE, MACHINE

from attngen.spec.reader import read_sweep
from attngen.sweeps import batch as module
from attngen.sweeps.batch import MOST_POINTS, Workshop, batches, machine_lock
from attngen.sweeps.measure import Options
from attngen.sweeps.points import Defaults, Job, find_points

# Speaks the protocol of attngen.sweeps.worker; a point of 13 queries kills it, one of 17 keys does
# not compile, one of 19 never ends, and it says which thread settings it was started with.
STAND_IN = """
import json, os, sys
for text in sys.stdin:
    asked = json.loads(text)
    calls = [job["point"]["call"] for job in asked["jobs"]]
    if asked["task"] == "compile":
        answer = {"seconds": 0.5, "state": "cold"}
        if calls[0]["kv_len"] == 19:
            sys.stdin.read()
        if calls[0]["kv_len"] == 17:
            answer = {"reason": "does not compile"}
    else:
        if any(call["q_len"] == 13 for call in calls):
            print("a last word", file=sys.stderr)
            sys.stderr.flush()
            os.kill(os.getpid(), 9) if len(calls) > 1 else sys.exit(3)
        threads = os.environ["NUMBA_NUM_THREADS"], os.environ["OMP_NUM_THREADS"]
        more = {"status": "ok", "of": len(calls), "env": threads}
        lines = [{"q_len": call["q_len"], **more} for call in calls]
        answer = {"results": lines, "speeds": {"threads": 1, "flop_per_s": 1, "bytes_per_s": 1}}
    print(json.dumps(answer), flush=True)
"""


def jobs(sweep: dict[str, Any]) -> tuple[Job, ...]:
    return find_points(read_sweep({**BASE, "sweep": sweep}), Defaults(), MACHINE).jobs


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN, encoding="utf-8")
    real = subprocess.Popen

    def popen(command: list[str], **more: Any) -> Any:
        assert command[1:] == ["-P", "-m", "attngen.sweeps.worker"]
        return real([sys.executable, str(script)], **more)

    monkeypatch.setattr(module.subprocess, "Popen", popen)
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))


def test_every_job_is_in_one_batch_and_a_batch_has_one_number_of_threads_and_type() -> None:
    wanted = jobs(
        {
            "q_len": {"from": 1, "to": 25, "step": 1},
            "threads": [1, 2],
            "dtype": ["float32", "float64"],
        }
    )
    found = batches(wanted, Options(), memory=0)
    assert sorted(j.point.index for b in found for j in b) == list(range(100))
    assert max(map(len, found)) == MOST_POINTS
    for batch in found:
        assert len({(j.point.call.threads, j.sizes["dtype"]) for j in batch}) == 1


def test_the_order_mixes_axes_and_is_the_same_every_time() -> None:
    wanted = jobs({"q_len": {"from": 1, "to": 64, "step": 1}})
    first = batches(wanted, Options(), 0, seed=1)
    assert first == batches(wanted, Options(), 0, seed=1)
    assert first != batches(wanted, Options(), 0, seed=2)
    lengths = [job.point.call.q_len for job in first[0]]
    assert max(lengths) - min(lengths) > 2 * MOST_POINTS


def test_the_arrays_of_a_batch_fit_a_quarter_of_the_memory() -> None:
    wanted = jobs({"q_len": [100, 101, 102, 103]})
    size = wanted[0].bytes
    assert [len(b) for b in batches(wanted, Options(), memory=10 * size)] == [2, 2]
    assert [len(b) for b in batches(wanted, Options(), memory=size)] == [1, 1, 1, 1]


def test_flex_attention_is_measured_a_point_at_a_time() -> None:
    wanted = jobs({"q_len": [1, 2, 3]})
    assert len(batches(wanted, Options(peers=("torch-flex",)), 0)) == 3


@pytest.mark.usefixtures("_stand_in")
def test_lines_come_in_the_order_of_the_jobs() -> None:
    wanted = jobs({"q_len": [3, 1, 2], "threads": [2]})
    with Workshop(2) as workshop:
        outcome = workshop.run(wanted, Options())
    assert [line["q_len"] for line in outcome.lines] == [3, 1, 2]
    assert {line["cache_state"] for line in outcome.lines} == {"cold"}
    assert outcome.lines[0]["env"] == ["2", "2"]
    assert outcome.speeds == {"threads": 1, "flop_per_s": 1, "bytes_per_s": 1}


@pytest.mark.usefixtures("_stand_in")
def test_a_process_that_dies_takes_one_point_with_it() -> None:
    wanted = jobs({"q_len": [12, 13, 14]})
    with Workshop(1) as workshop:
        outcome = workshop.run(wanted, Options())
    assert [line["status"] for line in outcome.lines] == ["ok", "failed", "ok"]
    reason = outcome.lines[1]["reason"]
    assert reason == "the measuring process ended with code 3: a last word"
    assert [line.get("of") for line in outcome.lines] == [1, None, 1]


@pytest.mark.usefixtures("_stand_in")
def test_what_does_not_compile_is_not_measured() -> None:
    wanted = jobs({"zip": {"head_dim": [16, 32], "kv_len": [16, 17]}})
    with Workshop(2) as workshop:
        outcome = workshop.run(wanted, Options())
    assert [line["status"] for line in outcome.lines] == ["ok", "failed"]
    assert outcome.lines[1]["reason"] == "does not compile"


@pytest.mark.usefixtures("_stand_in")
def test_a_compiler_that_was_killed_is_started_anew() -> None:
    wanted = jobs({"q_len": [1]})
    with Workshop(1) as workshop:
        workshop.run(wanted, Options())
        running = workshop._compilers[0]._running
        assert running is not None
        running.kill()
        running.wait()
        killed = workshop.run(wanted, Options()).lines[0]
        assert killed["reason"] == "the compiling process was killed by SIGKILL"
        assert workshop.run(wanted, Options()).lines[0]["status"] == "ok"


@pytest.mark.usefixtures("_stand_in")
def test_ctrl_c_while_something_compiles_ends_every_process() -> None:
    wanted = jobs({"zip": {"head_dim": [16, 32, 64], "kv_len": [16, 19, 19]}})
    with Workshop(2) as workshop:
        main = threading.main_thread().ident
        timer = threading.Timer(1.0, lambda: signal.pthread_kill(main or 0, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            workshop.run(wanted, Options())
        timer.join()
        assert [process._running for process in workshop._compilers] == [None, None]
        assert workshop.run(wanted[:1], Options()).lines[0]["status"] == "ok"


@contextmanager
def lock_elsewhere(folder: Path) -> Iterator[None]:
    """The lock, held by another process."""
    code = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from attngen.sweeps.batch import machine_lock\n"
        "with machine_lock(print):\n  print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield
    finally:
        process.communicate()


@pytest.mark.slow
def test_one_measurement_at_a_time_on_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    told: list[str] = []
    waits, entered = threading.Event(), threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        waits.set()

    def measure() -> None:
        with machine_lock(tell):
            entered.set()

    thread = threading.Thread(target=measure)
    with lock_elsewhere(tmp_path):
        thread.start()
        assert waits.wait(60)
        assert not entered.wait(0.3)
    assert entered.wait(60)
    thread.join()
    assert told == ["waiting for another measurement on this machine"]
