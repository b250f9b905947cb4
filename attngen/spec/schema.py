"""A JSON Schema (2020-12) of specs, for editors that complete and check YAML.

Input: the table in :mod:`attngen.spec.fields`. Output: plain JSON data. Whatever the schema rejects
the reader rejects too; rules that relate two keys are the reader's alone.
"""

from __future__ import annotations

from typing import Any, assert_never

from attngen.spec.axes import GROUP_DOCS
from attngen.spec.field_kinds import (
    IDENTIFIER,
    MAX_AXES,
    PER_HEAD,
    SIZE_MAX,
    AnyNumber,
    Axes,
    Choice,
    Expression,
    Field,
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
from attngen.spec.fields import SPEC
from attngen.spec.lexical import MAX_LENGTH
from attngen.spec.sweep_reader import RANGE, RANGED, REQUIRED


def json_schema() -> dict[str, Any]:
    """The schema of a spec, as new JSON data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "attngen spec",
        "description": "What a multi-head attention layer or core computes.",
        **_kind(SPEC),
        "anyOf": [{"required": ["heads"]}, {"required": ["extends"]}],
    }


def _field(field: Field) -> dict[str, Any]:
    default = f" Default: {field.default}." if field.default else ""
    return {"description": f"{field.doc}{default}", **_kind(field.kind)}


def _kind(kind: Kind) -> dict[str, Any]:
    match kind:
        case Integer(minimum=minimum, maximum=maximum):
            return {"type": "integer", "minimum": minimum, "maximum": maximum}
        case Number(above=None) | AnyNumber():
            return {"type": "number"}
        case Number(above=above):
            return {"type": "number", "exclusiveMinimum": above}
        case HeadNumbers():
            numbers = {"type": "array", "items": {"type": "number"}, "minItems": 1}
            return {"anyOf": [{"type": "number"}, numbers, {"const": PER_HEAD}]}
        case Flag():
            return {"type": "boolean"}
        case Text(pattern=pattern, nonempty=nonempty):
            schema: dict[str, Any] = {"type": "string"}
            if nonempty:
                schema["minLength"] = 1
            if pattern:
                schema["pattern"] = f"^{pattern}$"
            return schema
        case Choice(options=options):
            return {"enum": list(options)}
        case Words(options=options, required=required):
            return {
                "type": "array",
                "items": {"enum": list(options)},
                "contains": {"const": required},
                "uniqueItems": True,
            }
        case Expression():
            return {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH}
        case Shape(symbols=symbols):
            size = {"type": "integer", "minimum": 1, "maximum": SIZE_MAX}
            items = {"anyOf": [{"enum": list(symbols)}, size]}
            return {"type": "array", "items": items, "minItems": 1, "maxItems": MAX_AXES}
        case Named(item=item):
            return {
                "type": "object",
                "propertyNames": {"pattern": f"^{IDENTIFIER}$"},
                "additionalProperties": _field(item),
            }
        case Section(fields=fields, nonempty=nonempty):
            section: dict[str, Any] = {
                "type": "object",
                "properties": {f.name: _field(f) for f in fields},
                "additionalProperties": False,
            }
            if nonempty:
                section["minProperties"] = 1
            return section
        case Axes():
            return _sweep(kind)
        case _:
            assert_never(kind)


def _sweep(kind: Axes) -> dict[str, Any]:
    """Keys and groups of them; what a range and a condition say is the reader's to judge."""
    axes: dict[str, Any] = {
        "properties": {f.name: {"description": f.doc, **_axis(f)} for f in kind.fields},
        "patternProperties": {
            rf"^{f.name}\.{IDENTIFIER}$": {"description": f.doc, **_axis(f)} for f in kind.named
        },
    }
    closed = {"type": "object", "additionalProperties": False, "minProperties": 1}
    group = {**closed, **axes}
    groups = {"anyOf": [group, {"type": "array", "items": group}]}
    text = _kind(Expression())
    where = {"anyOf": [text, {"type": "array", "items": text}]}
    kinds = {"cross": groups, "zip": groups, "where": where}
    more = {name: {"description": GROUP_DOCS[name], **kinds[name]} for name in kinds}
    properties = {**axes["properties"], **more}
    alone = {"required": ["where"], "maxProperties": 1}  # conditions of nothing
    return {**closed, **axes, "properties": properties, "not": alone}


def _axis(field: Field) -> dict[str, Any]:
    """A value, a list of values and nulls, or a range."""
    one = _kind(field.kind)
    required = field.name in REQUIRED
    item = one if required else {"anyOf": [one, {"type": "null"}]}
    choices = [item, {"type": "array", "items": item, "minItems": 1}]
    if isinstance(field.kind, RANGED):
        number = {"type": "number"}
        choices.append(
            {
                "type": "object",
                "properties": dict.fromkeys(RANGE, number),
                "additionalProperties": False,
                "required": ["from", "to"],
            }
        )
    return {"anyOf": choices}
