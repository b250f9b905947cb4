"""The page: what it shows as data, in one HTML document with its style, script and plot library.

Input: series as they stand on disk, and others to compare with. Output: HTML text, the same for the
same series. It opens from a file and asks the network for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from attngen.errors import SweepError, TargetError
from attngen.render import render
from attngen.report.compare import CONFIDENCE, SAME, SMALLEST, Comparison, compare
from attngen.report.rows import Row, rows_of, varying
from attngen.report.summary import best_points, label, overview, peers_of, reasons
from attngen.sweeps.series import Series, find_series, read_series

_MOST_SERIES = 12  # on one page; the newest are kept


@dataclass(frozen=True, slots=True)
class PageContext:
    """What the template reads; see there."""

    title: str
    data: str
    plotly: str


def report_page(folder: Path, against: Path | None = None) -> str:
    """The report of the series in `folder`, compared with each other and with those of `against`.

    Raises:
        SweepError: there is no series, or one cannot be read.
        TargetError: plotly is not installed.
    """
    ours = [read_series(path) for path in _found(folder)]
    others = [read_series(path) for path in _found(against)] if against else []
    series = [*others, *ours]
    rows = [rows_of(one.results) for one in series]
    data = {
        "series": [_series(one, of) for one, of in zip(series, rows, strict=True)],
        "comparisons": _comparisons(series, rows, len(others)),
        "shown": len(series) - 1,
        "rule": {"confidence": CONFIDENCE, "smallest": SMALLEST, "same": SAME},
    }
    title = ", ".join(dict.fromkeys(str(one.info.get("name", "")) for one in ours))
    return render(
        "report/page.html.jinja",
        PageContext(escape(title), _in_script(data), _plotly()),
    )


def _found(folder: Path) -> list[Path]:
    found = find_series(folder)
    if not found:
        raise SweepError(f"{folder} holds no series; 'attngen sweep SPEC -o {folder}' makes one")
    return found[-_MOST_SERIES:]


def _series(one: Series, rows: Sequence[Row]) -> dict[str, Any]:
    """What the page shows of a series."""
    info = one.info
    return {
        "id": one.folder.name,
        "name": info.get("name", ""),
        "created": info.get("created", ""),
        "spec": info.get("spec_text", ""),
        "source": info.get("spec_source") or "",
        "settings": info.get("settings") or {},
        "versions": info.get("versions") or {},
        "environments": info.get("environments") or {},
        "axes": [axis["key"] for axis in info.get("axes") or ()],
        "conditions": info.get("conditions") or [],
        "planned": info.get("points"),
        "varying": varying(rows),
        "peers": peers_of(rows),
        "left_out": [list(pair) for pair in reasons(rows)],
        "overview": [asdict(card) for card in overview(rows)],
        "best": [asdict(point) for point in best_points(rows)],
        "rows": [{**asdict(row), "label": label(row, rows)} for row in rows],
    }


def _comparisons(
    series: Sequence[Series], rows: Sequence[Sequence[Row]], others: int
) -> list[dict[str, Any]]:
    """Every two series with points in common, the older first; those of `against` with ours."""
    found = []
    for second in range(len(series)):
        for first in range(second):
            if others and not first < others <= second:
                continue
            result = compare(rows[first], rows[second])
            if result.changes:
                found.append({"first": first, "second": second, **_plain(result)})
    return found


def _plain(result: Comparison) -> dict[str, Any]:
    data = asdict(result)
    data["changes"] = list(data["changes"])
    return data


def _in_script(data: Any) -> str:
    """`data` as JSON that may stand in a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise TargetError("reports need plotly: pip install 'attngen[report]'") from error
    return str(get_plotlyjs())
