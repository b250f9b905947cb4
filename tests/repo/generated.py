"""Generated packages for every shipped spec and every kind of machine, printed once a session."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from attngen.driver import Stages, run_stages
from attngen.ir.kernel import SourcePackage
from attngen.resources import specs_dir
from attngen.targets import AVX2, AVX512, GENERIC, NEON

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

TARGETS = {target.isa: target for target in (AVX512, AVX2, NEON, GENERIC)}
SPECS = sorted(path.stem for path in specs_dir().glob("*.yaml"))


@cache
def stages(spec: str, isa: str) -> Stages:
    """The stages of compiling a shipped spec for a machine that is described by hand."""
    return run_stages(specs_dir() / f"{spec}.yaml", target=TARGETS[isa])


def package(spec: str, isa: str) -> SourcePackage:
    """The generated package."""
    return stages(spec, isa).package


def write(package: SourcePackage, folder: Path) -> Path:
    """Write `package` below `folder`, as a user would get it."""
    home = folder / package.name
    home.mkdir(parents=True)
    for file in package.files:
        (home / file.path).write_text(file.text, encoding="utf-8", newline="\n")
    return home
