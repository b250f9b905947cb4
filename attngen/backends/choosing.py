"""What choosing and judging a schedule has in common: overrides, problems and their diagnostics.

Input: a backend's proposals field by field, and the user's overrides. Output: decisions in which an
override replaces the proposal, or a SpecError that names each illegal one at its place.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from attngen.errors import Diagnostic, SpecError
from attngen.ir.schedule import Decision, Schedule
from attngen.spec.model import ScheduleOverride

MAX_BLOCK = 1 << 16  # rows or keys; far beyond what any cache or shared memory holds


@dataclass(frozen=True, slots=True)
class Problem:
    """An illegal value: the field, the fact, and the nearest legal values."""

    field: str
    message: str
    hint: str


class Chooser:
    """Collects decisions for a target; a user's value for a field replaces the proposal."""

    def __init__(
        self, kind: str, schedule: type[Schedule], overrides: Sequence[ScheduleOverride]
    ) -> None:
        self.kind = kind
        self.overrides = {o.name: o for o in overrides if o.target == kind}
        self.problems: list[Problem] = []
        names = [field.name for field in fields(schedule)]
        for name in self.overrides:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean '{near[0]}'?" if near else "one of " + ", ".join(names)
                self.problems.append(Problem(name, f"'{name}' is no scheduling decision", hint))

    def integer(self, name: str, value: int, why: str) -> Decision[int]:
        """The decision for a whole number, which is `value` unless the user gives another."""
        override = self.overrides.get(name)
        if override is None:
            return Decision(value, "heuristic", why)
        if isinstance(override.value, bool) or not isinstance(override.value, int):
            problem = f"'{name}' must be an integer, and {override.value!r} is not"
            self.problems.append(Problem(name, problem, f"for example {value}"))
            return Decision(value, "heuristic", why)
        return Decision(override.value, override.source, f"given in the {override.source}")

    def text(self, name: str, value: str, why: str) -> Decision[str]:
        """The same for a word."""
        override = self.overrides.get(name)
        if override is None:
            return Decision(value, "heuristic", why)
        return Decision(str(override.value), override.source, f"given in the {override.source}")

    def judge(self, check: Callable[[], Iterable[Problem]]) -> None:
        """Refuse what was collected, or else what `check` finds.

        Raises:
            SpecError: each problem with its place.
        """
        problems = self.problems or list(check())
        if problems:
            raise SpecError(self._diagnostic(p) for p in problems)

    def _diagnostic(self, problem: Problem) -> Diagnostic:
        override = self.overrides.get(problem.field)
        return Diagnostic(
            code="E-SCHEDULE",
            message=problem.message,
            span=override.span if override else None,
            key=f"schedule.{self.kind}.{problem.field}",
            hint=problem.hint,
        )


def check_multiple(
    reject: Callable[[str, str, str], None], name: str, value: int, step: int, of: str
) -> None:
    """Reject `value` unless it is a positive multiple of `step`, which is what `of` says."""
    if value < 1 or value % step or value > MAX_BLOCK:
        low = min(max(value // step, 1) * step, MAX_BLOCK // step * step)
        high = min(low + step, MAX_BLOCK // step * step)
        nearest = f"{low} or {high}" if low != high else str(low)
        reject(
            name,
            f"'{name}' is {value}, and must be a multiple of {of} = {step}, up to {MAX_BLOCK}",
            f"use {nearest}",
        )


def kib(size: int) -> str:
    """A number of bytes as whole KiB."""
    return f"{size / 1024:.0f} KiB"
