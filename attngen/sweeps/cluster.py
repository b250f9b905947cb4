"""The workers of a Dask cluster as an engine.

Input: a client, or a scheduler's address. Output: measured batches. Invariants: a worker has one
batch at a time, and a machine measures one at a time however many workers run on it; a batch whose
worker is lost goes to another one; nothing is sent to a worker with fewer cores than it needs.
attngen has to be installed on the workers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from attngen.errors import SweepError
from attngen.formatting import count_text
from attngen.sweeps.engines import Measured, Tell, speeds_key
from attngen.sweeps.measure import Options
from attngen.sweeps.points import Job, Machine

MOST_ATTEMPTS = 3
_POLL_SECONDS = 0.5
_CONNECT_SECONDS = 10


@dataclass(slots=True)
class _Task:
    """A batch, and how often it was sent out."""

    batch: tuple[Job, ...]
    attempt: int = 1
    avoid: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Worker:
    """A worker as it answered when it was first seen."""

    digest: str
    facts: Mapping[str, Any]
    machine: Machine
    load: float | None = None


def connect(scheduler: Any) -> Any:
    """A client of the cluster at an address such as ``tcp://host:8786``; a client as it is.

    Raises:
        SweepError: dask.distributed is not installed, or nobody answers there.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise SweepError(
            "a cluster needs dask.distributed, which is not installed: pip install 'attngen[sweep]'"
        ) from error
    if isinstance(scheduler, Client):
        return scheduler
    try:
        return Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise SweepError(f"no Dask scheduler answers at {scheduler}: {error}") from error


def describe_worker() -> _Worker:
    """Runs on a worker: what it is."""
    from attngen.sweeps.machine import load_average, take_fingerprint, this_machine

    found = take_fingerprint()
    return _Worker(found.digest, found.to_json(), this_machine(), load_average())


def measure_there(
    jobs: list[dict[str, Any]], options: dict[str, Any], speeds: dict[str, Any] | None
) -> dict[str, Any]:
    """Runs on a worker: compile and measure a batch, in processes of their own."""
    import os

    from attngen.sweeps.batch import Workshop
    from attngen.sweeps.jobs import job_from_json, options_from_json

    batch = [job_from_json(job) for job in jobs]
    kernels = len({job.kernel for job in batch})
    with Workshop(min(os.cpu_count() or 1, kernels)) as workshop:
        return asdict(workshop.run(batch, options_from_json(options), speeds))


class ClusterEngine:
    """The workers that `scheduler` (an address or a client) has.

    Args:
        scheduler: where they are.
        patience: seconds to wait while there is no worker.

    Raises:
        SweepError: nobody answers, or dask.distributed is not installed.
    """

    def __init__(self, scheduler: Any, patience: float = 60.0) -> None:
        self._client = connect(scheduler)
        self._patience = patience
        self._known: dict[str, _Worker] = {}

    def machine(self) -> Machine:
        """The machine with the most cores, for the points that it can measure.

        Raises:
            SweepError: there is no worker.
        """
        started = time.monotonic()
        while not (workers := self._workers()):
            self._give_up_after(started, "has no workers")
            time.sleep(_POLL_SECONDS)
        widest = max(workers.values(), key=lambda w: w.machine.cores)
        return Machine(widest.machine.target, widest.machine.cores)

    def measure(
        self,
        batches: Sequence[tuple[Job, ...]],
        options: Options,
        known: Mapping[str, Mapping[str, Any]],
        tell: Tell,
    ) -> Iterator[Measured]:
        """Measure `batches`, on as many workers at a time as there are.

        Raises:
            SweepError: all workers are gone, and no new one comes.
        """
        speeds = {digest: dict(facts.get("speeds", {})) for digest, facts in known.items()}
        waiting = deque(_Task(batch) for batch in batches)
        running: dict[str, tuple[_Task, Any]] = {}
        seen = time.monotonic()
        try:
            while waiting or running:
                workers = self._workers()
                for address in [a for a in running if a not in workers]:
                    task, future = running.pop(address)
                    future.cancel(force=True)
                    yield from self._lost(task, address, waiting, tell)
                for address in [a for a, (_, future) in running.items() if future.done()]:
                    task, future = running.pop(address)
                    worker = workers[address]
                    measured = self._collect(task, future, address, worker)
                    if measured is None:
                        yield from self._lost(task, address, waiting, tell)
                        continue
                    if measured.speeds is not None:
                        kind = speeds_key(task.batch)
                        speeds.setdefault(worker.digest, {})[kind] = measured.speeds
                    yield measured
                for address, worker in workers.items():
                    free = None if address in running else _take(waiting, address, worker)
                    if free is not None:
                        there = speeds.get(worker.digest, {}).get(speeds_key(free.batch))
                        running[address] = (free, self._send(free, address, options, there))
                if running:
                    seen = time.monotonic()
                    tell(f"measuring on {count_text(len(running), 'worker')}")
                    time.sleep(_POLL_SECONDS if len(running) == len(workers) else 0.1)
                elif waiting:
                    tell("waiting for workers")
                    for task in waiting:
                        task.avoid &= workers.keys()
                        if task.avoid == workers.keys():
                            task.avoid.clear()  # better the one that failed than none
                    self._give_up_after(seen, "has lost its workers")
                    time.sleep(_POLL_SECONDS)
        finally:
            for _, future in running.values():
                future.cancel(force=True)

    def _workers(self) -> dict[str, _Worker]:
        """Every worker that there is now, asked once what it is."""
        info: Any = self._client.scheduler_info(n_workers=-1)
        addresses = list(info["workers"])
        new = [address for address in addresses if address not in self._known]
        if new:
            answers = self._client.run(describe_worker, workers=new, on_error="ignore")
            self._known.update(answers)
        return {address: self._known[address] for address in addresses if address in self._known}

    def _send(
        self, task: _Task, address: str, options: Options, speeds: Mapping[str, Any] | None
    ) -> Any:
        from attngen.sweeps.jobs import job_to_json

        return self._client.submit(
            measure_there,
            [job_to_json(job) for job in task.batch],
            asdict(options),
            None if speeds is None else dict(speeds),
            workers=[address],
            allow_other_workers=False,
            pure=False,
            key=f"attngen-{task.batch[0].point.name}-{task.attempt}-{time.time_ns()}",
        )

    @staticmethod
    def _collect(task: _Task, future: Any, address: str, worker: _Worker) -> Measured | None:
        """What a future that is done gave; None where its worker was lost."""
        from distributed import CancelledError, KilledWorker
        from distributed.comm import CommClosedError

        try:
            outcome = future.result()
            lines, speeds = tuple(outcome["lines"]), outcome["speeds"]
        except (KilledWorker, CancelledError, CommClosedError):
            return None
        except Exception as error:  # noqa: BLE001 - what a worker raises is the batch's result
            reason = f"{type(error).__name__}: {error}"
            lines = tuple({"status": "failed", "reason": reason} for _ in task.batch)
            speeds = None
        where = (worker.digest, worker.facts)
        return Measured(task.batch, lines, *where, speeds, worker.load, address, task.attempt)

    def _lost(
        self, task: _Task, address: str, waiting: deque[_Task], tell: Tell
    ) -> Iterator[Measured]:
        """Send the batch to another worker; give it up where it has cost several."""
        worker = self._known[address]
        tell(f"the worker at {address} is lost; its points go to another")
        if task.attempt < MOST_ATTEMPTS:
            waiting.appendleft(_Task(task.batch, task.attempt + 1, {*task.avoid, address}))
            return
        reason = f"{count_text(task.attempt, 'worker')} were lost while they measured its batch"
        lines = tuple({"status": "failed", "reason": reason} for _ in task.batch)
        where = (worker.digest, worker.facts)
        yield Measured(task.batch, lines, *where, None, worker.load, address, task.attempt)

    def _give_up_after(self, started: float, what: str) -> None:
        if time.monotonic() - started > self._patience:
            raise SweepError(
                f"the cluster {what}; what was measured is kept, and the same command continues"
            )


def _take(waiting: deque[_Task], address: str, worker: _Worker) -> _Task | None:
    """The first task that this worker may have, taken out of `waiting`."""
    for task in waiting:
        threads = task.batch[0].point.call.threads
        if address not in task.avoid and threads <= worker.machine.cores:
            waiting.remove(task)
            return task
    return None
