"""Quantities are short and carry their unit."""

from __future__ import annotations

import pytest

from attngen.formatting import bytes_text, count_text, flop_text, rate_text, seconds_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.0, "2.00 s"),
        (0.9999, "1.00 s"),
        (0.0456, "45.6 ms"),
        (0.000789, "789 µs"),
        (1e-7, "0.10 µs"),
        (123.4, "123 s"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (512, "512 B"), (1536, "1.50 KiB"), (64 << 20, "64.0 MiB"), (1 << 50, "1024 TiB")],
)
def test_bytes(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_others() -> None:
    assert flop_text(68_700_000_000) == "68.7 GFLOP"
    assert rate_text(1.5e11) == "150 GFLOP/s"
    assert count_text(1, "query", "queries") == "1 query"
    assert count_text(0, "key") == "0 keys"
