"""Compile and measure a batch of jobs on this machine, in processes of their own.

Input: jobs of one number of threads. Output: a :class:`Outcome` with a line for each. Invariants:
at most one measurement runs on a machine at a time, whoever started it (a lock in the folder for
temporary files); nothing is compiled meanwhile; a process that dies takes one point with it at
most.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from attngen.sweeps.contestants import COMPILED_FOR_ONE
from attngen.sweeps.jobs import job_to_json
from attngen.sweeps.measure import Options
from attngen.sweeps.points import Job

MOST_POINTS = 8
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch.

    Attributes:
        lines: the measured part of each job's result, in the order of the jobs.
        speeds: of the machine with that many threads.
    """

    lines: tuple[dict[str, Any], ...]
    speeds: dict[str, Any] | None


def batches(
    jobs: Sequence[Job], options: Options, memory: int, seed: int = 0
) -> list[tuple[Job, ...]]:
    """`jobs` in batches that are measured in turn, in an order that mixes all axes.

    A slow change of the machine then meets all values of an axis alike. The points of a batch have
    one number of threads and one type of sums, and their arrays fit a quarter of `memory` together.
    """
    import random

    most = 1 if COMPILED_FOR_ONE.intersection(options.peers) else MOST_POINTS
    order = list(jobs)
    random.Random(seed).shuffle(order)  # noqa: S311 - no secret
    open_batches: dict[tuple[int, str], list[Job]] = {}
    done: list[tuple[Job, ...]] = []
    for job in order:
        kind = (job.point.call.threads, "64" if job.sizes["dtype"] == "float64" else "32")
        batch = open_batches.setdefault(kind, [])
        size = sum(other.bytes for other in batch) + job.bytes
        if batch and (len(batch) == most or (memory and size > memory // 4)):
            done.append(tuple(batch))
            batch.clear()
        batch.append(job)
    return done + [tuple(batch) for batch in open_batches.values() if batch]


class Workshop:
    """The processes that compile, and the one that measures. Use it in a with block."""

    def __init__(self, compilers: int) -> None:
        self._compilers = [_Process({"NUMBA_NUM_THREADS": "2"}) for _ in range(compilers)]
        self._idle = list(self._compilers)
        self._running: _Process | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for process in (*self._compilers, self._running):
            if process is not None:
                process.kill()

    def run(
        self,
        jobs: Sequence[Job],
        options: Options,
        speeds: Mapping[str, Any] | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> Outcome:
        """Compile and measure `jobs`; blocks while another measurement runs on this machine."""
        with machine_lock(tell):
            tell("compiling")
            compiled = self._compile(jobs)
            good = [job for job in jobs if "reason" not in compiled[job.kernel]]
            tell("measuring")
            lines, speeds = self._measure(good, options, speeds)
        by_point = {job.point.name: line for job, line in zip(good, lines, strict=True)}
        return Outcome(
            tuple(_line(job, compiled[job.kernel], by_point) for job in jobs),
            dict(speeds) if speeds else None,
        )

    def _compile(self, jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
        """What compiling each kernel gave, by its name."""
        kernels = {job.kernel: job for job in jobs}
        with ThreadPoolExecutor(max(1, len(self._compilers))) as pool:
            try:
                answers = pool.map(self._compile_one, kernels.values())
                return dict(zip(kernels, answers, strict=True))
            except BaseException:  # Ctrl-C: let the threads that wait for answers end
                self._end()
                raise

    def _compile_one(self, job: Job) -> dict[str, Any]:
        with self._lock:
            process = self._idle.pop()
        try:
            return process.ask({"task": "compile", "jobs": [job_to_json(job)]})
        except _DiedError as died:
            return {"reason": f"the compiling process {died}"}
        finally:
            with self._lock:
                self._idle.append(process)

    def _measure(
        self, jobs: Sequence[Job], options: Options, speeds: Mapping[str, Any] | None
    ) -> tuple[list[dict[str, Any]], Mapping[str, Any] | None]:
        if not jobs:
            return [], speeds
        count = str(jobs[0].point.call.threads)
        names = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self._running = _Process(dict.fromkeys(names, count))
        request = {
            "task": "measure",
            "jobs": [job_to_json(job) for job in jobs],
            "options": asdict(options),
            "speeds": speeds,
        }
        try:
            answer = self._running.ask(request)
        except _DiedError as died:
            if len(jobs) == 1:
                reason = f"the measuring process {died}"
                return [{"status": "failed", "reason": reason}], speeds
            lines = []
            for job in jobs:  # one of them is to blame: find out which
                one, speeds = self._measure([job], options, speeds)
                lines += one
            return lines, speeds
        finally:
            self._running.kill()
        return answer["results"], answer["speeds"]


def _line(
    job: Job, compiled: Mapping[str, Any], measured: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    if "reason" in compiled:
        return {"status": "failed", "reason": compiled["reason"]}
    times = {"compile_seconds": compiled["seconds"], "cache_state": compiled["state"]}
    return {**measured[job.point.name], **times}


@contextmanager
def machine_lock(tell: Callable[[str], None]) -> Iterator[None]:
    """Held by whoever measures on this machine."""
    folder = Path(tempfile.gettempdir())
    lock = FileLock(folder / f"attngen-measuring-{getpass.getuser()}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        tell("waiting for another measurement on this machine")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


class _DiedError(Exception):
    """A process ended without an answer; the text is a predicate."""


@dataclass
class _Process:
    """A process of :mod:`attngen.sweeps.worker`, started when it is first asked.

    It is in a session of its own, so that Ctrl-C in a terminal reaches us alone.
    """

    environment: Mapping[str, str]
    _running: subprocess.Popen[str] | None = field(default=None, repr=False)
    _log: IO[str] | None = field(default=None, repr=False)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `request`.

        Raises:
            _DiedError: the process ended first; it is started anew at the next request.
        """
        if self._running is None:
            self._running = self._start()
        running = self._running
        assert running.stdin is not None  # noqa: S101 - pipes were asked for
        assert running.stdout is not None  # noqa: S101
        try:
            running.stdin.write(json.dumps(request) + "\n")
            running.stdin.flush()
            answer = running.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise _DiedError(self._ending())
        parsed: dict[str, Any] = json.loads(answer)
        return parsed

    def kill(self) -> None:
        """End it, whatever it does."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            running.wait()
            self._close(running)

    def _close(self, running: subprocess.Popen[str]) -> None:
        for stream in (running.stdin, running.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _start(self) -> subprocess.Popen[str]:
        search = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))
        log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._log = log
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "attngen.sweeps.worker"],
            env={**os.environ, "PYTHONPATH": search, **self.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )

    def _ending(self) -> str:
        """How it died, for a sentence."""
        running, self._running = self._running, None
        if running is None:
            return "was ended"
        code = running.wait()
        assert self._log is not None  # noqa: S101 - it was started
        self._log.seek(0)
        last = (self._log.read().strip().splitlines() or ["without a word"])[-1]
        self._close(running)
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with code {code}: {last:.200}"
