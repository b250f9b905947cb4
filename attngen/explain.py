"""Explain a compilation: what it promises, how it computes and why so, and how long it will take.

Input: the products of the stages, lengths, and (for a prediction) how fast the machine is. Output:
an :class:`ExplainReport`, as text for people or plain data for programs. Predicted time is the
roofline: each step takes the longer of its arithmetic at the measured peak and its bytes at the
measured bandwidth.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from attngen.contract import contract
from attngen.costs import Array, Cost, Lengths, cost
from attngen.dtypes import FLOAT32, DType
from attngen.example_inputs import example_inputs
from attngen.formatting import (
    bytes_text,
    count_text,
    flop_text,
    rate_text,
    seconds_text,
    significant,
)
from attngen.ir import bounds
from attngen.ir.attention import AttentionIR
from attngen.side_data import of_mask

if TYPE_CHECKING:
    from attngen.driver import Stages

DEFAULT_LENGTH = 2048
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Speeds:
    """What the machine was measured to do with `threads` threads."""

    threads: int
    flop_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One decision of the schedule."""

    name: str
    value: int | str
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """Everything that is known before (and, with `measured`, after) running.

    Attributes:
        sizes: (name, text) of what identifies the attention.
        predicted: seconds on the roofline; None without `speeds`.
        measured: median seconds of real calls; None if nobody asked.
        machine: what the machine code takes of a GPU.
    """

    name: str
    description: str
    sizes: tuple[tuple[str, str], ...]
    contract: tuple[str, ...]
    schedule: tuple[ScheduleRow, ...]
    cost: Cost
    speeds: Speeds | None = None
    predicted: float | None = None
    measured: float | None = None
    machine: tuple[str, ...] = ()

    def to_text(self, width: int = _WIDTH) -> str:
        """The report for people, wrapped at `width` columns."""
        parts = [
            _section(self.name, [("", self.description)] if self.description else [], width),
            _section("", list(self.sizes), width),
            _section("contract", [("-", line) for line in self.contract], width),
            _section("schedule", _schedule_rows(self.schedule), width),
            _section("machine code", [("-", line) for line in self.machine], width)
            if self.machine
            else "",
            _section(_work_title(self.cost), self._work_rows(), width),
        ]
        return "\n".join(part for part in parts if part)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        data = asdict(self)
        data["sizes"] = dict(self.sizes)
        data["cost"]["flop"] = self.cost.flop
        data["cost"]["bytes"] = self.cost.bytes
        return data

    def _work_rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            (step.name, f"{flop_text(step.flop)}, {bytes_text(step.bytes)}")
            for step in self.cost.steps
        ]
        if len(rows) > 1:
            rows.append(("together", f"{flop_text(self.cost.flop)}, {bytes_text(self.cost.bytes)}"))
        if self.speeds and self.predicted is not None:
            peak, bandwidth = self.speeds.flop_per_s, self.speeds.bytes_per_s
            threads = count_text(self.speeds.threads, "thread")
            rows.append(
                (
                    "predicted",
                    f"at least {seconds_text(self.predicted)} ({threads} at {rate_text(peak)} and "
                    f"{significant(bandwidth / 1e9)} GB/s, both measured)",
                )
            )
        if self.measured is not None:
            rate = rate_text(self.cost.flop / self.measured)
            text = f"{seconds_text(self.measured)} ({rate})"
            if self.predicted:
                text += f", {self.predicted / self.measured:.0%} of the predicted speed"
            rows.append(("measured", text))
        return rows


def explain(
    stages: Stages,
    lengths: Lengths | None = None,
    *,
    inputs: Mapping[str, Array] | None = None,
    speeds: Speeds | None = None,
    measured: float | None = None,
    machine: tuple[str, ...] = (),
) -> ExplainReport:
    """Explain what `stages` produced.

    Args:
        stages: of one compilation.
        lengths: of the call whose work is counted; 2048 queries and keys if None.
        inputs: side inputs by name; an example if None, as far as the mask reads any.
        speeds: of the machine, for the predicted time.
        measured: median seconds of such a call.
        machine: what the machine code takes of a GPU, one fact a line.
    """
    lengths = lengths or Lengths(DEFAULT_LENGTH, DEFAULT_LENGTH)
    if inputs is None:
        sizes = bounds.Lengths(lengths.batch, lengths.q_len, lengths.kv_len)
        inputs = example_inputs(of_mask(stages.ir), sizes)
    work = cost(stages.ir, lengths, inputs)
    predicted = work.seconds(speeds.flop_per_s, speeds.bytes_per_s) if speeds else None
    rows = tuple(
        ScheduleRow(name, decision.value, decision.source, decision.why)
        for name, decision in stages.schedule.decisions()
        if stages.ir.scope == "layer" or not name.startswith(("projection", "gemm_"))
    )
    return ExplainReport(
        name=stages.ir.name,
        description=stages.ir.description,
        sizes=_sizes(stages.ir),
        contract=contract(stages.ir),
        schedule=rows,
        cost=work,
        speeds=speeds,
        predicted=predicted,
        measured=measured,
        machine=machine,
    )


def machine_speeds(threads: int, dtype: DType = FLOAT32) -> Speeds:
    """Measure this machine; takes about a second the first time."""
    from attngen.backends.numba_cpu.peak import measure_bandwidth, measure_fma
    from attngen.backends.numba_cpu.probe import probe

    target = probe()
    return Speeds(
        threads,
        measure_fma(target, dtype=dtype, threads=threads),
        measure_bandwidth(target, threads=threads),
    )


def _sizes(ir: AttentionIR) -> tuple[tuple[str, str], ...]:
    heads = f"{ir.heads} of {ir.head_dim}"
    if ir.value_dim != ir.head_dim:
        heads += f" (values {ir.value_dim})"
    if ir.kv_heads != ir.heads:
        heads += f", {ir.kv_heads} key and value heads"
    if ir.maps > 1:
        heads += f", each with {ir.maps} query and key heads"
    layer = "projections included" if ir.d_model else "queries, keys and values in"
    width = (("d_model", str(ir.d_model)),) if ir.d_model else ()
    return (("scope", f"{ir.scope} ({layer})"), *width, ("heads", heads), ("dtype", ir.dtype.name))


def _schedule_rows(schedule: tuple[ScheduleRow, ...]) -> list[tuple[str, ...]]:
    return [(row.name, str(row.value), row.source, row.why) for row in schedule]


def _work_title(work: Cost) -> str:
    lengths = work.lengths
    share = work.share
    digits = max(0, -math.floor(math.log10(share)) - 1) if share else 0
    return (
        f"work at batch {lengths.batch}, {count_text(lengths.q_len, 'query', 'queries')}, "
        f"{count_text(lengths.kv_len, 'key')} "
        f"({share:.{digits}%} of the pairs attend)"
    )


def _section(title: str, rows: list[tuple[str, ...]], width: int) -> str:
    """A title and aligned rows under it; the last column is wrapped."""
    lines = [title] if title else []
    columns = max((len(row) for row in rows), default=0) - 1
    widths = [max(len(row[i]) for row in rows) for i in range(columns)]
    for row in rows:
        cells = (cell.ljust(size) for cell, size in zip(row, widths, strict=False))
        start = "  " + "".join(f"{cell}  " for cell in cells if cell)
        lines.append(
            textwrap.fill(
                row[-1],
                max(width, len(start) + 24),
                initial_indent=start,
                subsequent_indent=" " * len(start),
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    return "\n".join(line.rstrip() for line in lines)
