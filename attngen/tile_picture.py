"""Tile maps as pictures, drawn with matplotlib.

Input: a :class:`TileMap`. Output: a .png or .svg file, the same for the same map.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attngen.errors import CallValueError, TargetError
from attngen.tile_census import EMPTY, FULL, PARTIAL, Array, Codes
from attngen.tile_text import MEANINGS, description, percent, which_part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attngen.tile_maps import TileMap

COLOURS = {FULL: "#2f6db3", PARTIAL: "#f2a93b", EMPTY: "#f4f4f1"}
SUFFIXES = (".png", ".svg")

_INK, _FAINT = "#333333", "#d6d6d0"
_MOST_EDGES = 80  # tiles along an axis whose edges are drawn
_LINE = 100  # characters of text above the map
# Inches: the map, and the room around it for axes, text and legend.
_ACROSS, _BESIDE, _MARGIN, _ABOVE, _BELOW = 6.6, 0.8, 0.2, 1.1, 0.4


def draw(tiles: TileMap, path: str | Path, *, batch: int = 0, kv_head: int = 0) -> None:
    """Draw the map to `path`, a .png or .svg file.

    Raises:
        CallValueError: another kind of file, or nothing to draw.
        TargetError: matplotlib is not installed.
        OSError: `path` cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise CallValueError(f"{path.name}: expected a .png or .svg file")
    if not tiles.codes.size:
        raise CallValueError("there is nothing to draw, as there is no query or no key")
    codes = tiles.one(batch, kv_head)
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise TargetError("drawing needs matplotlib: pip install 'attngen[pictures]'") from error
    # No time, no version, no random names: the same map gives the same file.
    unsaid = "Date" if path.suffix.lower() == ".svg" else "Software"
    with rc_context({"svg.hashsalt": "attngen", "font.size": 9, "text.color": _INK}):
        figure = _figure(tiles, codes, which_part(tiles, batch, kv_head))
        figure.savefig(path, metadata={unsaid: None})


def _figure(tiles: TileMap, codes: Codes, which: str) -> Figure:
    """Title and words above the map, the legend below it."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    queries, keys = tiles.query_edges, tiles.key_edges
    words = _words(tiles, which)
    above, high = _ABOVE + 0.19 * len(words), _ACROSS * _proportion(queries, keys)
    size = (_BESIDE + _ACROSS + _MARGIN, above + high + _BELOW)
    figure = Figure(figsize=size, dpi=150, facecolor="white")
    box = (_BESIDE / size[0], _BELOW / size[1], _ACROSS / size[0], high / size[1])
    axes = figure.add_axes(box)
    few = max(codes.shape) <= _MOST_EDGES
    axes.pcolormesh(
        keys,
        queries,
        codes,
        cmap=ListedColormap([COLOURS[code] for code in (EMPTY, PARTIAL, FULL)]),
        vmin=EMPTY,
        vmax=FULL,
        edgecolors="white" if few else "none",
        linewidth=0.6 if few else 0,
        rasterized=not few,
    )
    axes.invert_yaxis()
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("position of the key", color=_INK)
    axes.set_ylabel("position of the query", color=_INK)
    axes.tick_params(colors=_INK, length=3)
    for spine in axes.spines.values():
        spine.set_color(_FAINT)
    top = 1 - _MARGIN / size[1]
    figure.text(box[0], top, tiles.name, size=14, weight="bold", va="top")
    under = top - 0.32 / size[1]
    figure.text(box[0], under, "\n".join(words), va="top", linespacing=1.5)
    patches = [
        Patch(facecolor=COLOURS[code], edgecolor=_FAINT, label=MEANINGS[code])
        for code in (FULL, PARTIAL, EMPTY)
    ]
    figure.legend(
        handles=patches,
        loc="lower left",
        bbox_to_anchor=(box[0], 0.04 / size[1]),
        ncols=3,
        frameon=False,
        borderaxespad=0,
    )
    return figure


def _proportion(queries: Array, keys: Array) -> float:
    """Height over width, within what fits a page."""
    return float(np.clip(np.ptp(queries) / np.ptp(keys), 0.15, 2.0))


def _words(tiles: TileMap, which: str) -> list[str]:
    """The mask, what the tiles are, and the shares, as lines."""
    shares = (
        f"{percent(tiles.visited)} of the tiles visited, mask code in {percent(tiles.masked)}; "
        f"{percent(tiles.attending)} of the pairs attend"
    )
    texts = (tiles.mask, description(tiles), which, shares)
    return [line for text in texts for line in textwrap.wrap(text, _LINE)]
