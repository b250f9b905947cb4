"""From a sweep to a page, with nothing made up."""

from __future__ import annotations

from pathlib import Path

import pytest
from report.test_page import data_of

import attngen
from attngen.report import report_page

ROOT = Path(__file__).resolve().parents[2]
SPEC = """\
heads: 2
head_dim: 16
causal: true
sweep:
  q_len: [16, 33]
  kv_heads: [1, 3]
"""


@pytest.mark.numba
@pytest.mark.slow
def test_what_a_sweep_measures_is_reported(
    tmp_path: Path, kernel_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", str(kernel_cache))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    spec, folder = tmp_path / "tiny.yaml", tmp_path / "series"
    spec.write_text(SPEC, encoding="utf-8")
    assert len(list(attngen.sweep(spec, folder=folder, threads=1, rounds=1))) == 4
    (series,) = data_of(report_page(folder))["series"]
    assert series["name"] == "tiny"
    assert series["varying"] == ["q_len", "kv_heads"]
    good = [row for row in series["rows"] if row["status"] == "ok"]
    assert [row["label"] for row in good] == ["q_len 16, kv_heads 1", "q_len 33, kv_heads 1"]
    for row in good:
        assert len(row["quantiles"]) == 7
        for name in ("seconds", "flop_rate", "byte_rate", "share", "peak_flop", "peak_bytes"):
            assert row[name] > 0, name
        assert row["error"] <= row["error_bound"]
        assert row["command"].startswith("attngen run ")
    impossible = [row for row in series["rows"] if row["status"] == "impossible"]
    assert len(impossible) == 2
    assert "'kv_heads' must not exceed 'heads'" in impossible[0]["reason"]
    assert [card["name"] for card in series["overview"]][:3] == [
        "points measured",
        "highest rate",
        "best share of the roofline",
    ]
