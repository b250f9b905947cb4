"""What YAML itself makes easy to get wrong: spellings, duplicate keys, aliases, encodings."""

from __future__ import annotations

from pathlib import Path

import pytest

from attngen.errors import SpecError
from attngen.spec.model import Spec, Window
from attngen.spec.reader import read_spec
from attngen.spec.spelling import respell, spelling_of

SMALL = "heads: 4\nhead_dim: 8\n"


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def reader(text: str | bytes) -> Spec:
        path = tmp_path / "spec.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_spec(path)

    return reader


def codes(error: pytest.ExceptionInfo[SpecError]) -> list[str]:
    return [d.code for d in error.value.diagnostics]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("1.0e-5", 1e-5),
        ("1.e-5", 1e-5),
        ("1.0e+5", 1e5),
        (".5", 0.5),
        ("+0.5", 0.5),
        ("-0.5", -0.5),
        ("0.00001", 1e-5),
        ("1", 1.0),
        ("0", 0.0),
        ("-1.0e+4", -1e4),
    ],
)
def test_numbers_that_all_yaml_versions_read_alike(read, literal: str, value: float) -> None:  # type: ignore[no-untyped-def]
    spec = read(f"{SMALL}scale: {literal}\n")
    assert spec.scale == value
    assert type(spec.scale) is float


@pytest.mark.parametrize(
    ("literal", "write"),
    [
        ("1e-5", "1.0e-5"),
        ("1E5", "1.0e+5"),
        ("1.0e5", "1.0e+5"),
        ("1.e5", "1.0e+5"),
        ("+.5", "0.5"),
        ("-.5", "-0.5"),
        (".5e3", "0.5e+3"),
        ("1_000", "1000"),
        ("1_000.5", "1000.5"),
        ("010", "10, or 8 if octal was meant"),
        ("01", "1"),
        ("0x1F", "31"),
        ("0o17", "15"),
        ("0b11", "3"),
        ("1:30", "90"),
        ("-1:30", "-90"),
        ("1:30.5", "90.5"),
    ],
)
def test_numbers_that_yaml_versions_read_differently(read, literal: str, write: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError) as error:
        read(f"{SMALL}scale: {literal}\n")
    [found] = error.value.diagnostics
    assert found.code == "E-SPELLING"
    assert found.message.startswith(f"'scale' is written {literal}, ")
    assert found.hint == f"write {write}"
    advised = write.split(",")[0]
    assert spelling_of(advised) is None
    assert read(f"{SMALL}scale: {advised}\n").scale == float(advised)


def test_an_integer_written_with_an_exponent(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match="write 1000  "):
        read("heads: 1e3\nhead_dim: 8\n")
    with pytest.raises(SpecError, match="must be an integer, not the text '1e-5'"):
        read("heads: 1e-5\nhead_dim: 8\n")


@pytest.mark.parametrize("text", ["1e-5", "12", "1.5", "+.5e+3", "1.e5", "0.1"])
def test_respelling_keeps_the_value(text: str) -> None:
    assert float(respell(text)) == float(text)
    assert spelling_of(respell(text)) is None


@pytest.mark.parametrize("text", ["", "abc", "e", ".", "-", "1.2.3", "x1", "1e", "_1", "0x", "::"])
def test_plain_text_is_no_trap(text: str) -> None:
    assert spelling_of(text) is None


@pytest.mark.parametrize(("word", "value"), [("true", True), ("TRUE", True), ("False", False)])
def test_truth_values(read, word: str, value: bool) -> None:  # type: ignore[no-untyped-def]
    spec = read(f"{SMALL}sink: {word}\ncausal: {word}\n")
    assert spec.sink is value
    assert spec.causal == ("bottom_right" if value else "none")


@pytest.mark.parametrize("word", ["yes", "on", "No", "OFF", "y", "N", '"false"', "0", "1", "1.0"])
def test_words_that_are_no_truth_values(read, word: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError) as error:
        read(f"{SMALL}causal: {word}\n")
    [found] = error.value.diagnostics
    assert found.key == "causal"
    meant = "true" if word.lower() in ("yes", "on", "y", "1", "1.0") else "false"
    assert found.hint.startswith(f"write {meant}")


@pytest.mark.parametrize("text", ["on", "5", "2026-01-01", "1e-5", "null"])
def test_a_description_is_text(read, text: str) -> None:  # type: ignore[no-untyped-def]
    assert read(f"{SMALL}description: '{text}'\n").description == text


def test_merge_keys_and_anchors(read) -> None:  # type: ignore[no-untyped-def]
    spec = read(
        "<<: {heads: 2, head_dim: 8, causal: true}\n"
        "heads: &h 6\n"
        "kv_heads: *h\n"
        "window: {<<: [{left: 3}, {left: 4, right: 5}]}\n"
    )
    assert (spec.heads, spec.kv_heads, spec.head_dim, spec.causal) == (6, 6, 8, "bottom_right")
    assert spec.window == Window(3, 5)


def test_a_value_from_an_alias_is_placed_at_its_anchor(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError) as error:
        read("heads: 4\nhead_dim: 8\nwindow: {left: &bad -7, right: *bad}\n")
    assert [(d.span.column if d.span else 0) for d in error.value.diagnostics] == [16, 16]


def test_an_alias_bomb(read) -> None:  # type: ignore[no-untyped-def]
    levels = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]\n" for i in range(1, 12))
    with pytest.raises(SpecError) as error:
        read(f"{SMALL}x0: &x0 [1]\n{levels}")
    assert codes(error).count("E-ALIAS") == 1


@pytest.mark.parametrize("text", ["[" * 2000, "{a: " * 500, "- " * 300 + "x", "[" * 30 + "]" * 30])
def test_deep_nesting(read, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match="more than 24 levels"):
        read(text)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "---\n...\n", "\ufeff"])
def test_empty(read, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError) as error:
        read(text)
    assert codes(error) == ["E-EMPTY"]


@pytest.mark.parametrize(
    ("text", "place"), [("heads: 4\n\thead_dim: 8\n", "2:1"), ("heads:\t4\n", "1:7")]
)
def test_tabs(read, text: str, place: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match=rf"spec.yaml:{place}: error: YAML takes no tab here"):
        read(text)


def test_a_byte_order_mark_is_no_mistake(read) -> None:  # type: ignore[no-untyped-def]
    assert read(b"\xef\xbb\xbfheads: 4\r\nhead_dim: 8\r\n").heads == 4


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ("heads: 4\ndescription: caf\xe9\n".encode("latin-1"), "2:17"),
        (SMALL.encode("utf-16"), "1:1"),
        (b"heads: 4\n\xff", "2:1"),
    ],
)
def test_not_utf_8(read, data: bytes, place: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match=rf"spec.yaml:{place}: error: not UTF-8: byte 0x"):
        read(data)


def test_a_control_character_is_named_and_not_printed(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match=r"spec.yaml:2:3: error: the character U\+001B") as error:
        read("heads: 4\nhe\x1b[31m: 8\n")
    assert "\x1b" not in str(error.value)


def test_a_long_line_is_cut_around_the_mistake(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError) as error:
        read(f"{{description: '{'x' * 5000}', heads: 0, head_dim: 8}}")
    _, line, caret, _ = str(error.value).split("\n")
    assert len(line) < 200
    assert line[caret.index("^")] == "0"


@pytest.mark.parametrize("text", ['"\\UFFFFFFFF"', '"\\U00110000"', f"%YAML {'1' * 5000}.1\n--- a"])
def test_escapes_and_directives_beyond_unicode_and_reason(read, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError) as error:
        read(text)
    assert codes(error) == ["E-YAML"]


def test_surrogates_do_not_reach_the_spec(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError, match="control character") as error:
        read(f'{SMALL}description: "\\ud800"\n')
    str(error.value).encode("utf-8")
