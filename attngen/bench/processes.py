"""What whole processes take: seconds from start to first result, and memory at the peak.

Input: nothing but the suite. Output: lines. Every figure is that of a fresh interpreter, which
runs one of the scripts beside (`start_script`, `memory_script`) with its own empty cache folders.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from attngen.bench.cases import Case
from attngen.bench.peers import Peer
from attngen.bench.suites import CASES
from attngen.errors import TargetError
from attngen.formatting import count_text

STARTS = {"reference layer": "layer", "its attention alone": "core"}
"""What starts are measured of ours: label -> argument of `start_script`."""

_COLD_RUNS = 3
_WARM_RUNS = 7
_MIB = 1 << 20
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class StartLine:
    """Seconds from starting the interpreter to the first result, in every run."""

    who: str
    label: str
    seconds: tuple[float, ...]
    reason: str | None = None

    @property
    def median(self) -> float:
        """The median in seconds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """Peak memory of a call beyond its inputs and outputs.

    Attributes:
        bytes: what was measured; None where `reason` says why not.
        limit: what we allow ourselves: the size of K and V and 1 MiB a thread.
    """

    who: str
    label: str
    threads: int
    bytes: int | None
    limit: int
    reason: str | None = None


def measure_start(peers: Sequence[Peer], progress: Callable[[str], None]) -> list[StartLine]:
    """New process to first result: ours cold and warm, and the chosen peers."""
    lines = []
    for label, what in STARTS.items():
        with tempfile.TemporaryDirectory() as folder:
            progress(f"attngen, {label}")
            cold, seconds = [], 0.0
            # An installed package has its byte code; a first run makes it for the others.
            byte_code = {
                "PYTHONDONTWRITEBYTECODE": "",
                "PYTHONPYCACHEPREFIX": str(Path(folder, "byte-code")),
            }
            _seconds_to_result([what], {**byte_code, "ATTNGEN_CACHE_DIR": str(Path(folder, "0"))})
            for run in range(1, _COLD_RUNS + 1):
                env = {**byte_code, "ATTNGEN_CACHE_DIR": str(Path(folder, str(run)))}
                seconds = _seconds_to_result([what], env)
                cold.append(seconds)
            warm = [_seconds_to_result([what], env) for _ in range(_WARM_RUNS)]
        lines.append(StartLine("attngen", f"{label}, cold", tuple(cold)))
        lines.append(StartLine("attngen", f"{label}, warm", tuple(warm)))
    for peer in peers:
        what = {"torch-sdpa": "torch-sdpa", "torch-flex": "torch-flex"}.get(peer.name, "")
        if not what:
            continue
        progress(peer.name)
        if reason := peer.available():
            lines.append(StartLine(peer.name, "attention alone", (), reason))
            continue
        lines.extend(_peer_start(peer.name, what))
    return lines


def _peer_start(name: str, what: str) -> list[StartLine]:
    with tempfile.TemporaryDirectory() as folder:
        env = {"TORCHINDUCTOR_CACHE_DIR": folder}
        cold = _seconds_to_result([what], env)
        warm = [_seconds_to_result([what], env) for _ in range(_COLD_RUNS)]
    return [
        StartLine(name, "attention alone, cold", (cold,)),
        StartLine(name, "attention alone, warm", tuple(warm)),
    ]


def measure_memory(
    peers: Sequence[Peer], threads: Sequence[int], progress: Callable[[str], None]
) -> list[MemoryLine]:
    """Peak memory of the core suite's calls, ours and the chosen peers'."""
    lines = []
    for case in CASES["core"]:
        for count in threads:
            limit = 2 * 4 * case.batch * case.kv_len * case.kv_heads * case.head_dim
            limit += count * _MIB
            progress(f"{case.label}, {count_text(count, 'thread')}")
            for name in ("attngen", *(peer.name for peer in peers)):
                measured, reason = _peak_memory(name, case, count)
                lines.append(MemoryLine(name, case.label, count, measured, limit, reason))
    return lines


def _peak_memory(name: str, case: Case, threads: int) -> tuple[int | None, str | None]:
    if not Path("/proc/self/clear_refs").exists():
        return None, "needs Linux's /proc/self/clear_refs"
    if name == "torch-flex":
        return None, "compiles anew for each shape"
    small = replace(case, q_len=max(1, case.q_len // 2), kv_len=case.kv_len // 2)
    request = {"peer": name, "case": asdict(case), "small": asdict(small), "threads": threads}
    answer = json.loads(_run_script("memory_script", [json.dumps(request)], {}))
    return answer["bytes"], answer["reason"]


def _seconds_to_result(arguments: Sequence[str], env: Mapping[str, str]) -> float:
    start = time.time()
    return float(_run_script("start_script", arguments, env)) - start


def _run_script(script: str, arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """The last line that ``attngen.bench.<script>`` prints."""
    path = Path(__file__).with_name(f"{script}.py")
    search = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(path), *arguments],
        env={**os.environ, "PYTHONPATH": search, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise TargetError(f"a process of the benchmark failed: {path.name}\n{done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]
