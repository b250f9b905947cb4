"""The suites that start processes; without judging their times."""

from __future__ import annotations

from pathlib import Path

import pytest

from attngen.bench import processes
from attngen.bench.cases import Case
from attngen.bench.peers import all_peers
from attngen.bench.processes import measure_memory, measure_start

pytestmark = [pytest.mark.slow, pytest.mark.numba]


def test_memory_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("needs Linux")
    case = Case("small", 4, 2, 512, 512, 32, causal=True)
    monkeypatch.setattr(processes, "CASES", {"core": (case,)})
    peers = [peer for peer in all_peers() if peer.name in ("torch-flex", "ort-mha")]
    ours, flex, heads = measure_memory(peers, [1], lambda _: None)
    assert ours.bytes is not None
    assert 0 < ours.bytes < ours.limit
    assert ours.limit == 2 * 4 * 512 * 2 * 32 + (1 << 20)
    assert flex.reason == "compiles anew for each shape"
    assert heads.reason is not None  # grouped heads, or not installed


def test_start_measures_cold_and_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_COLD_RUNS", 1)
    monkeypatch.setattr(processes, "_WARM_RUNS", 1)
    monkeypatch.setattr(processes, "STARTS", {"its attention alone": "core"})
    cold, warm = measure_start([], lambda _: None)
    assert (cold.label, warm.label) == ("its attention alone, cold", "its attention alone, warm")
    assert cold.seconds[0] > 0
    assert warm.median > 0
