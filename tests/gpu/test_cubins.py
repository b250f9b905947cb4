"""Machine code without a GPU: it is made for every spec, spills nothing, and is kept."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from gpu.emulation import emulated
from repo.generated import GPUS, SHIPPED, targets

from attngen.cache import Cache
from attngen.driver import cached_package, run_stages
from attngen.errors import TargetError
from attngen.machine import MachineFigures, machine_figures
from attngen.targets import CUDA_TARGETS, SM_80, SM_90A

pytestmark = pytest.mark.numba


def figures(source: Any, arch: str, folder: Path) -> MachineFigures:
    target = CUDA_TARGETS[arch]
    stages = run_stages(source, target=target)
    return machine_figures(cached_package(stages, Cache(folder)), target)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "arch"), [(s, arch) for s in SHIPPED for arch in GPUS if arch in targets(s)]
)
def test_every_spec_compiles(spec: str, arch: str, tmp_path: Path) -> None:
    found = figures(spec, arch, tmp_path)
    assert found.arch == arch
    assert found.shared_bytes <= CUDA_TARGETS[arch].shared_bytes


@pytest.mark.parametrize("head_dim", [64, 128])
def test_nothing_is_spilled_at_the_usual_head_sizes(head_dim: int, tmp_path: Path) -> None:
    spec = {"name": "usual", "heads": 2, "head_dim": head_dim, "causal": True}
    found = figures(spec, "sm_80", tmp_path)
    assert (found.stack_bytes, found.spilled_bytes) == (0, 0)
    assert 0 < found.registers <= 255
    assert found.threads == 128


def test_machine_code_is_kept_and_damage_is_noticed(tmp_path: Path) -> None:
    spec = {"name": "kept", "heads": 1, "head_dim": 16}
    folder = cached_package(run_stages(spec, target=SM_80), Cache(tmp_path))
    found = machine_figures(folder, SM_80)
    (path,) = (folder / "__pycache__").glob("*.cubin")
    kept = path.read_bytes()

    build = importlib.import_module(f"{_package(folder)}.build")
    with mock.patch.object(build, "compile_ptx", side_effect=AssertionError("compiled again")):
        build.machine_code.cache_clear()
        assert machine_figures(folder, SM_80) == found
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        build.machine_code.cache_clear()
        with pytest.raises(AssertionError, match="compiled again"):
            machine_figures(folder, SM_80)
    build.machine_code.cache_clear()
    assert machine_figures(folder, SM_80) == found
    build.machine_code.cache_clear()
    with mock.patch.object(build, "compile_ptx", side_effect=AssertionError("compiled again")):
        assert machine_figures(folder, SM_80) == found


def _package(folder: Path) -> str:
    from attngen import loader

    return loader.load(folder).__name__


def test_the_architecture_is_part_of_the_key() -> None:
    spec = {"name": "kept", "heads": 1, "head_dim": 16}
    keys = {run_stages(spec, target=target).key.digest for target in (SM_80, SM_90A, None)}
    assert len(keys) == 3


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    spec = {"name": "extra", "heads": 1, "head_dim": 16}
    folder = cached_package(run_stages(spec, target=SM_80), Cache(tmp_path))
    build = importlib.import_module(f"{_package(folder)}.build")
    missing = build.importlib.metadata.PackageNotFoundError
    with (
        mock.patch.object(build.importlib.metadata, "version", side_effect=missing),
        pytest.raises(TargetError, match=r"pip install 'attngen\[cuda\]'"),
    ):
        machine_figures(folder, SM_80)


def test_an_unknown_architecture_is_refused() -> None:
    build = emulated({"heads": 1, "head_dim": 16}).module("build")
    with pytest.raises(ValueError, match="expected an architecture such as 'sm_80', got 'gpu'"):
        build.compile_ptx("gpu")


def test_what_the_assembler_refuses_is_told() -> None:
    build = emulated({"heads": 1, "head_dim": 16}).module("build")
    with pytest.raises(RuntimeError, match="sm_80"):
        build.link("not PTX", "entry", "sm_80")


def test_importing_attngen_never_touches_cuda() -> None:
    import subprocess
    import sys

    script = """
        import sys
        import attngen
        attngen.compile
        from attngen.driver import run_stages
        run_stages("gqa").schedule
        loaded = [m for m in sys.modules if m.startswith(("numba.cuda", "numba_cuda", "cuda"))]
        assert not loaded, loaded
    """
    import textwrap

    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
