"""compile, show, explain and check for CUDA, on a machine that has no GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cli.runner import Attngen, Outcome

import attngen as package
from attngen import cli
from attngen.backends.numba_cuda import probe
from attngen.errors import CallTypeError, TargetError
from attngen.targets import SM_80, SM_90

SMALL = "heads: 2\nhead_dim: 16\ncausal: true\n"


@pytest.fixture
def attngen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Attngen:
    """The command line in this process."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return str(path)


@pytest.mark.numba
def test_compile_writes_a_package_with_its_machine_code(
    attngen: Attngen, small: str, tmp_path: Path
) -> None:
    done = attngen(
        "compile", small, "--target", "cuda", "--arch", "sm_90a", "-o", str(tmp_path), "--json"
    )
    assert done.code == 0, done.err
    assert "flash_forward.py" in done.json["files"]
    assert done.json["machine"]["arch"] == "sm_90a"
    assert done.json["machine"]["spilled_bytes"] == 0
    folder = Path(done.json["folder"])
    assert [p.name for p in (folder / "__pycache__").glob("*.cubin")] == [
        "flash_forward.sm_90a.cubin"
    ]


@pytest.mark.numba
def test_compile_fills_the_cache_and_explain_reads_it(attngen: Attngen, small: str) -> None:
    done = attngen("compile", small, "--target", "cuda", "--arch", "sm_80")
    assert "registers a thread, 128 threads a block" in done.out
    assert "0 bytes of stack, 0 bytes spilled" in done.out
    told = attngen("explain", small, "--target", "cuda", "--arch", "sm_80")
    assert "machine code" in told.out
    assert "shared memory a block, so that a multiprocessor holds" in " ".join(told.out.split())
    assert "block_kv" in told.out


@pytest.mark.parametrize("stage", ["schedule", "lower", "emit"])
def test_show_needs_no_compiler(attngen: Attngen, small: str, stage: str) -> None:
    shown = attngen("show", small, "--target", "cuda", "--arch", "sm_80", "--stage", stage)
    assert shown.code == 0, shown.err
    expected = {"schedule": "warps", "lower": "a block of threads", "emit": "shared_memory()"}
    assert expected[stage] in shown.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "cuda", "--arch", "sm_70"), "is not one of sm_80"),
        (("--arch", "sm_80"), "it goes with --target cuda"),
        (("--target", "cuda", "--arch", "sm_80", "--schedule", "lanes=8"), "is not one of warps"),
    ],
)
def test_wrong_usage(attngen: Attngen, small: str, arguments: Any, message: str) -> None:
    done = attngen("show", small, *arguments)
    assert done.code == 2
    assert message in " ".join(done.err.replace("│", " ").split())


def test_an_override_is_judged(attngen: Attngen, small: str) -> None:
    target = ("--target", "cuda", "--arch", "sm_80", "--stage", "schedule")
    done = attngen("show", small, *target, "--schedule", "block_q=9")
    assert done.code == 1
    assert "'block_q' is 9, and must be a multiple of" in done.err


def test_check_judges_a_specs_overrides_for_cuda(attngen: Attngen, tmp_path: Path) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_text(SMALL + "schedule:\n  cuda: {warps: 99}\n")
    done = attngen("check", str(path))
    assert done.code == 1
    assert "tuned.yaml:5:17: error: 'warps' is 99, and a block has from 1 to 32" in done.err


def test_a_call_with_arrays_on_a_gpu_says_what_to_do() -> None:
    attention = package.compile({"name": "small", "heads": 2, "head_dim": 16})
    array: Any = SimpleNamespace(__cuda_array_interface__={})
    host = np.zeros((3, 2, 16), "float32")
    with pytest.raises(CallTypeError, match="compile SPEC --target cuda -o DIR"):
        attention(array, host, host)


def test_the_gpu_is_asked_for_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = pytest.importorskip("cuda.bindings")
    capability = {"major": 9, "minor": 0}
    attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR="major",
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR="minor",
    )
    fake = SimpleNamespace(
        CUdevice_attribute=attribute,
        cuInit=lambda flags: (flags,),
        cuDeviceGet=lambda number: (0, number),
        cuDeviceGetAttribute=lambda name, device: (device, capability[name]),
    )
    monkeypatch.setattr(bindings, "driver", fake, raising=False)
    assert probe.probe() == SM_90
    capability.update(major=8)
    assert probe.probe() == SM_80
    capability.update(major=7, minor=5)
    with pytest.raises(TargetError, match="sm_75, for which no kernels are made; --arch sm_80"):
        probe.probe()
    fake.cuInit = lambda flags: (flags + 100,)
    with pytest.raises(TargetError, match="no GPU is found here"):
        probe.probe()
