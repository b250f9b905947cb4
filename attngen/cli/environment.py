"""``specs``, ``schema`` and ``doctor``: what is there to compile, and what it would run on."""

from __future__ import annotations

from dataclasses import asdict

import typer

from attngen.cli.options import JsonOption
from attngen.cli.output import say, say_json, say_rows

_SIGNS = {"ok": "ok", "warning": "WARNING", "problem": "PROBLEM"}


def specs_command(as_json: JsonOption = False) -> None:
    """List the specs on the search path: the working folder's specs/, then those that ship."""
    from attngen.errors import SpecError
    from attngen.spec.reader import read_spec
    from attngen.spec.search import find_spec, spec_names

    rows: list[tuple[str, str, str]] = []
    for name in spec_names():
        path = str(find_spec(name))
        try:
            description = " ".join(read_spec(name).description.split())
        except SpecError as error:
            description = f"({len(error.diagnostics)} mistakes: attngen check {name})"
        rows.append((name, description, path))
    if as_json:
        keys = ("name", "description", "path")
        say_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        say_rows([row[:2] for row in rows], indent="")


def schema_command() -> None:
    """Print the JSON Schema of specs, for editors that complete and check YAML."""
    from attngen.spec.schema import json_schema

    say_json(json_schema())


def doctor_command(as_json: JsonOption = False) -> None:
    """Look over the installation and the machine, and say what to do about each problem."""
    from attngen.doctor import diagnose

    diagnosis = diagnose()
    if as_json:
        say_json({"healthy": diagnosis.healthy, "checks": [asdict(c) for c in diagnosis.checks]})
    else:
        say_rows(
            [(_SIGNS[check.level], check.subject, check.fact) for check in diagnosis.checks],
            indent="",
        )
        for check in diagnosis.checks:
            if check.action:
                say(f"\n{check.subject}: {check.fact}\n  do: {check.action}")
    if not diagnosis.healthy:
        raise typer.Exit(1)
