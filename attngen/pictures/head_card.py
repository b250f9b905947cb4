"""One head as a card: its formula, what it is given, and its steps from scores to output.

Input: an AttentionIR, the heads to draw and where. Output: boxes and wires. All cards have the same
rows at the same heights, so that heads can be compared across.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from attngen.ir.attention import AttentionIR
from attngen.pictures.mask_glyph import CELLS, MaskGrid, glyph, mask_grid
from attngen.pictures.rich import Line, code_lines, formula, plain
from attngen.pictures.shapes import (
    Box,
    Kind,
    Rect,
    Text,
    Wire,
    WireKind,
    aside,
    listed,
    stacked,
)
from attngen.pictures.steps import Change, Steps, steps_of
from attngen.pictures.words import Words

PADDING = 14.0
_HEAD = 34.0  # the title, between the wires
_FORMULA = 34.0
_TOKEN = 44.0
_GAP = 14.0
_RAIL = 20.0  # beside the steps, for the values
_CELL = 2.5
_CODE = 11.0
_LINES = 2  # an expression longer than that is written out once, beside the picture


@dataclass(frozen=True, slots=True)
class Sizes:
    """The names of the two lengths: queries and keys."""

    q: str
    kv: str


@dataclass(frozen=True, slots=True)
class Row:
    """A step before it has a place."""

    name: str
    kind: Kind
    lines: tuple[Line, ...]
    note: Line | None = None
    grid: MaskGrid | None = None

    @property
    def height(self) -> float:
        """As high as it must be."""
        text = sum(line.height for line in self.lines) + 14
        return max(text, 32.0, 0.0 if self.grid is None else CELLS * _CELL + 30)


def drawn_heads(heads: int) -> tuple[int, ...]:
    """The first, a middle and the last head; all of them where they are three or fewer."""
    return tuple(dict.fromkeys((0, max(0, heads // 2 - 1) if heads > 3 else 1, heads - 1)))[:heads]


def head_cards(
    ir: AttentionIR, frames: Sequence[tuple[int, float]], y: float, width: float, words: Words
) -> tuple[list[Box], list[Wire]]:
    """A card for each (head, x) of `frames`, with its upper edge at `y`."""
    sizes = lengths_of(ir)
    inner = width - 2 * PADDING
    rows = {head: list(_rows(ir, head, inner - _RAIL, sizes, words)) for head, _ in frames}
    heights = [max(row.height for row in level) for level in zip(*rows.values(), strict=True)]
    boxes, wires = [], []
    for head, x in frames:
        box, inside = _card(ir, head, Rect(x, y, width, 0.0), rows[head], heights, words)
        boxes.append(box)
        wires += inside
    return boxes, wires


def lengths_of(ir: AttentionIR) -> Sizes:
    """A layer attends to its own sequence; a core is given keys of any length."""
    return Sizes("S", "T" if ir.d_model is None else "S")


def written_out(ir: AttentionIR, width: float) -> Iterator[tuple[str, str]]:
    """(symbol, expression) of what is too long for a card of `width`."""
    inner = width - 2 * PADDING - _RAIL
    every, first = steps_of(ir, None), steps_of(ir, ir.heads - 1)
    for change, shown in zip(every.changes, first.changes, strict=True):
        if _is_long(_change_text(shown), inner):
            yield ("B_{h}" if change.kind == "bias" else "f(s)"), change.text
    if _mask_is_long(first, inner):
        yield "M", " and ".join(limit.text for limit in every.limits)


def token_x(x: float, width: float) -> tuple[float, float, float]:
    """Where the wires to queries, keys and values of a card at `x` end."""
    step = (width - 2 * PADDING + 8) / 3
    half = (step - 8) / 2
    left = x + PADDING + half
    return left, left + step, left + 2 * step


def token_y(y: float) -> float:
    """The upper edge of what a card at `y` is given."""
    return y + _HEAD


def _card(
    ir: AttentionIR,
    head: int,
    frame: Rect,
    rows: list[Row],
    heights: list[float],
    words: Words,
) -> tuple[Box, list[Wire]]:
    sizes = lengths_of(ir)
    left, inner = frame.x + PADDING, frame.width - 2 * PADDING
    tokens = _tokens(ir, head, frame, sizes)
    texts = _titles(ir, head, frame, words)
    y = tokens[0].rect.bottom + _GAP
    steps, wires = [], []
    for row, height in zip(rows, heights, strict=True):
        last = row.name == "values"
        rect = Rect(left, y, inner if last else inner - _RAIL, height)
        steps.append(_step(row, rect, words))
        y = rect.bottom + _GAP
    for upper, lower in pairwise(steps):
        x = upper.rect.middle
        wires.append(Wire(((x, upper.rect.bottom), (x, lower.rect.y))))
    codes: tuple[WireKind, ...] = ("q", "k")
    for token, code in zip(tokens, codes, strict=False):
        x = token.rect.middle
        wires.append(Wire(((x, token.rect.bottom), (x, steps[0].rect.y)), code))
    rail = left + inner - _RAIL / 2 + 2
    wires.append(Wire(((rail, tokens[2].rect.bottom), (rail, steps[-1].rect.y)), "v"))
    end = steps[-1].rect.bottom
    texts += stacked(Rect(frame.x, end, frame.width, _FORMULA), [composed(ir, head, words)])
    rect = Rect(frame.x, frame.y, frame.width, end + _FORMULA + 2 - frame.y)
    box = Box(f"head {head}", rect, "card", tuple(texts), (*tokens, *steps))
    return box, wires


def _titles(ir: AttentionIR, head: int, frame: Rect, words: Words) -> list[Text]:
    """The head's number and its key and value head's, between the wires from above."""
    left, middle, right = token_x(frame.x, frame.width)
    titles = [(left, middle, plain(words.head.format(head), 15, face="bold"))]
    if ir.group > 1:
        titles.append((middle, right, plain(words.kv_head.format(head // ir.group), 12.5, "k")))
    y = frame.y + _HEAD / 2 + 6
    return [
        Text(line.fitted(stop - start - 12), (start + stop) / 2, y, "middle")
        for start, stop, line in titles
    ]


def _tokens(ir: AttentionIR, head: int, frame: Rect, sizes: Sizes) -> list[Box]:
    kv = head // ir.group
    step = (frame.width - 2 * PADDING + 8) / 3
    given: tuple[tuple[Kind, str, str], ...] = (
        ("q", f"Q_{{{head}}}", f"({sizes.q}, {ir.head_dim})"),
        ("k", f"K_{{{kv}}}", f"({sizes.kv}, {ir.head_dim})"),
        ("v", f"V_{{{kv}}}", f"({sizes.kv}, {ir.value_dim})"),
    )
    boxes = []
    for i, (kind, symbol, shape) in enumerate(given):
        rect = Rect(frame.x + PADDING + i * step, token_y(frame.y), step - 8, _TOKEN)
        lines = [formula(symbol, 14.5), plain(shape, 12, "muted")]
        boxes.append(Box(f"{kind} of head {head}", rect, kind, stacked(rect, lines)))
    return boxes


def _step(row: Row, rect: Rect, words: Words) -> Box:
    if row.grid is None:
        note = () if row.note is None else aside(rect, row.note)
        taken = sum(text.line.width + 10 for text in note)
        room = Rect(rect.x, rect.y, rect.width - taken, rect.height)
        return Box(row.name, rect, row.kind, (*listed(room, row.lines), *note))
    size = CELLS * _CELL
    x, y = rect.right - size - 10, rect.y + (rect.height - size - 14) / 2
    room = Rect(rect.x, rect.y, x - rect.x, rect.height)
    length = plain(words.drawn_for.format(row.grid.length), 9.5, "muted").fitted(size, 6)
    below = Text(length, x + size / 2, y + size + 12, "middle")
    cells = glyph(row.grid, x, y, _CELL)
    return Box(row.name, rect, row.kind, (*listed(room, row.lines), below), (), cells)


def composed(ir: AttentionIR, head: int, words: Words) -> Line:
    """The whole head as one formula."""
    steps = steps_of(ir, head)
    kv = head // ir.group
    inner = f"Q_{{{head}}}K_{{{kv}}}^{{T}}{steps.scale}"
    for change in steps.changes:
        match change.kind:
            case "softcap":
                inner = f"cap({inner})"
            case "bias":
                inner = f"{inner} + B_{{{head}}}"
            case "score":
                inner = f"f({inner})"
    if steps.limits:
        inner = f"{inner} + {words.mask}"
    if ir.sink or ir.off_by_one:
        inner = f"{inner}; sink_{{{head}}}" if ir.sink else f"{inner}; 0"
    return formula(f"O_{{{head}}} = {steps.activation_name}({inner}) V_{{{kv}}}", 14)


def _rows(ir: AttentionIR, head: int, width: float, sizes: Sizes, words: Words) -> Iterator[Row]:
    steps = steps_of(ir, head)
    kv = head // ir.group
    square = plain(f"({sizes.q}, {sizes.kv})", 12, "muted")
    product = formula(f"s = Q_{{{head}}} K_{{{kv}}}^{{T}}{steps.scale}")
    yield Row("scores", "step", (product,), square)
    for change in steps.changes:
        yield _change_row(change, head, width, words)
    yield _mask_row(steps, width, words)
    yield _weight_row(ir, steps, head, width, square, words)
    out = plain(f"({sizes.q}, {ir.value_dim})", 12, "muted")
    yield Row("values", "v", (formula(f"O_{{{head}}} = P_{{{head}}} V_{{{kv}}}"),), out)


def _weight_row(
    ir: AttentionIR, steps: Steps, head: int, width: float, shape: Line, words: Words
) -> Row:
    """How scores become weights."""
    lines = [formula(f"P_{{{head}}} = {steps.activation_name}(s)")]
    if steps.activation:
        lines += code_lines(steps.activation, width - 24 - shape.width, _CODE, "softmax")
        lines.append(plain(words.no_softmax, 11.5, "muted"))
        return Row("activation", "softmax", tuple(lines), shape)
    lines.append(plain(words.over_keys, 11.5, "muted"))
    if ir.sink:
        lines.append(plain(words.sink.format(head), 11.5, "softmax"))
    if ir.off_by_one:
        lines.append(plain(words.off_by_one, 11.5, "softmax"))
    return Row("softmax", "softmax", tuple(lines), shape)


def _change_row(change: Change, head: int, width: float, words: Words) -> Row:
    note = {"softcap": words.softcap, "bias": words.bias, "score": words.score}[change.kind]
    caption = plain(note, 11.5, "muted")
    text = _change_text(change)
    if not _is_long(text, width):
        return Row(change.kind, "bias", (caption, *code_lines(text, width - 24)))
    short = f"s ← s + B_{{{head}}}" if change.kind == "bias" else "s ← f(s)"
    return Row(change.kind, "bias", (caption, formula(short)))


def _mask_row(steps: Steps, width: float, words: Words) -> Row:
    if not steps.limits:
        return Row("mask", "mask", (plain(words.no_mask, 12.5, "mask"),))
    room = width - CELLS * _CELL - 34
    lines, caption = [], ""
    for limit in steps.limits:
        name = words.origins.get(limit.origin, words.mask)
        if name != caption:
            lines.append(plain(name, 11.5, "muted"))
        lines += code_lines(limit.text, room, _CODE, "mask")
        caption = name
    if _mask_is_long(steps, width):
        lines = [plain(words.mask, 11.5, "muted"), formula("M", tone="mask")]
    return Row("mask", "mask", tuple(lines), None, mask_grid(steps.mask))


def _change_text(change: Change) -> str:
    return f"s ← s + {change.text}" if change.kind == "bias" else f"s ← {change.text}"


def _is_long(text: str, width: float) -> bool:
    return len(code_lines(text, width - 24)) > _LINES


def _mask_is_long(steps: Steps, width: float) -> bool:
    room = width - CELLS * _CELL - 34
    return sum(len(code_lines(limit.text, room, _CODE)) for limit in steps.limits) > 4
