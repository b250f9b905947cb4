"""check, show, schema, specs and explain: everything that compiles no machine code."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from cli.runner import Attngen

from attngen.costs import Lengths
from attngen.driver import STAGES, run_stages
from attngen.explain import Speeds, explain
from attngen.spec.search import spec_names
from attngen.targets import AVX2


def test_check_reports_every_mistake_of_every_spec(attngen: Attngen, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("heads: 0\nhead_dim: 64\ncolour: red\n")
    done = attngen("check", "gqa", str(wrong), "no_such_spec")
    assert done.code == 1
    assert done.out == "gqa: ok\n"
    assert done.err.count("error: ") == 3
    assert done.err.endswith("3 mistakes\n")


def test_check_as_json(attngen: Attngen, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("head_dim: 64\nheads: 0\n")
    done = attngen("check", "gqa", str(wrong), "--json")
    assert done.code == 1
    assert done.err == ""
    good, bad = done.json
    assert good == {"spec": "gqa", "ok": True, "mistakes": []}
    (mistake,) = bad["mistakes"]
    assert (mistake["key"], mistake["line"], mistake["column"]) == ("heads", 2, 8)


def test_check_covers_the_schedule(attngen: Attngen, tmp_path: Path) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text("heads: 4\nhead_dim: 64\nschedule:\n  cpu:\n    block_q: 7\n")
    done = attngen("check", str(spec))
    assert done.code == 1
    assert f"{spec}:5:14: error: " in done.err


@pytest.mark.parametrize("stage", STAGES)
def test_show_prints_every_stage(attngen: Attngen, stage: str) -> None:
    done = attngen("show", "window", "--stage", stage)
    assert done.code == 0
    expected = {
        "read": "left 255, right -1",
        "elaborate": "mask      k <= q and q - k <= 255",
        "simplify": "exp2(score - row_max) where mask",
        "schedule": "block_q",
        "lower": "flash_forward: online softmax",
        "emit": "# ======== window/__init__.py ========",
    }[stage]
    assert expected in done.out


def test_show_emit_is_python(attngen: Attngen) -> None:
    text = attngen("show", "gqa", "--stage", "emit").out.replace("from __future__", "from future")
    ast.parse(text)


def test_show_takes_overrides(attngen: Attngen) -> None:
    done = attngen("show", "gqa", "--stage", "schedule", "--schedule", "split_kv=512")
    (line,) = (line for line in done.out.splitlines() if line.startswith("split_kv"))
    assert line.split()[1:3] == ["512", "call"]


def test_schema_is_json(attngen: Attngen) -> None:
    assert "heads" in attngen("schema").json["properties"]


def test_specs_lists_the_search_path(attngen: Attngen) -> None:
    assert [spec["name"] for spec in attngen("specs", "--json").json] == list(spec_names())
    assert "mha_4096" in attngen("specs").out


GOLDEN = """\
small
  Made for this test.
  scope  core (queries, keys and values in)
  heads  4 of 64, 2 key and value heads
  dtype  float32
"""
WORK = """\
work at batch 1, 1 query, 1000 keys (100% of the pairs attend)
  attention  1.02 MFLOP, 1002 KiB
  predicted  at least 2.00 s (1 thread at 0.00 GFLOP/s and 10.0 GB/s, both measured)
  measured   4.00 s (0.00 GFLOP/s), 50% of the predicted speed"""


def test_explain_text() -> None:
    spec = {
        "name": "small",
        "description": "Made for this test.",
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 64,
        "causal": True,
    }
    stages = run_stages(spec, target=AVX2)
    speeds = Speeds(threads=1, flop_per_s=512_000, bytes_per_s=1e10)
    report = explain(stages, Lengths(1, 1000), speeds=speeds, measured=4.0)
    text = report.to_text()
    assert text.startswith(GOLDEN)
    assert text.endswith(WORK)
    for _, decision in stages.schedule.decisions():
        assert decision.source == "heuristic"
    assert "gemm" not in text
    assert max(map(len, text.splitlines())) <= 100
    for line in report.contract:
        assert line.split()[0] in text


def test_explain_without_a_machine_predicts_nothing() -> None:
    report = explain(run_stages("mha_4096", target=AVX2))
    assert report.predicted is None
    assert "predicted" not in report.to_text()
    assert "gemm_tile_rows" in report.to_text()
    assert report.cost.lengths == Lengths(2048, 2048)


@pytest.mark.numba
def test_explain_as_json(attngen: Attngen) -> None:
    data = attngen("explain", "gqa", "--q-len", "8", "--threads", "1", "--json").json
    assert data["cost"]["lengths"] == {"q_len": 8, "kv_len": 8, "batch": 1}
    assert data["predicted"] > 0
    assert data["measured"] is None
    assert {row["name"] for row in data["schedule"]} >= {"block_q", "block_kv"}


def test_explain_draws_the_dataflow(attngen: Attngen, tmp_path: Path) -> None:
    path = tmp_path / "gqa.svg"
    done = attngen("explain", "gqa", "--svg", str(path), "--lang", "zh")
    assert (done.code, done.out, done.err) == (0, "", f"drawn to {path}\n")
    assert "8 个查询头共用 2 个键值头" in path.read_text("utf-8")


def test_explain_draws_what_heads_attend_to(attngen: Attngen, tmp_path: Path) -> None:
    arrays, path = tmp_path / "arrays.npz", tmp_path / "heads.png"
    rng = np.random.default_rng(0)
    np.savez(arrays, q=rng.standard_normal((9, 8, 64)), k=rng.standard_normal((9, 2, 64)))
    done = attngen("explain", "gqa", "--heads", "--input", str(arrays), "-o", str(path))
    assert (done.code, done.out, done.err) == (0, "", f"drawn to {path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--heads"], 2, "--heads needs an .npz file of arrays"),
        (["--heads", "--input", "none.npz", "-o", "x.png"], 2, "No such file"),
        (["--heads", "--input", "one.npy", "-o", "x.png"], 2, "one array without a name"),
        (["--heads", "--input", "q.npz"], 2, "--heads needs a file to draw to"),
        (["--heads", "--input", "q.npz", "-o", "x.bmp"], 1, "must end in .png, .svg or .pdf"),
        (["--svg", "missing/x.svg"], 1, "No such file or directory"),
        (["--svg", "x.svg", "--lang", "fr"], 2, "'fr' is not one of"),
    ],
)
def test_mistakes_in_drawing(
    attngen: Attngen,
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", np.ones(3))
    np.savez("q.npz", q=np.ones((3, 8, 64)), k=np.ones((3, 2, 64)))
    done = attngen("explain", "gqa", *arguments)
    assert done.code == code
    assert message in " ".join(done.err.replace("│", " ").split())
    assert not list(tmp_path.glob("x.*"))
