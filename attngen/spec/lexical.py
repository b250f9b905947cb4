"""The words and signs of an expression, before Python's parser sees it.

Input: the text of an expression. Output: its first few mistakes of spelling: signs, words and
numbers that the language does not have, each with what to write instead. A text without such
mistakes holds names, decimal numbers, brackets, commas and the operators of the language alone, so
that whatever Python makes of it is an expression.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass

MAX_LENGTH = 2000
MAX_DEPTH = 40
_MAX_MISTAKES = 3

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<number>(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?[\w.]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>==|!=|<=|>=|//|\*\*|<<|>>|:=|&&|\|\||->|<>|[-+*/%<>()\[\],])"
    r"|(?P<text>'[^']*'?|\"[^\"]*\"?)"
    r"|(?P<other>.)",
    re.ASCII | re.DOTALL,
)
_PAIRS = {"(": ")", "[": "]"}
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_WORDS = frozenset({"and", "or", "not", "if", "else", "True", "False"})

_SIGN_HINTS: dict[str, str] = {
    "**": "write x * x for a square, sqrt(x) for a root",
    "<<": "write * and // by powers of two",
    ">>": "write * and // by powers of two",
    "&&": "write and",
    "&": "write and",
    "||": "write or",
    "|": "write or",
    "~": "write not",
    "!": "write not, or != for unequal",
    "^": "write != for one or the other, x * x for a square",
    "<>": "write !=",
    "=": "write == to compare",
    "?": "write a if condition else b",
    ".": "there are no attributes and no modules: write sqrt(x), not math.sqrt(x)",
    ":": "there are no slices, no lambdas and no assignments",
    ":=": "there are no assignments: write the value where it is used",
    "#": "there are no comments in an expression: put it on a line of its own in the file",
    "\\": "a text that goes on needs no mark at the end of its lines",
    "{": "write ( ) to group",
    "}": "write ( ) to group",
    ";": "an expression is one value",
    "@": "write * for a product",
    "\N{LESS-THAN OR EQUAL TO}": "write <=",
    "\N{GREATER-THAN OR EQUAL TO}": "write >=",
    "\N{NOT EQUAL TO}": "write !=",
    "\N{MULTIPLICATION SIGN}": "write *",
    "\N{MIDDLE DOT}": "write *",
    "\N{DOT OPERATOR}": "write *",
    "\N{DIVISION SIGN}": "write / or //",
    "\N{MINUS SIGN}": "write -",
    "\N{EN DASH}": "write -",
    "\N{LOGICAL AND}": "write and",
    "\N{LOGICAL OR}": "write or",
    "\N{NOT SIGN}": "write not",
}
_WORD_HINTS: dict[str, str] = {
    "lambda": "the expression itself is what you mean: it is evaluated for each q and k",
    "for": "there are no loops: the expression is evaluated for each q and k",
    "in": "write comparisons joined by or",
    "is": "write == to compare",
    "None": "every name has a value",
    "return": "the expression itself is the result",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong with a stretch of an expression's text."""

    start: int
    length: int
    message: str
    hint: str = ""


def spelling_mistakes(text: str) -> tuple[Mistake, ...]:
    """What keeps `text` from being an expression of the language, word by word."""
    if len(text) > MAX_LENGTH:
        message = f"is longer than {MAX_LENGTH} characters"
        return (Mistake(0, 1, message, "read what is so large from a side input"),)
    if not text.strip():
        return (Mistake(0, 1, "is empty"),)
    found: list[Mistake] = []
    opened: list[int] = []
    for match in _TOKEN.finditer(text):
        word, start = match.group(), match.start()
        if word in ("(", "["):
            opened.append(start)
        if len(opened) > MAX_DEPTH:
            found.append(Mistake(start, 1, f"has more than {MAX_DEPTH} brackets in each other"))
            return tuple(found)
        if word in (")", "]") and (not opened or _PAIRS[text[opened.pop()]] != word):
            found.append(Mistake(start, 1, f"has a {word} that closes no bracket"))
            return tuple(found)
        if mistake := _mistake(match.lastgroup or "", word, start):
            found.append(mistake)
            if len(found) == _MAX_MISTAKES:
                return tuple(found)
    if opened and not found:
        found.append(Mistake(opened[-1], 1, "has a bracket that is never closed"))
    return tuple(found)


def _mistake(kind: str, word: str, start: int) -> Mistake | None:
    if kind == "number":
        return _number_mistake(word, start)
    if kind == "name":
        if not keyword.iskeyword(word) or word in _WORDS:
            return None
        message = f"has the word {word}, which is not part of the language"
        return Mistake(start, len(word), message, _WORD_HINTS.get(word, ""))
    if kind == "text":
        return Mistake(start, len(word), "has a text in quotes, and there are only numbers")
    if kind == "other" or word in _SIGN_HINTS:
        shown = word if word.isprintable() else f"U+{ord(word):04X}"
        message = f"has {shown}, which is not part of the language"
        return Mistake(start, len(word), message, _SIGN_HINTS.get(word, ""))
    return None


def _number_mistake(word: str, start: int) -> Mistake | None:
    if _NUMBER.fullmatch(word):
        if re.fullmatch(r"0\d+", word):
            plain = word.lstrip("0") or "0"
            return Mistake(start, len(word), f"has the number {word}", f"write {plain}")
        return None
    hint = "numbers are decimal, such as 512 or 1.0e-5"
    if re.fullmatch(r"\d[\d_]*", word):
        hint = f"write {word.replace('_', '')}"
    return Mistake(start, len(word), f"has {word}, which is no number of the language", hint)
