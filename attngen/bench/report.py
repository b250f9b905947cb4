"""Results as tables, Markdown and JSON.

Input: the reports and lines of a suite. Output: a :class:`Table` of finished texts, which
:func:`markdown` and the command line print, or plain data for JSON. A missing figure is a dash,
and a note under the table says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from attngen.bench.environment import Environment
from attngen.bench.measure import CallReport, Line, Result
from attngen.bench.processes import MemoryLine, StartLine
from attngen.formatting import bytes_text, count_text, rate_text, seconds_text

_DASH = "–"
_BUSY = 0.5


@dataclass(frozen=True, slots=True)
class Table:
    """A table ready to print: texts only."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def call_tables(report: CallReport) -> list[Table]:
    """One table a number of threads: ours, our rate and share of the peak, then the peers."""
    tables = []
    for threads in dict.fromkeys(line.threads for line in report.lines):
        lines = [line for line in report.lines if line.threads == threads]
        peers = [result.who for result in lines[0].results[1:]]
        peak, count = rate_text(lines[0].peak), count_text(threads, "thread")
        tables.append(
            Table(
                f"{report.suite}, {count} (FMA peak {peak}); × is their time over ours",
                ("work", "attngen", "rate", "of peak", *peers),
                tuple(_call_row(line) for line in lines),
                _reasons((result, line.case.label) for line in lines for result in line.results),
            )
        )
    return tables


def _call_row(line: Line) -> tuple[str, ...]:
    ours = line.ours
    rate, share = line.rate(ours), line.share(ours)
    return (
        line.case.label,
        _DASH if ours.timing is None else seconds_text(ours.timing.median),
        _DASH if rate is None else rate_text(rate),
        _DASH if share is None else f"{share:.0%}",
        *(_peer_cell(result) for result in line.results[1:]),
    )


def _peer_cell(result: Result) -> str:
    if result.timing is None:
        return _DASH
    time = seconds_text(result.timing.median)
    return time if result.ratio is None else f"{time} ({result.ratio:.2f}×)"


def start_table(lines: Sequence[StartLine]) -> Table:
    """Seconds from a new process to its first result."""
    return Table(
        "start: new process to first result, median",
        ("who", "work", "time", "runs"),
        tuple(
            (
                line.who,
                line.label,
                seconds_text(line.median) if line.seconds else _DASH,
                str(len(line.seconds)),
            )
            for line in lines
        ),
        _reasons((line, line.label) for line in lines),
    )


def memory_table(lines: Sequence[MemoryLine]) -> Table:
    """Peak memory of a call beyond its inputs and outputs."""
    return Table(
        "memory: peak of a call beyond its inputs and outputs",
        ("work", "threads", "who", "peak", "K and V + 1 MiB a thread"),
        tuple(
            (
                line.label,
                str(line.threads),
                line.who,
                _DASH if line.bytes is None else bytes_text(line.bytes),
                bytes_text(line.limit),
            )
            for line in lines
        ),
        _reasons((line, line.label) for line in lines),
    )


def environment_note(where: Environment) -> str:
    """One line saying what was measured on, and when."""
    versions = ", ".join(f"{name} {version}" for name, version in where.versions.items())
    text = f"{where.cpu}, {where.cores} cores, {where.date}, Python {where.python}, {versions}"
    if where.load is not None and where.load > _BUSY:
        text += f"; the machine was BUSY before (load {where.load:.1f}), so trust no figure here"
    return text


def markdown(table: Table) -> str:
    """The table as GitHub Markdown."""
    lines = [f"**{table.title}**", ""]
    lines.append("| " + " | ".join(table.columns) + " |")
    lines.append("| " + " | ".join("---" for _ in table.columns) + " |")
    lines.extend("| " + " | ".join(row) + " |" for row in table.rows)
    if table.notes:
        lines.extend(["", *(f"- {note}" for note in table.notes)])
    return "\n".join(lines)


def call_data(report: CallReport) -> dict[str, Any]:
    """A report as plain data, with the figures that the tables show."""
    lines = []
    for line in report.lines:
        data = asdict(line)
        for result, plain in zip(line.results, data["results"], strict=True):
            plain["median_s"] = result.timing.median if result.timing else None
            plain["flop_per_s"] = line.rate(result)
            plain["share_of_peak"] = line.share(result)
            plain["timing"] = list(result.timing.seconds) if result.timing else None
        lines.append(data)
    return {"suite": report.suite, "environment": asdict(report.environment), "lines": lines}


def process_data(
    suite: str, where: Environment, lines: Sequence[StartLine] | Sequence[MemoryLine]
) -> dict[str, Any]:
    """The lines of a suite of processes as plain data."""
    return {
        "suite": suite,
        "environment": asdict(where),
        "lines": [asdict(line) for line in lines],
    }


def _reasons(items: Iterable[tuple[Result | StartLine | MemoryLine, str]]) -> tuple[str, ...]:
    """A note for each contestant and reason, naming the lines unless it is about all of them."""
    found: dict[tuple[str, str], list[str]] = {}
    totals: dict[str, int] = {}
    for item, label in items:
        totals[item.who] = totals.get(item.who, 0) + 1
        if item.reason:
            found.setdefault((item.who, item.reason), []).append(label)
    return tuple(
        f"{who}: {reason}" + ("" if len(labels) == totals[who] else f" ({'; '.join(labels)})")
        for (who, reason), labels in found.items()
    )
