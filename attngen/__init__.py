"""attngen compiles a short YAML attention spec into fast, readable Numba kernels.

    attention = attngen.compile("mha_4096")        # a file, a name, or a mapping
    out = attention.bind(weights)(x)               # a layer: x is (S, d_model)
    out = attngen.compile({"heads": 8, "head_dim": 64})(q, k, v)   # a core
    table = attngen.sweep("sweep_head_dim").run()  # measure what a spec says under sweep

``from attngen.kernels import mha_4096`` compiles a named spec on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attngen.attention import Attention
    from attngen.driver import compile_spec as compile  # noqa: A004 - attngen.compile is its name
    from attngen.driver import interpret
    from attngen.errors import (
        AttngenError,
        CacheError,
        CallTypeError,
        CallValueError,
        SpecError,
        SweepError,
        TargetError,
    )
    from attngen.sweeps.run import sweep
    from attngen.tile_maps import tile_map
    from attngen.weights import Weights

_PUBLIC = {
    "Attention": "attngen.attention",
    "AttngenError": "attngen.errors",
    "CacheError": "attngen.errors",
    "CallTypeError": "attngen.errors",
    "CallValueError": "attngen.errors",
    "SpecError": "attngen.errors",
    "SweepError": "attngen.errors",
    "TargetError": "attngen.errors",
    "Weights": "attngen.weights",
    "compile": "attngen.driver",
    "interpret": "attngen.driver",
    "sweep": "attngen.sweeps.run",
    "tile_map": "attngen.tile_maps",
}

__all__ = [
    "Attention",
    "AttngenError",
    "CacheError",
    "CallTypeError",
    "CallValueError",
    "SpecError",
    "SweepError",
    "TargetError",
    "Weights",
    "compile",
    "interpret",
    "sweep",
    "tile_map",
]


def __getattr__(name: str) -> Any:
    """Import public names when they are first used: NumPy and Numba take a while."""
    if name == "__version__":
        from importlib.metadata import version

        return version("attngen")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'attngen' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_PUBLIC[name]), "compile_spec" if name == "compile" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
