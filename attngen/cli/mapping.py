"""``explain --mask``: the tile map of a mask, on the terminal, as data, and as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attngen.cli.output import console, note, say, say_json, text_width

if TYPE_CHECKING:
    from attngen.tile_maps import TileMap

_STYLES = {"█": "blue", "▒": "yellow", "·": "bright_black"}


def say_map(
    tiles: TileMap, picture: Path | None, batch: int, kv_head: int, *, as_json: bool
) -> None:
    """The map as JSON, in colour on a terminal, else as plain text; and as a picture if asked."""
    if picture is not None:
        tiles.save(picture, batch=batch, kv_head=kv_head)
        note(f"drawn to {picture}")
    if as_json:
        say_json(tiles.to_json())
        return
    text = tiles.to_text(text_width(), batch=batch, kv_head=kv_head)
    if not sys.stdout.isatty():
        say(text)
        return
    from rich.text import Text

    coloured = Text(text)
    for glyph, style in _STYLES.items():
        coloured.highlight_regex(f"{glyph}+", style)
    console().print(coloured, soft_wrap=True)


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file by name.

    Raises:
        typer.BadParameter: it is no such file.
    """
    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="'--input'") from error
    if isinstance(found, np.ndarray):
        raise typer.BadParameter(
            f"{path} holds one array without a name; write it with numpy.savez(path, name=array)",
            param_hint="'--input'",
        )
    with found:
        return {name: found[name] for name in found.files}
