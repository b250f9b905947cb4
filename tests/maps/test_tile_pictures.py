"""Tile maps for the eye: characters, pictures, and the command that makes them."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from attngen import cli
from attngen.errors import CallValueError, TargetError
from attngen.tile_census import EMPTY, FULL, PARTIAL
from attngen.tile_maps import TileMap, tile_map
from attngen.tile_picture import COLOURS
from attngen.tile_text import GLYPHS

SMALL = {"lanes": 4, "tile_vectors": 2, "tile_scalars": 4, "block_q": 16, "block_kv": 16}
CAUSAL = {"name": "small", "heads": 2, "head_dim": 4, "causal": True}

Run = Callable[..., tuple[int, str, str]]


def small(length: int = 64, **more: object) -> TileMap:
    return tile_map({**CAUSAL, **more}, length, schedule=SMALL)


def grid(text: str) -> list[str]:
    """The lines of tiles."""
    lines = (line.split() for line in text.splitlines())
    return [words[2] for words in lines if len(words) == 3 and words[0] == "q"]


def test_one_character_a_tile_where_there_is_just_room() -> None:
    assert grid(tile_map(CAUSAL, 64, schedule={**SMALL, "block_kv": 4}).to_text()) == [
        "▒▒··············",
        "██▒▒············",
        "████▒▒··········",
        "██████▒▒········",
        "████████▒▒······",
        "██████████▒▒····",
        "████████████▒▒··",
        "██████████████▒▒",
    ]


def test_tiles_are_as_wide_as_they_are_high() -> None:
    assert grid(small(32).to_text())[1] == "▒▒▒▒····"  # 8 rows × 16 keys are 1 × 4 characters
    assert grid(small(32).to_text())[2] == "████▒▒▒▒"


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("length", [1, 100, 3000, 20000])
def test_text_fits_its_width_and_a_screen(width: int, length: int) -> None:
    lines = tile_map("window", length).to_text(width).splitlines()
    assert max(map(len, lines)) <= width
    rows = grid("\n".join(lines))
    assert 1 <= len(rows) <= 48
    assert len(set(map(len, rows))) == 1


def test_a_character_of_several_tiles_shows_what_they_all_are() -> None:
    tiles = tile_map(CAUSAL, 2000, schedule=SMALL)
    text = tiles.to_text(70)
    assert "a character is 6 × 3 tiles; ▒ also where they differ" in text
    codes = tiles.one()
    for i, row in enumerate(grid(text)):
        for j, glyph in enumerate(row):
            block = codes[6 * i : 6 * i + 6, 3 * j : 3 * j + 3]
            same = block.min() == block.max()
            assert glyph == GLYPHS[int(block.min()) if same else PARTIAL]


def test_positions_stand_on_the_axes() -> None:
    text = tile_map(CAUSAL, 32, 96, schedule=SMALL).to_text()
    keys, *rows = (line for line in text.splitlines() if line.lstrip().startswith(("k ", "q ")))
    assert [int(line.split()[1]) for line in rows] == [64, 72, 80, 88]
    at = {int(word): keys.index(word) for word in keys.split()[1:]}
    first = rows[0].index("█")
    assert at[0] == first
    assert all(column - first == key // 16 * 4 for key, column in at.items())


def test_text_says_which_part_is_shown() -> None:
    documents = tile_map("document", 300, batch=2)
    assert "batch element 1 of 2; shares are of all" in documents.to_text(batch=1)
    assert "its side inputs are an example" in documents.to_text().replace("\n ", "")
    heads = tile_map({**CAUSAL, "mask": "q - k < 8 * (h + 1)"}, 64, schedule=SMALL)
    assert "key and value head 1 of 2" in heads.to_text(kv_head=1)
    assert "shares are of all" not in small().to_text()
    assert "split_kv runs in its place" in tile_map("gqa", 1, 300).to_text(200)
    assert "split_kv" not in tile_map("gqa", 100).to_text(200)


@pytest.mark.parametrize(("q_len", "kv_len", "batch"), [(0, 4, 1), (4, 0, 1), (4, 4, 0)])
def test_nothing_to_show(q_len: int, kv_len: int, batch: int, tmp_path: Path) -> None:
    tiles = tile_map(CAUSAL, q_len, kv_len, batch)
    assert "0 of 0" in tiles.to_text()
    assert tiles.visited == tiles.masked == tiles.attending == 0
    with pytest.raises(CallValueError, match="there is nothing to draw"):
        tiles.save(tmp_path / "none.png")


def test_a_picture_has_the_colours_of_its_tiles_where_they_are(tmp_path: Path) -> None:
    tiles, path = small(), tmp_path / "map.png"
    tiles.save(path)
    image = imread(path)[..., :3]
    assert image.shape[0] > 600
    assert image.shape[1] > 600
    assert (image[0, 0] == 1).all()  # a light background

    def where(code: int) -> tuple[float, ...]:
        """The middle, as shares of height and width, of all that has the colour of `code`."""
        same = np.isclose(image, to_rgb(COLOURS[code]), atol=0.01).all(axis=-1)
        assert same.sum() > 2000
        return tuple(np.argwhere(same).mean(axis=0) / image.shape[:2])

    (full_y, full_x), (empty_y, empty_x) = where(FULL), where(EMPTY)
    assert full_x < empty_x  # early keys of late queries, and late keys of early ones
    assert full_y > empty_y
    where(PARTIAL)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".PNG"])
@pytest.mark.parametrize("length", [64, 3000])
def test_the_same_map_is_the_same_file(tmp_path: Path, suffix: str, length: int) -> None:
    paths = [tmp_path / f"{n}{suffix}" for n in range(2)]
    for path in paths:
        tile_map("window", length).save(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].stat().st_size > 5000


def test_an_svg_is_xml_with_the_colours_of_the_map(tmp_path: Path) -> None:
    path = tmp_path / "map.svg"
    small(description="Ünïcödé <&>", mask="q < 40 and k < 50").save(path)
    assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314 - our own file
    assert "#2f6db3" in path.read_text("utf-8")


def test_other_files_are_refused(tmp_path: Path) -> None:
    for name in ("map.pdf", "map", "map.png.txt"):
        with pytest.raises(CallValueError, match=r"expected a \.png or \.svg file"):
            small().save(tmp_path / name)


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    assert "█" in small().to_text()
    with pytest.raises(TargetError, match=r"pip install 'attngen\[pictures\]'"):
        small().save(tmp_path / "map.png")


@pytest.fixture
def attngen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(["explain", *arguments])
        return code, *capsys.readouterr()

    return run


def test_explain_mask_prints_the_map(attngen: Run) -> None:
    code, out, err = attngen("window", "--mask", "--seq", "500", "--threads", "1")
    assert (code, err) == (0, "")
    assert out == tile_map("window", 500).to_text() + "\n"


def test_explain_mask_as_json_and_as_a_picture(attngen: Run, tmp_path: Path) -> None:
    path = tmp_path / "map.svg"
    arguments = ("gqa", "--mask", "--q-len", "30", "--kv-len", "90", "--json", "-o", str(path))
    code, out, err = attngen(*arguments, "--schedule", "block_kv=64")
    data = json.loads(out)
    assert (code, err) == (0, f"drawn to {path}\n")
    assert path.stat().st_size
    assert data["first_query_position"] == 60
    assert sum(data["tiles"].values()) == len(data["maps"][0][0]) * 2
    assert set("".join(data["maps"][0][0])) <= set("epf")
    assert data["pairs"] == 8 * sum(range(61, 91))


def test_explain_mask_takes_side_inputs(attngen: Run, tmp_path: Path) -> None:
    path = tmp_path / "doc.npz"
    np.savez(path, doc=np.arange(600)[None] // 200)
    code, out, _ = attngen("document", "--mask", "--seq", "600", "--input", str(path))
    assert code == 0
    assert "example" not in out
    assert "16.8%" in out  # three causal documents of a third each
    code, out, _ = attngen("document", "--seq", "600", "--input", str(path), "--json")
    assert code == 0
    assert f'"pairs": {16 * 3 * sum(range(1, 201))}' in out


def test_explain_of_a_mask_that_reads_data_takes_an_example(attngen: Run) -> None:
    code, out, _ = attngen("tree", "--seq", "40")
    assert code == 0
    assert "of the pairs attend" in out


def test_mistakes_on_the_command_line(attngen: Run, tmp_path: Path) -> None:
    single, text = tmp_path / "one.npy", tmp_path / "text.npz"
    np.save(single, np.zeros(3))
    text.write_text("no arrays")
    for arguments, wanted in (
        (["gqa", "-o", "x.png"], "only what --mask and --heads show is drawn"),
        (["document", "--mask", "--input", str(tmp_path / "none.npz")], "No such file"),
        (["document", "--mask", "--input", str(single)], "one array without a name"),
        (["document", "--mask", "--input", str(text)], "text.npz"),
        (["window", "--mask", "-o", "x.pdf"], "expected a .png or .svg file"),
        (["document", "--mask", "--batch-index", "1"], "expected an index from 0 to 0, got 1"),
    ):
        code, out, err = attngen(*arguments)
        assert code in (1, 2)
        assert wanted in " ".join(err.replace("│", "").split())
        assert out == ""
