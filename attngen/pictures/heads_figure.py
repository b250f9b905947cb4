"""Attention maps as one picture: a grid of heads with one colour scale.

Input: :class:`AttentionMaps` and a path. Output: a PNG, SVG or PDF file, by the path's ending.
Needs matplotlib (``pip install 'attngen[pictures]'``).
"""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from attngen.errors import CallValueError, TargetError
from attngen.pictures.attention_maps import AttentionMaps

_ENDINGS = (".png", ".svg", ".pdf")
_PANEL = 1.75  # inches
_TOP = 0.999  # of the probabilities are on the scale: the first rows have few keys to choose from
_NEVER = "#e3e6ea"  # where no weight is: masked, or too small for float64


def save_heads(maps: AttentionMaps, path: Path) -> None:
    """Draw `maps` to `path`.

    Raises:
        CallValueError: the path's ending is none of .png, .svg and .pdf.
        TargetError: matplotlib is not installed.
    """
    if path.suffix.lower() not in _ENDINGS:
        raise CallValueError(f"{path} must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}")
    figure = _figure(maps)
    figure.savefig(path, dpi=150, facecolor="white")


def _figure(maps: AttentionMaps) -> Any:
    try:
        from matplotlib import colormaps
        from matplotlib.colors import PowerNorm
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TargetError(
            "pictures of heads need matplotlib: pip install 'attngen[pictures]'"
        ) from error

    heads = maps.probabilities.shape[0]
    columns = min(heads, max(1, math.ceil(math.sqrt(1.5 * heads))))
    rows = math.ceil(heads / columns)
    width, height = max(6.5, columns * _PANEL + 1.1), rows * (_PANEL + 0.28) + 1.25
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    shown = np.ma.masked_equal(maps.probabilities, 0.0)
    # a root makes weak attention visible beside strong; the scale's own marks say what it is
    strongest = float(np.quantile(shown.compressed(), _TOP)) if shown.count() else 1.0
    norm = PowerNorm(0.5, vmin=0.0, vmax=strongest)
    colours = colormaps["viridis"].with_extremes(bad=_NEVER)
    extent = (-0.5, maps.kv_len - 0.5, maps.q_len - 0.5, -0.5)
    image: Any = None
    for head, axes in enumerate(grid.flat):
        if head >= heads:
            axes.set_axis_off()
            continue
        image = axes.imshow(
            shown[head],
            cmap=colours,
            norm=norm,
            aspect="auto",
            extent=extent,
            interpolation="nearest",
        )
        axes.set_title(_title(maps, head), fontsize=8, loc="left", pad=3)
        axes.tick_params(labelsize=6, length=2, pad=1.5)
        axes.set_xticks(_marks(maps.kv_len))
        axes.set_yticks(_marks(maps.q_len))
        if head % columns:
            axes.set_yticklabels([])
        if head + columns < heads:
            axes.set_xticklabels([])
    scale = figure.colorbar(image, ax=grid, fraction=0.03, pad=0.015, label="weight", extend="max")
    scale.ax.tick_params(labelsize=7)
    figure.supxlabel("key", fontsize=9)
    figure.supylabel("query", fontsize=9)
    figure.suptitle(_heading(maps, width), fontsize=9, x=0.01, ha="left")
    return figure


def _heading(maps: AttentionMaps, width: float) -> str:
    text = f"{maps.name}: what each head attends to, {maps.q_len} queries × {maps.kv_len} keys"
    parts = []
    if maps.queries.size < maps.q_len:
        parts.append(f"{maps.queries.size} queries of them, evenly spaced")
    if maps.edges.size - 1 < maps.kv_len:
        group = int(np.diff(maps.edges).max())
        parts.append(f"up to {group} neighbouring keys added up")
    parts.append("float64 reference; grey: no weight; distance: of keys before their query")
    columns = int(width * 72 / (9 * 0.6))  # of characters as wide as most
    return "\n".join([text, *textwrap.wrap("; ".join(parts), columns)])


def _title(maps: AttentionMaps, head: int) -> str:
    shared = len(set(maps.kv_heads)) < len(maps.kv_heads)
    name = f"head {head}" + (f" (KV {maps.kv_heads[head]})" if shared else "")
    parts = [name, f"{maps.distance[head]:.3g} back"]
    if maps.sink_share[head] > 0:
        parts.append(f"sink {maps.sink_share[head]:.0%}")
    return "\n".join([parts[0], ", ".join(parts[1:])])


def _marks(length: int) -> list[int]:
    return [0] if length < 2 else [0, (length - 1) // 2, length - 1]
