"""From a plan to its points: which are possible, and why the others are not.

Input: a plan, the sizes of a call that no axis goes through, and the machine. Output: jobs, ready
to be compiled and measured, and impossible points with their reasons. Nothing is compiled. Each
distinct spec is judged once, however many calls it is measured at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from attngen import fingerprint
from attngen.backends.numba_cpu.scheduling import propose
from attngen.costs import Lengths
from attngen.errors import Diagnostic, SpecError
from attngen.formatting import bytes_text, count_text
from attngen.ir.attention import AttentionIR
from attngen.ir.evaluate import evaluate
from attngen.spec.axes import CALL_KEYS
from attngen.spec.conditions import numbers_at
from attngen.spec.elaborate import elaborate
from attngen.spec.plan import Setting
from attngen.spec.sweep import SweepPlan
from attngen.targets import CpuTarget

MAX_POINTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """The sizes of the calls that a point times."""

    batch: int = 1
    q_len: int = 2048
    kv_len: int = 2048
    threads: int = 1
    target: str = "cpu"

    @property
    def lengths(self) -> Lengths:
        """The run-time sizes of its arrays."""
        return Lengths(self.q_len, self.kv_len, self.batch)

    def to_json(self) -> dict[str, int | str]:
        """The sizes by name."""
        return {name: getattr(self, name) for name in CALL_KEYS}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a call is where no axis says it; None for `kv_len` is `q_len`."""

    batch: int = 1
    q_len: int = 2048
    kv_len: int | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides whether a point can be measured.

    Attributes:
        cores: the most threads a point may have.
        memory: bytes that its arrays may take; 0 if unknown.
    """

    target: CpuTarget
    cores: int
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """One choice of settings.

    Attributes:
        name: 16 hexadecimal digits, the same for the same keys and sizes.
        index: its place in the plan, from 0.
        keys: the swept keys as plain data; None is a key left out.
    """

    name: str
    index: int
    keys: Mapping[str, Any]
    call: Call


@dataclass(frozen=True, slots=True)
class Impossible:
    """A point that cannot be measured, and why."""

    point: Point
    reason: str
    hint: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A point that can be measured, as plain data that goes to other processes.

    Attributes:
        values: the keys of its spec; :func:`~attngen.spec.reader.read_spec` reads them.
        kernel: names what is compiled for it; equal for points that share their machine code.
        bytes: what its arrays take.
        sizes: of the spec, with nothing left to default.
        schedule: its decisions on the machine that judged it.
    """

    point: Point
    values: Mapping[str, Any]
    kernel: str
    bytes: int
    sizes: Mapping[str, Any]
    schedule: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Points:
    """All points of a plan.

    Attributes:
        excluded: how many combinations the conditions leave out.
        judged: how many specs were judged for it.
    """

    jobs: tuple[Job, ...]
    impossible: tuple[Impossible, ...]
    excluded: int
    judged: int

    def __len__(self) -> int:
        return len(self.jobs) + len(self.impossible)


def find_points(plan: SweepPlan, defaults: Defaults, machine: Machine) -> Points:
    """Every point of `plan`, judged.

    Raises:
        SpecError: the plan has more combinations than :data:`MAX_POINTS`.
    """
    if plan.size > MAX_POINTS:
        message = f"'sweep' has {plan.size:,} combinations, and {MAX_POINTS:,} are the most"
        span = plan.root.span
        raise SpecError([Diagnostic("E-SWEEP", message, span, "sweep", hint="sweep fewer values")])
    return _Finder(plan, defaults, machine).find()


@dataclass(frozen=True, slots=True)
class _Possible:
    """A spec that can be compiled."""

    ir: AttentionIR
    values: Mapping[str, Any]
    digest: str
    sizes: Mapping[str, Any]
    schedule: Mapping[str, Any]


class _Finder:
    def __init__(self, plan: SweepPlan, defaults: Defaults, machine: Machine) -> None:
        self.plan, self.machine = plan, machine
        self.sizes: dict[str, Any] = asdict(defaults)
        self.judged: dict[tuple[int, ...], _Possible | tuple[str, str, str]] = {}
        self.of_spec = [
            any(not axis.of_call for axis in group.axes) for group in plan.groups
        ]  # whether a group's choice matters to the spec

    def find(self) -> Points:
        plan = self.plan
        sizes = tuple(group.size for group in plan.groups)
        choices = np.stack(np.unravel_index(np.arange(plan.size), sizes), axis=1)
        kept = choices[self.kept(choices)]
        jobs, impossible = [], []
        for index, choice in enumerate(kept.tolist()):
            found = self.point(index, tuple(choice))
            if isinstance(found, Job):
                jobs.append(found)
            else:
                impossible.append(found)
        return Points(tuple(jobs), tuple(impossible), plan.size - len(kept), len(self.judged))

    def kept(self, choices: Any) -> Any:
        """Which rows of `choices` fulfil every condition: an array of truth values."""
        keep = np.ones(len(choices), np.bool_)
        if not self.plan.conditions:
            return keep
        specs = np.where(self.of_spec, choices, 0)
        distinct, row_of = np.unique(specs, axis=0, return_inverse=True)
        facts = [numbers_at(self.plan.values_at(self.settings(row))) for row in distinct.tolist()]
        calls = [self.call(self.settings(row)).to_json() for row in choices.tolist()]
        env: dict[str, Any] = {
            name: np.array([fact[name] for fact in facts])[row_of.ravel()] for name in facts[0]
        }
        env |= {n: np.array([call[n] for call in calls]) for n in calls[0] if n != "target"}
        for condition in self.plan.conditions:
            keep &= np.asarray(evaluate(condition.expr, env), np.bool_)
        return keep

    def settings(self, choice: list[int] | tuple[int, ...]) -> dict[str, Setting]:
        """The setting of each axis, by key."""
        return {
            axis.key: axis.settings[at]
            for group, at in zip(self.plan.groups, choice, strict=True)
            for axis in group.axes
        }

    def call(self, chosen: Mapping[str, Setting]) -> Call:
        """The sizes of the call at a choice."""
        given = {k: s.value for k, s in chosen.items() if _of_call(k)}
        sizes = {**self.sizes, **given}
        if sizes["kv_len"] is None:
            sizes["kv_len"] = sizes["q_len"]
        return Call(**sizes)

    def point(self, index: int, choice: tuple[int, ...]) -> Job | Impossible:
        """The point at a choice, judged."""
        chosen = self.settings(choice)
        keys = {key: plain(setting.value) for key, setting in chosen.items()}
        call = self.call(chosen)
        name = _digest([keys, call.to_json()])[:16]
        point = Point(name, index, keys, call)
        which = tuple(at for at, matters in zip(choice, self.of_spec, strict=True) if matters)
        if which not in self.judged:
            self.judged[which] = self.judge(chosen)
        verdict = self.judged[which]
        if isinstance(verdict, tuple):
            return Impossible(point, *verdict)
        if reason := self.wrong_call(verdict.ir, call):
            return Impossible(point, *reason)
        return Job(
            point,
            verdict.values,
            f"{verdict.digest}-{_few_rows(verdict, call)}",
            array_bytes(verdict.ir, call),
            verdict.sizes,
            verdict.schedule,
        )

    def judge(self, chosen: Mapping[str, Setting]) -> _Possible | tuple[str, str, str]:
        """The spec at a choice, or reason, hint and code of why it is none."""
        spec = self.plan.spec_at(chosen)
        try:
            if isinstance(spec, tuple):
                raise SpecError(spec)
            ir = elaborate(spec)
            schedule = propose(ir, self.machine.target, spec.schedule)
        except SpecError as error:
            first = error.diagnostics[0]
            return "; ".join(d.message for d in error.diagnostics), first.hint, first.code
        values = plain(self.plan.values_at(chosen)) | {"name": spec.name}
        sizes = {
            "scope": ir.scope,
            "dtype": ir.dtype.name,
            "d_model": ir.d_model,
            "heads": ir.heads,
            "kv_heads": ir.kv_heads,
            "head_dim": ir.head_dim,
            "value_dim": ir.value_dim,
        }
        decisions = {name: decision.value for name, decision in schedule.decisions()}
        return _Possible(ir, values, _digest(values)[:12], sizes, decisions)

    def wrong_call(self, ir: AttentionIR, call: Call) -> tuple[str, str, str] | None:
        """Why this machine cannot make such a call, or None."""
        if call.target != "cpu":
            return "this version computes on the CPU alone", "use target: cpu", "E-TARGET"
        if call.threads > self.machine.cores:
            cores = count_text(self.machine.cores, "core")
            reason = f"{call.threads} threads are more than the {cores} of this machine"
            return reason, f"use 1 to {self.machine.cores}", "E-THREADS"
        size = array_bytes(ir, call)
        if self.machine.memory and size > self.machine.memory:
            reason = f"its arrays take {bytes_text(size)}, and the machine has "
            return reason + bytes_text(self.machine.memory), "make the call smaller", "E-MEMORY"
        return None


def _of_call(key: str) -> bool:
    return key in CALL_KEYS


def _digest(value: Any) -> str:
    """A digest of plain data, at a fifth of the cost of that of any value."""
    return fingerprint.text_digest(json.dumps(value, sort_keys=True, separators=(",", ":")))


def _few_rows(verdict: _Possible, call: Call) -> str:
    """Which of the two kernels a call runs."""
    group = verdict.ir.heads // verdict.ir.kv_heads
    return "short" if call.q_len * group <= int(verdict.schedule["short_rows"]) else "long"


def array_bytes(ir: AttentionIR, call: Call) -> int:
    """What the inputs and the output of a call take, weights included."""
    queries, keys = call.batch * call.q_len, call.batch * call.kv_len
    per_query, per_key = ir.heads * (ir.head_dim + ir.value_dim), ir.head_dim + ir.value_dim
    elements = queries * per_query + keys * ir.kv_heads * per_key
    if ir.d_model is not None:
        elements += ir.d_model * (2 * queries + keys + per_query + ir.kv_heads * per_key)
    return elements * ir.dtype.itemsize


def physical_memory() -> int:
    """Bytes of main memory; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def plain(value: Any) -> Any:
    """`value` as JSON has it: tuples become lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
