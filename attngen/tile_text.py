"""Tile maps as characters, for terminals and for files.

Input: a :class:`TileMap`. Output: plain text. Where a map has more tiles than there is room for
characters, one stands for several tiles: it shows what they all are, or that they differ.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from attngen.formatting import count_text, significant
from attngen.tile_census import EMPTY, FULL, PARTIAL, Codes

if TYPE_CHECKING:
    from attngen.tile_maps import TileMap

GLYPHS = {FULL: "█", PARTIAL: "▒", EMPTY: "·"}
MEANINGS = {FULL: "full: no mask code", PARTIAL: "partial: mask code runs", EMPTY: "empty: skipped"}

_MOST_LINES = 48
_TICK = 16  # characters from one position on the axis of keys to the next, at least


def plain_text(tiles: TileMap, width: int, *, batch: int = 0, kv_head: int = 0) -> str:
    """The map under its title, with a legend and shares.

    Raises:
        CallValueError: there is no such batch element, or key and value head.
    """
    lines = [
        *_wrapped(f"{tiles.name}: {tiles.mask}", width),
        *_wrapped(description(tiles), width),
        "",
    ]
    if tiles.codes.size:
        lines += [*_grid(tiles, tiles.one(batch, kv_head), width), ""]
        lines += [*_legend(width, which_part(tiles, batch, kv_head)), ""]
    return "\n".join([*lines, *shares(tiles)])


def percent(share: float) -> str:
    """Such as ``12.3%``."""
    return f"{significant(100 * share)}%"


def shares(tiles: TileMap) -> list[str]:
    """How much is visited, how much runs mask code, and how much attends."""
    count = tiles.codes.size
    rows = (
        ("tiles visited", tiles.visited, f"{round(tiles.visited * count)} of {count}"),
        ("tiles that run mask code", tiles.masked, f"{round(tiles.masked * count)} of {count}"),
        ("pairs that attend", tiles.attending, ""),
    )
    return [f"  {name:<24}  {percent(share):>6}  {text}".rstrip() for name, share, text in rows]


def description(tiles: TileMap) -> str:
    """What a tile is, and of which call."""
    lengths = tiles.lengths
    heads = f" ({tiles.group} heads side by side)" if tiles.group > 1 else ""
    text = (
        f"tiles of {tiles.panel_rows} query rows{heads} × {tiles.block_kv} keys in the prefill "
        f"kernel, at batch {lengths.batch}, {count_text(lengths.q_len, 'query', 'queries')}, "
        f"{count_text(lengths.kv_len, 'key')}"
    )
    text += "; its side inputs are an example" if tiles.example else ""
    return text + ("; with so few, split_kv runs in its place" if tiles.short else "")


def which_part(tiles: TileMap, batch: int, kv_head: int) -> str:
    """What of the call is shown, where that makes a difference."""
    batches, kv_heads = tiles.codes.shape[:2]
    parts = [f"batch element {batch} of {batches}"] * (batches > 1)
    parts += [f"key and value head {kv_head} of {kv_heads}"] * (kv_heads > 1)
    return ", ".join(parts)


def _legend(width: int, which: str) -> list[str]:
    entries = [f"  {GLYPHS[code]} {MEANINGS[code]}" for code in GLYPHS]
    line = " ".join(entries)
    lines = [line] if len(line) <= width else entries
    return [*lines, *[f"  {which}; shares are of all"] * bool(which)]


def _grid(tiles: TileMap, codes: Codes, width: int) -> list[str]:
    """Axes and tiles, about as high as they are wide where queries are as many as keys."""
    queries, keys = tiles.query_edges, tiles.key_edges
    margin = max(len(f"{int(position)}") for position in queries) + 5
    room = max(16, width - margin)
    tall = -(-codes.shape[0] // _MOST_LINES)  # row tiles to a line
    wide = -(-codes.shape[1] // room)  # key tiles to a character
    # A character is about half as wide as it is high.
    half_line = tall * tiles.panel_rows / tiles.group / 2
    repeat = max(1, min(round(tiles.block_kv / half_line), room // codes.shape[1]))
    cells = np.repeat(_merged(codes, tall, wide), repeat if wide == 1 else 1, axis=1)
    starts = keys[::wide][: -(-codes.shape[1] // wide)]
    lines = [f"{'k ':>{margin}}" + _ticks(starts, cells.shape[1], repeat if wide == 1 else 1)]
    for number, row in enumerate(cells):
        label = f"q {int(queries[number * tall]):>{margin - 4}}"
        lines.append(f"{label}  " + "".join(GLYPHS[int(code)] for code in row))
    if tall > 1 or wide > 1:
        lines.append(f"  a character is {tall} × {wide} tiles; ▒ also where they differ")
    return lines


def _merged(codes: Codes, tall: int, wide: int) -> Codes:
    """Blocks of `tall` × `wide` tiles as one code each: what all are, else partial."""
    rows, columns = (
        np.arange(0, n, step) for n, step in zip(codes.shape, (tall, wide), strict=True)
    )

    def reduced(best: np.ufunc) -> Codes:
        found: Codes = best.reduceat(best.reduceat(codes, rows, axis=0), columns, axis=1)
        return found

    low, high = reduced(np.minimum), reduced(np.maximum)
    return np.where(low == high, low, PARTIAL).astype(np.uint8)


def _ticks(starts: npt.NDArray[np.float64], length: int, repeat: int) -> str:
    """Key positions over the characters where they are."""
    line = ""
    step = -(-_TICK // repeat)
    for index in range(0, len(starts), step):
        label = f"{int(starts[index])}"
        if index * repeat + len(label) <= max(length, len(label)):
            line = line.ljust(index * repeat) + label
    return line


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(40, width), subsequent_indent="  ", break_long_words=False)
