"""The tile map of a mask: what the prefill kernel does with each tile of the score matrix.

Input: the stages of a compilation, lengths, and the side inputs that the mask reads. Output: a
:class:`TileMap`. A tile is one panel of query rows × one block of keys, which is what the kernel
decides about; the map evaluates the same closed forms on the same corners, cut at the same last
keys and with the same bounds of data, and looks at single pairs only to count those that attend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attngen.costs import Lengths
from attngen.driver import Source, Stages, run_stages
from attngen.errors import CallValueError
from attngen.example_inputs import example_inputs
from attngen.ir import bounds
from attngen.ir.attention import AttentionIR
from attngen.ir.expr import variables
from attngen.ir.kernel import FlashForward, MaskPlan, SplitKV
from attngen.ir.printer import expression_text
from attngen.side_data import mask_arrays, of_mask
from attngen.spec.model import ScheduleOverride
from attngen.tile_census import CODES, FULL, PARTIAL, Array, Codes, Part, count_pairs, take_census

DEFAULT_LENGTH = 2048
_MOST_TILES = 1 << 27


@dataclass(frozen=True, slots=True, eq=False)
class TileMap:
    """What the prefill kernel does with each tile.

    Rows are the query rows of a key and value head, as the kernel has them: row r is query
    r // group of the head's query head r % group.

    Attributes:
        name: of the spec.
        mask: which pairs attend, as text.
        lengths: of the call.
        heads, group: query heads, and how many share a key and value head.
        offset: the position of query 0; key j stands at j.
        panel_rows, block_kv: rows and keys of a tile.
        block_q: rows of a task, whose last key cuts its tiles.
        short: whether such a call has so few query rows that the other kernel takes it.
        example: whether an example stands for the side inputs that the mask reads.
        codes: (batch, kv_heads, row tiles, key tiles), an index into :data:`CODES` each; batch or
            kv_heads is 1 where the mask is the same for all.
        pairs: (query, head, key) triples that attend, over the whole call.
    """

    name: str
    mask: str
    lengths: Lengths
    heads: int
    group: int
    offset: int
    panel_rows: int
    block_kv: int
    block_q: int
    short: bool
    example: bool
    codes: Codes
    pairs: int

    def share(self, *codes: int) -> float:
        """The share of the tiles that are one of `codes`; 0 where there is no tile."""
        return float(np.isin(self.codes, codes).mean()) if self.codes.size else 0.0

    @property
    def visited(self) -> float:
        """The share of tiles that the kernel computes."""
        return self.share(PARTIAL, FULL)

    @property
    def masked(self) -> float:
        """The share of tiles in which mask code runs."""
        return self.share(PARTIAL)

    @property
    def attending(self) -> float:
        """The share of (query, key) pairs that attend."""
        lengths = self.lengths
        every = lengths.batch * self.heads * lengths.q_len * lengths.kv_len
        return self.pairs / every if every else 0.0

    @property
    def query_edges(self) -> npt.NDArray[np.float64]:
        """Where row tiles begin and the last one ends, in positions of queries."""
        rows: Array = np.arange(self.codes.shape[2] + 1.0) * self.panel_rows
        return np.minimum(rows, self.lengths.q_len * self.group) / self.group + self.offset

    @property
    def key_edges(self) -> npt.NDArray[np.float64]:
        """Where key tiles begin and the last one ends, in positions of keys."""
        keys: Array = np.arange(self.codes.shape[3] + 1.0) * self.block_kv
        return np.minimum(keys, self.lengths.kv_len)

    def one(self, batch: int = 0, kv_head: int = 0) -> Codes:
        """(row tiles, key tiles) of a batch element and a key and value head.

        Raises:
            CallValueError: there is no such one.
        """
        sizes = {"batch": self.lengths.batch, "kv_heads": self.heads // self.group}
        for (name, size), index in zip(sizes.items(), (batch, kv_head), strict=True):
            if not 0 <= index < size:
                raise CallValueError(f"{name}: expected an index from 0 to {size - 1}, got {index}")
        batches, kv_heads = self.codes.shape[:2]
        one: Codes = self.codes[min(batch, batches - 1), min(kv_head, kv_heads - 1)]
        return one

    def to_text(self, width: int = 100, *, batch: int = 0, kv_head: int = 0) -> str:
        """The map with a legend and shares, as plain text of at most `width` columns."""
        from attngen.tile_text import plain_text

        return plain_text(self, width, batch=batch, kv_head=kv_head)

    def to_json(self) -> dict[str, Any]:
        """The map as plain data; a tile is a letter: e, p or f."""
        letters = np.array([tile.value[0] for tile in CODES])
        counts = {tile.value: int((self.codes == i).sum()) for i, tile in enumerate(CODES)}
        return {
            "name": self.name,
            "mask": self.mask,
            "q_len": self.lengths.q_len,
            "kv_len": self.lengths.kv_len,
            "batch": self.lengths.batch,
            "first_query_position": self.offset,
            "example_inputs": self.example,
            "short": self.short,
            "tile": {"query_rows": self.panel_rows, "group": self.group, "keys": self.block_kv},
            "tiles": counts,
            "visited": self.visited,
            "masked": self.masked,
            "attending": self.attending,
            "pairs": self.pairs,
            "maps": [
                [["".join(letters[row]) for row in one] for one in heads] for heads in self.codes
            ],
        }

    def save(self, path: Any, *, batch: int = 0, kv_head: int = 0) -> None:
        """Draw the map to a .png or .svg file; needs matplotlib (``attngen[pictures]``)."""
        from attngen.tile_picture import draw

        draw(self, path, batch=batch, kv_head=kv_head)


def tile_map(
    source: Source | Stages,
    q_len: int = DEFAULT_LENGTH,
    kv_len: int | None = None,
    batch: int = 1,
    *,
    inputs: Mapping[str, Array] | None = None,
    schedule: Mapping[str, int | str] | None = None,
    workers: int = 1,
) -> TileMap:
    """What the prefill kernel of a spec does with each tile; nothing is compiled.

    Args:
        source: a YAML file, the name of a spec, a mapping, or stages that were run already.
        q_len: queries.
        kv_len: keys; as many as queries if None.
        batch: sequences of these lengths.
        inputs: the side inputs that the mask reads, by name; an example if None.
        schedule: decisions that win over the spec's, such as ``{"block_q": 96}``.
        workers: threads of the call. Where there is little to share out, tasks get fewer rows, so
            that the tiles at their last keys are cut shorter.

    Raises:
        SpecError: the spec has mistakes.
        CallTypeError, CallValueError: a side input does not fit, or the map has too many tiles.
    """
    lengths = Lengths(q_len, q_len if kv_len is None else kv_len, batch)
    if isinstance(source, Stages):
        stages = source
    else:
        given = (schedule or {}).items()
        overrides = tuple(ScheduleOverride("cpu", n, value, source="call") for n, value in given)
        stages = run_stages(source, overrides=overrides)
    ir = stages.simplified
    kernel = next(k for k in stages.kernel.kernels if isinstance(k, FlashForward))
    few = next(k for k in stages.kernel.kernels if isinstance(k, SplitKV))
    tiles = _tiles(ir, kernel, lengths)
    if tiles > _MOST_TILES:
        raise CallValueError(f"a map of {tiles} tiles is too large; take fewer queries or keys")
    sizes = bounds.Lengths(batch, q_len, lengths.kv_len)
    example = example_inputs(of_mask(ir), sizes) if inputs is None else {}
    data = mask_arrays(ir, example if inputs is None else inputs, sizes)
    rows = _task_rows(ir, kernel, lengths, workers)
    maps = _distinct(ir, kernel.mask, lengths)
    offset = lengths.kv_len - q_len if ir.alignment == "bottom_right" else 0
    codes, pairs = [], 0
    for b in range(maps[0]):
        for kv_h in range(maps[1]):
            part = Part(kernel, ir.group, q_len, lengths.kv_len, offset, rows, b, kv_h, data)
            census = take_census(part)
            codes.append(census.codes)
            pairs += count_pairs(part, census)
    repeats = batch * ir.kv_heads // (maps[0] * maps[1]) if codes else 0
    shape = Part(kernel, ir.group, q_len, lengths.kv_len, offset, rows, 0, 0, data).shape
    return TileMap(
        name=ir.name,
        mask=expression_text(stages.ir.mask),
        lengths=lengths,
        heads=ir.heads,
        group=ir.group,
        offset=offset,
        panel_rows=kernel.panel_rows,
        block_kv=kernel.block_kv,
        block_q=rows,
        short=q_len * ir.group <= few.max_rows,
        example=bool(example),
        codes=np.array(codes, np.uint8).reshape(*maps, *shape),
        pairs=pairs * repeats,
    )


def _distinct(ir: AttentionIR, mask: MaskPlan | None, lengths: Lengths) -> tuple[int, int]:
    """How many batch elements, and key and value heads, have maps of their own."""
    read = variables(mask.predicate) if mask else frozenset()
    batch = lengths.batch if "b" in read else min(1, lengths.batch)
    return batch, ir.kv_heads if read & {"h", "kv_h"} else 1


def _tiles(ir: AttentionIR, kernel: FlashForward, lengths: Lengths) -> int:
    """Tiles of all maps that differ."""
    batch, kv_heads = _distinct(ir, kernel.mask, lengths)
    panels = -(-lengths.q_len * ir.group // kernel.panel_rows)
    return batch * kv_heads * panels * -(-lengths.kv_len // kernel.block_kv)


def _task_rows(ir: AttentionIR, kernel: FlashForward, lengths: Lengths, workers: int) -> int:
    """Rows of a task, as the kernel's `forward` chooses them."""
    panels = -(-lengths.q_len * ir.group // kernel.panel_rows)
    share = lengths.batch * panels * ir.kv_heads // (4 * workers)
    return max(1, min(kernel.block_q // kernel.panel_rows, panels, share)) * kernel.panel_rows
