"""``explain``: what a compilation promises, how it computes, and how long that should take."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated

import typer

from attngen.cli.options import (
    BatchOption,
    JsonOption,
    KvLenOption,
    QLenOption,
    ScheduleOption,
    SpecArgument,
    ThreadsOption,
    parse_overrides,
    use_threads,
)
from attngen.cli.output import say, say_json


def explain_command(
    spec: SpecArgument,
    q_len: QLenOption = None,
    kv_len: KvLenOption = None,
    batch: BatchOption = 1,
    threads: ThreadsOption = None,
    schedule: ScheduleOption = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also compile, run and time it at these lengths.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Explain a spec: numeric contract, schedule with reasons, work, and predicted time."""
    from attngen.costs import Lengths
    from attngen.driver import run_stages
    from attngen.explain import DEFAULT_LENGTH, explain, machine_speeds

    overrides = parse_overrides(schedule)
    stages = run_stages(spec, overrides=overrides)
    count = use_threads(threads)
    queries = DEFAULT_LENGTH if q_len is None else q_len
    lengths = Lengths(queries, queries if kv_len is None else kv_len, batch)
    measured = None
    if measure:
        from attngen.trial import run_trial

        trial = run_trial(spec, lengths, overrides=overrides, threads=count)
        measured = trial.timing.median
    report = explain(
        stages, lengths, speeds=machine_speeds(count, stages.ir.dtype), measured=measured
    )
    if as_json:
        say_json(report.to_json())
    else:
        width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
        say(report.to_text(max(60, width)))
