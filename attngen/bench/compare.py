"""Was it faster before? Two documents of ``attngen bench --json``, line by line.

Input: an older document and a newer one, as plain data. Output: for each of our own lines the ratio
of median times (new over old), a confidence interval and a verdict. The interval is a percentile
bootstrap of the ratio of medians (Efron, 1979) with a fixed seed, so that the same documents give
the same verdict. Documents of different machines are not compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from attngen.bench.report import Table
from attngen.errors import CallValueError

Verdict: TypeAlias = Literal["faster", "slower", "same", "gone", "new"]

CONFIDENCE = 0.99
TOLERANCE = 0.05
_RESAMPLES = 4000
_MACHINE = ("cpu", "cores")


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a line.

    Attributes:
        name: the line's label, with its number of threads where it has one.
        ratio: new over old; above 1 is slower. None where one of the two is missing.
        low, high: ends of the confidence interval.
        verdict: ``slower`` and ``faster`` only where the whole interval is beyond the tolerance;
            ``gone`` is a line that was measured and is no longer, ``new`` the other way round.
    """

    name: str
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict

    @property
    def is_loss(self) -> bool:
        """Whether the change should stop a release."""
        return self.verdict in ("slower", "gone")


@dataclass(frozen=True, slots=True)
class Comparison:
    """All lines, and what else differs between the two documents."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def lost(self) -> bool:
        """Whether there is a loss."""
        return any(change.is_loss for change in self.changes)


def read_document(path: Path) -> dict[str, Any]:
    """What ``attngen bench --json`` wrote to `path`.

    Raises:
        CallValueError: it is no such document.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CallValueError(f"--compare: {path} cannot be read: {error}") from error
    if not isinstance(data, dict) or not {"suite", "environment", "lines"} <= data.keys():
        raise CallValueError(f"--compare: {path} was not written by attngen bench --json")
    return data


def compare(
    old: Mapping[str, Any], new: Mapping[str, Any], *, tolerance: float = TOLERANCE
) -> Comparison:
    """The lines of `new` against those of `old`.

    Args:
        old: a document of the same suite, measured on the same kind of machine.
        new: the later document.
        tolerance: by how much a time may change and be the same still.

    Raises:
        CallValueError: the two cannot be compared.
    """
    if old["suite"] != new["suite"]:
        raise CallValueError(f"--compare: expected suite {new['suite']!r}, got {old['suite']!r}")
    for fact in _MACHINE:
        before, now = old["environment"].get(fact), new["environment"].get(fact)
        if before != now:
            raise CallValueError(
                f"--compare: measured on another machine ({fact} {before!r}, and here {now!r}), so "
                "times say nothing about the code; measure both on one"
            )
    before, now = _samples(old), _samples(new)
    if not before.keys() & now.keys():
        raise CallValueError("--compare: the documents have no line in common")
    changes = [
        _change(name, before.get(name, ()), now.get(name, ()), tolerance) for name in before | now
    ]
    return Comparison(tuple(changes), _notes(old["environment"], new["environment"]))


def table(comparison: Comparison, tolerance: float = TOLERANCE) -> Table:
    """The comparison, ready to print."""
    rows = []
    for change in comparison.changes:
        ratio = "–" if change.ratio is None else f"{change.ratio:.3f}"
        interval = "–" if change.low is None else f"{change.low:.3f} to {change.high:.3f}"
        rows.append((change.name, ratio, interval, change.verdict))
    title = f"new time over old; up to {tolerance:.0%} is the same"
    columns = ("work", "ratio", f"{CONFIDENCE:.0%} interval", "verdict")
    return Table(title, columns, tuple(rows), comparison.notes)


def _change(name: str, old: Sequence[float], new: Sequence[float], tolerance: float) -> Change:
    if not old or not new:
        return Change(name, None, None, None, "gone" if old else "new")
    low, high = interval(old, new)
    verdict: Verdict = "same"
    if low > 1 + tolerance:
        verdict = "slower"
    elif high < 1 / (1 + tolerance):
        verdict = "faster"
    return Change(name, float(np.median(new) / np.median(old)), low, high, verdict)


def interval(old: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    """Where the ratio of the medians, new over old, lies with a confidence of `CONFIDENCE`."""
    rng = np.random.default_rng(0)

    def medians(values: Sequence[float]) -> Any:
        chosen = rng.integers(0, len(values), (_RESAMPLES, len(values)))
        return np.median(np.asarray(values)[chosen], axis=1)

    ratios = medians(new) / medians(old)
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [outside, 1 - outside])
    return float(low), float(high)


def _samples(document: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Our own measurements by the line's name; none where there is no figure."""
    found: dict[str, tuple[float, ...]] = {}
    for line in document["lines"]:
        if "results" in line:  # a suite of calls
            ours = line["results"][0]
            found[_name(line["case"]["label"], line)] = tuple(ours["timing"] or ())
        elif line["who"] == "attngen":
            values = line["seconds"] if "seconds" in line else [line["bytes"]]
            found[_name(line["label"], line)] = tuple(v for v in values if v is not None)
    return found


def _name(label: str, line: Mapping[str, Any]) -> str:
    threads = line.get("threads")
    return label if threads is None else f"{label}, {threads} thread{'s' if threads > 1 else ''}"


def _notes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """What else changed: versions, and a machine that was busy."""
    before, now = old.get("versions", {}), new.get("versions", {})
    notes = [
        f"{name} was {before.get(name, 'not installed')}, and is {now.get(name, 'not installed')}"
        for name in dict.fromkeys((*before, *now))
        if before.get(name) != now.get(name)
    ]
    for when, where in (("before", old), ("now", new)):
        if (where.get("load") or 0) > 1:
            notes.append(f"the machine was busy {when} (load {where['load']:.1f})")
    return tuple(notes)
