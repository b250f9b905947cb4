"""`extends`: what is inherited, where mistakes are placed, and how chains go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from attngen.errors import SpecError
from attngen.spec.model import Window
from attngen.spec.reader import read_spec


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def fails(source: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        read_spec(source)
    return caught.value


def test_mappings_merge_and_everything_else_replaces() -> None:
    write(
        "base.yaml",
        "name: base\ndescription: the base\nheads: 8\nhead_dim: 64\noutputs: [out, lse]\n"
        "window: {left: 3, right: 4}\nschedule: {cpu: {block_q: 64, block_kv: 128}}\n",
    )
    write(
        "child.yaml",
        "extends: base\nkv_heads: 2\noutputs: [out]\nwindow: {right: 0}\n"
        "schedule: {cpu: {block_q: 32}}\n",
    )
    spec = read_spec("child.yaml")
    assert (spec.name, spec.description) == ("child", "")
    assert (spec.heads, spec.kv_heads, spec.head_dim) == (8, 2, 64)
    assert spec.outputs == ("out",)
    assert spec.window == Window(3, 0)
    assert [(o.name, o.value) for o in spec.schedule] == [("block_kv", 128), ("block_q", 32)]
    assert [str(o.span) for o in spec.schedule] == ["base.yaml:7:41", "child.yaml:5:27"]


def test_derived_sizes_follow_the_child() -> None:
    write("base.yaml", "d_model: 512\nheads: 8\n")
    write("child.yaml", "extends: base.yaml\nheads: 16\n")
    spec = read_spec("child.yaml")
    assert (spec.head_dim, spec.kv_heads) == (32, 16)


def test_a_chain_by_relative_paths() -> None:
    write("a.yaml", "heads: 8\nhead_dim: 64\nscale: 0.5\n")
    write("sub/b.yaml", "extends: ../a.yaml\nscale: 0.25\n")
    write("sub/deep/c.yml", "extends: ../b.yaml\nsink: true\n")
    spec = read_spec("sub/deep/c.yml")
    assert (spec.heads, spec.scale, spec.sink) == (8, 0.25, True)


def test_names_are_found_beside_the_child_then_on_the_search_path() -> None:
    write("lib/gqa.yaml", "heads: 2\nhead_dim: 8\n")
    write("lib/near.yaml", "extends: gqa\n")
    write("far.yaml", "extends: gqa\n")
    assert read_spec("lib/near.yaml").heads == 2
    assert read_spec("far.yaml").heads == 8


def test_a_spec_may_extend_the_shipped_one_that_it_shadows() -> None:
    write("specs/mha_4096.yaml", "extends: mha_4096\nsoftcap: 20\n")
    spec = read_spec("mha_4096")
    assert (spec.d_model, spec.softcap) == (4096, 20.0)


def test_a_mapping_extends_relative_to_the_working_folder() -> None:
    write("base.yaml", "heads: 8\nhead_dim: 64\n")
    spec = read_spec({"extends": "base.yaml", "kv_heads": 4})
    assert (spec.name, spec.heads, spec.kv_heads) == ("attention", 8, 4)


def test_mistakes_are_placed_in_the_file_that_holds_them() -> None:
    write("base.yaml", "heads: 8\nhead_dim: 64\nscale: none\nzebra: 1\n")
    write("child.yaml", "extends: base\nkv_heads: 3\n")
    assert [str(d.span) for d in fails("child.yaml").diagnostics] == [
        "base.yaml:3:8",
        "base.yaml:4:1",
        "child.yaml:2:11",
    ]


def test_a_wrong_value_that_the_child_replaces_is_no_mistake() -> None:
    write("base.yaml", "heads: none\nhead_dim: 64\n")
    write("child.yaml", "extends: base\nheads: 3\n")
    assert read_spec("child.yaml").heads == 3


def test_a_circle() -> None:
    write("a.yaml", "extends: b\nheads: 4\n")
    write("b.yaml", "extends: c\nheads: 4\n")
    write("c.yaml", "extends: ./a.yaml\nheads: 4\n")
    assert str(fails("a.yaml")) == (
        "c.yaml:1:10: error: 'extends' goes in a circle: a.yaml -> b.yaml -> c.yaml -> a.yaml\n"
        "    1 | extends: ./a.yaml\n"
        "      |          ^~~~~~~~ here\n"
        "  hint: let one of them stand alone  [E-CYCLE]"
    )


def test_a_spec_that_extends_itself() -> None:
    write("a.yaml", "extends: a.yaml\nheads: 4\n")
    [found] = fails("a.yaml").diagnostics
    assert found.message == "'extends' goes in a circle: a.yaml -> a.yaml"


def test_a_circle_through_a_link() -> None:
    write("a.yaml", "extends: b.yaml\nheads: 4\n")
    Path("b.yaml").symlink_to("a.yaml")
    assert [d.code for d in fails("a.yaml").diagnostics] == ["E-CYCLE"]


def test_an_endless_chain() -> None:
    for i in range(40):
        write(f"s{i}.yaml", f"extends: s{i + 1}\n")
    write("s40.yaml", "heads: 4\nhead_dim: 8\n")
    assert [d.code for d in fails("s0.yaml").diagnostics] == ["E-CYCLE"]
    assert read_spec("s10.yaml").heads == 4


def test_what_a_missing_parent_may_hold_is_not_reported_missing() -> None:
    write("a.yaml", "extends: nowhere\ncausal: maybe\n")
    assert [d.code for d in fails("a.yaml").diagnostics] == ["E-EXTENDS", "E-CHOICE"]


def test_the_near_file_is_named() -> None:
    write("sub/base_large.yaml", "heads: 4\n")
    write("a.yaml", "extends: sub/base_larg.yaml\n")
    [found] = fails("a.yaml").diagnostics
    assert found.hint == "did you mean base_large.yaml?"


@pytest.mark.parametrize(
    ("parent", "code"),
    [("", "E-EMPTY"), ("[", "E-YAML"), ("- 1", "E-MAPPING"), ("extends: 3", "E-TYPE")],
)
def test_a_parent_that_cannot_be_read(parent: str, code: str) -> None:
    write("base.yaml", parent)
    write("a.yaml", "extends: base\nsoftcap: 0\n")
    found = fails("a.yaml").diagnostics
    assert [d.code for d in found] == [code, "E-RANGE"]
    assert found[0].span is not None
    assert found[0].span.source.name == "base.yaml"
