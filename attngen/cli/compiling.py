"""``compile``, ``check`` and ``show``: from a spec to code, and what is in between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attngen.cli.options import JsonOption, ScheduleOption, SpecArgument, parse_overrides
from attngen.cli.output import note, say, say_json

if TYPE_CHECKING:
    from attngen.errors import Diagnostic

Stage = Literal["read", "elaborate", "simplify", "schedule", "lower", "emit"]


def compile_command(
    spec: SpecArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write a standalone package here; without it, fill the cache.",
            show_default=False,
        ),
    ] = None,
    schedule: ScheduleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a spec, into the cache or (-o DIR) to a package that needs NumPy and Numba only."""
    from attngen import driver

    overrides = parse_overrides(schedule)
    if output is not None:
        folder = driver.write_package(spec, output, overrides=overrides)
    else:
        folder = driver.compile_spec(spec, overrides=overrides).source_path
    if as_json:
        files = sorted(path.name for path in folder.glob("*.py"))
        say_json({"folder": str(folder), "files": files})
    else:
        say(str(folder))


def check_command(
    specs: Annotated[
        list[str], typer.Argument(metavar="SPEC...", help="Files or names.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Check specs and report every mistake in them, with its place and what to write instead."""
    from attngen.driver import run_stages
    from attngen.errors import SpecError

    results: list[dict[str, object]] = []
    wrong = 0
    for spec in specs:
        try:
            run_stages(spec).schedule  # noqa: B018 - computed when asked for
        except SpecError as error:
            wrong += len(error.diagnostics)
            if not as_json:
                note(str(error))
            mistakes = [_plain(diagnostic) for diagnostic in error.diagnostics]
            results.append({"spec": spec, "ok": False, "mistakes": mistakes})
        else:
            results.append({"spec": spec, "ok": True, "mistakes": []})
            if not as_json:
                say(f"{spec}: ok")
    if as_json:
        say_json(results)
    if wrong:
        if not as_json:
            note(f"{wrong} {'mistake' if wrong == 1 else 'mistakes'}")
        raise typer.Exit(1)


def _plain(diagnostic: Diagnostic) -> dict[str, object]:

    span = diagnostic.span
    return {
        "code": diagnostic.code,
        "message": diagnostic.message,
        "key": diagnostic.key,
        "file": span.source.name if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "note": diagnostic.note,
        "hint": diagnostic.hint,
    }


def show_command(
    spec: SpecArgument,
    stage: Annotated[Stage, typer.Option("--stage", help="Whose product to print.")] = "simplify",
    schedule: ScheduleOption = None,
) -> None:
    """Print what a stage of the compiler makes of a spec."""
    from attngen.cli.stages import product_text
    from attngen.driver import run_stages

    say(product_text(run_stages(spec, overrides=parse_overrides(schedule)), stage))
