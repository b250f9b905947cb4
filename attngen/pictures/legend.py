"""What stands beside the output: expressions that are too long for a card, side inputs, symbols.

Input: an AttentionIR. Output: one box at the left and one at the right of the output.
"""

from __future__ import annotations

from collections.abc import Iterator

from attngen.ir.attention import AttentionIR
from attngen.ir.expr import TRUE, loads
from attngen.pictures.head_card import written_out
from attngen.pictures.heads_panel import CARD, columns
from attngen.pictures.rich import Line, Run, code_lines, formula, prose_lines
from attngen.pictures.shapes import Box, Rect, Text
from attngen.pictures.words import Words

_INSIDE = CARD - 24
_GAP = 6.0  # between entries


def legend(ir: AttentionIR, y: float, words: Words) -> list[Box]:
    """The boxes beside the output, with their upper edges at `y`."""
    left, _, right = columns()
    boxes = []
    for name, middle, entries in (
        ("where", left, list(_definitions(ir, words))),
        ("notes", right, list(_notes(ir, words))),
    ):
        if entries:
            boxes.append(_box(name, middle, y, entries))
    return boxes


def _definitions(ir: AttentionIR, words: Words) -> Iterator[list[Line]]:
    for symbol, text in written_out(ir, CARD):
        yield [formula(f"{symbol} =", 13), *code_lines(text, _INSIDE, 11.5)]
    if ir.sink:
        what = prose_lines(words.sink_argument, _INSIDE, 12)
        yield [_named("sink", (ir.heads,), ""), *what]
    for given in ir.inputs:
        text = words.argument
        if given.values:
            text = words.table.format(f"{min(given.values):.4g}", f"{max(given.values):.4g}")
        what = prose_lines(text, _INSIDE, 12)
        yield [_named(given.name, given.shape, given.dtype), *what]


def _named(name: str, shape: tuple[str | int, ...], dtype: str) -> Line:
    sizes = ", ".join(map(str, shape))
    text = f"{name} ({sizes}) {dtype}".rstrip()
    return Line((Run(text),), 12, "mono").fitted(_INSIDE)


def _notes(ir: AttentionIR, words: Words) -> Iterator[list[Line]]:
    symbols = words.symbols_layer if ir.d_model else words.symbols_core
    notes = [symbols]
    if ir.d_model:
        notes.append(words.positions_layer)
    else:
        aligned = ir.alignment == "bottom_right"
        notes.append(words.positions_right if aligned else words.positions_left)
    if ir.mask != TRUE:
        notes.append(words.axes)
    if loads(ir.mask):
        notes.append(words.unknown)
    if "lse" in ir.outputs:
        notes.append(f"lse: {words.lse}")
    if "logits" in ir.outputs:
        notes.append(words.logits)
    if "probabilities" in ir.outputs:
        notes.append(words.probabilities)
    if ir.d_model:
        notes.append(words.biases)
    notes.append(words.batch)
    for note in notes:
        yield prose_lines(note, _INSIDE, 12)


def _box(name: str, middle: float, y: float, entries: list[list[Line]]) -> Box:
    left = middle - CARD / 2
    texts, below = [], y + 11
    for entry in entries:
        for line in entry:
            texts.append(Text(line, left + 12, below + line.height * 0.78))
            below += line.height
        below += _GAP
    return Box(name, Rect(left, y, CARD, below - _GAP + 11 - y), "panel", tuple(texts))
