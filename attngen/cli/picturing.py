"""``explain --svg`` and ``explain --heads``: a spec as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attngen.cli.mapping import read_arrays
from attngen.cli.output import note

if TYPE_CHECKING:
    from attngen.driver import Stages
    from attngen.pictures import Language


def draw_dataflow_to(stages: Stages, path: Path, language: Language) -> None:
    """Write the dataflow of a spec to `path` as SVG."""
    from attngen.pictures import draw_dataflow

    path.write_text(draw_dataflow(stages.ir, language), encoding="utf-8", newline="\n")
    note(f"drawn to {path}")


def draw_heads_to(stages: Stages, path: Path | None, source: Path | None) -> None:
    """Draw each head's attention to `path`, on the arrays of the .npz file `source`.

    Raises:
        typer.BadParameter: one of the two is missing, or `source` is no such file.
    """
    if source is None:
        raise typer.BadParameter("--heads needs an .npz file of arrays", param_hint="'--input'")
    if path is None:
        raise typer.BadParameter("--heads needs a file to draw to", param_hint="'--output'")
    from attngen.pictures.attention_maps import attention_maps
    from attngen.pictures.heads_figure import save_heads

    save_heads(attention_maps(stages.ir, read_arrays(source)), path)
    note(f"drawn to {path}")
