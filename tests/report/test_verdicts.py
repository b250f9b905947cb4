"""Verdicts: right where there is a difference, quiet where there is only noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from report.series import POINTS, grid, point

from attngen.report.compare import SHARED, change, compare, judge, medians
from attngen.report.rows import Row, rows_of


def row(**options: Any) -> Row:
    (made,) = rows_of([point(3, 64, 512, 2, **options)])
    return made


def test_a_series_against_itself_is_the_same() -> None:
    rows = rows_of(grid())
    result = compare(rows, rows)
    assert len(result.changes) == POINTS
    assert {c.verdict for c in result.changes} == {"same"}
    assert (result.mean, result.low, result.high, result.unmatched) == (1.0, 1.0, 1.0, 0)
    for one in result.changes:
        assert one.low < one.ratio < one.high


@pytest.mark.parametrize(("speed", "verdict"), [(1.25, "faster"), (0.9, "slower"), (1.0, "same")])
def test_a_change_is_found_at_every_point(speed: float, verdict: str) -> None:
    before, after = rows_of(grid()), rows_of(grid(dict.fromkeys((32, 64, 128), speed), seed=1))
    result = compare(before, after)
    assert {c.verdict for c in result.changes} == {verdict}
    for one in result.changes:
        assert one.low <= one.ratio <= one.high
        assert one.low * 0.99 < speed < one.high * 1.01
    assert result.mean == pytest.approx(speed, rel=0.01)


def test_noise_alone_is_seldom_called_a_change() -> None:
    """200 pairs of equal speed, at noises from 1 to 20 %."""
    verdicts = [
        change(row(noise=noise, seed=i), row(noise=noise, seed=100 + i)).verdict
        for noise in (0.01, 0.05, 0.1, 0.2)
        for i in range(50)
    ]
    assert sum(v in ("faster", "slower") for v in verdicts) <= 4
    assert {"same", "unclear"} <= {*verdicts}


def test_much_noise_makes_a_small_change_unclear() -> None:
    assert change(row(noise=0.5), row(noise=0.5, speed=1.05, seed=1)).verdict == "unclear"


def test_what_a_peer_moved_is_not_ours() -> None:
    """Both got 15 % faster: the machine did."""
    moved = change(row(), row(speed=1.15, peer_speed=1.15, seed=1))
    assert moved.drift == pytest.approx(1.15, rel=0.02)
    assert moved.verdict == "unclear"
    assert moved.low < 1 < moved.high
    alone = change(row(), row(speed=1.15, seed=1))
    assert alone.verdict == "faster"
    slowed = change(row(), row(peer_speed=0.8, seed=1))
    assert slowed.verdict == "unclear"


def test_no_ratio_across_kinds_of_machines() -> None:
    other = [{**line, "machine": "another"} for line in grid()]
    result = compare(rows_of(grid()), rows_of(other))
    assert {c.verdict for c in result.changes} == {"other machine"}
    assert result.mean is None


def test_points_of_one_series_alone_are_counted() -> None:
    rows = rows_of(grid())
    result = compare(rows[:20], rows[5:])
    assert (len(result.changes), result.unmatched) == (15, POINTS - 15)
    assert compare(rows, []).changes == ()


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.03, 1.5, "faster"),
        (1.01, 1.5, "unclear"),
        (0.5, 0.97, "slower"),
        (0.96, 1.04, "same"),
        (1.005, 1.015, "same"),
        (0.9, 1.1, "unclear"),
    ],
)
def test_judge(low: float, high: float, verdict: str) -> None:
    assert judge(low, high) == verdict


def test_medians_spread_as_those_of_real_runs_do() -> None:
    found = row(noise=0.1)
    drawn = medians(found, np.random.default_rng(0))
    assert np.median(drawn) == pytest.approx(found.seconds, rel=0.02)
    rng = np.random.default_rng(1)
    real = np.median(np.exp(0.1 * rng.standard_normal((2000, found.runs // SHARED))), axis=1)
    assert np.std(np.log(drawn)) == pytest.approx(np.std(np.log(real)), rel=0.35)
