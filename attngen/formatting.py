"""Quantities as a person reads them: three significant digits and a unit. Input: SI values."""

from __future__ import annotations

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def seconds_text(seconds: float) -> str:
    """Such as ``1.23 s``, ``45.6 ms`` or ``789 µs``."""
    for unit, name in _SECONDS:
        if seconds >= unit * 0.9995:
            return f"{significant(seconds / unit)} {name}"
    return f"{significant(seconds * 1e6)} µs"


def rate_text(flop_per_s: float) -> str:
    """Such as ``123 GFLOP/s``."""
    return f"{significant(flop_per_s / 1e9)} GFLOP/s"


def flop_text(flop: float) -> str:
    """Such as ``68.7 GFLOP``."""
    return _scaled(flop, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"))


def bytes_text(size: float) -> str:
    """Such as ``64 MiB``."""
    return _scaled(size, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def count_text(count: int, noun: str, plural: str = "") -> str:
    """Such as ``1 key`` or ``2 queries``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def significant(value: float) -> str:
    """`value` with three significant digits, without an exponent."""
    if value == 0 or abs(value) >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def _scaled(value: float, step: int, names: tuple[str, ...]) -> str:
    index = 0
    while value >= step * 0.9995 and index + 1 < len(names):
        value /= step
        index += 1
    return f"{value:g} {names[0]}" if index == 0 else f"{significant(value)} {names[index]}"
