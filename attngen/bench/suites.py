"""The named suites: which lines each consists of."""

from __future__ import annotations

from attngen.bench.cases import Case

CASES: dict[str, tuple[Case, ...]] = {
    "core": (
        Case("H32 S2048 D128, full", 32, 32, 2048, 2048, 128),
        Case("H32 S2048 D128, causal", 32, 32, 2048, 2048, 128, causal=True),
        Case("H32 S2048 D128, causal window 256", 32, 32, 2048, 2048, 128, causal=True, window=256),
        Case("H8/2 S4096 D64, causal", 8, 2, 4096, 4096, 64, causal=True),
        Case("H32 D128, one query, 4096 keys", 32, 32, 1, 4096, 128, causal=True),
    ),
    "layer": (
        Case("layer d4096 H32 S2048, causal", 32, 32, 2048, 2048, 128, causal=True, d_model=4096),
    ),
    "quick": (
        Case("H4 S128 D32, full", 4, 4, 128, 128, 32),
        Case("H4/2 S128 D32, causal", 4, 2, 128, 128, 32, causal=True),
        Case("H4 S128 D32, causal window 16", 4, 4, 128, 128, 32, causal=True, window=16),
        Case("H4 D32, one query, 256 keys", 4, 4, 1, 256, 32, causal=True),
        Case("layer d128 H4 S128, causal", 4, 4, 128, 128, 32, causal=True, d_model=128),
    ),
}
"""Suites whose lines are timed calls."""

PROCESS_SUITES: tuple[str, ...] = ("start", "memory")
"""Suites that measure whole processes."""

SUITES: tuple[str, ...] = (*CASES, *PROCESS_SUITES)
