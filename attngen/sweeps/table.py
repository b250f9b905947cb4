"""Results as a table: a plain mapping from columns to lists of equal length.

pandas and polars take it as it is (``pd.DataFrame(table)``, ``pl.DataFrame(table)``); CSV needs
nothing, Parquet needs pyarrow. A column holds one type of value and None.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attngen.errors import CallValueError, SweepError

_CALL = ("batch", "q_len", "kv_len", "threads", "target")
_SIZES = ("scope", "dtype", "d_model", "heads", "kv_heads", "head_dim", "value_dim")
_QUANTILES = ("min", "p10", "p25", "median", "p75", "p90", "max")
_RATES = ("flops", "bytes", "gflops", "gbytes_per_s")
_ROOFLINE = ("binds", "predicted", "share")
_REST = ("peak_memory", "compile_seconds", "cache_state", "max_error", "error_bound")
_ORIGIN = ("machine", "fingerprint", "load", "worker", "started", "point", "command")


class Table(dict[str, list[Any]]):
    """Columns by name: keys, sizes, times, rates, and where each row comes from.

    A point that could not be measured has its reason and None for the rest.

    Attributes:
        swept: the columns that are swept keys.
    """

    swept: tuple[str, ...] = ()

    @classmethod
    def from_results(cls, results: Iterable[Mapping[str, Any]], keys: Iterable[str] = ()) -> Table:
        """The table of result lines.

        Args:
            results: as a series keeps them.
            keys: the swept keys, in the order of their columns; those of the results if none.
        """
        rows = list(results)
        swept = dict.fromkeys([*keys, *(key for row in rows for key in row["keys"])])
        peers = dict.fromkeys(name for row in rows for name in row.get("peers") or {})
        columns: dict[str, list[Any]] = {}

        def add(name: str, values: list[Any]) -> None:
            columns.setdefault(name, _of_one_type(values))

        for key in swept:
            add(key, [row["keys"].get(key) for row in rows])
        for place, names in (("call", _CALL), ("sizes", _SIZES)):
            for name in names:
                add(name, [_below(row, place).get(name) for row in rows])
        for name in ("status", "reason"):
            add(name, [row.get(name) for row in rows])
        for name in _QUANTILES:
            add(f"seconds_{name}", [_below(row, "seconds").get(name) for row in rows])
        add("runs", [_below(row, "seconds").get("runs") for row in rows])
        for name in _RATES:
            add(name, [row.get(name) for row in rows])
        for name in _ROOFLINE:
            add(f"roofline_{name}", [_below(row, "roofline").get(name) for row in rows])
        for name in _REST:
            add(name, [row.get(name) for row in rows])
        for peer in peers:
            found = [_below(row, "peers").get(peer) or {} for row in rows]
            add(f"{peer}_median", [one.get("median") for one in found])
            add(f"{peer}_ratio", [one.get("ratio") for one in found])
        for name in _ORIGIN:
            add(name, [row.get(name) for row in rows])
        table = cls(columns)
        table.swept = tuple(swept)
        return table

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self["status"]) if self else 0

    def relative_to(self, **baseline: Any) -> list[float | None]:
        """Each row's median time over that of its baseline, as a new column.

        The baseline of a row is the row that has the values of `baseline` and is like it in every
        other swept key and size of the call. Times of two kinds of machines are never compared: a
        row whose baseline was measured on another kind has None.

        Args:
            baseline: a value for one or more columns; write ``**{"window.left": 255}`` for a
                dotted one.

        Raises:
            CallValueError: there is no such column, or no row has these values.
        """
        for name in baseline:
            if name not in self:
                raise CallValueError(f"{name}: expected a column, one of {', '.join(self)}")
        swept = [name for name in (*self.swept, *_CALL) if name not in baseline]
        identity = [*dict.fromkeys(swept), "machine"]
        base: dict[tuple[str, ...], float] = {}
        for i in range(self.rows):
            fits = all(self[name][i] == value for name, value in baseline.items())
            if fits and self["seconds_median"][i]:
                base[self._identity(i, identity)] = self["seconds_median"][i]
        if not base:
            values = ", ".join(f"{name} = {value!r}" for name, value in baseline.items())
            raise CallValueError(f"no row was measured with {values}")
        found: list[float | None] = []
        for i in range(self.rows):
            median, before = self["seconds_median"][i], base.get(self._identity(i, identity))
            found.append(median / before if median and before else None)
        return found

    def to_csv(self, path: str | Path) -> None:
        """Write the table as CSV in UTF-8, None as nothing.

        Raises:
            SweepError: the file cannot be written.
        """
        try:
            with open(path, "w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(self)
                writer.writerows(zip(*self.values(), strict=True))
        except OSError as error:
            raise SweepError(f"{path} cannot be written: {error.strerror or error}") from error

    def to_parquet(self, path: str | Path) -> None:
        """Write the table as Parquet.

        Raises:
            SweepError: pyarrow is not installed, or the file cannot be written.
        """
        try:
            import pyarrow
            import pyarrow.parquet as parquet
        except ImportError as error:
            message = "Parquet needs pyarrow, which is not installed: pip install pyarrow"
            raise SweepError(message) from error
        try:
            parquet.write_table(pyarrow.table(dict(self)), str(path))
        except OSError as error:
            raise SweepError(f"{path} cannot be written: {error}") from error

    def _identity(self, row: int, names: list[str]) -> tuple[str, ...]:
        return tuple(json.dumps(self[name][row]) for name in names)


def _below(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return row.get(key) or {}


def _of_one_type(values: list[Any]) -> list[Any]:
    """`values` as they are if they are all alike, whole numbers as real ones beside such, and
    otherwise as texts.
    """
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {float} or kinds <= {bool} or kinds <= {str}:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [
        value if value is None or isinstance(value, str) else json.dumps(value) for value in values
    ]
