"""``bench``: our kernels and what else there is, alternating in one process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from attngen.bench.suites import CASES, SUITES
from attngen.cli.output import note, say, say_table

if TYPE_CHECKING:
    from attngen.bench.peers import Peer
    from attngen.bench.report import Table

Format = Literal["table", "markdown"]


def bench_command(
    suite: Annotated[
        str, typer.Option("--suite", metavar="NAME", help=f"One of {', '.join(SUITES)}.")
    ] = "core",
    threads: Annotated[
        str | None,
        typer.Option(
            "--threads",
            metavar="N[,N]",
            help="Numbers of threads; all cores by default.",
            show_default=False,
        ),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers",
            metavar="NAME[,NAME]",
            help="Whom to compare with: all by default, 'none', or some of torch-sdpa, "
            "torch-flex, ort-mha, ort-gqa, ort-attention.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, metavar="N", help="Least timed calls of each.")
    ] = 7,
    layout: Annotated[
        Format, typer.Option("--format", help="How to print what was measured.")
    ] = "table",
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write everything as JSON here; '-' is stdout, instead of a table.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            metavar="OLD.json",
            help="Also compare with an earlier --json file; a line that became slower is exit 1.",
            show_default=False,
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", min=0.0, metavar="X", help="With --compare: how much is same."),
    ] = 0.05,
) -> None:
    """Time our kernels and their peers in turn, with equal threads; results are checked first."""
    if suite not in SUITES:
        raise typer.BadParameter(
            f"{suite!r} is not one of {', '.join(SUITES)}", param_hint="'--suite'"
        )
    counts = _thread_counts(threads)
    chosen = _choose_peers(peers)
    old = _read_old(compare)
    good, data, tables, about = _measure(suite, counts, chosen, rounds)
    lost = old is not None and _compare(old, data, tables, tolerance)
    if json_file is not None:
        _write_json(json_file, data)
    if json_file != "-":
        _print(tables, layout, about)
    if not good:
        note("error: a result of ours is wrong; see the notes under the table")
    if lost:
        note(f"error: slower than {compare}; see the last table")
    if lost or not good:
        raise typer.Exit(1)


def _read_old(path: Path | None) -> dict[str, Any] | None:
    from attngen.bench.compare import read_document

    return None if path is None else read_document(path)


def _compare(
    old: dict[str, Any], data: dict[str, Any], tables: list[Table], tolerance: float
) -> bool:
    """Whether something was lost; the comparison joins `data` and `tables`."""
    from dataclasses import asdict

    from attngen.bench import compare

    comparison = compare.compare(old, data, tolerance=tolerance)
    data["comparison"] = asdict(comparison)
    tables.append(compare.table(comparison, tolerance))
    return comparison.lost


def _measure(
    suite: str, threads: list[int], peers: list[Peer], rounds: int
) -> tuple[bool, dict[str, Any], list[Table], str]:
    """Whether our results are right, everything as data, the tables, and what it ran on."""
    from attngen.bench import report as reports
    from attngen.bench.environment import environment
    from attngen.bench.measure import measure_suite
    from attngen.bench.processes import measure_memory, measure_start

    if suite in CASES:
        report = measure_suite(suite, CASES[suite], peers, threads, rounds=rounds, progress=note)
        about = reports.environment_note(report.environment)
        tables = reports.call_tables(report)
        return report.correct, reports.call_data(report), tables, about
    where = environment()
    about = reports.environment_note(where)
    if suite == "start":
        starts = measure_start(peers, note)
        table = reports.start_table(starts)
        return True, reports.process_data(suite, where, starts), [table], about
    memory = measure_memory(peers, threads, note)
    table = reports.memory_table(memory)
    return True, reports.process_data(suite, where, memory), [table], about


def _thread_counts(text: str | None) -> list[int]:
    from attngen.cli.options import use_threads

    if text is None:
        return [use_threads(None)]
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise typer.BadParameter(
            f"expected numbers such as 1,2, got {text!r}", param_hint="'--threads'"
        )
    use_threads(max(counts))
    return counts


def _choose_peers(text: str | None) -> list[Peer]:
    from attngen.bench.peers import all_peers

    peers = {peer.name: peer for peer in all_peers()}
    if text is None:
        return list(peers.values())
    names = [] if text == "none" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in peers:
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(peers)}", param_hint="'--peers'"
            )
    return [peers[name] for name in names]


def _write_json(target: str, data: dict[str, Any]) -> None:
    import json

    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")


def _print(tables: list[Table], layout: Format, about: str) -> None:
    from attngen.bench.report import markdown

    for table in tables:
        if layout == "markdown":
            say(markdown(table) + "\n")
        else:
            say_table(table)
    say(about)
