"""The kinds of value that a key of a spec may have, and what a key is.

Input: none. Output: immutable descriptions, which the checker of values and the JSON Schema read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

SIZE_MAX = 2**31 - 1
MAX_AXES = 6
PER_HEAD = "per_head"
IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,63}"


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `minimum` to `maximum`."""

    minimum: int
    maximum: int = SIZE_MAX


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number, greater than `above` where that is given."""

    above: float | None = None


@dataclass(frozen=True, slots=True)
class AnyNumber:
    """A finite number that stays an integer where it is written as one."""


@dataclass(frozen=True, slots=True)
class HeadNumbers:
    """A finite number, a list of one for each head, or :data:`PER_HEAD`: an argument of calls."""


@dataclass(frozen=True, slots=True)
class Flag:
    """``true`` or ``false``."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text; `pattern` is a regular expression for all of it, and `expected` its name."""

    expected: str = "a text"
    pattern: str = ""
    nonempty: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words or truth values; `later` are words that a coming version takes."""

    options: tuple[bool | str, ...]
    later: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Words:
    """A list of distinct words, `required` among them."""

    options: tuple[str, ...]
    required: str


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with the keys of `fields`; `later` are keys that a coming version takes."""

    fields: tuple[Field, ...]
    later: tuple[str, ...] = ()
    nonempty: bool = False

    def field(self, name: str) -> Field | None:
        """The field of that name."""
        return next((f for f in self.fields if f.name == name), None)


@dataclass(frozen=True, slots=True)
class Expression:
    """A text of the expression language; the rules parse it, as it may name other keys."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A list of sizes, each a positive integer or one of `symbols`."""

    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A mapping from names that the author chooses to values of one kind."""

    item: Field


@dataclass(frozen=True, slots=True)
class Axes:
    """A mapping from the dotted names of `fields` to the values that each of them goes through.

    Beside them it has the groups ``cross`` and ``zip``, mappings or lists of mappings of the same
    form, and ``where``, a condition or a list of them.
    """

    fields: tuple[Field, ...]
    named: tuple[Field, ...] = ()

    def field(self, key: str) -> Field | None:
        """The field of that dotted name; those of `named` are followed by a name of their own."""
        found = next((f for f in self.fields if f.name == key), None)
        if found is None and "." in key:
            home, _, name = key.partition(".")
            found = next((f for f in self.named if f.name == home), None)
            if re.fullmatch(IDENTIFIER, name) is None:
                return None
        return found


Kind: TypeAlias = (
    Integer
    | Number
    | AnyNumber
    | HeadNumbers
    | Flag
    | Text
    | Choice
    | Words
    | Section
    | Expression
    | Shape
    | Named
    | Axes
)


@dataclass(frozen=True, slots=True)
class Field:
    """One key.

    Attributes:
        doc: its meaning, in one or two sentences; shown by editors.
        default: what holds where the key is absent, in words.
        hint: what to do about a value of the wrong kind or range, where that is not obvious.
    """

    name: str
    kind: Kind
    doc: str
    default: str = ""
    hint: str = ""
