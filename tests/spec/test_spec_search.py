"""Which file a name or a path means, and files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from attngen.errors import CallTypeError, SpecError
from attngen.resources import specs_dir
from attngen.spec.reader import read_spec
from attngen.spec.search import find_spec, spec_names

SMALL = "heads: 4\nhead_dim: 8\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fails(source: object) -> str:
    with pytest.raises(SpecError) as caught:
        read_spec(source)  # type: ignore[arg-type]
    return str(caught.value).replace(str(specs_dir()), "<shipped specs>")


def test_the_working_folder_comes_first() -> None:
    assert read_spec("gqa").heads == 8
    Path("specs").mkdir()
    Path("specs/gqa.yaml").write_text(SMALL)
    Path("specs/mine.yml").write_text(SMALL)
    assert read_spec("gqa").heads == 4
    assert read_spec("mine").name == "mine"
    assert find_spec("gqa") == Path("specs/gqa.yaml")
    assert {"gqa", "mine", "mha_4096"} <= set(spec_names())
    assert find_spec("nothing") is None


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "sub/a.yaml", "sub/plain", "plain"])
def test_paths(name: str) -> None:
    Path("sub").mkdir()
    Path(name).write_text(SMALL)
    assert read_spec(name).heads == 4
    assert read_spec(Path(name)).heads == 4
    assert read_spec(str(Path(name).absolute())).heads == 4


def test_the_nearest_name() -> None:
    assert fails("mha_409") == (
        "error: there is no spec called 'mha_409'\n"
        "  note: looked in specs/ of the working folder and in <shipped specs>\n"
        "  hint: did you mean mha_4096?  [E-NOT-FOUND]"
    )


def test_the_text_of_a_spec_is_no_name() -> None:
    assert "pass yaml.safe_load(text)" in fails(SMALL)


def test_a_folder() -> None:
    Path("sub.yaml").mkdir()
    Path("sub").mkdir()
    assert "'sub' is a folder; name a file in it" in fails("sub")
    assert fails("sub.yaml") == (
        "error: cannot read 'sub.yaml': Is a directory\n"
        "  hint: name a file in that folder  [E-FILE]"
    )


def test_a_file_that_is_not_there() -> None:
    assert fails("a/b.yaml") == (
        "error: cannot read 'a/b.yaml': No such file or directory\n"
        "  hint: there is no folder 'a'  [E-FILE]"
    )
    Path("b.yaml").symlink_to("b.yaml")
    assert "cannot read 'b.yaml'" in fails("b.yaml")


def test_a_file_that_is_far_too_large() -> None:
    Path("big.yaml").write_bytes(b"#" * (64 << 10) + b"\n")
    assert fails("big.yaml") == (
        "error: 'big.yaml' is larger than 64 KiB, and a spec is a few lines\n  [E-FILE]"
    )
    assert "larger than 64 KiB" in fails("/dev/zero")


@pytest.mark.parametrize("source", [None, 3, b"gqa", ["gqa"]])
def test_something_else(source: object) -> None:
    with pytest.raises(CallTypeError, match="a spec is a path, a name or a mapping, not a value"):
        read_spec(source)  # type: ignore[arg-type]
