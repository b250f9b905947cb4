"""The dataflow of an attention from top to bottom, as one picture.

Input: an AttentionIR and a language. Output: SVG text. From above: the input and its projections
(of a layer), queries, keys and values cut into heads, the first, a middle and the last head beside
each other, their outputs joined, the output projection; beside that what the symbols mean.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attngen.ir.attention import AttentionIR
from attngen.pictures.head_card import lengths_of
from attngen.pictures.heads_panel import MARGIN, WIDTH, columns, heads_panel
from attngen.pictures.legend import legend
from attngen.pictures.limits import require_one_map
from attngen.pictures.rich import formula, plain, prose_lines
from attngen.pictures.shapes import Box, Kind, Picture, Rect, Text, Wire, WireKind, stacked
from attngen.pictures.svg import svg_text
from attngen.pictures.words import LANGUAGES, Language, Words, counted

Code: TypeAlias = Literal["q", "k", "v"]

_BOX = Rect(0, 0, 250, 54)
_ASIDE = 92.0  # width of an output beside
_ROW = 30.0  # from one row of boxes to the next
_CODES: tuple[Code, Code, Code] = ("q", "k", "v")


def draw_dataflow(ir: AttentionIR, language: Language = "en") -> str:
    """The dataflow of `ir`, which `elaborate` made, as an SVG document.

    Raises:
        SpecError: `ir` has more than a picture shows.
    """
    return svg_text(dataflow(ir, LANGUAGES[language]))


def dataflow(ir: AttentionIR, words: Words) -> Picture:
    """The same as boxes and wires."""
    require_one_map(ir)
    title = words.title.format(ir.name)
    boxes, wires = [_heading(ir, title, words)], []
    y = boxes[0].rect.bottom + 18
    above, lines = _layer_inputs(ir, y, words) if ir.d_model else _core_inputs(ir, y, words)
    boxes += above
    wires += lines
    cut = _splits(ir, above[-1].rect.bottom + _ROW, words)
    wires += [_down(a, b, kind) for a, b, kind in zip(above[-3:], cut, _CODES, strict=True)]
    boxes += cut
    panel, inside = heads_panel(ir, cut, words)
    boxes.append(panel)
    wires += inside
    joined, lines = _joined(ir, panel, words)
    boxes += joined
    wires += lines
    notes = legend(ir, joined[0].rect.bottom + _ROW, words)
    boxes += notes
    height = max(box.rect.bottom for box in boxes) + MARGIN
    return Picture(title, ir.description, WIDTH, height, tuple(boxes), tuple(wires))


def _heading(ir: AttentionIR, title: str, words: Words) -> Box:
    """Title, facts and description."""
    facts = [words.facts_layer.format(ir.d_model) if ir.d_model else words.facts_core]
    facts.append(counted(words.facts_heads, ir.heads, ir.head_dim))
    if ir.value_dim != ir.head_dim:
        facts.append(words.facts_values.format(ir.value_dim))
    if ir.group > 1:
        facts.append(counted(words.facts_shared, ir.kv_heads))
    facts.append(ir.dtype.name)
    room = WIDTH - 2 * MARGIN
    lines = [plain(title, 24, face="bold").fitted(room, 14)]
    lines.append(plain(" · ".join(facts), 14).fitted(room))
    lines += prose_lines(" ".join(ir.description.split()), room, 13)
    texts, y = [], MARGIN - 6
    for line in lines:
        texts.append(Text(line, MARGIN, y + line.size, "start"))
        y += line.height + 3
    return Box("heading", Rect(MARGIN, MARGIN - 6, room, y - MARGIN + 10), "clear", tuple(texts))


def _layer_inputs(ir: AttentionIR, y: float, words: Words) -> tuple[list[Box], list[Wire]]:
    """The input, the three weights and what they make of it."""
    width = str(ir.d_model)
    middle = columns()[1]
    top = _box("input", middle, y, "data", f"{words.input} X", f"(S, {width})")
    sizes = (
        ("Q", ir.heads * ir.head_dim),
        ("K", ir.kv_heads * ir.head_dim),
        ("V", ir.kv_heads * ir.value_dim),
    )
    weights, made = [], []
    first = top.rect.bottom + _ROW + 14
    for x, kind, (letter, wide) in zip(columns(), _CODES, sizes, strict=True):
        name = f"{words.projection} W_{{{letter}}}"
        weight = _box(f"W_{letter}", x, first, "weight", name, f"({width}, {wide})")
        weights.append(weight)
        below = weight.rect.bottom + _ROW
        made.append(_box(letter, x, below, kind, f"{letter} = X W_{{{letter}}}", f"(S, {wide})"))
    turn = top.rect.bottom + 20
    wires = []
    for weight in weights:
        x, start = weight.rect.middle, (top.rect.middle, top.rect.bottom)
        points = (start, (start[0], turn), (x, turn), (x, weight.rect.y))
        wires.append(Wire(points[:1] + points[3:] if x == start[0] else points))
    wires += [_down(a, b) for a, b in zip(weights, made, strict=True)]
    return [top, *weights, *made], wires


def _core_inputs(ir: AttentionIR, y: float, words: Words) -> tuple[list[Box], list[Wire]]:
    """Queries, keys and values as a caller gives them."""
    sizes = lengths_of(ir)
    given = (
        ("q", words.query, f"({sizes.q}, {ir.heads}, {ir.head_dim})"),
        ("k", words.key, f"({sizes.kv}, {ir.kv_heads}, {ir.head_dim})"),
        ("v", words.value, f"({sizes.kv}, {ir.kv_heads}, {ir.value_dim})"),
    )
    boxes = [
        _box(name, x, y, kind, f"{name.upper()}  {what}", shape)
        for x, kind, (name, what, shape) in zip(columns(), _CODES, given, strict=True)
    ]
    return boxes, []


def _splits(ir: AttentionIR, y: float, words: Words) -> list[Box]:
    """Queries, keys and values cut into heads."""
    sizes = lengths_of(ir)
    parts = (
        (sizes.q, ir.heads, ir.head_dim),
        (sizes.kv, ir.kv_heads, ir.head_dim),
        (sizes.kv, ir.kv_heads, ir.value_dim),
    )
    return [
        _box(
            f"{kind} split",
            x,
            y,
            kind,
            counted(words.split, heads),
            f"({length}, {heads}, {dim}) → ({heads}, {length}, {dim})",
        )
        for x, kind, (length, heads, dim) in zip(columns(), _CODES, parts, strict=True)
    ]


def _joined(ir: AttentionIR, panel: Box, words: Words) -> tuple[list[Box], list[Wire]]:
    """The heads' outputs side by side, what the layer makes of them, and what comes out."""
    cards = [child.rect for child in panel.children if child.kind == "card"]
    y = panel.rect.bottom + _ROW
    wide = ir.heads * ir.value_dim
    beside = _beside(ir, panel.rect, y)
    right = beside[0].rect.x - 16 if beside else panel.rect.right
    rect = Rect(panel.rect.x, y, right - panel.rect.x, 54)
    whole = f"(S, {wide})" if ir.d_model else f"(S, {ir.heads}, {ir.value_dim})"
    shape = f"{ir.heads} × (S, {ir.value_dim}) → {whole}"
    lines = [plain(counted(words.concat, ir.heads), 15, face="bold"), plain(shape, 13, "muted")]
    concat = Box("concat", rect, "v", stacked(rect, lines))
    ends = [min(card.middle, right - 24) for card in cards]
    ends = [max(x, card.x + 10) for x, card in zip(ends, cards, strict=True)]
    ends += [box.rect.middle for box in beside]
    bottom = cards[-1].bottom
    wires = [Wire(((x, bottom), (x, y))) for x in ends]
    boxes, last = [concat], concat
    middle = columns()[1]
    if ir.d_model:
        weight = _box(
            "W_O",
            middle,
            concat.rect.bottom + _ROW,
            "weight",
            f"{words.projection} W_{{O}}",
            f"({wide}, {ir.d_model})",
        )
        wires.append(_down(last, weight))
        boxes.append(weight)
        last = weight
        whole = f"(S, {ir.d_model})"
    out = _box("output", middle, last.rect.bottom + _ROW, "data", words.output, whole)
    wires.append(_down(last, out))
    return [*boxes, out, *beside], wires


def _beside(ir: AttentionIR, panel: Rect, y: float) -> list[Box]:
    """What else each head gives, at the right of where their outputs are joined."""
    sizes = lengths_of(ir)
    rows, pairs = f"({ir.heads}, {sizes.q})", f"({ir.heads}, {sizes.q}, {sizes.kv})"
    names = [name for name in ir.outputs if name != "out"]
    boxes = []
    for i, name in enumerate(names):
        x = panel.right - (len(names) - i) * (_ASIDE + 8) + 8
        rect = Rect(x, y, _ASIDE, _BOX.height)
        shape = rows if name == "lse" else pairs
        lines = [plain(name, 15, face="bold"), plain(shape, 13, "muted")]
        boxes.append(Box(name, rect, "data", stacked(rect, lines)))
    return boxes


def _box(name: str, middle: float, y: float, kind: Kind, first: str, second: str) -> Box:
    rect = Rect(middle - _BOX.width / 2, y, _BOX.width, _BOX.height)
    lines = [formula(first, 15), plain(second, 13, "muted")]
    return Box(name, rect, kind, stacked(rect, lines))


def _down(above: Box, below: Box, kind: WireKind = "data") -> Wire:
    x = below.rect.middle
    return Wire(((x, above.rect.bottom), (x, below.rect.y)), kind)
