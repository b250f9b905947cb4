"""Timing: contestants take turns, so that what disturbs the machine disturbs them all alike.

Input: calls without arguments. Output: for each, the seconds of every round. Before each timed
call the thread pools of the previous contestant get a moment to go to sleep (they spin for a few
milliseconds after work), and a short call is run once untimed, to have its data and its threads
back; the order is reversed every round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MIN_ROUNDS = 7
_MAX_ROUNDS = 51
_SETTLE_SECONDS = 0.01
_SHORT_SECONDS = 0.05
_BUDGET_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The seconds of every timed call."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median in seconds."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The shortest in seconds."""
        return min(self.seconds)


def take_turns(
    calls: Sequence[Callable[[], object]],
    *,
    min_rounds: int = MIN_ROUNDS,
    most_rounds: int = _MAX_ROUNDS,
) -> tuple[Timing, ...]:
    """Time `calls` in turn, each at least `min_rounds` times, after warming all of them up.

    Short calls get more rounds, up to about a second in all.
    """
    warm = [_timed(call) for call in calls for _ in range(2)]
    slowest = max(warm[1::2], default=0.0)
    rounds = max(min_rounds, min(most_rounds, int(_BUDGET_SECONDS / max(slowest, 1e-6))))
    seconds: list[list[float]] = [[] for _ in calls]
    order = list(range(len(calls)))
    for _ in range(rounds):
        for i in order:
            time.sleep(_SETTLE_SECONDS)
            if warm[2 * i + 1] < _SHORT_SECONDS:
                calls[i]()
            seconds[i].append(_timed(calls[i]))
        order.reverse()
    return tuple(Timing(tuple(times)) for times in seconds)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
