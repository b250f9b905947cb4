"""Help, wrong usage, and how errors look and exit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.runner import Attngen

from attngen import cli
from attngen.errors import TargetError

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [
    "compile",
    "run",
    "check",
    "show",
    "explain",
    "sweep",
    "report",
    "bench",
    "specs",
    "schema",
    "doctor",
    "cache",
]


def test_help_lists_every_command(attngen: Attngen) -> None:
    done = attngen("--help")
    assert done.code == 0
    listed = done.out.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines()] == COMMANDS
    assert "..." not in listed


@pytest.mark.parametrize("command", [*COMMANDS, "cache why"])
def test_every_command_has_help(attngen: Attngen, command: str) -> None:
    done = attngen(*command.split(), "-h")
    assert done.code == 0
    assert done.out.startswith(f"Usage: attngen {command}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["run"], "Missing argument 'SPEC'"),
        (["run", "gqa", "--batch", "-1"], "Invalid value for '--batch'"),
        (["run", "gqa", "--schedule", "block_q"], "expected KEY=VALUE, got 'block_q'"),
        (["run", "gqa", "--schedule", "block=3"], "'block' is not one of lanes, tile_scalars"),
        (["run", "gqa", "--threads", "9999"], "9999 is more than the"),
        (["show", "gqa", "--stage", "parse"], "'parse' is not one of 'read', 'elaborate'"),
        (["bench", "--suite", "all"], "'all' is not one of core, layer, quick, start, memory"),
        (["bench", "--peers", "jax"], "'jax' is not one of torch-sdpa"),
        (["bench", "--threads", "1,x"], "expected numbers such as 1,2, got '1,x'"),
    ],
)
def test_wrong_usage_exits_2(attngen: Attngen, arguments: list[str], says: str) -> None:
    done = attngen(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert says in done.err


def test_mistake_in_a_spec_exits_1_without_traceback(attngen: Attngen, tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text("heads: 32\nhead_dim: 64\nkv_heads: 6\n")
    done = attngen("run", str(spec))
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith(f"{spec}:3:11: error: ")
    assert "[E-HEADS]" in done.err
    assert "Traceback" not in done.err


def test_unforeseen_errors_are_one_line(attngen: Attngen, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("attngen.spec.schema.json_schema", fail)
    done = attngen("schema")
    assert done.code == 1
    assert done.err == (
        "error: ZeroDivisionError: on purpose\n"
        "  hint: ATTNGEN_TRACEBACK=1 shows where this comes from\n"
    )
    monkeypatch.setenv("ATTNGEN_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        cli.run(["schema"])


def test_our_own_errors_say_error_once(attngen: Attngen, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise TargetError("no such machine")

    monkeypatch.setattr("attngen.spec.schema.json_schema", fail)
    assert attngen("schema").err == "error: no such machine\n"


def test_interrupt_is_quiet(attngen: Attngen, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attngen.spec.schema.json_schema", interrupt)
    done = attngen("schema")
    assert (done.code, done.out, done.err) == (130, "", "")


def test_usage_needs_neither_numba_nor_rich() -> None:
    script = (
        "import sys; from attngen import cli; code = cli.run(['--help']); "
        "assert not {'numba', 'numpy', 'rich'} & sys.modules.keys(); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_importing_attngen_loads_no_command_line() -> None:
    script = "import sys, attngen; assert not {'typer', 'rich', 'numba'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


@pytest.mark.slow
def test_reader_that_stops_early_is_quiet() -> None:
    script = "from attngen.cli import main; main(['schema'])"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1
