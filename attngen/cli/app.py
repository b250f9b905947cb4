"""The command line's table of contents: each command, from the module of its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from attngen.cli import (
    bench,
    caching,
    compiling,
    environment,
    explaining,
    reporting,
    running,
    sweeping,
)

_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "compile": (compiling.compile_command, "Compile a spec to a package, or into the cache."),
    "run": (running.run_command, "Run a spec on random input: check and time it."),
    "check": (compiling.check_command, "Report every mistake in specs."),
    "show": (compiling.show_command, "Print what a stage of the compiler makes."),
    "explain": (explaining.explain_command, "Contract, schedule with reasons, predicted time."),
    "sweep": (sweeping.sweep_command, "Measure what a spec says under sweep, point by point."),
    "report": (reporting.report_command, "Write one HTML page about series of results."),
    "bench": (bench.bench_command, "Time our kernels and their peers in turn."),
    "specs": (environment.specs_command, "List the specs that can be named."),
    "schema": (environment.schema_command, "Print the JSON Schema of specs."),
    "doctor": (environment.doctor_command, "Look over the installation and the machine."),
}


def command() -> Any:
    """The whole command line, ready to be run."""
    return typer.main.get_command(_app())


def _app() -> typer.Typer:
    app = typer.Typer(
        name="attngen",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_options)
    for name, (function, summary) in _COMMANDS.items():
        app.command(name, short_help=summary)(function)
    app.add_typer(caching.app(), name="cache")
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from attngen.bench.environment import versions
        from attngen.cli.output import say

        say(f"attngen {versions().get('attngen', '(not installed)')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Compile a YAML attention spec to fast, readable Numba kernels."""
