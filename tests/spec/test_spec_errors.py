"""Every error of the reader, pinned by the text that a user sees.

`spec_errors.txt` and `sweep_errors.txt` are lists of small specs, each followed by what the reader
says about it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from attngen.errors import SpecError
from attngen.resources import specs_dir
from attngen.spec.fields import SPEC
from attngen.spec.reader import read_spec

CASES = [
    case
    for name in ("spec_errors.txt", "sweep_errors.txt")
    for case in re.findall(
        r"^### (.*?)\n(.*?)^>>>\n(.*?)(?=\n+^### |\Z)",
        (Path(__file__).parent / name).read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
]
YAML_ALONE = re.compile(  # mistakes that a mapping cannot have, or that it shows differently
    r"E-(YAML|SPELLING|DUPLICATE|TAG|ALIAS|MERGE|DOCUMENTS|EMPTY|MAPPING)\]|a key must be"
    r"|1e400|not on$|\d-\d\d-",
    re.MULTILINE,
)
MAPPINGS = [case[:2] for case in CASES if not YAML_ALONE.search(case[2])]


def said_about(source: object) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read_spec(source)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_error_text(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(text, encoding="utf-8")
    said = str(said_about("spec.yaml")).replace(str(specs_dir()), "<shipped specs>")
    assert said == expected.rstrip("\n")


@pytest.mark.parametrize("text", [c[1] for c in MAPPINGS], ids=[c[0] for c in MAPPINGS])
def test_a_mapping_gives_the_same_errors_without_places(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(text, encoding="utf-8")
    from_file = said_about("spec.yaml").diagnostics
    from_mapping = said_about(yaml.safe_load(text)).diagnostics
    assert all(d.span is None for d in from_mapping)
    assert {(d.code, d.key, d.message, d.note, d.hint) for d in from_mapping} == {
        (d.code, d.key, d.message, d.note, d.hint) for d in from_file
    }


def test_most_errors_exist_for_mappings_too() -> None:
    assert len(MAPPINGS) > len(CASES) / 2


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "heads: 32\nkv_heads: 6\nheads: 8\ncausual: yes\ncausal: yes\nhead_dim: 010\n"
        "scale: 1e-5\nsoftcap: -1\nrope: {}\non: 3\noutputs: [lse]\n---\n"
    )
    found = [(d.code, d.span.line if d.span else 0) for d in said_about(path).diagnostics]
    assert found == [
        ("E-HEADS", 2),
        ("E-DUPLICATE", 3),
        ("E-KEY", 4),
        ("E-SPELLING", 5),
        ("E-SPELLING", 6),
        ("E-SPELLING", 7),
        ("E-RANGE", 8),
        ("E-LATER", 9),
        ("E-KEY", 10),
        ("E-CHOICE", 11),
        ("E-DOCUMENTS", 13),
    ]


def test_key_paths_are_structured(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("heads: 4\nhead_dim: 8\nwindow: {left: -2}\nschedule: {cpu: {block_q: 1.5}}\n")
    assert [d.key for d in said_about(path).diagnostics] == ["window.left", "schedule.cpu.block_q"]


@pytest.mark.parametrize(
    ("heads", "kv_heads"), [(6, 4), (4, 0), (0, 0), (2, 4)], ids=lambda n: str(n)
)
def test_head_counts_that_do_not_fit_name_both_numbers(heads: int, kv_heads: int) -> None:
    said = str(said_about({"heads": heads, "kv_heads": kv_heads, "head_dim": 8}))
    assert "'kv_heads'" in said
    assert str(kv_heads) in said
    if kv_heads:
        assert str(heads) in said


@pytest.mark.parametrize("key", SPEC.later)
def test_keys_of_coming_versions_are_never_ignored(key: str) -> None:
    [found] = said_about({"heads": 4, "head_dim": 8, key: None}).diagnostics
    assert (found.code, found.key) == ("E-LATER", key)


@pytest.mark.parametrize(
    "value",
    [2**200, -(2**200), 10**5000, [[]] * 3, {1: 2}, object(), b"4"],
    ids=lambda v: type(v).__name__,
)
def test_strange_values_in_a_mapping(value: object) -> None:
    assert "'heads'" in str(said_about({"heads": value, "head_dim": 8}))


def test_a_mapping_that_contains_itself() -> None:
    loop: dict[str, object] = {"heads": 4, "head_dim": 8}
    loop["window"] = loop
    assert "E-ALIAS" in [d.code for d in said_about(loop).diagnostics]


def test_a_mapping_that_explodes() -> None:
    bomb: list[object] = []
    for _ in range(20):
        bomb = [bomb] * 20
    assert "E-ALIAS" in [d.code for d in said_about({"heads": bomb}).diagnostics]


def test_a_name_that_the_file_cannot_give(tmp_path: Path) -> None:
    path = tmp_path / "my-spec.yaml"
    path.write_text("heads: 4\nhead_dim: 8\n")
    [found] = said_about(path).diagnostics
    assert found.code == "E-NAME"
    assert "'my-spec'" in found.message
    path.write_text("heads: 4\nhead_dim: 8\nname: mine\n")
    assert read_spec(path).name == "mine"
