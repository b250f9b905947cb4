"""``compile``, ``check`` and ``show``: from a spec to code, and what is in between."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attngen.cli.options import (
    ArchOption,
    JsonOption,
    ScheduleOption,
    SpecArgument,
    TargetOption,
    chosen_target,
    parse_overrides,
)
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
    target: TargetOption = "cpu",
    arch: ArchOption = None,
    schedule: ScheduleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a spec, into the cache or (-o DIR) to a package that does not need attngen."""
    from attngen import driver
    from attngen.cache import Cache
    from attngen.targets import CudaTarget

    overrides, chosen = parse_overrides(schedule, target), chosen_target(target, arch)
    if output is not None:
        folder = driver.write_package(spec, output, target=chosen, overrides=overrides)
    elif chosen is None:
        folder = driver.compile_spec(spec, overrides=overrides).source_path
    else:
        stages = driver.run_stages(spec, target=chosen, overrides=overrides)
        folder = driver.cached_package(stages, Cache())
    figures = None
    if isinstance(chosen, CudaTarget):
        from attngen.machine import machine_figures

        figures = machine_figures(folder, chosen)
    if as_json:
        files = sorted(path.name for path in folder.glob("*.py"))
        machine = {"machine": asdict(figures)} if figures else {}
        say_json({"folder": str(folder), "files": files, **machine})
        return
    say(str(folder))
    if figures and isinstance(chosen, CudaTarget):
        for line in figures.lines(chosen):
            say(f"  {line}")


def check_command(
    specs: Annotated[
        list[str], typer.Argument(metavar="SPEC...", help="Files or names.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Check specs and report every mistake in them, with its place and what to write instead."""
    from attngen.driver import run_stages
    from attngen.errors import SpecError
    from attngen.targets import SM_90A

    results: list[dict[str, object]] = []
    wrong = 0
    for spec in specs:
        try:
            stages = run_stages(spec)
            stages.schedule  # noqa: B018 - computed when asked for
            if any(override.target == "cuda" for override in stages.spec.schedule):
                run_stages(stages.spec, target=SM_90A).schedule  # noqa: B018
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
    target: TargetOption = "cpu",
    arch: ArchOption = None,
    schedule: ScheduleOption = None,
) -> None:
    """Print what a stage of the compiler makes of a spec."""
    from attngen.cli.stages import product_text
    from attngen.driver import run_stages

    overrides, chosen = parse_overrides(schedule, target), chosen_target(target, arch)
    say(product_text(run_stages(spec, target=chosen, overrides=overrides), stage))
