"""The wheel holds everything: it compiles and runs a spec where there is no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from repo.generated import ROOT

pytestmark = [pytest.mark.numba, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    result = subprocess.run(
        [*command, "--outdir", str(folder), str(ROOT)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel installed in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target"]
    result = subprocess.run(
        [*command, str(folder), str(wheel)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def run(site: Path, folder: Path, script: str) -> str:
    """Run `script` in an empty folder, with the installed wheel before everything else."""
    work = folder / "work"
    work.mkdir(parents=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ATTNGEN", "PYTHON"))}
    environment |= {"PYTHONPATH": str(site), "ATTNGEN_CACHE_DIR": str(folder / "cache")}
    result = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(script)],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_it_holds_templates_specs_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for kind, folder in (("*.jinja", "templates"), ("*.yaml", "specs"), ("*.py", "attngen")):
        for path in (ROOT / folder).rglob(kind):
            inside = path.relative_to(ROOT).as_posix()
            if folder != "attngen":
                inside = f"attngen/_{inside}"
            assert inside in names
    assert "attngen/py.typed" in names
    assert not [name for name in names if name.startswith("tests") or "__pycache__" in name]
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_it_compiles_and_runs_a_spec(site: Path, tmp_path: Path) -> None:
    run(
        site,
        tmp_path,
        f"""
        import numpy as np
        import attngen
        from attngen.resources import specs_dir, templates_dir

        for path in (attngen.__file__, specs_dir(), templates_dir()):
            assert str(path).startswith({str(site)!r}), path
        attention = attngen.compile({{"name": "small", "heads": 2, "head_dim": 8}})
        q = np.zeros((5, 2, 8), "float32")
        v = np.arange(80, dtype="float32").reshape(5, 2, 8)
        np.testing.assert_allclose(attention(q, q, v), np.broadcast_to(v.mean(0), v.shape), 1e-6)
        """,
    )


def test_its_command_line_finds_the_specs(site: Path, tmp_path: Path) -> None:
    script = "from attngen.cli import main; main({})"
    assert "mha_4096" in run(site, tmp_path / "a", script.format(["specs"]))
    text = run(site, tmp_path / "b", script.format(["show", "mha_4096", "--stage", "emit"]))
    assert "def score_tile" in text
    scripts = next(site.glob("attngen-*.dist-info/entry_points.txt")).read_text("utf-8")
    assert "attngen = attngen.cli:main" in scripts
