"""Who measures: this machine here, the workers of a cluster in :mod:`attngen.sweeps.cluster`.

Input: batches of jobs. Output: :class:`Measured` as they come, each with where it comes from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from attngen.sweeps.batch import Workshop
from attngen.sweeps.machine import load_average, take_fingerprint, this_machine
from attngen.sweeps.measure import Options
from attngen.sweeps.points import Job, Machine

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """What became of a batch, and where.

    Attributes:
        lines: the measured part of each job's result, in the order of `jobs`.
        fingerprint: digest of `facts`, which say what it was measured on.
        speeds: of that machine with the jobs' number of threads.
        load: load average of the machine before it had anything to do for us, where it tells.
        worker: its address in a cluster.
        attempt: how many workers were lost over it, and one.
    """

    jobs: tuple[Job, ...]
    lines: tuple[dict[str, Any], ...]
    fingerprint: str
    facts: Mapping[str, Any]
    speeds: Mapping[str, Any] | None
    load: float | None = None
    worker: str | None = None
    attempt: int = 1


class Engine(Protocol):
    """Measures batches one after the other on each machine it has."""

    def machine(self) -> Machine:
        """By what points are judged."""

    def measure(
        self,
        batches: Sequence[tuple[Job, ...]],
        options: Options,
        known: Mapping[str, Mapping[str, Any]],
        tell: Tell,
    ) -> Iterator[Measured]:
        """Measure `batches`; `known` has the facts of earlier runs by fingerprint."""


class LocalEngine:
    """This machine, with so many processes that compile (None: one a core)."""

    def __init__(self, compilers: int | None = None) -> None:
        self._compilers = compilers

    def machine(self) -> Machine:
        """This machine."""
        return this_machine()

    def measure(
        self,
        batches: Sequence[tuple[Job, ...]],
        options: Options,
        known: Mapping[str, Mapping[str, Any]],
        tell: Tell,
    ) -> Iterator[Measured]:
        """Measure `batches` in their order."""
        if not batches:
            return
        fingerprint, load = take_fingerprint(), load_average()
        facts, digest = fingerprint.to_json(), fingerprint.digest
        speeds = dict(known.get(digest, {}).get("speeds", {}))
        with Workshop(self._compilers or min(os.cpu_count() or 1, 32)) as workshop:
            for batch in batches:
                kind = speeds_key(batch)
                outcome = workshop.run(batch, options, speeds.get(kind), tell)
                if outcome.speeds is not None:
                    speeds[kind] = outcome.speeds
                yield Measured(batch, outcome.lines, digest, facts, outcome.speeds, load)


def speeds_key(batch: tuple[Job, ...]) -> str:
    """Under what name a machine's speeds are kept: threads and type of sums."""
    first = batch[0]
    kind = "float64" if first.sizes["dtype"] == "float64" else "float32"
    return f"{first.point.call.threads}x{kind}"
