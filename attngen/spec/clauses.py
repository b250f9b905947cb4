"""What a spec says in the expression language: parameters, side inputs, score and mask.

Input: checked values and the tree they came from. Output: their meaning and every mistake, each
placed inside the expression that has it.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from attngen.errors import Diagnostic
from attngen.ir.attention import SideInput
from attngen.ir.expr import DataType, Expr, loads
from attngen.source import Span
from attngen.spec.expressions import parse
from attngen.spec.nodes import Fields, Scalar, node_at, span_of
from attngen.spec.places import span_inside
from attngen.spec.reserved import is_reserved
from attngen.spec.values import Value
from attngen.spec.vocabulary import ALL_FUNCTIONS, VARIABLES, Scope

_DATA: dict[str, DataType] = {"float": "float", "int": "int64", "bool": "bool"}
_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True)
class Clauses:
    """The expressions of a spec and what they read; None is "not given", or wrong."""

    score: Expr | None
    mask: Expr | None
    inputs: tuple[SideInput, ...]
    parameters: tuple[tuple[str, int | float], ...]
    diagnostics: tuple[Diagnostic, ...]


def read_clauses(root: Fields, values: Mapping[str, Value]) -> Clauses:
    """The clauses of the spec with that tree and those values."""
    reader = _Reader(root, values)
    parameters, inputs = reader.parameters(), reader.inputs()
    score = reader.expression("score", "number", inputs, parameters)
    mask = reader.expression("mask", "truth", inputs, parameters)
    reader.unread(inputs, score, mask)
    return Clauses(
        score, mask, tuple(inputs.values()), tuple(parameters.items()), tuple(reader.diagnostics)
    )


class _Reader:
    def __init__(self, root: Fields, values: Mapping[str, Value]) -> None:
        self.root = root
        self.values = values
        self.diagnostics: list[Diagnostic] = []

    def report(
        self, code: str, key: str, message: str, hint: str = "", span: Span | None = None
    ) -> None:
        span = span or span_of(self.root, *key.split("."))
        self.diagnostics.append(Diagnostic(code, message, span, key, hint=hint))

    def section(self, key: str) -> dict[str, Value]:
        """The named values of `key` whose names may be used."""
        section = self.values.get(key)
        if not isinstance(section, dict):
            return {}
        return {name: v for name, v in section.items() if self.usable(name, key)}

    def usable(self, name: str, key: str) -> bool:
        """Whether an input or parameter may have this name; reports it if not."""
        what, hint = "", f"take another, such as my_{name}"
        if name in (*VARIABLES, "score"):
            what = "is a variable of the language"
        elif name in ALL_FUNCTIONS:
            what = "is a function of the language"
        elif keyword.iskeyword(name) or keyword.issoftkeyword(name):
            what = "is a word of Python"
        elif key == "inputs" and is_reserved(name):
            what = "is a name that the kernels use themselves"
        elif key == "inputs" and name in self.section_names("parameters"):
            what, hint = "names a parameter as well", "take another for one of the two"
        if what:
            node = node_at(self.root, key)
            entry = node.entries.get(name) if isinstance(node, Fields) else None
            span = entry.key_span if entry else None
            self.report("E-NAME", f"{key}.{name}", f"the name '{name}' {what}", hint, span)
        return not what

    def section_names(self, key: str) -> tuple[str, ...]:
        section = self.values.get(key)
        return tuple(section) if isinstance(section, dict) else ()

    def parameters(self) -> dict[str, int | float]:
        """The spec's own numbers."""
        found: dict[str, int | float] = {}
        for name, value in self.section("parameters").items():
            if isinstance(value, int) and abs(value) >= _LARGEST:
                message = f"the parameter '{name}' is a whole number beyond 2**62"
                self.report("E-RANGE", f"parameters.{name}", message, "write it with .0 at its end")
            elif isinstance(value, (int, float)):
                found[name] = value
        return found

    def inputs(self) -> dict[str, SideInput]:
        """The side inputs whose shape is right."""
        found: dict[str, SideInput] = {}
        for name, value in self.section("inputs").items():
            key = f"inputs.{name}"
            if not isinstance(value, dict):
                continue
            shape = value.get("shape")
            node = node_at(self.root, "inputs", name)
            if isinstance(node, Fields) and "shape" not in node.entries:
                hint = "such as shape: [batch, kv_len]"
                self.report("E-MISSING", key, f"the side input '{name}' needs a shape", hint)
            if isinstance(node, Fields) and "dtype" in node.entries and "dtype" not in value:
                continue
            if isinstance(shape, tuple) and shape:
                dtype = _DATA[str(value.get("dtype", "float"))]
                sizes = cast(tuple[str | int, ...], shape)
                found[name] = SideInput(name, sizes, dtype, None, key)
        return found

    def expression(
        self,
        key: Literal["score", "mask"],
        wants: Literal["truth", "number"],
        inputs: Mapping[str, SideInput],
        parameters: Mapping[str, int | float],
    ) -> Expr | None:
        """The expression of `key`; None where there is none, or a wrong one."""
        text = self.values.get(key)
        node = node_at(self.root, key)
        if not isinstance(text, str) or not isinstance(node, Scalar):
            return None
        parsed = parse(text, Scope(key, wants, wants == "number", inputs, parameters))
        for mistake in parsed.mistakes:
            name = text[mistake.start : mistake.start + mistake.length]
            if self.is_declared(name) and name not in (*inputs, *parameters):
                continue  # its own declaration is what is wrong
            span = node.span
            if node.place is not None:
                inside = span_inside(text, node.place, mistake.start, mistake.length)
                span = inside or span
            self.report("E-EXPR", key, f"'{key}' {mistake.message}", mistake.hint, span)
        return parsed.expr

    def is_declared(self, name: str) -> bool:
        """Whether the spec has a side input or parameter of that name, right or wrong."""
        nodes = [node_at(self.root, key) for key in ("inputs", "parameters")]
        return any(isinstance(node, Fields) and name in node.entries for node in nodes)

    def unread(
        self, inputs: Mapping[str, SideInput], score: Expr | None, mask: Expr | None
    ) -> None:
        """Reports side inputs that a call would have to bring for nothing."""
        texts = [self.values.get("score"), self.values.get("mask")]
        if any(
            text is not None and e is None for text, e in zip(texts, (score, mask), strict=True)
        ):
            return  # a wrong expression may have meant to read it
        read = {load.input for expr in (score, mask) if expr is not None for load in loads(expr)}
        for name in inputs:
            if name not in read:
                message = f"the side input '{name}' is read by neither 'mask' nor 'score'"
                self.report("E-UNUSED", f"inputs.{name}", message, "take it out, or read it")
