"""Every case from the field is covered; ``tests/cases/coverage.json`` says where, or why not."""

from __future__ import annotations

import ast
import json
from functools import cache

import pytest
from cases.cases import DATA
from repo.generated import ROOT

TESTS = ROOT / "tests"
COVERAGE = json.loads((DATA.parent / "coverage.json").read_text("utf-8"))
IDS = (
    *(1, 2, 4, 6, 7, 8, 9, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 28, 29, 30, 32, 33, 34),
    *(35, 36, 38, 39, 40, 42, 47, 48, 50, 51, 54, 55, 56, 59, 60, 61, 62, 63, 65, 67),
)


@cache
def functions(path: str) -> frozenset[str]:
    """The functions of a file of tests."""
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_the_table_is_complete() -> None:
    assert list(COVERAGE) == [f"C{number:02}" for number in IDS]


def test_data_belongs_to_cases_that_have_tests() -> None:
    for path in DATA.glob("*.npz"):
        assert COVERAGE[path.name[:3]].get("tests"), path.name


@pytest.mark.parametrize("case", COVERAGE)
def test_a_case_has_tests_or_a_reason(case: str) -> None:
    entry = COVERAGE[case]
    assert entry.keys() in ({"title", "tests"}, {"title", "why"})
    assert entry["title"]
    for test in entry.get("tests", ()):
        path, _, name = test.partition("::")
        assert name.startswith("test_")
        assert name in functions(path), test
