"""Scalars that two YAML versions read differently, and how to write what was meant.

A spec must mean the same to every tool that reads it: PyYAML follows YAML 1.1, most editors and
JSON tools YAML 1.2. So wherever a plain scalar could be meant as a number or a truth value and the
two versions disagree on it, the reader asks for the spelling that both read alike: ``1.0e-5`` for
``1e-5``, ``true`` for ``yes``, ``8`` for ``010``, ``90`` for ``1:30``, ``1000`` for ``1_000``.
Hexadecimal is refused too, as sizes are decimal. In quotes, or in a key that takes text, these
are plain text as ever.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_BOOLS = {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}
_FLOAT = re.compile(r"([-+]?)(\d*)(?:\.(\d*))?(?:[eE]([-+]?)(\d+))?", re.ASCII)
_BASE_60 = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?", re.ASCII)
_PREFIXED = re.compile(r"([-+]?)0([xXoObB])([\da-fA-F_]+)", re.ASCII)
_LEADING_ZERO = re.compile(r"[-+]?0[\d_]+", re.ASCII)
_UNDERSCORED = re.compile(r"[-+]?\d[\d_]*(\.[\d_]*)?([eE][-+]?\d+)?", re.ASCII)
_YAML_1_1_FLOAT = re.compile(r"[-+]?\d+\.\d*([eE][-+]\d+)?|\.\d+([eE][-+]\d+)?", re.ASCII)
_INT = re.compile(r"[-+]?(0|[1-9]\d*)", re.ASCII)
_LONG = 60  # digits past this are no number that a spec takes, and slow to convert


@dataclass(frozen=True, slots=True)
class Spelling:
    """How YAML versions differ on a scalar.

    Attributes:
        text: the scalar as written.
        reason: the end of a sentence that starts "is written <text>, ".
        meant: the number or truth value it most likely stands for.
        write: what to write for `meant`, followed by any alternative.
    """

    text: str
    reason: str
    meant: int | float | bool
    write: str


def spelling_of(text: str) -> Spelling | None:
    """The trap that the plain scalar `text` is, or None where all YAML versions agree."""
    if text.lower() in _BOOLS:
        return _bool_spelling(text)
    if not text or len(text) > _LONG or not re.search(r"\d", text, re.ASCII):
        return None
    if match := _PREFIXED.fullmatch(text):
        return _prefixed_spelling(text, match)
    if _BASE_60.fullmatch(text):
        value = _base_60(text)
        return Spelling(text, f"which YAML 1.1 reads as {value}, in base 60", value, f"{value}")
    if _LEADING_ZERO.fullmatch(text):
        return _leading_zero_spelling(text)
    if "_" in text and _UNDERSCORED.fullmatch(text):
        plain = text.replace("_", "")
        return Spelling(
            text, "and only YAML 1.1 skips underscores in numbers", _number(plain), respell(plain)
        )
    if _FLOAT.fullmatch(text) and not _YAML_1_1_FLOAT.fullmatch(text) and not _INT.fullmatch(text):
        return Spelling(text, "which YAML 1.1 reads as text", _number(text), respell(text))
    return None


def respell(text: str) -> str:
    """The decimal number `text` as every YAML version reads it, in the digits it was given in."""
    match = _FLOAT.fullmatch(text)
    if match is None or not math.isfinite(float(text)):
        return text
    sign, whole, fraction, exponent_sign, exponent = match.groups()
    if fraction is None and exponent is None:
        return text
    tail = "" if exponent is None else f"e{exponent_sign or '+'}{exponent}"
    return f"{sign.replace('+', '')}{whole or '0'}.{fraction or '0'}{tail}"


def _number(text: str) -> int | float:
    return int(text) if _INT.fullmatch(text) else float(text)


def _bool_spelling(text: str) -> Spelling:
    value = _BOOLS[text.lower()]
    word = "true" if value else "false"
    reason = (
        "which YAML reads as text" if len(text) == 1 else f"which only YAML 1.1 reads as {word}"
    )
    return Spelling(text, reason, value, word)


def _prefixed_spelling(text: str, match: re.Match[str]) -> Spelling | None:
    sign, letter, digits = match.groups()
    base, word = {"x": (16, "hexadecimal"), "o": (8, "octal"), "b": (2, "binary")}[letter.lower()]
    try:
        value = int(f"{sign}{digits.replace('_', '')}", base)
    except ValueError:
        return None
    return Spelling(text, f"and a spec takes no {word} numbers", value, f"{value}")


def _base_60(text: str) -> int | float:
    sign = -1 if text.startswith("-") else 1
    value: int | float = 0
    for part in text.lstrip("+-").replace("_", "").split(":"):
        value = value * 60 + (float(part) if "." in part else int(part))
    return sign * value


def _leading_zero_spelling(text: str) -> Spelling:
    plain = text.replace("_", "")
    decimal = int(plain)
    if re.search("[89]", plain):
        return Spelling(text, "which YAML 1.1 reads as text", decimal, f"{decimal}")
    octal = int(plain, 8)
    write = f"{decimal}" if octal == decimal else f"{decimal}, or {octal} if octal was meant"
    return Spelling(text, f"which YAML 1.1 reads in octal, as {octal}", decimal, write)
