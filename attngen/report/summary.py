"""The numbers that a reader wants first: counts, best points, and how peers do.

Input: the rows of a series. Output: :class:`Headline` values, each with the point it is about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from attngen.formatting import bytes_text, rate_text, seconds_text, significant
from attngen.report.rows import Row, varying

Question: TypeAlias = tuple[str, Callable[[Row], float | None], Callable[[float], str], bool]
"""What to call it, where to read it, how it reads, and whether most or least is asked for."""


@dataclass(frozen=True, slots=True)
class Headline:
    """One number with a name; `index` is the point's, -1 where it is about all."""

    name: str
    value: str
    about: str
    index: int = -1


def overview(rows: Sequence[Row]) -> list[Headline]:
    """The cards at the top."""
    good = [row for row in rows if row.status == "ok"]
    failed = sum(row.status == "failed" for row in rows)
    impossible = sum(row.status == "impossible" for row in rows)
    others = ", ".join(
        text
        for count, text in (
            (failed, f"{failed} failed"),
            (impossible, f"{impossible} impossible"),
        )
        if count
    )
    cards = [Headline("points measured", str(len(good)), others or "none failed")]
    asked: list[Question] = [
        ("highest rate", lambda row: row.flop_rate, rate_text, True),
        ("best share of the roofline", lambda row: row.share, _percent, True),
    ]
    cards += _answers(good, rows, asked)
    for peer in peers_of(good):
        ratios = [r for row in good if (r := _ratio(row, peer))]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        won = sum(ratio > 1 for ratio in ratios)
        about = f"geometric mean; faster at {won} of {len(ratios)} points"
        cards.append(Headline(f"speed-up over {peer}", f"{significant(mean)}×", about))
    return cards


def best_points(rows: Sequence[Row]) -> list[Headline]:
    """The points to look at: the best, and the worst against each peer."""
    good = [row for row in rows if row.status == "ok"]
    asked: list[Question] = [
        ("highest rate", lambda row: row.flop_rate, rate_text, True),
        ("best share of the roofline", lambda row: row.share, _percent, True),
        ("lowest share of the roofline", lambda row: row.share, _percent, False),
        ("shortest call", lambda row: row.seconds, seconds_text, False),
        ("most memory beyond inputs and output", lambda row: row.memory, bytes_text, True),
    ]
    for peer in peers_of(good):
        ratio = _ratio_to(peer)
        asked.append((f"most over {peer}", ratio, lambda r: f"{significant(r)}×", True))
        asked.append((f"least over {peer}", ratio, lambda r: f"{significant(r)}×", False))
    return list(_answers(good, rows, asked))


def _answers(
    good: Sequence[Row], rows: Sequence[Row], asked: Sequence[Question]
) -> Iterator[Headline]:
    """The point of `good` that each question asks for, where one knows."""
    for name, key, text, most in asked:
        known = [(value, row) for row in good if (value := key(row)) is not None]
        if known:
            value, row = (max if most else min)(known, key=lambda pair: pair[0])
            yield Headline(name, text(value), label(row, rows), row.index)


def label(row: Row, rows: Sequence[Row]) -> str:
    """What tells `row` from the others."""
    parts = [f"{name} {row.keys[name]}" for name in varying(rows) if row.keys.get(name) is not None]
    return ", ".join(parts) or "the only point"


def peers_of(rows: Sequence[Row]) -> list[str]:
    """The peers that were timed at one point at least, in order."""
    names = dict.fromkeys(name for row in rows for name in row.peers or {})
    return [name for name in names if any(_ratio(row, name) for row in rows)]


def reasons(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """(peer, why it was left out), each once."""
    yield from dict.fromkeys(
        (name, peer.reason)
        for row in rows
        for name, peer in (row.peers or {}).items()
        if peer.reason
    )


def _ratio(row: Row, peer: str) -> float | None:
    found = (row.peers or {}).get(peer)
    return None if found is None else found.ratio


def _ratio_to(peer: str) -> Callable[[Row], float | None]:
    return lambda row: _ratio(row, peer)


def _percent(share: float) -> str:
    return f"{share:.0%}"
