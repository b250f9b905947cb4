"""Results as a table that other libraries take as it is."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pytest
from sweeps.fakes import line

from attngen.errors import CallValueError, SweepError
from attngen.sweeps.table import Table

CALL = {"batch": 1, "q_len": 8, "kv_len": 8, "threads": 1, "target": "cpu"}


def result(seconds: float | None, machine: str = "a", **keys: Any) -> dict[str, Any]:
    head = {"point": str(keys), "index": 0, "keys": keys, "call": CALL, "machine": machine}
    if seconds is None:
        return {**head, "status": "impossible", "reason": "no way"}
    peers = {"torch-sdpa": {"median": 2 * seconds, "ratio": 2.0}, "torch-flex": {"reason": "none"}}
    return {**head, **line(seconds), "peers": peers}


RESULTS = [
    result(0.001, head_dim=16, causal=True),
    result(0.004, head_dim=32, causal="top_left"),
    result(None, head_dim=33, causal=False),
]


def test_columns_hold_a_value_or_none_for_each_row() -> None:
    table = Table.from_results(RESULTS)
    assert table.rows == 3
    assert {len(column) for column in table.values()} == {3}
    assert list(table)[:4] == ["head_dim", "causal", "batch", "q_len"]
    assert table["seconds_median"] == [0.001, 0.004, None]
    assert table["status"] == ["ok", "ok", "impossible"]
    assert table["torch-sdpa_ratio"] == [2.0, 2.0, None]
    assert table["torch-flex_ratio"] == [None, None, None]


def test_a_column_holds_one_type() -> None:
    table = Table.from_results(RESULTS)
    assert table["causal"] == ["true", "top_left", "false"]
    mixed = [result(1.0, scale=1), result(1.0, scale=0.5), result(1.0, scale=None)]
    assert Table.from_results(mixed)["scale"] == [1.0, 0.5, None]
    windows = Table.from_results([result(1.0, window={"left": 3}), result(1.0, window=None)])
    assert windows["window"] == ['{"left": 3}', None]


def test_pandas_and_polars_take_it() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = Table.from_results(RESULTS)
    one, other = pandas.DataFrame(table), polars.DataFrame(table)
    assert list(one.columns) == list(other.columns) == list(table)
    assert one["seconds_median"].tolist()[:2] == other["seconds_median"].to_list()[:2]
    assert one.shape == other.shape == (3, len(table))


def test_csv_and_parquet_hold_the_same(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = Table.from_results(RESULTS)
    table.to_csv(tmp_path / "t.csv")
    table.to_parquet(tmp_path / "t.parquet")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    read = parquet.read_table(tmp_path / "t.parquet").to_pydict()
    assert read == dict(table)
    assert [row["head_dim"] for row in rows] == ["16", "32", "33"]
    assert [row["seconds_median"] for row in rows] == ["0.001", "0.004", ""]


def test_files_that_cannot_be_written_are_clear_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.from_results(RESULTS)
    with pytest.raises(SweepError, match=r"t.csv cannot be written: No such file"):
        table.to_csv(tmp_path / "no" / "t.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SweepError, match="pip install pyarrow"):
        table.to_parquet(tmp_path / "t.parquet")


def test_relative_to_a_baseline() -> None:
    rows = [
        result(seconds, head_dim=dim, kv_heads=heads)
        for seconds, dim, heads in ((1.0, 16, 1), (2.0, 32, 1), (3.0, 16, 2), (9.0, 32, 2))
    ]
    table = Table.from_results([*rows, result(None, head_dim=64, kv_heads=1)])
    assert table.relative_to(head_dim=16) == [1.0, 2.0, 1.0, 3.0, None]
    assert table.relative_to(head_dim=16, kv_heads=1) == [1.0, 2.0, 3.0, 9.0, None]


def test_times_of_two_kinds_of_machines_never_meet_in_a_ratio() -> None:
    table = Table.from_results(
        [
            result(1.0, "a", head_dim=16),
            result(2.0, "b", head_dim=32),
            result(3.0, "a", head_dim=64),
        ]
    )
    assert table.relative_to(head_dim=16) == [1.0, None, 3.0]


@pytest.mark.parametrize("wrong", [{"head_dims": 16}, {"head_dim": 17}])
def test_a_baseline_that_is_none_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(CallValueError):
        Table.from_results(RESULTS).relative_to(**wrong)


def test_no_results_are_an_empty_table() -> None:
    assert Table.from_results([]).rows == 0
