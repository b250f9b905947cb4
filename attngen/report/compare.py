"""Two series point by point: how much faster the second is, and whether that is more than noise.

Input: rows of two series. Output: a :class:`Comparison`. What a line keeps of its runs are
quantiles; between them the distribution is taken as linear. From it runs are drawn again and again
(a bootstrap; Efron, 1979), which gives an interval for the ratio of medians.

Runs are not independent. Those that follow each other share the machine's mood, so only one in
`SHARED` is drawn. Those of one process share its luck, so the interval is widened by how much the
same peer moved between the series, where both timed one: it did not change, the machine did. And a
difference below `SMALLEST` is never called one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from attngen.report.rows import Row, Value

Verdict: TypeAlias = Literal["faster", "slower", "same", "unclear", "other machine"]

SMALLEST = 0.02
"""A change of speed below this is none, however often it was measured."""
SAME = 0.05
"""An interval within this of 1 means the same speed; a wider one that has 1 in it is unclear."""
CONFIDENCE = 0.99
SHARED = 4
"""Runs in a row that count as one."""
_LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_DRAWS = 2000
_RUNS = 301  # drawn at most: more change nothing and take time
_FEWEST = 3

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Change:
    """A point in both series.

    Attributes:
        ratio: median time of the first over that of the second: above 1 is faster.
        low: of the interval of `ratio`, and `high`.
        drift: what the same peer's ratio is, at most over all peers; 1 where there is none.
    """

    index: int
    keys: dict[str, Value]
    first: float
    second: float
    ratio: float
    low: float
    high: float
    drift: float
    verdict: Verdict
    first_command: str
    second_command: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two series.

    Attributes:
        mean: geometric mean of the ratios of one machine kind, and its interval over the points;
            None where no point can be compared.
        unmatched: points that only one of them has.
    """

    changes: tuple[Change, ...]
    mean: float | None
    low: float | None
    high: float | None
    unmatched: int


def compare(first: Sequence[Row], second: Sequence[Row]) -> Comparison:
    """`second` against `first`, at the points that were measured in both."""
    before = {row.identity: row for row in first if row.quantiles}
    after = {row.identity: row for row in second if row.quantiles}
    changes = tuple(change(before[name], row) for name, row in after.items() if name in before)
    logs = np.log([c.ratio for c in changes if c.verdict != "other machine"])
    mean = low = high = None
    if logs.size:
        rng = np.random.default_rng(0)
        means = rng.choice(logs, (_DRAWS, logs.size)).mean(axis=1)
        mean = math.exp(logs.mean())
        low, high = (float(end) for end in np.exp(_interval(means)))
    return Comparison(changes, mean, low, high, len(before.keys() ^ after.keys()))


def change(first: Row, second: Row) -> Change:
    """The same point in two series; both have their quantiles."""
    rng = np.random.default_rng(0)  # the same series give the same page
    ratios = medians(first, rng) / medians(second, rng)
    low, high = (float(end) for end in _interval(ratios))
    moved = _drift(first, second)
    low, high = low * min(1.0, moved, 1 / moved), high * max(1.0, moved, 1 / moved)
    before, after = first.quantiles[3], second.quantiles[3]
    return Change(
        index=second.index,
        keys=second.keys,
        first=before,
        second=after,
        ratio=before / after,
        low=low,
        high=high,
        drift=moved,
        verdict=judge(low, high) if first.machine == second.machine else "other machine",
        first_command=first.command,
        second_command=second.command,
    )


def judge(low: float, high: float) -> Verdict:
    """What an interval of the speed-up says."""
    if low > 1 + SMALLEST:
        return "faster"
    if high < 1 / (1 + SMALLEST):
        return "slower"
    return "same" if low >= 1 / (1 + SAME) and high <= 1 + SAME else "unclear"


def medians(row: Row, rng: np.random.Generator) -> Array:
    """Medians of the runs of `row`, drawn again and again from their distribution."""
    runs = min(max(row.runs // SHARED, _FEWEST), _RUNS)
    drawn = np.interp(rng.random((_DRAWS, runs)), _LEVELS, row.quantiles)
    return np.asarray(np.median(drawn, axis=1), np.float64)


def _interval(values: Array) -> Array:
    outside = (1 - CONFIDENCE) / 2
    return np.quantile(values, (outside, 1 - outside))


def _drift(first: Row, second: Row) -> float:
    """The ratio of the peer that moved most; 1 where no peer was timed in both."""
    ratios = [1.0]
    for name, peer in (first.peers or {}).items():
        other = (second.peers or {}).get(name)
        if peer.median and other is not None and other.median:
            ratios.append(peer.median / other.median)
    return max(ratios, key=lambda ratio: abs(math.log(ratio)))
