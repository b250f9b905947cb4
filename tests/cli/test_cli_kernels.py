"""compile, run, cache, bench and doctor: commands that compile and run kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli.runner import Attngen

from attngen import doctor
from attngen.bench import measure
from attngen.bench.cases import Case
from attngen.bench.measure import measure_suite
from attngen.bench.peers import Prepared
from attngen.inputs import CoreInputs, Inputs
from attngen.reference import reference_attention
from attngen.spec.elaborate import elaborate
from attngen.spec.reader import read_spec

pytestmark = pytest.mark.numba

SMALL = "heads: 2\nhead_dim: 16\ncausal: true\n"


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return str(path)


def test_compile_fills_the_cache_and_why_explains(
    attngen: Attngen, small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(tmp_path / "cache"))
    assert "nothing else is" in attngen("cache", "why", small).out
    folder = Path(attngen("compile", small).out.strip())
    assert (folder / "__init__.py").is_file()
    assert attngen("cache", "why", small, "--json").json["hit"] is True
    other = attngen("cache", "why", small, "--schedule", "split_kv=512", "--json").json
    assert other["hit"] is False
    assert [change["field"] for change in other["changes"]] == ["schedule.split_kv"]
    (entry,) = attngen("cache", "list", "--json").json["entries"]
    assert entry["folder"] == str(folder)
    (folder / "entry.py").write_text("damaged")
    done = attngen("cache", "verify")
    assert done.code == 0
    assert "0 kernels are whole; 1 were damaged" in done.out
    attngen("compile", small)
    assert attngen("cache", "clear", "--json").json == {"removed": 1}
    assert not folder.exists()


def test_compile_to_a_folder(attngen: Attngen, small: str, tmp_path: Path) -> None:
    done = attngen("compile", small, "-o", str(tmp_path / "out"), "--json")
    assert Path(done.json["folder"]) == tmp_path / "out" / "small"
    assert {"__init__.py", "flash_forward.py"} <= set(done.json["files"])


def test_run_checks_and_times(attngen: Attngen, small: str) -> None:
    done = attngen("run", small, "--seq", "70", "--repeat", "2", "--threads", "1")
    assert done.code == 0, done.err
    first, *rows = done.out.splitlines()
    assert first == "small: batch 1, 70 queries, 70 keys, float32, 1 thread"
    assert [row.split("  ")[1] for row in rows] == ["time", "rate", "max error", "first call"]


@pytest.mark.parametrize("lengths", [(0, 5), (3, 0), (1, 9)])
def test_run_as_json_at_any_length(attngen: Attngen, small: str, lengths: tuple[int, int]) -> None:
    q_len, kv_len = map(str, lengths)
    done = attngen("run", small, "--q-len", q_len, "--kv-len", kv_len, "--repeat", "1", "--json")
    assert done.code == 0, done.err
    assert done.json["verdict"]["good"] is True
    assert done.json["lengths"] == {"q_len": lengths[0], "kv_len": lengths[1], "batch": 1}
    assert len(done.json["timing"]["seconds"]) == 1


def test_run_fails_when_the_result_is_wrong(
    attngen: Attngen, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attngen.check.core_bound", lambda *_: 0.0)
    done = attngen("run", small, "--seq", "9", "--repeat", "1")
    assert done.code == 1
    assert "OVER the bound" in done.out


class WrongPeer:
    """Gives zeros."""

    name = "wrong"

    def available(self) -> str | None:
        return None

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        assert isinstance(inputs, CoreInputs), (case, threads)
        return Prepared(lambda: np.zeros_like(inputs.q), lambda out: out)


class RightPeer(WrongPeer):
    """Gives the reference's result."""

    name = "right"

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        assert isinstance(inputs, CoreInputs), threads
        ir = elaborate(read_spec(case.spec))
        return Prepared(
            lambda: reference_attention(ir, inputs.q, inputs.k, inputs.v)[0], lambda out: out
        )


class BrokenPeer(WrongPeer):
    """Fails."""

    name = "broken"

    def prepare(self, case: Case, inputs: Inputs, threads: int) -> Prepared:
        raise ZeroDivisionError(f"deep inside\n{case}, {inputs}, {threads}")


def test_only_right_peers_are_timed() -> None:
    case = Case("tiny", 2, 2, 9, 9, 16, causal=True)
    peers = [WrongPeer(), RightPeer(), BrokenPeer()]
    (line,) = measure_suite("x", [case], peers, [1], rounds=1).lines
    ours, wrong, right, broken = line.results
    assert broken.reason == "failed with ZeroDivisionError: deep inside"
    assert ours.timing is not None
    assert ours.ratio == 1.0
    assert wrong.timing is None
    assert wrong.reason is not None
    assert wrong.reason.startswith("wrong by ")
    assert right.timing is not None
    assert right.ratio is not None
    assert right.ratio > 0


def test_bench_fails_when_ours_is_wrong(attngen: Attngen, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("tiny", 2, 2, 9, 9, 16, causal=True)
    monkeypatch.setattr("attngen.cli.bench.CASES", {"quick": (case,)})
    monkeypatch.setattr(measure, "Ours", WrongPeer)
    done = attngen("bench", "--suite", "quick", "--peers", "none", "--threads", "1")
    assert done.code == 1
    assert "wrong: wrong by " in done.out


def test_bench_writes_json_and_markdown(
    attngen: Attngen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("tiny", 2, 2, 9, 9, 16, causal=True)
    monkeypatch.setattr("attngen.cli.bench.CASES", {"quick": (case,)})
    options = ("--suite", "quick", "--peers", "none", "--threads", "1", "--rounds", "1")
    done = attngen("bench", *options, "--format", "markdown", "--json", str(tmp_path / "b.json"))
    assert done.code == 0, done.err
    assert "| work | attngen | rate | of peak |\n" in done.out
    assert (tmp_path / "b.json").is_file()
    only = attngen("bench", *options, "--json", "-")
    assert only.json["lines"][0]["results"][0]["who"] == "attngen"
    assert "tiny" in attngen("bench", *options).out


def test_doctor_is_healthy_here(attngen: Attngen) -> None:
    done = attngen("doctor", "--json")
    assert done.json["healthy"] == (done.code == 0)
    assert done.code == 0, done.out
    subjects = {check["subject"] for check in done.json["checks"]}
    assert {"numba", "cpu features", "threading layer", "cuda", "cache"} <= subjects
    assert "no CUDA backend in this version" in attngen("doctor").out


def test_doctor_says_what_to_do(attngen: Attngen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "REQUIRED", ("numpy", "no-such-package"))
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    done = attngen("doctor")
    assert done.code == 1
    assert "no-such-package: not installed\n  do: pip install no-such-package" in done.out
    assert "do: unset NUMBA_DISABLE_JIT" in done.out


def test_doctor_survives_a_broken_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def _broken() -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(doctor, "_PARTS", (_broken, doctor._cuda))
    broken, cuda = doctor.diagnose().checks
    assert (broken.level, broken.fact) == ("problem", "RuntimeError: no luck")
    assert cuda.level == "ok"


def test_doctor_sees_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(blocker / "cache"))
    (check,) = doctor._cache()
    assert check.level == "warning"
    assert "cannot be written" in check.fact
    assert "ATTNGEN_CACHE_DIR" in check.action
