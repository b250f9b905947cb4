"""A sweep from its spec to its results: :func:`sweep` in Python, ``attngen sweep`` in a shell.

Input: a spec with ``sweep``, and how to measure. Output: a :class:`Sweep`, an iterator of results
that come as they are measured, and their table. Nothing runs before the first result is asked for,
but every point is judged before.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attngen import fingerprint
from attngen.bench.environment import usable_cores, versions
from attngen.driver import source_digest
from attngen.errors import CallValueError
from attngen.spec.axes import CALL_KEYS
from attngen.spec.reader import read_sweep
from attngen.spec.sweep import SweepPlan
from attngen.sweeps.batch import batches
from attngen.sweeps.contestants import peer_names
from attngen.sweeps.engines import Engine, LocalEngine, Measured, speeds_key
from attngen.sweeps.measure import Options
from attngen.sweeps.points import Defaults, Impossible, Job, Point, Points, find_points, plain
from attngen.sweeps.series import Writer, last_lines
from attngen.sweeps.table import Table


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is.

    Attributes:
        done: points that need no more measuring; `total` of them in all.
        doing: what is going on, in a few words.
    """

    done: int
    total: int
    doing: str


@dataclass(frozen=True, slots=True)
class Result:
    """One finished point.

    Attributes:
        data: everything that the series keeps of it, as plain data.
    """

    data: Mapping[str, Any]

    @property
    def status(self) -> str:
        """``ok``, ``impossible`` or ``failed``."""
        return str(self.data["status"])

    @property
    def keys(self) -> Mapping[str, Any]:
        """The swept keys."""
        keys: Mapping[str, Any] = self.data["keys"]
        return keys

    @property
    def seconds(self) -> float | None:
        """The median time; None where nothing was measured."""
        timing = self.data.get("seconds")
        return None if timing is None else float(timing["median"])

    @property
    def reason(self) -> str:
        """Why nothing was measured; empty where something was."""
        return str(self.data.get("reason") or "")


class Sweep:
    """A sweep that is ready to run: iterate over it, or let it :meth:`run` to its table.

    Attributes:
        points: all points, judged: ``points.jobs`` and ``points.impossible``.
        folder: where its series is kept; None for memory alone.
    """

    def __init__(
        self,
        plan: SweepPlan,
        engine: Engine,
        defaults: Defaults,
        options: Options,
        folder: Path | None,
        progress: Callable[[Progress], None] | None = None,
        retry_failed: bool = False,
    ) -> None:
        self._plan, self._engine, self._options = plan, engine, options
        self._machine = engine.machine()
        self._progress = progress
        self._retry = retry_failed
        self.points: Points = find_points(plan, defaults, self._machine)
        self._writer = Writer(folder, self._info(defaults))
        self.folder = self._writer.folder

    def __iter__(self) -> Iterator[Result]:
        """Each point's result: those that an earlier run left first, then new ones as they come.

        Raises:
            SweepError: results cannot be kept, or all who measure are gone.
        """
        with self._writer as writer:
            done = writer.done
            for line in list(done.values()):
                if not self._again(line):
                    yield Result(line)
            for point in self.points.impossible:
                if point.point.name not in done:
                    line = _impossible(point)
                    writer.append(line)
                    yield Result(line)
            jobs = [job for job in self.points.jobs if self._again(done.get(job.point.name))]
            yield from self._measure(jobs, writer)

    def run(self) -> Table:
        """Measure what is left, and give the table of all points."""
        for _ in self:
            pass
        return self.table

    @property
    def table(self) -> Table:
        """What is known so far, in the order of the plan."""
        keys = [axis.key for axis in self._plan.axes]
        return Table.from_results(last_lines(self._writer.results), keys)

    def _again(self, line: Mapping[str, Any] | None) -> bool:
        """Whether a point with this line has to be measured."""
        return line is None or (self._retry and line["status"] == "failed")

    def _measure(self, jobs: list[Job], writer: Writer) -> Iterator[Result]:
        left = batches(jobs, self._options, self._machine.memory, self._options.seed)
        total = len(self.points)
        finished = total - len(jobs)

        told: list[Progress] = []

        def tell(doing: str) -> None:
            now = Progress(finished, total, doing)
            if self._progress is not None and told != [now]:
                told[:] = [now]
                self._progress(now)

        tell("starting")
        known = writer.info.get("environments", {})
        for measured in self._engine.measure(left, self._options, known, tell):
            _keep_environment(writer, measured)
            pairs = zip(measured.jobs, measured.lines, strict=True)
            lines = [self._line(job, line, measured) for job, line in pairs]
            for line in lines:  # all before the first is shown: who stops asking loses none
                writer.append(line)
                finished += 1
                tell("measuring")
            yield from map(Result, lines)

    def _line(self, job: Job, line: Mapping[str, Any], measured: Measured) -> dict[str, Any]:
        return {
            **_head(job.point, str(line["status"])),
            "sizes": dict(job.sizes),
            "schedule": dict(job.schedule),
            **line,
            "fingerprint": measured.fingerprint,
            "machine": measured.facts["machine"],
            "load": measured.load,
            "worker": measured.worker,
            "attempt": measured.attempt,
            "command": self._command(job.point),
        }

    def _command(self, point: Point) -> str | None:
        """What measures this point alone; None where the spec came from no file."""
        if not self._plan.origin:
            return None
        words = ["attngen", "run", self._plan.origin]
        for key, value in point.keys.items():
            if key not in CALL_KEYS:
                words += ["--set", f"{key}={json.dumps(value)}"]
        call = point.call
        words += ["--q-len", str(call.q_len), "--kv-len", str(call.kv_len)]
        words += ["--batch", str(call.batch), "--threads", str(call.threads)]
        return shlex.join(words)

    def _info(self, defaults: Defaults) -> dict[str, Any]:
        """What ``series.json`` says; its digest is over all that makes results comparable."""
        plan = self._plan
        groups = enumerate(plan.groups)
        axes = [(number, axis) for number, group in groups for axis in group.axes]
        identity = {
            "base": plain(dict(plan.values)),
            "axes": [
                {"key": a.key, "values": plain([s.value for s in a.settings]), "group": number}
                for number, a in axes
            ],
            "conditions": [condition.text for condition in plan.conditions],
            "call": asdict(defaults),
            "settings": plain(asdict(self._options)),
            "versions": {
                "source": source_digest()[:12],
                "python": ".".join(map(str, sys.version_info[:3])),
                **{k: v for k, v in versions().items() if k not in ("torch", "onnxruntime")},
            },
        }
        return {
            "name": str(plan.values.get("name", plan.default_name)),
            "digest": fingerprint.digest(identity),
            "spec_source": plan.origin or None,
            "spec_text": plan.text or json.dumps(identity["base"]),
            **identity,
            "points": len(self.points),
            "impossible": len(self.points.impossible),
        }


def sweep(
    spec: str | Path | Mapping[str, Any],
    *,
    folder: str | Path | None = None,
    settings: Iterable[str] = (),
    batch: int = 1,
    q_len: int = 2048,
    kv_len: int | None = None,
    threads: int | None = None,
    rounds: int = 7,
    peers: Iterable[str] = (),
    seed: int = 0,
    scheduler: Any = None,
    compilers: int | None = None,
    retry_failed: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Sweep:
    """Sweep what a spec says under ``sweep``; every point is judged before this returns.

    Args:
        spec: a file, a name on the search path, or a mapping.
        folder: results are kept in a series below it, and an earlier run of the same sweep is
            continued; None keeps them in memory.
        settings: axes beside or in place of the spec's own, such as ``head_dim=[64, 128]``.
        batch: sequences in a call, where no axis says so.
        q_len: queries of a sequence, in the same way.
        kv_len: keys of a sequence; as many as queries if None.
        threads: of a call; all cores if None.
        rounds: least timed calls of a point.
        peers: whom to time beside it: ``torch``, ``flex``, ``onnxruntime``, or a peer of
            ``attngen bench``.
        seed: of the random input and of the order of points.
        scheduler: the address of a Dask scheduler, or a ``distributed.Client``; this machine
            measures if None.
        compilers: processes that compile; one a core if None.
        retry_failed: measure those again that failed in an earlier run.
        progress: called with every step.

    Raises:
        SpecError: the spec has mistakes, or no ``sweep``.
        CallValueError: there is no such peer, or a size is not positive.
        SweepError: no cluster answers.
    """
    numbers = {"batch": batch, "q_len": q_len, "kv_len": kv_len, "threads": threads}
    for name, number in {**numbers, "rounds": rounds, "compilers": compilers}.items():
        if number is not None and number < 1:
            raise CallValueError(f"{name}: expected 1 or more, got {number}")
    plan = read_sweep(spec, settings)
    options = Options(rounds, peer_names(tuple(peers)), seed)
    engine: Engine
    if scheduler is None:
        engine = LocalEngine(compilers)
    else:
        from attngen.sweeps.cluster import ClusterEngine

        engine = ClusterEngine(scheduler)
    cores = threads or (usable_cores() if scheduler is None else engine.machine().cores)
    defaults = Defaults(batch, q_len, kv_len, cores)
    where = None if folder is None else Path(folder)
    return Sweep(plan, engine, defaults, options, where, progress, retry_failed)


def _keep_environment(writer: Writer, measured: Measured) -> None:
    known = writer.info.get("environments", {}).get(measured.fingerprint, {})
    speeds = dict(known.get("speeds", {}))
    if measured.speeds is not None:
        kept = {k: v for k, v in measured.speeds.items() if k != "threads"}
        speeds[speeds_key(measured.jobs)] = {"threads": measured.speeds["threads"], **kept}
    writer.add_environment(measured.fingerprint, {**measured.facts, "speeds": speeds})


def _head(point: Point, status: str) -> dict[str, Any]:
    return {
        "point": point.name,
        "index": point.index,
        "status": status,
        "keys": dict(point.keys),
        "call": point.call.to_json(),
    }


def _impossible(found: Impossible) -> dict[str, Any]:
    head = _head(found.point, "impossible")
    return {**head, "reason": found.reason, "hint": found.hint, "code": found.code}
