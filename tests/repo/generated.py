"""Generated packages for every shipped spec and every kind of machine, printed once a session."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from attngen.driver import Stages, run_stages
from attngen.ir.kernel import SourcePackage
from attngen.resources import specs_dir
from attngen.targets import AVX2, AVX512, GENERIC, NEON, SM_80, SM_90A

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"

TARGETS = {target.isa: target for target in (AVX512, AVX2, NEON, GENERIC, SM_80, SM_90A)}
GPUS = (SM_80.isa, SM_90A.isa)
SHIPPED = sorted(path.stem for path in specs_dir().glob("*.yaml"))

CORE: dict[str, Any] = {"heads": 8, "kv_heads": 2, "head_dim": 40, "value_dim": 24}
# What no shipped spec has: one for each feature that prints code of its own.
FEATURES: dict[str, dict[str, Any]] = {
    "activated": {
        **CORE,
        "mask": "doc[b, q] == doc[b, k]",
        "inputs": {"doc": {"shape": ["batch", "kv_len"], "dtype": "int"}},
        "activation": "sigmoid",
        "activation_bias": -2,
        "dtype": "float64",
    },
    "chunked": {**CORE, "chunk": 256, "causal": True},
    "dilated": {**CORE, "dilation": 4, "window": {"left": 64}, "global_tokens": 2},
    "differential": {
        "d_model": 96,
        **CORE,
        "causal": True,
        "softcap": 20,
        "differential": {"lambda": [0.1 * head for head in range(8)]},
        "outputs": ["out", "lse"],
    },
    "documents": {
        **CORE,
        "causal": "top_left",
        "mask": "doc[b, q] == doc[b, k] or k < first",
        "parameters": {"first": 4},
        "inputs": {"doc": {"shape": ["batch", "kv_len"], "dtype": "int"}},
    },
    "everything": {
        "d_model": 96,
        **CORE,
        "dtype": "float64",
        "sink": True,
        "softcap": 20,
        "outputs": ["out", "lse"],
        "score": "score + weight * bias[h, k] if allow[b, k] else -abs(score)",
        "mask": "q - k < 300 and allow[b, k] or k % 7 == 0",
        "parameters": {"weight": 0.5},
        "inputs": {
            "bias": {"shape": ["heads", "kv_len"]},
            "allow": {"shape": ["batch", "kv_len"], "dtype": "bool"},
        },
    },
    "halves_apart": {
        **CORE,
        "dtype": "float16",
        "activation": "relu",
        "differential": {"lambda": "per_head"},
    },
    "halves": {**CORE, "d_model": 96, "dtype": "bfloat16", "sink": True, "causal": True},
    "prefix": {**CORE, "prefix": 32, "dtype": "float64"},
    "tuned": {
        "d_model": 96,
        "heads": 3,
        "schedule": {
            "cpu": {"projection": "blas", "lanes": 1, "block_q": 64, "block_kv": 32},
            "cuda": {"warps": 2, "block_q": 16, "depth": 16},
        },
    },
}

SPECS = sorted([*SHIPPED, *FEATURES])


def targets(spec: str) -> list[str]:
    """The machines that there are kernels for: differential attention has none on a GPU."""
    if stages(spec, AVX512.isa).ir.difference is None:
        return list(TARGETS)
    return [isa for isa in TARGETS if isa not in GPUS]


@cache
def stages(spec: str, isa: str) -> Stages:
    """The stages of compiling a spec of SPECS for a machine that is described by hand."""
    source: Any = specs_dir() / f"{spec}.yaml"
    if spec in FEATURES:
        source = {"name": spec, **FEATURES[spec]}
    return run_stages(source, target=TARGETS[isa])


def package(spec: str, isa: str) -> SourcePackage:
    """The generated package."""
    return stages(spec, isa).package


def write(package: SourcePackage, folder: Path) -> Path:
    """Write `package` below `folder`, as a user would get it."""
    home = folder / package.name
    home.mkdir(parents=True)
    for file in package.files:
        (home / file.path).write_text(file.text, encoding="utf-8", newline="\n")
    return home
