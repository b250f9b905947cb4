"""Whatever is in a file or a mapping, the answer is a Spec or a SpecError that can be printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attngen.errors import SpecError
from attngen.spec.fields import SPEC
from attngen.spec.model import Spec
from attngen.spec.reader import read_spec

GOLDEN = (Path(__file__).parent / "spec_errors.txt").read_text(encoding="utf-8")
DOCUMENTS = re.findall(r"^### .*?\n(.*?)^>>>\n", GOLDEN, re.MULTILINE | re.DOTALL)
SIGNS = ": |, |- |[|]|{|}|&|*|!|>|'|#|%|@|`|?|~|\n|\t|\\|<<|---|...|&a |*a|!!int |!x |1e5|010"
FRAGMENTS = [
    *(f.name for f in SPEC.fields),
    *SIGNS.split("|"),
    *("|", '"', "  ", "true", "yes", "1:30", "0x1", ".nan", "\ufeff", "\x00", "\u2028", "\x85"),
    *("4", "-1", "1.5", "9" * 50, "\U0001f600", "\x1b", "left", "cpu", "block_q"),
]
YAMLISH = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join)
LIMITS = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def outcome(source: Any) -> Spec | None:
    """The Spec, or None after an error whose every part can be shown."""
    try:
        return read_spec(source)
    except SpecError as caught:
        error = caught
    assert error.diagnostics
    str(error).encode("utf-8")
    for found in error.diagnostics:
        assert found.code.startswith("E-")
        if found.span:
            lines = found.span.source.text.splitlines() or [""]
            assert 1 <= found.span.line <= len(lines) + 1
            assert found.span.column >= 1
    return None


@LIMITS
@given(data=st.binary(max_size=200))
def test_bytes(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_bytes(data)
    outcome(tmp_path / "spec.yaml")


@LIMITS
@given(text=YAMLISH)
def test_yaml_like_text(text: str, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    outcome(tmp_path / "spec.yaml")


@LIMITS
@given(
    text=st.sampled_from(DOCUMENTS),
    cut=st.tuples(st.integers(0, 80), st.integers(0, 6)),
    insert=st.sampled_from(["", *FRAGMENTS]),
)
def test_specs_with_an_edit(text: str, cut: tuple[int, int], insert: str, tmp_path: Path) -> None:
    start, length = cut
    edited = text[:start] + insert + text[start + length :]
    (tmp_path / "spec.yaml").write_text(edited, encoding="utf-8")
    outcome(tmp_path / "spec.yaml")


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.sampled_from(["true", "gqa", "a/b", "x.yaml", 10**400, object()]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([f.name for f in SPEC.fields] + ["left", "right", "cpu", "block_q"])
            | st.text(max_size=3)
            | st.integers(),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@LIMITS
@given(mapping=st.dictionaries(st.sampled_from([f.name for f in SPEC.fields]), ANYTHING))
def test_mappings(mapping: dict[str, Any]) -> None:
    outcome(mapping)


@LIMITS
@given(text=st.text(max_size=20) | YAMLISH)
def test_names_and_paths(text: str) -> None:
    outcome(text)


@pytest.mark.parametrize("text", ["\0", "a\0/b.yaml", "x" * 5000, "y/" * 3000, "", ".", "..", "~"])
def test_odd_names(text: str) -> None:
    assert outcome(text) is None
