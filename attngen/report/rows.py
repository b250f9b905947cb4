"""Results as the rows that a page shows.

Input: the lines of a series. Output: a :class:`Row` for each point, the last line of each; what is
not known is None. Times are seconds, rates per second, sizes bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = str | int | float | bool | None

CALL = ("batch", "q_len", "kv_len", "threads", "target")
SIZES = ("dtype", "d_model", "heads", "kv_heads", "head_dim", "value_dim")
QUANTILES = ("min", "p10", "p25", "median", "p75", "p90", "max")


@dataclass(frozen=True, slots=True)
class Peer:
    """What a peer did at a point: its median time, and that over ours; or why there is none."""

    median: float | None
    ratio: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """One point of a series.

    Attributes:
        keys: swept keys, then those of the call and the sizes that are not swept.
        quantiles: of the time of a call, in the order of :data:`QUANTILES`; empty if there is none.
        swept: those of `keys` that the spec sweeps.
        share: of the roofline; `peak_flop` and `peak_bytes` are the measured roofs.
        load: processes that wanted to run on the machine before the point was measured.
        identity: equal for the same computation in any series of any version.
    """

    index: int
    status: str
    keys: dict[str, Value]
    identity: str
    machine: str
    swept: tuple[str, ...] = ()
    quantiles: tuple[float, ...] = ()
    runs: int = 0
    seconds: float | None = None
    flops: float | None = None
    bytes: float | None = None
    flop_rate: float | None = None
    byte_rate: float | None = None
    share: float | None = None
    binds: str = ""
    peak_flop: float | None = None
    peak_bytes: float | None = None
    memory: float | None = None
    compile_seconds: float | None = None
    error: float | None = None
    error_bound: float | None = None
    peers: dict[str, Peer] | None = None
    schedule: str = ""
    load: float | None = None
    reason: str = ""
    command: str = ""


def rows_of(results: Iterable[Mapping[str, Any]]) -> list[Row]:
    """A row for each point of `results`, in the order of the plan."""
    last = {line["point"]: line for line in results}
    return sorted((_row(line) for line in last.values()), key=lambda row: row.index)


def _row(line: Mapping[str, Any]) -> Row:
    call, sizes, swept = (dict(line.get(part) or {}) for part in ("call", "sizes", "keys"))
    keys: dict[str, Value] = {name: _plain(value) for name, value in swept.items()}
    for names, found in ((CALL, call), (SIZES, sizes)):
        for name in names:
            if found.get(name) is not None:
                keys.setdefault(name, _plain(found[name]))
    seconds, roof = line.get("seconds") or {}, line.get("roofline") or {}
    quantiles = tuple(float(seconds[name]) for name in QUANTILES if seconds.get(name) is not None)
    reason = str(line.get("reason") or "")
    hint = str(line.get("hint") or "")
    return Row(
        index=int(line.get("index") or 0),
        status=str(line.get("status") or "failed"),
        keys=keys,
        identity=json.dumps([swept, call, sizes], sort_keys=True),
        machine=str(line.get("machine") or ""),
        swept=tuple(swept),
        quantiles=quantiles if len(quantiles) == len(QUANTILES) else (),
        runs=int(seconds.get("runs") or 0),
        seconds=_number(seconds.get("median")),
        flops=_number(line.get("flops")),
        bytes=_number(line.get("bytes")),
        flop_rate=_scaled(line.get("gflops")),
        byte_rate=_scaled(line.get("gbytes_per_s")),
        share=_number(roof.get("share")),
        binds=str(roof.get("binds") or ""),
        peak_flop=_number(roof.get("flop_per_s")),
        peak_bytes=_number(roof.get("bytes_per_s")),
        memory=_number(line.get("peak_memory")),
        compile_seconds=_number(line.get("compile_seconds")),
        error=_number(line.get("max_error")),
        error_bound=_number(line.get("error_bound")),
        peers={name: _peer(found) for name, found in (line.get("peers") or {}).items()},
        schedule=", ".join(
            f"{name}={value}" for name, value in (line.get("schedule") or {}).items()
        ),
        load=_number(line.get("load")),
        reason=f"{reason} ({hint})" if hint else reason,
        command=str(line.get("command") or ""),
    )


def _peer(found: Mapping[str, Any]) -> Peer:
    median, ratio = (_number(found.get(name)) for name in ("median", "ratio"))
    return Peer(median, ratio, str(found.get("reason") or ""))


def _plain(value: Any) -> Value:
    """`value` as a cell can hold it."""
    plain = value is None or isinstance(value, str | bool) or _number(value) is not None
    return value if plain else json.dumps(value)


def _number(value: Any) -> float | None:
    """`value` where it is a finite number; a page can show no other."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _scaled(rate: Any) -> float | None:
    number = _number(rate)
    return None if number is None else number * 1e9


def varying(rows: Iterable[Row]) -> list[str]:
    """The keys that tell points apart, swept ones first.

    A key that is not swept is left out where it only repeats one before it, as `kv_len` repeats
    `q_len` in self-attention. What is not known of a point, which could not be measured, tells
    nothing.
    """
    rows = list(rows)
    names = dict.fromkeys(name for row in rows for name in row.keys)
    found: list[str] = []
    for name in names:
        some = [row for row in rows if name in row.keys]
        swept = any(name in row.swept for row in rows)
        values = {repr(row.keys.get(name)) for row in (rows if swept else some)}
        if len(values) > 1 and (swept or not any(_repeats(some, name, other) for other in found)):
            found.append(name)
    return found


def _repeats(rows: Iterable[Row], name: str, other: str) -> bool:
    return all(row.keys[name] == row.keys.get(other) for row in rows)
