"""Measure a few points in this process: check every result, then time all calls in turn.

Input: jobs of one number of threads, on which this process is pinned, and options. Output: for each
job the measured part of its result, as plain data. A point whose result is wrong is not timed, and
what goes wrong with one point is the reason of that point alone.

The repetitions of all points (and their peers) alternate, so that what disturbs the machine for a
while disturbs them alike.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from attngen.attention import Attention
from attngen.backends.numba_cpu import threads
from attngen.bench.high_water import can_measure, measure_rise
from attngen.bench.peers import CannotDoError, Peer
from attngen.check import Expected, expect
from attngen.costs import Cost, Lengths, cost
from attngen.driver import compile_spec, run_stages
from attngen.errors import AttngenError
from attngen.explain import Speeds, machine_speeds
from attngen.inputs import Inputs, random_inputs
from attngen.ir.attention import AttentionIR
from attngen.spec.reader import read_spec
from attngen.sweeps.contestants import case_of, chosen_peers
from attngen.sweeps.points import Call, Job
from attngen.timing import Timing, take_turns
from attngen.trial import prepare_call

_WORTH_THREADS = 1 << 22  # multiply-adds that are more than generated code does on one thread


@dataclass(frozen=True, slots=True)
class Options:
    """How points are measured.

    Attributes:
        rounds: least timed calls of each.
        peers: whom to time beside us, by the benchmark's names.
        seed: of the random input.
    """

    rounds: int = 7
    peers: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Racer:
    """A call that is ready and right."""

    who: str
    call: Callable[[], object]
    error: float


@dataclass(slots=True)
class _Entry:
    """A point before the race: its own racer and its peers', or the reason why it is out."""

    job: Job
    cost: Cost | None = None
    schedule: dict[str, Any] = field(default_factory=dict)
    bound: float = 0.0
    peak_memory: int | None = None
    racers: list[_Racer] = field(default_factory=list)
    without: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    started: str = ""


def compile_point(job: Job) -> dict[str, Any]:
    """Generate and compile the code for `job` into the cache, by a small call of the same kind."""
    spec, call = read_spec(job.values), job.point.call
    start = time.perf_counter()
    attention = compile_spec(spec)
    before = _machine_code(attention)
    ir = run_stages(spec).ir
    inputs = random_inputs(ir, small_lengths(ir, call, attention.schedule.short_rows.value))
    with _threads(min(call.threads, 2)):
        prepare_call(attention, inputs)()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "state": "cold" if _machine_code(attention) > before else "warm"}


def small_lengths(ir: AttentionIR, call: Call, short_rows: int) -> Lengths:
    """Lengths of a call that runs the same code as `call` and is over at once."""
    q_len = min(call.q_len, short_rows // (ir.heads // ir.kv_heads) + 1)
    kv_len, batch = min(call.kv_len, q_len), 1
    most = (call.batch, call.q_len, call.kv_len)

    def work() -> int:
        return batch * q_len * kv_len * ir.heads * (ir.head_dim + ir.value_dim)

    while work() < _WORTH_THREADS and (batch, q_len, kv_len) != most:
        if kv_len < call.kv_len:
            kv_len = min(2 * kv_len, call.kv_len)
        elif q_len < call.q_len:
            q_len = min(2 * q_len, call.q_len)
        else:
            batch = min(2 * batch, call.batch)
    if call.q_len == call.kv_len and ir.d_model is not None and kv_len != q_len:
        q_len = kv_len  # a layer without a context
    return Lengths(q_len, kv_len, batch)


def _machine_code(attention: Attention) -> int:
    """How many compiled functions are kept beside the source."""
    return len(list(attention.source_path.glob("__pycache__/*.kernel")))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Numba's thread count inside a with block."""
    import numba

    threads.prepare()
    before = numba.get_num_threads()
    numba.set_num_threads(min(count, before))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def measure_points(
    jobs: Sequence[Job], options: Options, speeds: Speeds | None = None
) -> tuple[list[dict[str, Any]], Speeds]:
    """What was measured of each of `jobs`, in their order, and the machine's speeds for it."""
    count = jobs[0].point.call.threads
    peers = chosen_peers(options.peers)
    with _threads(count):
        entries = [_enter(job, peers, options) for job in jobs]
        if speeds is None:
            dtype = read_spec(jobs[0].values).dtype
            speeds = machine_speeds(count, dtype)
        racing = [(entry, racer) for entry in entries for racer in entry.racers]
        timings = take_turns([racer.call for _, racer in racing], min_rounds=options.rounds)
    times: dict[int, dict[str, Timing]] = {id(entry): {} for entry in entries}
    for (entry, racer), timing in zip(racing, timings, strict=True):
        times[id(entry)][racer.who] = timing
    return [_result(entry, times[id(entry)], speeds) for entry in entries], speeds


def _enter(job: Job, peers: Sequence[Peer], options: Options) -> _Entry:
    """Prepare a point, run it once, check it, and do the same with its peers."""
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    entry = _Entry(job, started=started)
    try:
        spec, call = read_spec(job.values), job.point.call
        ir = run_stages(spec).ir
        inputs = random_inputs(ir, call.lengths, options.seed)
        attention = compile_spec(spec)
        entry.schedule = {name: d.value for name, d in attention.schedule.decisions()}
        ours = prepare_call(attention, inputs)
        ours()
        if can_measure():
            result, entry.peak_memory = measure_rise(ours)
        else:
            result = ours()
        expected = expect(ir, inputs)
        verdict = expected.judge(result)
        entry.cost = cost(ir, call.lengths, inputs.side)
        entry.bound = verdict.bound
    except AttngenError as error:
        entry.reason = str(error)
        return entry
    except Exception as error:  # noqa: BLE001 - one point's failure is not the sweep's
        entry.reason = f"{type(error).__name__}: {error}"
        return entry
    if not verdict.good:
        entry.reason = f"wrong by {verdict.error:.2g}, and {verdict.bound:.2g} is allowed"
        return entry
    entry.racers.append(_Racer("attngen", ours, verdict.error))
    case = case_of(spec, call)
    for peer in peers:
        if isinstance(case, str):
            entry.without[peer.name] = case
            continue
        found = _enter_peer(peer, case, inputs, expected, call.threads)
        if isinstance(found, str):
            entry.without[peer.name] = found
        else:
            entry.racers.append(found)
    return entry


def _enter_peer(
    peer: Peer, case: Any, inputs: Inputs, expected: Expected, threads: int
) -> _Racer | str:
    """A peer, ready and right; the reason where it is not."""
    if reason := peer.available():
        return reason
    try:
        prepared = peer.prepare(case, inputs, threads)
        verdict = expected.judge(np.asarray(prepared.to_numpy(prepared.call())))
    except CannotDoError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - other people's compilers raise anything
        text = str(error).strip().partition("\n")[0]
        return f"failed with {type(error).__name__}: {text:.100}"
    if not verdict.good:
        return f"wrong by {verdict.error:.2g}, and {verdict.bound:.2g} is allowed"
    return _Racer(peer.name, prepared.call, verdict.error)


def _result(entry: _Entry, times: dict[str, Timing], speeds: Speeds) -> dict[str, Any]:
    if entry.reason or entry.cost is None:
        return {"status": "failed", "reason": entry.reason, "started": entry.started}
    ours, work = times["attngen"], entry.cost
    errors = {racer.who: racer.error for racer in entry.racers}
    peers: dict[str, Any] = {name: {"reason": reason} for name, reason in entry.without.items()}
    for who, timing in times.items():
        if who != "attngen":
            ratio = timing.median / ours.median
            peers[who] = {**quantiles(timing), "ratio": ratio, "max_error": errors[who]}
    return {
        "status": "ok",
        "schedule": entry.schedule,
        "seconds": quantiles(ours),
        "flops": work.flop,
        "bytes": work.bytes,
        "gflops": work.flop / ours.median / 1e9,
        "gbytes_per_s": work.bytes / ours.median / 1e9,
        "roofline": roofline(work, speeds, ours.median),
        "peak_memory": entry.peak_memory,
        "max_error": errors["attngen"],
        "error_bound": entry.bound,
        "peers": peers,
        "started": entry.started,
    }


def quantiles(timing: Timing) -> dict[str, float | int]:
    """The spread of a timing in seconds, and of how many calls."""
    marks = {"min": 0, "p10": 10, "p25": 25, "median": 50, "p75": 75, "p90": 90, "max": 100}
    values = np.percentile(timing.seconds, list(marks.values()))
    found: dict[str, float | int] = dict(zip(marks, values.tolist(), strict=True))
    return {**found, "runs": len(timing.seconds)}


def roofline(work: Cost, speeds: Speeds, seconds: float) -> dict[str, Any]:
    """What bounds the longest step, the predicted time, and the share of it that is reached."""
    predicted = work.seconds(speeds.flop_per_s, speeds.bytes_per_s)
    longest = max(work.steps, key=lambda s: s.seconds(speeds.flop_per_s, speeds.bytes_per_s))
    compute = longest.flop / speeds.flop_per_s >= longest.bytes / speeds.bytes_per_s
    return {
        "binds": "compute" if compute else "memory",
        "predicted": predicted,
        "share": predicted / seconds,
        **{k: v for k, v in asdict(speeds).items() if k != "threads"},
    }
