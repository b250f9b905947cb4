"""How to say what a key wants, and how to write a value so that it fits.

Input: the kind of a key, and the scalar that stands there. Output: parts of messages and hints.
"""

from __future__ import annotations

import re
from typing import assert_never

from attngen.spec.field_kinds import (
    PER_HEAD,
    AnyNumber,
    Axes,
    Choice,
    Expression,
    Flag,
    HeadNumbers,
    Integer,
    Kind,
    Named,
    Number,
    Section,
    Shape,
    Text,
    Words,
)
from attngen.spec.nodes import Scalar
from attngen.spec.suggest import either, nearest


def expected(kind: Kind) -> str:
    """What a value of `kind` is, as the middle of a sentence."""
    match kind:
        case Integer():
            return "an integer"
        case Number() | AnyNumber():
            return "a number"
        case HeadNumbers():
            return f"a number, a list of one for each head, or {PER_HEAD}"
        case Expression():
            return "an expression"
        case Shape():
            return "a list of sizes"
        case Flag():
            return "true or false"
        case Text(expected=expected):
            return expected
        case Choice(options=options):
            return either([word(o) for o in options])
        case Words():
            return "a list"
        case Section() | Named() | Axes():
            return "a mapping"
        case _:
            assert_never(kind)


def word(option: bool | str) -> str:
    """A word or truth value as YAML writes it."""
    return option if isinstance(option, str) else ("true" if option else "false")


def rewrite(node: Scalar, kind: Kind) -> str:
    """How to write the value of `node` so that `kind` takes it."""
    value = node.value
    match kind:
        case Integer() if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            return f"write {int(value)}"
        case Integer() if isinstance(value, str) and re.fullmatch(r"[-+]?[1-9]\d{0,14}", value):
            return f"write {int(value)} without quotes"
        case Number() | AnyNumber() | HeadNumbers() if isinstance(value, str) and _is_decimal(
            value
        ):
            return f"write {value} without quotes"
        case Flag() | Choice(options=(True, *_)) if value in (
            0,
            1,
            "true",
            "false",
            "True",
            "False",
        ):
            truth = str(value).lower() in ("1", "1.0", "true")
            return f"write {word(truth)}{' without quotes' if isinstance(value, str) else ''}"
        case Text() | Expression() if isinstance(value, (bool, int, float)):
            return f"put it in quotes: '{node.shown}'"
        case HeadNumbers() if isinstance(value, str):
            return f"did you mean {PER_HEAD}?" if nearest(value, [PER_HEAD]) else ""
        case Choice(options=options) if isinstance(value, str):
            near = nearest(value, [o for o in options if isinstance(o, str)])
            return f"did you mean {near}?" if near else ""
        case _:
            return ""


def _is_decimal(text: str) -> bool:
    return re.fullmatch(r"[-+]?\d{1,20}(\.\d{0,20})?", text, re.ASCII) is not None
