"""Contestants take turns; what is measured is only their calls."""

from __future__ import annotations

import pytest

from attngen import timing
from attngen.timing import Timing, take_turns


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_SETTLE_SECONDS", 0.0)


def test_everyone_is_timed_equally_often_and_at_least_as_asked() -> None:
    first, second = take_turns([lambda: None, lambda: None], min_rounds=9, most_rounds=9)
    assert len(first.seconds) == len(second.seconds) == 9


def test_short_calls_get_more_rounds_than_the_least() -> None:
    (only,) = take_turns([lambda: None], min_rounds=7)
    assert len(only.seconds) > 7


def test_the_order_is_reversed_every_round_after_everyone_is_warm() -> None:
    calls: list[str] = []
    take_turns([lambda: calls.append("a"), lambda: calls.append("b")], min_rounds=2, most_rounds=2)
    assert calls[:4] == ["a", "a", "b", "b"]
    assert calls[4:] == ["a", "a", "b", "b", "b", "b", "a", "a"]


def test_nobody_is_fine() -> None:
    assert take_turns([]) == ()


def test_median_and_best() -> None:
    times = Timing((3.0, 1.0, 2.0))
    assert times.median == 2.0
    assert times.best == 1.0
