"""The README says what is: its tables and excerpts, its commands, its Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from repo import readme
from repo.generated import ROOT

from attngen.cli.app import command
from attngen.driver import write_package

README = ROOT / "README.md"


def blocks(language: str) -> list[str]:
    """The README's code blocks in `language`."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text("utf-8"), re.DOTALL | re.M)


@pytest.mark.parametrize("name", readme.SECTIONS)
def test_generated_part(
    name: str, update_golden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = f"\n{readme.SECTIONS[name]()}\n"
    if update_golden:
        text = readme.with_section(README.read_text("utf-8"), name, content)
        README.write_text(text, encoding="utf-8", newline="\n")
    kept = readme.section(README.read_text("utf-8"), name)
    assert kept == content, "after reading the difference: pytest tests/repo --update-golden"


def test_every_marker_belongs_to_a_part() -> None:
    markers = re.findall(r"<!-- (?:begin|end) (\w+) -->", README.read_text("utf-8"))
    assert sorted(markers) == sorted([*readme.SECTIONS] * 2)


def test_every_command_in_it_exists() -> None:
    text = README.read_text("utf-8")
    known = command().commands
    for name in re.findall(r"\battngen ([a-z]+)", "\n".join(re.findall(r"`[^`\n]+`", text))):
        assert name in known, name
    for line in "\n".join(blocks("sh")).splitlines():
        for arguments in re.findall(r"\battngen ((?!_)[a-z][^#&\n]*)", line):
            name, *rest = arguments.split()
            options = {o for p in known[name].params for o in p.opts}
            assert {a for a in rest if a.startswith("-")} <= options, line


def test_ci_runs_the_test_command_of_the_readme() -> None:
    (line,) = (line for block in blocks("sh") for line in block.splitlines() if "pytest" in line)
    make, install, test = (part.strip().replace(".venv/bin/", "") for part in line.split("&&"))
    script = (ROOT / ".ci" / "run").read_text("utf-8").replace('"', "")
    assert make.replace(".venv", "$work/venv") in script
    assert install.replace("pip install", "pip install --quiet") in script.replace("$bin/", "")
    assert f"check {test}\n" in script


@pytest.mark.numba
@pytest.mark.slow
def test_its_python_runs_as_it_stands(tmp_path: Path) -> None:
    write_package("gqa", tmp_path / "kernels")
    code = "\n".join(blocks("python"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**environment, "ATTNGEN_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("<attngen layer 'mha_4096': heads=32, ")


@pytest.mark.parametrize("number", range(len(blocks("yaml"))))
def test_its_yaml_is_right(number: int, tmp_path: Path) -> None:
    from attngen.spec.reader import read_spec

    text = blocks("yaml")[number]
    path = tmp_path / "example.yaml"
    head = "" if "heads:" in text else "extends: gqa\n"
    path.write_text(head + text, encoding="utf-8")
    read_spec(path)
