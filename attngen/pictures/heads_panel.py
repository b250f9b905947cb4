"""The middle of the picture: the heads beside each other, and how they share keys and values.

Input: an AttentionIR and the boxes of queries, keys and values above. Output: the panel with all in
it, and the wires from above into each drawn head.
"""

from __future__ import annotations

from itertools import pairwise

from attngen.ir.attention import AttentionIR
from attngen.pictures.head_card import drawn_heads, head_cards, token_x, token_y
from attngen.pictures.rich import plain
from attngen.pictures.shapes import Box, Cells, Rect, Text, Wire, WireKind, listed, stacked
from attngen.pictures.words import Words, counted

WIDTH = 1240.0
MARGIN = 36.0
_INSET = 20.0
_BETWEEN = 56.0  # between two cards, for the dots
_BAND = 64.0  # above the cards: title and sharing
_BUS = 14.0  # between the lines for queries, keys and values
_MOST_CELLS = 192
CARD = (WIDTH - 2 * MARGIN - 2 * _INSET - 2 * _BETWEEN) / 3


def columns() -> tuple[float, float, float]:
    """The middles of the picture's three columns."""
    first = MARGIN + _INSET + CARD / 2
    return first, first + CARD + _BETWEEN, first + 2 * (CARD + _BETWEEN)


def heads_panel(ir: AttentionIR, above: list[Box], words: Words) -> tuple[Box, list[Wire]]:
    """The panel below the boxes `above`, which hold queries, keys and values."""
    top = above[0].rect.bottom + 30
    drawn = drawn_heads(ir.heads)
    shift = (3 - len(drawn)) * (CARD + _BETWEEN) / 2
    frames = [(head, columns()[i] - CARD / 2 + shift) for i, head in enumerate(drawn)]
    y = top + _BAND + 3 * _BUS + 8
    cards, wires = head_cards(ir, frames, y, CARD, words)
    wires = [*_buses(above, frames, top + _BAND, y), *wires]
    bottom = max(card.rect.bottom for card in cards)
    rect = Rect(MARGIN, top, WIDTH - 2 * MARGIN, bottom + _INSET - top)
    children = [_title(ir, top, words), *cards, *_dots(frames, cards[0].rect)]
    if ir.group > 1:
        children.append(_sharing(ir, drawn, top, words))
    return Box("heads", rect, "panel", (), tuple(children)), wires


def _title(ir: AttentionIR, top: float, words: Words) -> Box:
    first, second, _ = columns()
    rect = Rect(first + 14, top + 10, second - first - 28, 40)
    line = plain(counted(words.heads, ir.heads), 16, face="bold")
    return Box("title of the heads", rect, "clear", listed(rect, [line], 0))


def _sharing(ir: AttentionIR, drawn: tuple[int, ...], top: float, words: Words) -> Box:
    """Which query heads read which key and value head, as two rows of cells."""
    _, second, third = columns()
    rect = Rect(second + 14, top + 8, third - second - 28, 48)
    one = ir.kv_heads == 1
    text = (words.sharing_one if one else words.sharing).format(ir.heads, ir.kv_heads, ir.group)
    line = plain(text, 12.5).fitted(rect.width)
    texts = (Text(line, rect.x, rect.y + 12),)
    if ir.heads > _MOST_CELLS:
        return Box("sharing", rect, "clear", texts)
    pitch = min(18.0, rect.width / ir.heads)
    gap = 1.0 if pitch > 3 else 0.3
    y = rect.y + 20

    def row(count: int, width: float, y: float, wanted: set[int]) -> tuple[str, str]:
        some: list[str] = []
        others: list[str] = []
        for i in range(count):
            path = f"M{rect.x + i * width:.4g} {y:g}h{width - gap:.4g}v11h{gap - width:.4g}z"
            (some if i in wanted else others).append(path)
        return "".join(some), "".join(others)

    cells = []
    groups = {head // ir.group for head in drawn}
    for tone, paths in (
        ("q", row(ir.heads, pitch, y, set(drawn))),
        ("k", row(ir.kv_heads, pitch * ir.group, y + 14, groups)),
    ):
        for path, alpha in zip(paths, (1.0, 0.35), strict=True):
            if path:
                cells.append(Cells(path, "q" if tone == "q" else "k", alpha))
    return Box("sharing", rect, "clear", texts, (), tuple(cells))


def _dots(frames: list[tuple[int, float]], card: Rect) -> list[Box]:
    """What stands for the heads between two that are drawn."""
    boxes = []
    for (head, x), (following, _) in pairwise(frames):
        if following == head + 1:
            continue
        left = x + CARD + 2
        rect = Rect(left, card.y + card.height / 2 - 32, _BETWEEN - 4, 64)
        between = str(head + 1) if following == head + 2 else f"{head + 1}–{following - 1}"
        lines = [plain("…", 26), plain(between, 11.5, "muted")]
        texts = stacked(Rect(rect.x - 8, rect.y, rect.width + 16, rect.height), lines)
        boxes.append(Box(f"heads {between}", rect, "clear", texts))
    return boxes


def _buses(above: list[Box], frames: list[tuple[int, float]], y: float, cards: float) -> list[Wire]:
    """From queries, keys and values along three lines into each card."""
    wires = []
    # keys lowest: they alone end below the boxes of queries and values, and would hide those wires
    lanes: tuple[tuple[int, WireKind, int], ...] = ((0, "q", 0), (1, "k", 2), (2, "v", 1))
    for i, kind, level in lanes:
        start, bus = above[i].rect.middle, y + level * _BUS
        for _, x in frames:
            end = token_x(x, CARD)[i]
            points = (
                (start, above[i].rect.bottom),
                (start, bus),
                (end, bus),
                (end, token_y(cards)),
            )
            wires.append(Wire(points[:1] + points[3:] if start == end else points, kind))
    return wires
