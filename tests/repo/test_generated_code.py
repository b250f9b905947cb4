"""What holds for every generated package, whatever the spec and the machine."""

from __future__ import annotations

import ast
import getpass
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from repo.generated import GPUS, ROOT, SPECS, TARGETS, package, targets, write

from attngen.ir.kernel import SourceFile

ALL = [(spec, isa) for spec in SPECS for isa in targets(spec)]
LIBRARIES = {"numpy", "numba", "llvmlite", *sys.stdlib_module_names}
GPU_LIBRARIES = LIBRARIES | {"cuda"}  # cuda.bindings, the driver's functions
# Numba calls an intrinsic with arguments that it may not need, one spec does not need all that a
# helper returns, a docstring may begin with a formula or describe several arguments in one line,
# and a kernel compares numbers one by one.
IGNORED_RULES = "ARG001,ARG005,D403,D417,RUF059,SIM109"


def files(spec: str, isa: str) -> Iterator[SourceFile]:
    yield from package(spec, isa).files


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All packages as files, in a folder for each kind of machine."""
    folder = tmp_path_factory.mktemp("generated")
    for spec, isa in ALL:
        write(package(spec, isa), folder / isa)
    return folder


@pytest.mark.parametrize(("spec", "isa"), ALL)
def test_it_is_python_that_imports_numpy_and_numba_only(spec: str, isa: str) -> None:
    libraries = GPU_LIBRARIES if isa in GPUS else LIBRARIES
    for file in files(spec, isa):
        tree = ast.parse(file.text, file.path)
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    assert {n.name.partition(".")[0] for n in names} <= libraries, file.path
                case ast.ImportFrom(module=module, level=0):
                    assert str(module).partition(".")[0] in libraries, file.path
                case ast.ImportFrom(module=module, names=names, level=level):
                    assert level == 1
                    own = {module} if module else {n.name for n in names}
                    assert own <= {Path(f.path).stem for f in files(spec, isa)}, file.path


@pytest.mark.parametrize(("spec", "isa"), ALL)
def test_every_module_and_public_function_says_what_it_is(spec: str, isa: str) -> None:
    for file in files(spec, isa):
        tree = ast.parse(file.text)
        assert ast.get_docstring(tree), file.path
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{file.path}: {node.name}"


@pytest.mark.parametrize(("spec", "isa"), ALL)
def test_lines_are_short_and_end_cleanly(spec: str, isa: str) -> None:
    for file in files(spec, isa):
        long = [line for line in file.text.splitlines() if len(line) > 100]
        assert not long, f"{file.path}: {long[0]}"
        assert file.text.endswith("\n"), file.path
        assert not file.text.endswith("\n\n"), file.path


def test_the_linter_has_nothing_to_say(written: Path) -> None:
    ruff("check", "--extend-ignore", IGNORED_RULES, "--output-format", "concise", folder=written)


def test_the_formatter_has_nothing_to_change(written: Path) -> None:
    ruff("format", "--diff", folder=written)


def ruff(*arguments: str, folder: Path) -> None:
    config = ROOT / "pyproject.toml"
    command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", "--config", str(config), "."]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[:5000] + result.stderr[:5000]


def digests() -> dict[str, str]:
    """A digest of each package."""
    return {
        f"{spec} {isa}": hashlib.sha256(
            "\0".join(f"{f.path}\0{f.text}" for f in files(spec, isa)).encode()
        ).hexdigest()
        for spec, isa in ALL
    }


ELSEWHERE = """
    import json, sys
    sys.path[:0] = [{attngen!r}, {tests!r}]
    import attngen
    assert attngen.__file__.startswith({attngen!r}), attngen.__file__
    from repo.test_generated_code import digests
    print(json.dumps(digests()))
"""


def test_the_same_spec_gives_the_same_bytes_everywhere(tmp_path: Path) -> None:
    """In another process, folder, time zone, locale and home, from another installation."""
    for name in ("attngen", "templates", "specs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    work = tmp_path / "work"
    work.mkdir()
    home = str(tmp_path / "home")
    other = {"PYTHONHASHSEED": "123", "HOME": home, "TZ": "Asia/Kolkata", "LC_ALL": "C"}
    script = ELSEWHERE.format(attngen=str(tmp_path), tests=str(ROOT / "tests"))
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=work,
        env={**os.environ, **other},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == digests()


@pytest.mark.parametrize("spec", SPECS)
def test_no_trace_of_where_and_when_it_was_made(spec: str) -> None:
    traces = [str(ROOT), str(Path.home()), *(n for n in (socket.gethostname(),) if len(n) > 8)]
    user = getpass.getuser()
    for isa in targets(spec):
        for file in files(spec, isa):
            for trace in traces:
                assert len(trace) < 2 or trace not in file.text, file.path
            assert f"/{user}/" not in file.text, file.path
            assert not re.search(r"\b20\d\d-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b", file.text), file.path


@pytest.mark.parametrize("isa", TARGETS)
def test_only_the_vector_module_depends_on_the_instruction_set_by_name(isa: str) -> None:
    """Kernels know lanes and tiles; `__init__` and `simd` say for which machine."""
    for file in files("mha_4096", isa):
        if file.path not in ("__init__.py", "simd.py"):
            assert not re.search(r"avx|neon", file.text, re.IGNORECASE), file.path
