"""How wide a text is at most, whatever sans or monospaced font a viewer takes.

Input: text, a size and a face. Output: a width in the same unit as the size. The tables hold
advances in thousandths of the size: the widest of DejaVu, Liberation (as wide as Arial and
Helvetica) and their obliques, rounded up. East Asian characters are one size wide in all fonts.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Face: TypeAlias = Literal["regular", "bold", "mono"]

_REGULAR = {
    280: "'ijl",
    300: "I",
    320: " ,.·",
    340: "/:;\\|",
    360: "f",
    380: "-",
    400: "()[]t",
    420: "!r",
    460: '"',
    500: "*J`",
    540: "sz",
    560: "?L_c–",
    580: "k",
    600: "vxyγλ",
    620: "FTaeo",
    640: "$0123456789bdghnpqu{}√Σσβμ",
    660: "α",
    680: "EKPSY",
    700: "ABVXZ",
    740: "CRU",
    760: "HN",
    780: "&DG",
    800: "OQ",
    820: "w",
    840: "#+<=>^~×≤≥≠−∞",
    880: "M",
    960: "%",
    980: "m",
    1020: "@W…⋯→←",
}
_BOLD = {
    320: "'",
    360: " ijl",
    380: ",./I\\|·",
    400: ":;",
    420: "-",
    440: "f",
    460: "!()[]",
    480: "t",
    500: "`r",
    540: '"*',
    560: "J_–",
    600: "csz",
    620: "?",
    640: "Lλ",
    660: "vxy",
    680: "aek√",
    700: "$0123456789EFToΣγα",
    720: "bdghnpqu{}β",
    740: "CPSYZμ",
    780: "ABKRVXσ",
    820: "U",
    840: "#+<=>DGHN^~×≤≥≠−∞",
    880: "&OQ",
    940: "w",
    1020: "%@M…⋯→←",
    1120: "mW",
}
_MONO = 620  # a character of ASCII; what else there is may come from another font
_UNKNOWN = 1020


def _by_character(table: dict[int, str]) -> dict[str, int]:
    return {character: width for width, text in table.items() for character in text}


_TABLES: dict[Face, dict[str, int]] = {
    "regular": _by_character(_REGULAR),
    "bold": _by_character(_BOLD),
    "mono": {chr(code): _MONO for code in range(32, 127)} | dict.fromkeys("·×√≤≥≠−∞", 860),
}


def text_width(text: str, size: float, face: Face = "regular") -> float:
    """The most that `text` takes up at a font size of `size`."""
    table = _TABLES[face]
    return sum(table.get(character, _UNKNOWN) for character in text) * size / 1000
