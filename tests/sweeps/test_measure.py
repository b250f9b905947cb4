"""Real kernels: what is measured of a point, where it runs, and how a sweep behaves in a shell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweeps.fakes import BASE, MACHINE

import attngen
from attngen.costs import Lengths, Step, cost
from attngen.driver import run_stages
from attngen.explain import Speeds
from attngen.spec.reader import read_sweep
from attngen.sweeps import measure as module
from attngen.sweeps.contestants import case_of, peer_names
from attngen.sweeps.measure import Options, compile_point, measure_points, quantiles, roofline
from attngen.sweeps.pinning import pin_to_cores
from attngen.sweeps.points import Call, Defaults, Job, find_points
from attngen.sweeps.series import find_series, read_series
from attngen.timing import Timing

ROOT = Path(__file__).resolve().parents[2]
SPEEDS = Speeds(1, 1e11, 1e10)


def jobs(sweep: dict[str, Any], **base: Any) -> tuple[Job, ...]:
    return find_points(read_sweep({**BASE, **base, "sweep": sweep}), Defaults(), MACHINE).jobs


def test_quantiles() -> None:
    found = quantiles(Timing(tuple(float(i) for i in range(11))))
    assert found == {
        "min": 0,
        "p10": 1,
        "p25": 2.5,
        "median": 5,
        "p75": 7.5,
        "p90": 9,
        "max": 10,
        "runs": 11,
    }


@pytest.mark.parametrize(
    ("flop", "size", "binds", "predicted"),
    [(10**10, 10**8, "compute", 0.1), (10**9, 10**9, "memory", 0.1)],
)
def test_the_roofline_says_what_binds(flop: int, size: int, binds: str, predicted: float) -> None:
    steps = (Step("small", 1, 1), Step("attention", flop, size))
    work = replace(cost(run_stages(BASE).ir, Lengths(1, 1)), steps=steps)
    found = roofline(work, SPEEDS, 0.2)
    assert found["binds"] == binds
    assert found["predicted"] == pytest.approx(predicted, rel=1e-6)
    assert found["share"] == pytest.approx(predicted / 0.2, rel=1e-6)


@pytest.mark.parametrize(
    ("sizes", "call", "few"),
    [
        ({}, Call(1, 4096, 4096, 2), False),
        ({}, Call(1, 1, 100_000, 2), True),
        ({}, Call(1, 300, 300, 2), False),
        ({"kv_heads": 1}, Call(3, 40, 20, 2), False),
        ({"kv_heads": 1}, Call(64, 4, 4, 2), True),
        ({"d_model": 64}, Call(8, 512, 512, 2), False),
        ({"d_model": 64}, Call(1, 512, 2048, 2), False),
    ],
)
def test_a_small_call_runs_the_same_code(sizes: dict[str, int], call: Call, few: bool) -> None:
    ir = run_stages({**BASE, **sizes}).ir
    small = module.small_lengths(ir, call, 16)
    rows = ir.heads // ir.kv_heads
    assert (small.q_len * rows <= 16) == few == (call.q_len * rows <= 16)
    assert small.q_len <= call.q_len
    assert small.kv_len <= call.kv_len
    assert small.batch <= call.batch
    assert (small.q_len == small.kv_len) >= (call.q_len == call.kv_len and ir.d_model is not None)
    work = small.batch * small.q_len * small.kv_len * ir.heads * 2 * ir.head_dim
    most = call.batch * call.q_len * call.kv_len * ir.heads * 2 * ir.head_dim
    assert work >= min(1 << 21, most)  # more than one thread takes part, as in the call itself


@pytest.mark.parametrize(
    ("spec", "call", "expected"),
    [
        ({"causal": True}, Call(2, 8, 8), {"causal": True, "window": None, "batch": 2}),
        ({"causal": True, "window": {"left": 3, "right": 0}}, Call(1, 8, 8), {"window": 4}),
        ({"d_model": 64}, Call(1, 8, 9), {"d_model": 64, "kv_len": 9}),
        ({"causal": "top_left"}, Call(1, 8, 8), {"causal": True}),
        ({"causal": "top_left"}, Call(1, 8, 9), "this causal"),
        ({"window": {"left": 3}}, Call(1, 8, 8), "this window"),
        ({"softcap": 3}, Call(1, 8, 8), "this softcap"),
        ({"dtype": "float64"}, Call(1, 8, 8), "this dtype"),
        ({"value_dim": 8}, Call(1, 8, 8), "this value_dim"),
        ({"mask": "k % 2 == 0"}, Call(1, 8, 8), "this mask"),
        ({"activation": "sigmoid"}, Call(1, 8, 8), "this activation"),
        ({"causal": True, "window": {"left": -1}}, Call(1, 8, 8), {"window": None}),
    ],
)
def test_peers_get_the_case_that_says_the_same(
    spec: dict[str, Any], call: Call, expected: Any
) -> None:
    case = case_of(run_stages({**BASE, **spec}).spec, call)
    if isinstance(expected, str):
        assert isinstance(case, str)
        assert expected in case
    else:
        assert not isinstance(case, str)
        assert {key: getattr(case, key) for key in expected} == expected
        assert run_stages({**case.spec, "name": "same"}).spec.heads == 4


def test_peers_have_short_names() -> None:
    assert peer_names(("torch", "ort-mha", "onnxruntime")) == (
        *("torch-sdpa", "ort-mha", "ort-gqa", "ort-attention"),
    )


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_a_process_is_kept_on_as_many_cores_as_it_has_threads() -> None:
    before = os.sched_getaffinity(0)
    try:
        (core,) = pin_to_cores(1)
        assert os.sched_getaffinity(0) == {core}
        assert pin_to_cores(2) == ()
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.numba
def test_compiling_beforehand_leaves_nothing_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(tmp_path))
    (job,) = jobs({"q_len": [300], "threads": [2]})
    assert compile_point(job)["state"] == "cold"
    assert compile_point(job)["state"] == "warm"
    kernels = sorted(tmp_path.rglob("*.kernel"))
    (line,), speeds = measure_points([job], Options(rounds=1), SPEEDS)
    assert line["status"] == "ok"
    assert sorted(tmp_path.rglob("*.kernel")) == kernels
    assert speeds == SPEEDS


@pytest.mark.numba
def test_a_wrong_or_failing_point_is_not_timed(
    monkeypatch: pytest.MonkeyPatch, kernel_cache: Path
) -> None:
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(kernel_cache))
    real = module.prepare_call

    def spoil(attention: Any, inputs: Any) -> Any:
        call = real(attention, inputs)
        if inputs.q.shape[1] == 9:
            raise RuntimeError("no such luck")
        return call if inputs.q.shape[1] == 8 else lambda: np.nan_to_num(call() + 0.1)

    monkeypatch.setattr(module, "prepare_call", spoil)
    lines, _ = measure_points(jobs({"q_len": [7, 8, 9]}), Options(rounds=1), SPEEDS)
    assert [line["status"] for line in lines] == ["failed", "ok", "failed"]
    assert lines[0]["reason"].startswith("wrong by 0.1, and ")
    assert lines[2]["reason"] == "RuntimeError: no such luck"


SPEC = """\
name: tiny
heads: 2
head_dim: 16
causal: true
sweep:
  q_len: [16, 40]
  kv_heads: [1, 2, 3]
  threads: [1, 2]
  where: kv_heads != 2
"""


def environment(cache: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "ATTNGEN_CACHE_DIR": str(cache), "COLUMNS": "150"}


def start(*arguments: str, cache: Path) -> subprocess.Popen[str]:
    code = "import sys; from attngen.cli import main; main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(cache),
    )


def whole_lines(folder: Path) -> list[dict[str, Any]]:
    return [line for path in find_series(folder) for line in read_series(path).results]


@pytest.mark.numba
@pytest.mark.slow
def test_ctrl_c_in_a_shell_loses_nothing_and_the_same_command_continues(
    tmp_path: Path, kernel_cache: Path
) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if (cores or 1) < 2:
        pytest.skip("needs two cores for two batches")
    spec, folder = tmp_path / "tiny.yaml", tmp_path / "out"
    spec.write_text(SPEC, encoding="utf-8")
    arguments = ("sweep", str(spec), "-o", str(folder), "--rounds", "1", "--peers", "torch")
    first = start(*arguments, cache=kernel_cache)
    until = time.monotonic() + 300
    while not any(line["status"] == "ok" for line in whole_lines(folder)):
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=120)
    assert first.returncode == 130, said
    assert "the same command measures the others" in said
    assert "Traceback" not in said
    kept = whole_lines(folder)
    assert {line["status"] for line in kept} == {"ok", "impossible"}
    assert len(kept) < 8

    second = start(*arguments, "--csv", str(tmp_path / "t.csv"), "--json", cache=kernel_cache)
    out, said = second.communicate(timeout=300)
    assert second.returncode == 0, said
    lines = whole_lines(folder)
    assert lines[: len(kept)] == kept
    assert len({line["point"] for line in lines}) == len(lines) == 8
    assert "8 points, 4 more excluded by conditions" in said
    assert "impossible, 4 points: 'kv_heads' must not exceed 'heads', and 3 is more than 2" in said
    columns = json.loads(out)
    assert columns["status"].count("ok") == 4
    check_columns(columns, [line for line in lines if line["status"] == "ok"])
    assert (tmp_path / "t.csv").read_text("utf-8").count("\n") == 9


def check_columns(columns: dict[str, list[Any]], lines: list[dict[str, Any]]) -> None:
    """Every figure is there and agrees with the others."""
    for line in lines:
        times, call = line["seconds"], line["call"]
        order = [times[name] for name in ("min", "p10", "p25", "median", "p75", "p90", "max")]
        assert order == sorted(order)
        assert times["runs"] >= 1
        pairs = call["q_len"] * (call["q_len"] + 1) // 2
        assert line["flops"] == 2 * 2 * 2 * 16 * pairs
        assert line["gflops"] == pytest.approx(line["flops"] / times["median"] / 1e9)
        assert line["gbytes_per_s"] == pytest.approx(line["bytes"] / times["median"] / 1e9)
        share = line["roofline"]["predicted"] / times["median"]
        assert line["roofline"]["share"] == pytest.approx(share)
        assert 0 <= line["max_error"] <= line["error_bound"]
        assert line["compile_seconds"] > 0
        assert line["cache_state"] in ("cold", "warm")
        if Path("/proc/self/clear_refs").exists():
            assert line["peak_memory"] >= 0
        peer = line["peers"]["torch-sdpa"]
        assert ("ratio" in peer) != ("reason" in peer)
        assert line["command"].startswith("attngen run ")
    for name in ("seconds_median", "gflops", "roofline_share", "max_error", "machine", "started"):
        assert sum(value is not None for value in columns[name]) == len(lines), name


@pytest.mark.numba
@pytest.mark.slow
def test_the_python_door(tmp_path: Path, kernel_cache: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(kernel_cache))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    spec = {"name": "tiny", "heads": 2, "head_dim": 16, "causal": True, "sweep": {"q_len": [16]}}
    found = attngen.sweep(spec, folder=tmp_path, threads=1, rounds=1, settings=["kv_heads=[1]"])
    (result,) = found
    assert result.status == "ok", result.reason
    assert result.seconds is not None
    assert result.keys == {"q_len": 16, "kv_heads": 1}
    assert found.table["seconds_median"] == [result.seconds]
    info = read_series(find_series(tmp_path)[0]).info
    facts = info["environments"][result.data["fingerprint"]]
    assert facts["machine"] == result.data["machine"]
    assert facts["speeds"]["1xfloat32"]["flop_per_s"] > 1e8
