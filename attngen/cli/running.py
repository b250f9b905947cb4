"""``run``: random input through the kernels, checked and timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from attngen.cli.options import (
    BatchOption,
    JsonOption,
    KvLenOption,
    QLenOption,
    ScheduleOption,
    SettingOption,
    SpecArgument,
    ThreadsOption,
    parse_overrides,
    use_threads,
)
from attngen.cli.output import say, say_json, say_rows

if TYPE_CHECKING:
    from attngen.trial import Trial


def run_command(
    spec: SpecArgument,
    q_len: QLenOption = None,
    kv_len: KvLenOption = None,
    batch: BatchOption = 1,
    threads: ThreadsOption = None,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Timed calls.")] = 7,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the random input.")] = 0,
    schedule: ScheduleOption = None,
    setting: SettingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a spec on random input, check the result against float64, and time it."""
    from attngen.costs import Lengths
    from attngen.explain import DEFAULT_LENGTH
    from attngen.spec.reader import read_spec
    from attngen.trial import run_trial

    overrides = parse_overrides(schedule)
    count = use_threads(threads)
    queries = DEFAULT_LENGTH if q_len is None else q_len
    lengths = Lengths(queries, queries if kv_len is None else kv_len, batch)
    what = read_spec(spec, setting or ())
    trial = run_trial(what, lengths, overrides=overrides, threads=count, repeat=repeat, seed=seed)
    if as_json:
        say_json(trial.to_json())
    else:
        _print(trial)
    if not trial.verdict.good:
        raise typer.Exit(1)


def _print(trial: Trial) -> None:
    from attngen.formatting import count_text, rate_text, seconds_text

    lengths, verdict, timing = trial.lengths, trial.verdict, trial.timing
    say(
        f"{trial.name}: batch {lengths.batch}, {count_text(lengths.q_len, 'query', 'queries')}, "
        f"{count_text(lengths.kv_len, 'key')}, {trial.dtype}, {count_text(trial.threads, 'thread')}"
    )
    share = f"{trial.share_of_peak:.0%} of the {rate_text(trial.peak)} FMA peak measured here"
    checked = f"{count_text(verdict.rows, 'row')} checked against float64"
    relation = "within" if verdict.good else "OVER"
    say_rows(
        [
            (
                "time",
                f"{seconds_text(timing.median)}  (median of {len(timing.seconds)}, "
                f"best {seconds_text(timing.best)})",
            ),
            ("rate", f"{rate_text(trial.rate)}  ({share})"),
            (
                "max error",
                f"{verdict.error:.2g}  ({relation} the bound of {verdict.bound:.2g}; {checked})",
            ),
            ("first call", f"{seconds_text(trial.first_call)}  (compiling or loading included)"),
        ]
    )
