"""Every spec's picture: nothing overlaps, every text fits its box, and the numbers are right."""

from __future__ import annotations

import dataclasses
import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from pictures.specs import DRAWN, NOT_DRAWN, ir_of

from attngen.errors import SpecError
from attngen.ir.attention import AttentionIR, SideInput
from attngen.ir.expr import SCORE, TRUE, Binary, Const, K, Q, Unary
from attngen.pictures import LANGUAGES, draw_dataflow
from attngen.pictures.dataflow import dataflow
from attngen.pictures.shapes import Box, Picture
from attngen.spec.elaborate import elaborate
from attngen.spec.reader import read_spec

SVG = "{http://www.w3.org/2000/svg}"
both = pytest.mark.parametrize("language", LANGUAGES)


def picture(name: str, language: str = "en") -> Picture:
    return dataflow(ir_of(name), LANGUAGES[language])


def texts(box: Box) -> list[str]:
    return [text.line.text for part in box.walk() for text in part.texts]


def box(name: str, spec: str) -> Box:
    return next(box for box in picture(spec).walk() if box.name == name)


@both
@pytest.mark.parametrize("spec", DRAWN)
def test_nothing_overlaps_and_all_is_inside(spec: str, language: str) -> None:
    drawn = picture(spec, language)
    for first, second in itertools.combinations(drawn.boxes, 2):
        assert not first.rect.overlaps(second.rect), (first.name, second.name)
    for parent in drawn.walk():
        assert parent.rect.x >= 0
        assert parent.rect.right <= drawn.width
        assert parent.rect.bottom <= drawn.height
        for child in parent.children:
            assert child.rect.inside(parent.rect), (child.name, parent.name)
        for first, second in itertools.combinations(parent.children, 2):
            assert not first.rect.overlaps(second.rect), (first.name, second.name)


@both
@pytest.mark.parametrize("spec", DRAWN)
def test_every_text_fits_its_box(spec: str, language: str) -> None:
    """By the table of widths, which no common font exceeds."""
    for parent in picture(spec, language).walk():
        for text in parent.texts:
            assert text.extent.inside(parent.rect, slack=0.5), (parent.name, text.line.text)
            for child in parent.children:
                assert not text.extent.overlaps(child.rect), (child.name, text.line.text)
        for first, second in itertools.combinations(parent.texts, 2):
            assert not first.extent.overlaps(second.extent), (first.line.text, second.line.text)


@both
@pytest.mark.parametrize("spec", DRAWN)
def test_no_wire_crosses_a_text(spec: str, language: str) -> None:
    drawn = picture(spec, language)
    places = [text.extent for part in drawn.walk() for text in part.texts]
    for wire in drawn.wires:
        for (x1, y1), (x2, y2) in itertools.pairwise(wire.points):
            for place in places:
                beside = max(x1, x2) <= place.x or min(x1, x2) >= place.right
                apart = max(y1, y2) <= place.y or min(y1, y2) >= place.bottom
                assert beside or apart, (wire, place)


@both
@pytest.mark.parametrize("spec", DRAWN)
def test_the_document_is_well_formed_and_asks_for_nothing(spec: str, language: str) -> None:
    text = draw_dataflow(ir_of(spec), language)
    root = ET.fromstring(text)  # noqa: S314 - our own
    assert root.tag == f"{SVG}svg"
    assert (root.findtext(f"{SVG}title") or "").strip()
    links = re.findall(r"""(?:href|src|url\(|@import)[^;>\s]*""", text)
    assert {link for link in links if not link.startswith("url(#")} == set()
    assert draw_dataflow(ir_of(spec), language) == text


@pytest.mark.parametrize("spec", DRAWN)
def test_both_languages_say_something_of_their_own(spec: str) -> None:
    english, chinese = (draw_dataflow(ir_of(spec), language) for language in LANGUAGES)
    assert not re.search(r"[一-鿿]", english.replace("你好", ""))
    assert len(re.findall(r"[一-鿿]", chinese)) > 40


def test_the_reference_layer_as_everybody_draws_it() -> None:
    """(S, 4096) to three projections, 32 heads of (S, 128), joined, projected."""
    drawn = picture("mha_4096")
    by_name = {part.name: texts(part) for part in drawn.walk()}
    assert by_name["input"] == ["Input X", "(S, 4096)"]
    for letter in "QKV":
        assert by_name[f"W_{letter}"] == [f"projection W{letter}", "(4096, 4096)"]
        assert by_name[letter] == [f"{letter} = X W{letter}", "(S, 4096)"]
        assert "(S, 32, 128) → (32, S, 128)" in by_name[f"{letter.lower()} split"]
    assert {name for name in by_name if re.fullmatch(r"head \d+", name)} == {
        "head 0",
        "head 15",
        "head 31",
    }
    assert {"heads 1–14", "heads 16–30"} <= by_name.keys()
    assert by_name["head 15"][:2] == ["Head 15", "O15 = softmax(Q15K15T / √128 + mask) V15"]
    assert {"s = Q15 K15T / √128", "(S, S)", "k ≤ q", "P15 = softmax(s)"} <= {*by_name["head 15"]}
    assert by_name["concat"] == ["concatenate 32 heads", "32 × (S, 128) → (S, 4096)"]
    assert by_name["W_O"] == ["projection WO", "(4096, 4096)"]
    assert by_name["output"] == ["Output", "(S, 4096)"]


def test_grouped_heads_share_keys_and_values() -> None:
    assert texts(box("head 7", "gqa"))[1] == "KV head 1"
    assert texts(box("k of head 3", "gqa")) == ["K0", "(T, 64)"]
    assert "8 query heads share 2 key and value heads, 4 each" in texts(box("sharing", "gqa"))
    assert "all 8 query heads share one key and value head" in texts(box("sharing", "mqa"))
    assert not [part for part in picture("mha_4096").walk() if part.name == "sharing"]


def test_variants_stand_where_they_act() -> None:
    """The order of the contract: scale, score, softcap, bias, mask, softmax."""

    def steps(spec: str) -> list[str]:
        card = next(part for part in picture(spec).walk() if part.name == "head 0")
        return [part.name for part in card.children][3:]

    assert steps("mha_4096") == ["scores", "mask", "softmax", "values"]
    assert steps("gemma2_9b_local") == ["scores", "softcap", "mask", "softmax", "values"]
    assert steps("alibi") == ["scores", "bias", "mask", "softmax", "values"]
    assert steps("everything") == ["scores", "score", "softcap", "mask", "softmax", "values"]
    card = texts(box("head 15", "gemma2_9b_local"))
    assert {"softcap", "s ← 50 · tanh(s / 50)", "window, left", "q − k ≤ 4095"} <= {*card}
    assert "the sum takes exp(sink[63]) as well" in texts(box("head 63", "gpt_oss_20b_local"))
    # 2 ** -0.25 and 2 ** -8: each head has its own slope
    assert "s ← s + 0.8409 · (k − q)" in texts(box("head 0", "alibi"))
    assert "s ← s + 0.003906 · (k − q)" in texts(box("head 31", "alibi"))
    assert "s = Q5 K5T · head_scale[5]" in texts(box("head 5", "swin_v2"))
    assert "the sum takes exp(0) = 1 as well" in texts(box("head 0", "softmax_off_by_one"))
    assert steps("sigmoid_lm") == ["scores", "bias", "mask", "activation", "values"]
    card = texts(box("head 0", "sigmoid_lm"))
    assert {"P0 = φ(s)", "sigmoid(s − log(float(kv_len)))"} <= {*card}
    assert texts(box("lse", "cross_attention")) == ["lse", "(8, S)"]
    assert texts(box("probabilities", "three_heads")) == ["probabilities", "(3, S, T)"]
    assert "every query sees every key" in texts(box("head 3", "cross_attention"))


def test_what_is_too_long_for_a_card_is_written_out_beside() -> None:
    where = " ".join(texts(box("where", "t5_bias")))
    assert where.startswith("Bh = relative_bias[h, t5_buckets[min(max(q − k, 0), 128)]]")
    assert "relative_bias (heads, 32) float given with each call" in where
    assert "s ← s + B11" in texts(box("head 11", "t5_bias"))
    assert " ".join(texts(box("where", "long_mask"))).startswith("M = q − k = 10 or q − k = 15 or")
    assert "M" in texts(box("head 3", "long_mask"))


def changes(ir: AttentionIR) -> dict[str, object]:
    """Another value for every field of the IR that a picture must show."""
    return {
        "name": "other",
        "dtype": elaborate(
            read_spec({"name": "x", "heads": 1, "head_dim": 1, "dtype": "float64"})
        ).dtype,
        "heads": 2 * ir.heads,
        "kv_heads": 2,
        "head_dim": 3 * ir.head_dim,
        "value_dim": 3 * ir.value_dim,
        "d_model": 99,
        "query_scale": 0.5,
        "score": Binary("add", ir.score, K),
        "mask": Binary("lt", K, Binary("add", Q, Const(7))),
        "alignment": "top_left",
        "sink": not ir.sink,
        "outputs": ("out", "lse", "probabilities"),
        "description": "something else",
        "inputs": (SideInput("table", (3,), "float"),),
        "off_by_one": True,
        "activation": Unary("sigmoid", SCORE),
    }


def test_the_picture_shows_every_part_of_the_meaning() -> None:
    """A field that is new in the IR must be drawn, or be left out here with a reason."""
    ir = ir_of("softcap")
    assert ir.mask != TRUE
    others = changes(ir)
    # `elaborate` makes base e, and a difference is refused
    shown = {field.name for field in dataclasses.fields(ir)} - {"base", "difference"}
    assert shown == others.keys()
    for name, value in others.items():
        changed = dataclasses.replace(ir, **{name: value})  # type: ignore[arg-type]
        assert draw_dataflow(changed) != draw_dataflow(ir), name


@pytest.mark.parametrize("spec", NOT_DRAWN)
def test_two_maps_a_head_are_refused(spec: str) -> None:
    with pytest.raises(SpecError, match="'differential' makes two"):
        draw_dataflow(ir_of(spec))
