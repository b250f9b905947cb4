"""Series as ``attngen sweep`` writes them, made up: a grid of points with known times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

ROOFS = {1: (1.6e11, 1.3e10), 2: (3.1e11, 2.4e10)}
LEVELS = {"min": 0.0, "p10": 0.1, "p25": 0.25, "median": 0.5, "p75": 0.75, "p90": 0.9, "max": 1.0}
SCRIPT = "</script><script>document.title = 'broken'</script>"
DIMS, LENGTHS, THREADS = (32, 64, 128), (128, 256, 512, 1024, 2048), (1, 2)
POINTS = len(DIMS) * len(LENGTHS) * len(THREADS)


def quantiles(median: float, noise: float, seed: int, runs: int = 51) -> dict[str, Any]:
    """What is kept of `runs` runs whose logarithm is normal with a spread of `noise`."""
    drawn = median * np.exp(noise * np.random.default_rng(seed).standard_normal(runs))
    found = {name: float(np.quantile(drawn, level)) for name, level in LEVELS.items()}
    return {**found, "runs": runs}


def plan(index: int, dim: int, q_len: int, threads: int) -> dict[str, Any]:
    """What a line says of a point before it is measured."""
    call = {"batch": 1, "q_len": q_len, "kv_len": q_len, "threads": threads, "target": "cpu"}
    sizes = {"dtype": "float32", "d_model": None, "heads": 8, "kv_heads": 2}
    options = f"--set head_dim={dim} --q-len {q_len} --threads {threads}"
    return {
        "point": f"{index:016x}",
        "index": index,
        "keys": {"head_dim": dim, "q_len": q_len, "threads": threads},
        "call": call,
        "sizes": {"scope": "core", **sizes, "head_dim": dim, "value_dim": dim},
        "schedule": {"lanes": 16, "block_q": 192},
        "fingerprint": "9f8e7d6c5b4a",
        "machine": "41aa90be12cd",
        "command": f"attngen run specs/demo.yaml {options}",
    }


def point(
    index: int,
    dim: int,
    q_len: int,
    threads: int,
    *,
    speed: float = 1.0,
    noise: float = 0.02,
    seed: int = 0,
    peer_speed: float = 1.0,
) -> dict[str, Any]:
    """A measured line: attention of 8 heads, at an efficiency that grows with its length."""
    peak, bandwidth = ROOFS[threads]
    flops, moved = 2 * 8 * q_len * q_len * dim, 4 * 4 * 8 * q_len * dim
    best = max(flops / peak, moved / bandwidth)
    usual = best / (0.8 * q_len / (q_len + 300))
    seconds = quantiles(usual / speed, noise, 1000 * seed + index)
    slower = (1.3 - 0.4 * (dim == 128)) / peer_speed
    peer = quantiles(usual * slower, noise, 500_000 + 1000 * seed + index)
    median = seconds["median"]
    return {
        **plan(index, dim, q_len, threads),
        "status": "ok",
        "seconds": seconds,
        "flops": flops,
        "bytes": moved,
        "gflops": flops / median / 1e9,
        "gbytes_per_s": moved / median / 1e9,
        "roofline": {
            "binds": "compute" if flops / peak > moved / bandwidth else "memory",
            "predicted": best,
            "share": best / median,
            "flop_per_s": peak,
            "bytes_per_s": bandwidth,
        },
        "peak_memory": 1000 * q_len,
        "compile_seconds": 4.2,
        "cache_state": "cold",
        "max_error": 3e-7,
        "error_bound": 2e-5,
        "peers": {
            "torch-sdpa": {**peer, "ratio": peer["median"] / median, "max_error": 2e-7},
            "torch-flex": {"reason": "torch.compile needs a C++ compiler"},
        },
        "worker": None,
        "load": 1.25 if index == 0 else 0.1,
        "started": "2026-12-01T15:20:31+00:00",
        "attempt": 1,
    }


def grid(speeds: dict[int, float] | None = None, **options: Any) -> list[dict[str, Any]]:
    """All points of the plan, one that is impossible and one that failed; `speeds` by head_dim."""
    sizes = [(dim, q_len, threads) for dim in DIMS for q_len in LENGTHS for threads in THREADS]
    lines = [
        point(i, *size, speed=(speeds or {}).get(size[0], 1.0), **options)
        for i, size in enumerate(sizes)
    ]
    failed = {**plan(POINTS + 1, 64, 4096, 2), "status": "failed", "reason": f"0.3 {SCRIPT}"}
    impossible: dict[str, Any] = {
        "point": "impossible",
        "index": POINTS,
        "status": "impossible",
        "keys": {"head_dim": 0, "q_len": 128, "threads": 1},
        "call": lines[0]["call"],
        "reason": "'head_dim' must be at least 1, not 0",
        "hint": "use 64",
        "code": "E-RANGE",
    }
    return [*lines, impossible, failed]


def write_series(
    folder: Path, lines: list[dict[str, Any]], *, name: str = "demo", day: int = 1
) -> Path:
    """A series of `lines` below `folder`; its file ends in half a line, as a killed sweep's."""
    digest = f"{day:08x}" + "0" * 56
    home = folder / f"{name}-{digest[:8]}"
    home.mkdir(parents=True)
    speeds = {str(n): {"flop_per_s": f, "bytes_per_s": b} for n, (f, b) in ROOFS.items()}
    machine = {"machine": "41aa90be12cd", "cpu": "Example CPU @ 2.60GHz", "cores": 2}
    info = {
        "format": 1,
        "name": name,
        "digest": digest,
        "created": f"2026-12-{day:02d}T15:20:11+00:00",
        "spec_source": "specs/demo.yaml",
        "spec_text": f"heads: 8\nkv_heads: 2\nhead_dim: 64 # {SCRIPT}\n",
        "base": {"heads": 8, "kv_heads": 2, "head_dim": 64},
        "axes": [
            {"key": "head_dim", "values": [0, *DIMS], "group": 0},
            {"key": "q_len", "values": [*LENGTHS, 4096], "group": 1},
            {"key": "threads", "values": list(THREADS), "group": 2},
        ],
        "conditions": ["heads * head_dim <= 1024"],
        "points": len(lines),
        "impossible": 1,
        "settings": {"rounds": 7, "peers": ["torch-sdpa", "torch-flex"], "seed": 0},
        "versions": {"attngen": "0.1.0", "source": "ab12cd34", "numba": "0.68.1"},
        "environments": {"9f8e7d6c5b4a": {**machine, "isa": "avx512", "speeds": speeds}},
    }
    (home / "series.json").write_text(json.dumps(info), encoding="utf-8")
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (home / "results.jsonl").write_text(text + '{"point": "torn', encoding="utf-8")
    return home
