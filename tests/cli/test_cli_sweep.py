"""``attngen sweep`` without measuring, and ``--set``."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.runner import Attngen
from sweeps.fakes import FakeEngine

from attngen.sweeps import run

SPEC = """\
name: tiny
heads: 4
head_dim: 16
sweep:
  kv_heads: [1, 2, 3]
  q_len: [1, 2]
  where: q_len < 2 or kv_heads > 1
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "LocalEngine", lambda _: FakeEngine(fail={"kv_heads": 2, "q_len": 1}))
    path = tmp_path / "tiny.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return str(path)


def test_a_dry_run_lists_points_and_writes_nothing(attngen: Attngen, spec: str) -> None:
    outcome = attngen("sweep", spec, "--dry-run")
    assert outcome.code == 0
    assert "5 points, 1 more excluded by conditions" in outcome.err
    assert "impossible, 2 points: 'kv_heads' must divide 'heads'" in outcome.err
    lines = outcome.out.splitlines()
    assert [line.partition("  ")[2].partition("  ")[0] for line in lines] == [
        *("kv_heads=1, q_len=1", "kv_heads=2, q_len=1", "kv_heads=2, q_len=2"),
        *("kv_heads=3, q_len=1", "kv_heads=3, q_len=2"),
    ]
    assert not Path("sweeps").exists()
    assert [row["status"] for row in attngen("sweep", spec, "--dry-run", "--json").json] == [
        *("possible", "possible", "possible", "impossible", "impossible"),
    ]


def test_a_run_prints_a_table_writes_files_and_fails_if_a_point_did(
    attngen: Attngen, spec: str
) -> None:
    outcome = attngen("sweep", spec, "-o", "out", "--csv", "t.csv", "--parquet", "t.parquet")
    assert outcome.code == 1
    assert "2 of 5 points measured" in outcome.out
    assert "failed: it broke" in outcome.out
    assert "1.00 ms" in outcome.out
    assert "5 of 5: measuring" in outcome.err
    assert Path("t.csv").read_text("utf-8").startswith("kv_heads,q_len,batch,")
    assert Path("t.parquet").stat().st_size > 0
    assert attngen("sweep", spec, "-o", "out", "--json").json["seconds_median"] == [
        *(0.001, None, 0.001, None, None),
    ]


def test_settings_make_a_sweep_of_any_spec(attngen: Attngen, spec: str) -> None:
    del spec
    outcome = attngen("sweep", "gqa", "--set", "head_dim=[16, 32]", "--set", "q_len=5", "--dry-run")
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("q_len=5") == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gqa"], "'sweep' is missing, and says what to measure"),
        (["gqa", "--set", "head_dim=[x]"], "(setting):1:12: error: 'sweep.head_dim' must be"),
        (["tiny.yaml", "--peers", "jax"], "error: peers: expected some of torch, flex"),
        (["tiny.yaml", "-o", "/proc/attngen"], "error: results cannot be written to /proc/attngen"),
    ],
)
def test_mistakes_are_said(attngen: Attngen, spec: str, arguments: list[str], said: str) -> None:
    del spec
    outcome = attngen("sweep", *arguments)
    assert outcome.code == 1
    assert said in outcome.err
    assert "Traceback" not in outcome.err


def test_check_reports_mistakes_of_a_sweep(attngen: Attngen, spec: str) -> None:
    assert attngen("check", spec).code == 0
    Path(spec).write_text(SPEC.replace("[1, 2]", "[1, x]"), encoding="utf-8")
    assert "'sweep.q_len' must be an integer" in attngen("check", spec).err


@pytest.mark.numba
def test_run_takes_settings(attngen: Attngen) -> None:
    arguments = ("run", "gqa", "--q-len", "8", "--repeat", "1", "--json")
    trial = attngen(*arguments, "--set", "head_dim=16", "--set", "causal=false").json
    assert trial["verdict"]["good"]
    assert trial["cost"]["flop"] == 2 * 2 * 8 * 16 * 8 * 8
