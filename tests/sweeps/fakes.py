"""An engine that measures nothing, and what it says it measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attngen.sweeps.engines import Measured, Tell
from attngen.sweeps.measure import Options
from attngen.sweeps.points import Job, Machine
from attngen.targets import AVX512

BASE: dict[str, Any] = {"name": "tiny", "heads": 4, "head_dim": 16}
MACHINE = Machine(AVX512, cores=4)


def timing(median: float, runs: int = 7) -> dict[str, Any]:
    names = ("min", "p10", "p25", "median", "p75", "p90", "max")
    return {**dict.fromkeys(names, median), "runs": runs}


def line(seconds: float = 0.001, **more: Any) -> dict[str, Any]:
    return {"status": "ok", "seconds": timing(seconds), "flops": 1000, "gflops": 1.0, **more}


@dataclass
class FakeEngine:
    """Gives a line a job, and stops as Ctrl-C does after so many batches.

    Attributes:
        interrupt_after: batches until KeyboardInterrupt; never if None.
        fail: keys for which a point fails.
        measured: the names of the points that were measured, in order.
    """

    interrupt_after: int | None = None
    fail: Mapping[str, Any] | None = None
    machine_name: str = "kind-a"
    measured: list[str] = field(default_factory=list)

    def machine(self) -> Machine:
        return MACHINE

    def measure(
        self,
        batches: Sequence[tuple[Job, ...]],
        options: Options,
        known: Mapping[str, Mapping[str, Any]],
        tell: Tell,
    ) -> Iterator[Measured]:
        del options, known
        for number, batch in enumerate(batches):
            if number == self.interrupt_after:
                raise KeyboardInterrupt
            tell("measuring")
            self.measured += [job.point.name for job in batch]
            yield Measured(
                batch,
                tuple(self._line(job) for job in batch),
                "print-1",
                {"machine": self.machine_name, "cpu": "a fake"},
                {"threads": 1, "flop_per_s": 1e9, "bytes_per_s": 1e9},
            )

    def _line(self, job: Job) -> dict[str, Any]:
        if self.fail is not None and dict(job.point.keys) == dict(self.fail):
            return {"status": "failed", "reason": "it broke"}
        return line()
