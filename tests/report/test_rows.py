"""Results become rows: the last line of a point counts, what is not known stays so."""

from __future__ import annotations

from report.series import POINTS, grid, plan, point

from attngen.report.rows import rows_of, varying
from attngen.report.summary import best_points, label, overview


def test_the_last_line_of_a_point_counts() -> None:
    failed = {**plan(4, 64, 512, 1), "status": "failed", "reason": "died"}
    (row,) = rows_of([failed, point(4, 64, 512, 1)])
    assert (row.index, row.status, row.reason) == (4, "ok", "")
    (row,) = rows_of([point(4, 64, 512, 1), failed])
    assert (row.status, row.reason) == ("failed", "died")


def test_a_row_has_what_its_line_has() -> None:
    line = point(0, 64, 512, 2)
    (row,) = rows_of([line])
    assert row.seconds == line["seconds"]["median"] == row.quantiles[3]
    assert row.flop_rate == line["gflops"] * 1e9
    assert row.share == line["roofline"]["share"]
    assert row.peers is not None
    assert row.peers["torch-sdpa"].ratio == line["peers"]["torch-sdpa"]["ratio"]
    assert row.peers["torch-flex"].reason == "torch.compile needs a C++ compiler"
    assert row.schedule == "lanes=16, block_q=192"
    assert row.command == line["command"]
    assert row.load == 1.25
    assert row.keys["kv_len"] == 512
    assert row.swept == ("head_dim", "q_len", "threads")


def test_what_is_missing_or_no_number_is_not_known() -> None:
    line = {**plan(0, 64, 512, 2), "status": "ok", "max_error": float("nan"), "peak_memory": None}
    line |= {"seconds": {"median": float("inf"), "runs": 3}, "gflops": True}
    (row,) = rows_of([line])
    assert (row.error, row.memory, row.seconds, row.flop_rate) == (None, None, None, None)
    assert row.quantiles == ()
    (bare,) = rows_of([{"point": "x"}])
    assert (bare.status, bare.keys) == ("failed", {})


def test_keys_tell_points_apart_and_do_not_repeat_each_other() -> None:
    rows = rows_of(grid())
    assert varying(rows) == ["head_dim", "q_len", "threads"]
    assert label(rows[0], rows) == "head_dim 32, q_len 128, threads 1"
    assert varying(rows[:1]) == []
    assert label(rows[0], rows[:1]) == "the only point"
    longer = {**point(1, 32, 128, 1)}
    longer["call"] = {**longer["call"], "kv_len": 999}
    assert varying(rows_of([point(0, 32, 128, 1), longer])) == ["kv_len"]
    left_out = [point(0, 32, 128, 1), point(1, 32, 128, 1)]
    left_out[0]["keys"] |= {"window.left": None}
    left_out[1]["keys"] |= {"window.left": 7}
    assert varying(rows_of(left_out)) == ["window.left"]


def test_the_same_computation_has_the_same_identity() -> None:
    first, again, other = rows_of(
        [point(0, 64, 512, 2), point(1, 64, 512, 2, seed=5), point(2, 64, 512, 1)]
    )
    assert first.identity == again.identity
    assert first.identity != other.identity


def test_headlines_name_the_points_they_are_about() -> None:
    rows = rows_of(grid())
    cards = {card.name: card for card in overview(rows)}
    assert cards["points measured"].value == str(POINTS)
    assert cards["points measured"].about == "1 failed, 1 impossible"
    rate = cards["highest rate"]
    assert rows[rate.index].flop_rate == max(row.flop_rate or 0 for row in rows)
    assert rate.about == label(rows[rate.index], rows)
    # 10 points at 0.9 and 20 at 1.3 of our time
    assert abs(float(cards["speed-up over torch-sdpa"].value[:-1]) - 1.15) < 0.02
    assert cards["speed-up over torch-sdpa"].about == "geometric mean; faster at 20 of 30 points"
    assert "speed-up over torch-flex" not in cards
    found = {one.name: rows[one.index] for one in best_points(rows)}
    assert found["shortest call"].seconds == min(row.seconds for row in rows if row.seconds)
    assert found["least over torch-sdpa"].keys["head_dim"] == 128
    assert overview([])[0].value == "0"
    assert best_points([]) == []
