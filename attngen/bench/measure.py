"""Measure the lines of a suite: prepare everyone, check that all agree, then time them in turn.

Input: cases, peers and thread counts. Output: a :class:`CallReport`. A contestant whose result
differs from ours by more than the bound of :mod:`attngen.accuracy` allows is not timed, and the
line says so. Ours is checked against the float64 reference by the caller's choice of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from attngen.backends.numba_cpu.peak import measure_fma
from attngen.backends.numba_cpu.probe import probe
from attngen.bench.cases import Case
from attngen.bench.environment import Environment, environment
from attngen.bench.peers import CannotDoError, Ours, Peer, Prepared
from attngen.bench.timing import MIN_ROUNDS, Timing, take_turns
from attngen.check import Verdict, judge
from attngen.costs import cost
from attngen.driver import run_stages
from attngen.formatting import count_text
from attngen.inputs import Array, Inputs, random_inputs
from attngen.ir.attention import AttentionIR


@dataclass(frozen=True, slots=True)
class Result:
    """What one contestant did with one line.

    Attributes:
        timing: None where there is none, for the `reason` given.
        ratio: the contestant's median time over ours; above 1 means that ours is faster.
        error: largest deviation from the reference, over the rows that were checked.
    """

    who: str
    timing: Timing | None
    ratio: float | None
    error: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a suite at one number of threads.

    Attributes:
        flop: useful floating-point operations of a call.
        peak: measured FMA peak of these threads, FLOP/s.
        bound: what `error` must stay below.
        results: ours first.
    """

    case: Case
    threads: int
    flop: int
    peak: float
    bound: float
    results: tuple[Result, ...]

    @property
    def ours(self) -> Result:
        """Our own result."""
        return self.results[0]

    def rate(self, result: Result) -> float | None:
        """Useful FLOP/s of a result."""
        return self.flop / result.timing.median if result.timing else None

    def share(self, result: Result) -> float | None:
        """Share of the measured peak, 0 to 1."""
        rate = self.rate(result)
        return None if rate is None else rate / self.peak


@dataclass(frozen=True, slots=True)
class CallReport:
    """A suite's lines and what they were measured on."""

    suite: str
    environment: Environment
    lines: tuple[Line, ...]

    @property
    def correct(self) -> bool:
        """Whether all of our own results stayed within the bound."""
        return all(line.ours.reason is None for line in self.lines)


def measure_suite(
    suite: str,
    cases: Sequence[Case],
    peers: Sequence[Peer],
    threads: Sequence[int],
    *,
    rounds: int = MIN_ROUNDS,
    progress: Callable[[str], None] = lambda _: None,
) -> CallReport:
    """Measure every case at every number of threads."""
    target = probe()
    where = environment()
    lines = []
    for count in threads:
        peak = measure_fma(target, threads=count)
        for case in cases:
            progress(f"{case.label}, {count_text(count, 'thread')}")
            lines.append(_measure_line(case, peers, count, peak, rounds))
    return CallReport(suite, where, tuple(lines))


def _measure_line(
    case: Case, peers: Sequence[Peer], threads: int, peak: float, rounds: int
) -> Line:
    ir = run_stages(case.spec).ir
    inputs = random_inputs(ir, case.lengths)
    contestants: list[tuple[str, Prepared | str]] = [
        (peer.name, _prepare(peer, case, inputs, threads)) for peer in (Ours(), *peers)
    ]
    verdicts = {
        name: _judge(ir, inputs, prepared)
        for name, prepared in contestants
        if not isinstance(prepared, str)
    }
    racing = [
        (name, prepared.call)
        for name, prepared in contestants
        if not isinstance(prepared, str) and verdicts[name].good
    ]
    timings = take_turns([call for _, call in racing], min_rounds=rounds)
    times = dict(zip((name for name, _ in racing), timings, strict=True))
    ours = times.get(Ours.name)
    results = [
        _result(name, prepared, verdicts.get(name), times.get(name), ours)
        for name, prepared in contestants
    ]
    bound = max((verdict.bound for verdict in verdicts.values()), default=0.0)
    return Line(case, threads, cost(ir, case.lengths).flop, peak, bound, tuple(results))


def _prepare(peer: Peer, case: Case, inputs: Inputs, threads: int) -> Prepared | str:
    if reason := peer.available():
        return reason
    try:
        return peer.prepare(case, inputs, threads)
    except CannotDoError as error:
        return str(error)


def _judge(ir: AttentionIR, inputs: Inputs, prepared: Prepared) -> Verdict:
    result: Array = np.asarray(prepared.to_numpy(prepared.call()))
    return judge(ir, inputs, result)


def _result(
    name: str,
    prepared: Prepared | str,
    verdict: Verdict | None,
    timing: Timing | None,
    ours: Timing | None,
) -> Result:
    if isinstance(prepared, str) or verdict is None:
        return Result(name, None, None, None, str(prepared))
    if timing is None:
        reason = f"wrong by {verdict.error:.2g}, and {verdict.bound:.2g} is allowed"
        return Result(name, None, None, verdict.error, reason)
    ratio = timing.median / ours.median if ours else None
    return Result(name, timing, ratio, verdict.error, None)
