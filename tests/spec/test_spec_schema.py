"""The JSON Schema and the reader agree: nothing that the reader takes is marked by an editor."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from attngen.errors import SpecError
from attngen.ir.schedule import CpuSchedule
from attngen.resources import specs_dir
from attngen.spec.field_kinds import Field, Section
from attngen.spec.fields import SPEC
from attngen.spec.nodes import from_mapping
from attngen.spec.reader import read_spec
from attngen.spec.schema import json_schema
from attngen.spec.values import check_values

VALIDATOR = Draft202012Validator(json_schema())
RELATED = {
    *("E-HEADS", "E-SCOPE", "E-SIZE", "E-MISSING", "E-EXTENDS", "E-NAME", "E-RANGE", "E-TEXT"),
    *("E-BIAS", "E-SHAPE", "E-ACTIVATION", "E-DIFFERENTIAL"),
}


def complaints(document: dict[str, Any]) -> set[str]:
    try:
        read_spec(document)
    except SpecError as error:
        return {d.code for d in error.diagnostics}
    return set()


def reader_takes(document: dict[str, Any]) -> bool:
    return not complaints(document)


def values_are_right(document: dict[str, Any]) -> bool:
    root, broken = from_mapping(document)
    return not broken and not check_values(root)[1]


def test_the_schema_is_valid_and_new_each_time() -> None:
    Draft202012Validator.check_schema(json_schema())
    json_schema()["properties"].clear()
    assert json_schema()["properties"]


def test_every_key_is_described() -> None:
    def walk(properties: dict[str, Any]) -> None:
        for name, schema in properties.items():
            assert len(schema["description"]) > 20, name
            walk(schema.get("properties", {}))

    walk(json_schema()["properties"])


def test_every_scheduling_decision_has_a_key() -> None:
    cpu = json_schema()["properties"]["schedule"]["properties"]["cpu"]["properties"]
    assert list(cpu) == [f.name for f in fields(CpuSchedule)]
    assert cpu["projection"]["type"] == "string"
    assert cpu["block_q"]["type"] == "integer"


@pytest.mark.parametrize("path", sorted(specs_dir().glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_specs_satisfy_the_schema(path: Path) -> None:
    VALIDATOR.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


POOL: list[Any] = [
    *(None, True, False, 0, 1, -1, -2, 2, 4, 3.5, 2**31 - 1, 2**31, 10**30, 1e-30, -0.5),
    *("", "x", "my spec", "layer", "core", "true", "4", "bottom_right", "top_left", "9lives"),
    *("float32", "float64", "float16", "out", "a" * 64, "a" * 65, "sub/spec.yaml"),
    *([], ["out"], ["lse"], ["out", "lse"], ["lse", "out"], ["out", "out"], ["out", 1], [[]]),
    *({}, {"left": 3}, {"left": -1, "right": 0}, {"left": -2}, {"left": True}, {"up": 1}),
    *([0.5, 2], [0.5, "x"], "per_head", {"buckets": 8, "max_distance": 9}, {"buckets": 0.5}),
    *({"cpu": {}}, {"cpu": {"block_q": 64}}, {"cpu": {"block_q": "64"}}, {"cpu": 3}),
    *({"cpu": {"projection": "blas"}}, {"cpu": {"projection": 3}}, {"gpu": {}}, {"cpu": {"x": 1}}),
]

SWEEPS: list[Any] = [
    *({"head_dim": [64, None]}, {"head_dim": {"from": 8, "to": 64, "factor": 2}}),
    *({"window.left": [3, -1]}, {"window.left": [-2]}, {"heads": [None]}, {"q_len": []}),
    *({"parameters.size": [1, 0.5]}, {"threads": [1, 2]}, {"scale": [[0.5, 1], 0.25, None]}),
    *({"zip": {"heads": [4], "head_dim": [64]}}, {"zip": []}, {"cross": [{"batch": [1, 2]}]}),
    *({"where": "heads > 1"}, {"heads": [4], "where": ["heads > 1", ""]}),
    *({"dtype": ["float32"], "causal": [True, "top_left"]}, {"causal": {"from": 1, "to": 2}}),
    *({"outputs": [["out"], ["out", "lse"]]}, {"outputs": ["out"]}, {"name": ["a", "b"]}),
]


def all_keys() -> list[str]:
    return [*(f.name for f in SPEC.fields), "rope", "causual", "x"]


@pytest.mark.parametrize("key", all_keys())
def test_one_key_is_judged_alike(key: str) -> None:
    base = {"heads": 4, "head_dim": 8}
    verdicts = []
    for value in POOL + SWEEPS if key == "sweep" else POOL:
        document = {**base, key: value}
        verdicts.append(VALIDATOR.is_valid(document))
        assert verdicts[-1] == values_are_right(document), (key, value)
    assert not all(verdicts)


@pytest.mark.parametrize(
    "document",
    [
        {"heads": 4.0, "head_dim": 8},
        {"heads": 4, "head_dim": 8, "scale": math.nan},
        {"heads": 4, "head_dim": 8, "scale": math.inf},
        {"heads": 4, "head_dim": 8, "name": "lambda"},
        {"heads": 4, "head_dim": 8, "description": "\x1b"},
        {"heads": 4, "head_dim": 8, "kv_heads": 3},
        {"heads": 4, "head_dim": 8, "scope": "layer"},
        {"heads": 4},
        {"heads": 2**31 - 1, "head_dim": 2**31 - 1},
        {"extends": "no_such_spec"},
    ],
    ids=str,
)
def test_where_the_reader_is_stricter(document: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(document)
    assert not reader_takes(document)


def right_values(field: Field) -> st.SearchStrategy[Any]:
    """Values that are mostly right for `field`, so that whole documents often are."""
    if isinstance(field.kind, Section):
        inner: dict[str, st.SearchStrategy[Any]] = {
            f.name: right_values(f) for f in field.kind.fields
        }
        return st.fixed_dictionaries({}, optional=inner)
    sizes = st.sampled_from([1, 2, 4, 8, 64])
    return {
        "name": st.sampled_from(["mine", "_x", "A1", "lambda", "a-b"]),
        "description": st.text(max_size=10),
        "extends": st.sampled_from(["gqa", "mha_4096", "nothing"]),
        "scope": st.sampled_from(["layer", "core"]),
        "causal": st.sampled_from([True, False, "bottom_right", "top_left", "yes"]),
        "scale": st.floats(width=32) | st.integers(-3, 3),
        "softcap": st.floats(width=32) | st.integers(-1, 50),
        "sink": st.booleans() | st.integers(0, 1),
        "dtype": st.sampled_from(["float32", "float64", "float16"]),
        "outputs": st.lists(st.sampled_from(["out", "lse", "logits", "p"]), max_size=3),
        "projection": st.sampled_from(["generated", "blas"]),
        "sweep": st.sampled_from(SWEEPS),
    }.get(field.name, sizes | st.integers(-2, 100))


DOCUMENTS = st.fixed_dictionaries(
    {}, optional={f.name: right_values(f) | st.sampled_from(POOL) for f in SPEC.fields}
)
SIZED = st.fixed_dictionaries(
    {"heads": st.sampled_from([4, 8]), "head_dim": st.sampled_from([8, 64])},
    optional={
        f.name: right_values(f)
        for f in SPEC.fields
        if f.name not in ("heads", "head_dim", "d_model")
    },
)


@settings(deadline=None, max_examples=300)
@given(document=DOCUMENTS | SIZED)
def test_what_the_reader_takes_the_schema_takes(document: dict[str, Any]) -> None:
    if reader_takes(document):
        VALIDATOR.validate(document)


@settings(deadline=None, max_examples=300)
@given(document=SIZED)
def test_what_the_schema_takes_the_reader_refuses_only_by_its_own_rules(
    document: dict[str, Any],
) -> None:
    if VALIDATOR.is_valid(document):
        assert complaints(document) <= RELATED
    else:
        assert complaints(document)
