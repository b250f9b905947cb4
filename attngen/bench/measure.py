"""Measure the lines of a suite: prepare everyone, check that all agree, then time them in turn.

Input: cases, peers and thread counts. Output: a :class:`CallReport`. A contestant whose result is
further from the float64 reference than :mod:`attngen.accuracy` allows is not timed, and the line
says so; neither is one that is absent or fails.
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
from attngen.check import Expected, expect
from attngen.costs import cost
from attngen.driver import run_stages
from attngen.formatting import count_text
from attngen.inputs import Inputs, random_inputs
from attngen.timing import MIN_ROUNDS, Timing, take_turns


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


@dataclass(frozen=True, slots=True)
class _Entry:
    """A contestant before the race: ready and right, or out for a reason."""

    who: str
    prepared: Prepared | None = None
    error: float | None = None
    reason: str | None = None


def _measure_line(
    case: Case, peers: Sequence[Peer], threads: int, peak: float, rounds: int
) -> Line:
    ir = run_stages(case.spec).ir
    inputs = random_inputs(ir, case.lengths)
    expected = expect(ir, inputs)
    entries = [_enter(Ours(), case, inputs, expected, threads)]
    entries += [_enter_peer(peer, case, inputs, expected, threads) for peer in peers]
    racing = [entry for entry in entries if entry.prepared]
    timings = take_turns(
        [entry.prepared.call for entry in racing if entry.prepared], min_rounds=rounds
    )
    times = dict(zip((entry.who for entry in racing), timings, strict=True))
    ours = times.get(entries[0].who)
    results = tuple(_result(entry, times.get(entry.who), ours) for entry in entries)
    return Line(case, threads, cost(ir, case.lengths).flop, peak, expected.bound, results)


def _enter_peer(peer: Peer, case: Case, inputs: Inputs, expected: Expected, threads: int) -> _Entry:
    """Like :func:`_enter`, but whatever goes wrong in a peer is a reason and not our end."""
    try:
        return _enter(peer, case, inputs, expected, threads)
    except Exception as error:  # noqa: BLE001 - other people's compilers raise anything
        text = str(error).strip().partition("\n")[0]
        return _Entry(peer.name, reason=f"failed with {type(error).__name__}: {text:.100}")


def _enter(peer: Peer, case: Case, inputs: Inputs, expected: Expected, threads: int) -> _Entry:
    """Prepare, run once, and check the result."""
    if reason := peer.available():
        return _Entry(peer.name, reason=reason)
    try:
        prepared = peer.prepare(case, inputs, threads)
    except CannotDoError as error:
        return _Entry(peer.name, reason=str(error))
    verdict = expected.judge(np.asarray(prepared.to_numpy(prepared.call())))
    if not verdict.good:
        reason = f"wrong by {verdict.error:.2g}, and {verdict.bound:.2g} is allowed"
        return _Entry(peer.name, error=verdict.error, reason=reason)
    return _Entry(peer.name, prepared, verdict.error)


def _result(entry: _Entry, timing: Timing | None, ours: Timing | None) -> Result:
    ratio = timing.median / ours.median if timing and ours else None
    return Result(entry.who, timing, ratio, entry.error, entry.reason)
