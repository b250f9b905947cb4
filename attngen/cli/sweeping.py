"""``sweep``: measure what a spec says under ``sweep``, point by point, and keep it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attngen.cli.options import SettingOption, SpecArgument, ThreadsOption
from attngen.cli.output import note, say, say_json, say_table

if TYPE_CHECKING:
    from attngen.bench.report import Table as Printed
    from attngen.sweeps.run import Progress, Sweep
    from attngen.sweeps.table import Table

_MOST_ROWS = 40
_FOREVER = 1e9
_BUSY = 0.5


def sweep_command(
    spec: SpecArgument,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Folder of the series of results."),
    ] = Path("sweeps"),
    setting: SettingOption = None,
    q_len: Annotated[
        int, typer.Option("--q-len", "--seq", min=1, metavar="N", help="Queries, if not swept.")
    ] = 2048,
    kv_len: Annotated[
        int | None,
        typer.Option(
            "--kv-len", min=1, metavar="N", help="Keys; as many as queries.", show_default=False
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, metavar="N", help="Batch size, if not swept.")
    ] = 1,
    threads: ThreadsOption = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, metavar="N", help="Least timed calls of a point.")
    ] = 7,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers",
            metavar="NAME[,NAME]",
            help="Whom to time beside each point: torch, flex, onnxruntime, or peers of bench.",
            show_default=False,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="tcp://HOST:PORT",
            help="Measure on the workers of this Dask cluster.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            metavar="N",
            help="Processes that compile; one a core by default.",
            show_default=False,
        ),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Measure failed points of earlier runs again.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Judge and list the points; measure nothing.")
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Also write a CSV file.", show_default=False),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(
            "--parquet", metavar="FILE", help="Also write a Parquet file.", show_default=False
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the columns as one JSON value.")
    ] = False,
) -> None:
    """Measure every point of a sweep, one at a time; the same command continues what it began."""
    from attngen.sweeps.run import sweep

    bar = _Bar()
    names = [] if peers in (None, "none") else [n.strip() for n in (peers or "").split(",")]
    found = sweep(
        spec,
        folder=output,
        settings=setting or (),
        batch=batch,
        q_len=q_len,
        kv_len=kv_len,
        threads=threads,
        rounds=rounds,
        peers=names,
        scheduler=scheduler,
        compilers=jobs,
        retry_failed=retry_failed,
        progress=bar.show,
    )
    _announce(found)
    if dry_run:
        _list(found, as_json)
        return
    try:
        with bar.running():
            for _ in found:
                pass
    except KeyboardInterrupt:
        done = found.table.rows
        note(f"interrupted: {done} of {len(found.points)} points are kept in {found.folder}")
        note("  the same command measures the others")
        raise
    table = found.table
    if any(load and load > _BUSY for load in table["load"]):
        note("the machine was BUSY before some measurements (column load): trust no figure of them")
    _finish(table, found, csv, parquet, as_json)
    if "failed" in table["status"]:
        raise typer.Exit(1)


def _announce(found: Sweep) -> None:
    from attngen.formatting import count_text

    points = found.points
    text = count_text(len(points), "point")
    if points.excluded:
        text += f", {points.excluded} more excluded by conditions"
    note(text)
    reasons: dict[tuple[str, str], int] = {}
    for one in points.impossible:
        reasons[one.reason, one.hint] = reasons.get((one.reason, one.hint), 0) + 1
    for (reason, hint), count in reasons.items():
        note(f"impossible, {count_text(count, 'point')}: {reason}" + (f" ({hint})" if hint else ""))


def _list(found: Sweep, as_json: bool) -> None:
    """The points, measured or not."""
    rows: list[dict[str, Any]] = [
        {"point": job.point.name, "keys": dict(job.point.keys), "status": "possible"}
        for job in found.points.jobs
    ]
    for one in found.points.impossible:
        head = {"point": one.point.name, "keys": dict(one.point.keys), "status": "impossible"}
        rows.append({**head, "reason": one.reason, "hint": one.hint})
    if as_json:
        say_json(rows)
        return
    for row in rows:
        keys = ", ".join(f"{key}={value}" for key, value in row["keys"].items())
        say(
            f"{row['point']}  {keys}"
            + (f"  impossible: {row['reason']}" if "reason" in row else "")
        )


def _finish(
    table: Table, found: Sweep, csv: Path | None, parquet: Path | None, as_json: bool
) -> None:
    if csv is not None:
        table.to_csv(csv)
    if parquet is not None:
        table.to_parquet(parquet)
    if as_json:
        say_json(table)
        return
    say_table(_printed(table))
    say(f"{table['status'].count('ok')} of {table.rows} points measured; all of it is in")
    say(f"  {found.folder}")


def _printed(table: Table) -> Printed:
    """The columns that fit a terminal."""
    from attngen.bench.report import Table as Printed
    from attngen.formatting import seconds_text, significant

    peers = [name for name in table if name.endswith("_ratio")]
    rows = []
    for i in range(table.rows):
        median, share = table["seconds_median"][i], table["roofline_share"][i]
        rate = table["gflops"][i]
        ratios = (table[name][i] for name in peers)
        rows.append(
            (
                *("–" if table[key][i] is None else str(table[key][i]) for key in table.swept),
                table["status"][i] if median is None else seconds_text(median),
                "–" if rate is None else significant(rate),
                "–" if share is None else f"{share:.0%} {table['roofline_binds'][i]}",
                *("–" if ratio is None else f"{ratio:.2f}×" for ratio in ratios),
            )
        )
    failed = [i for i in range(table.rows) if table["status"][i] == "failed"]
    notes = tuple(f"failed: {table['reason'][i]} ({table['point'][i]})" for i in failed[:10])
    if len(rows) > _MOST_ROWS:
        notes = (*notes, f"{len(rows) - _MOST_ROWS} more rows are in the folder")
    names = [name.removesuffix("_ratio") for name in peers]
    columns = (*table.swept, "median", "GFLOP/s", "roofline", *names)
    return Printed("sweep; × is their time over ours", columns, tuple(rows[:_MOST_ROWS]), notes)


class _Bar:
    """Progress on stderr: a bar with the time left on a terminal, a line a step elsewhere."""

    def __init__(self) -> None:
        self._update: Callable[[Progress], None] | None = None
        self._last = ""

    def show(self, progress: Progress) -> None:
        """Show how far the sweep is."""
        if self._update is not None:
            self._update(progress)
        else:
            text = f"{progress.done} of {progress.total}: {progress.doing}"
            if text != self._last:
                note(text)
            self._last = text

    def running(self) -> AbstractContextManager[object]:
        """The bar, while the sweep runs."""
        if not sys.stderr.isatty():
            return nullcontext()
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        bar = Bar(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            speed_estimate_period=_FOREVER,  # points come in batches, after their compilation
        )
        task = bar.add_task("starting", total=None)

        def update(progress: Progress) -> None:
            bar.update(
                task, completed=progress.done, total=progress.total, description=progress.doing
            )

        self._update = update
        return bar
