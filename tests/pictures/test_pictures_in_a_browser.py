"""Pictures in a real browser: its own fonts, and both colour schemes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import browser, needs_browser, view
from pictures.specs import DRAWN, ir_of

from attngen.pictures import LANGUAGES, draw_dataflow

pytestmark = [needs_browser, pytest.mark.slow]

# Texts whose ink leaves the rectangle of their own box.
TOO_WIDE = """
    const found = [];
    for (const group of document.querySelectorAll("g.box")) {
        const box = group.querySelector("rect").getBBox();
        for (const text of group.querySelectorAll("text")) {
            const ink = text.getBBox();
            if (ink.x < box.x - 2 || ink.x + ink.width > box.x + box.width + 2 ||
                ink.y < box.y - 4 || ink.y + ink.height > box.y + box.height + 4)
                found.push([group.dataset.name, text.textContent]);
        }
    }
    return found;
"""
# The least contrast between a text's colour and what lies under it, after WCAG 2.
CONTRAST = """
    const channel = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(channel);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    let least = 21;
    for (const group of document.querySelectorAll("g.box")) {
        let fill = getComputedStyle(group.querySelector("rect")).fill;
        if (fill === "none") fill = getComputedStyle(document.querySelector("rect.page")).fill;
        for (const text of group.querySelectorAll("text")) {
            const pair = [light(fill), light(getComputedStyle(text).fill)].sort((a, b) => b - a);
            least = Math.min(least, (pair[0] + 0.05) / (pair[1] + 0.05));
        }
    }
    return least;
"""


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as driver:
        yield driver


def show(driver: Any, folder: Path, spec: str, language: str) -> None:
    path = folder / "picture.svg"
    path.write_text(draw_dataflow(ir_of(spec), language), encoding="utf-8")  # type: ignore[arg-type]
    driver.get(path.as_uri())


def test_texts_stay_in_their_boxes(driver: Any, tmp_path: Path) -> None:
    view(driver, 1400)
    for language in LANGUAGES:
        for spec in DRAWN:
            show(driver, tmp_path, spec, language)
            assert driver.execute_script("return document.querySelectorAll('text').length") > 20
            assert driver.execute_script(TOO_WIDE) == [], (spec, language)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("spec", ["everything", "gemma2_9b_local", "gpt_oss_20b_local", "tree"])
def test_texts_can_be_read_in_light_and_dark(
    driver: Any, tmp_path: Path, spec: str, dark: bool
) -> None:
    view(driver, 1400, dark=dark)
    show(driver, tmp_path, spec, "en")
    page = driver.execute_script(
        "return getComputedStyle(document.querySelector('rect.page')).fill"
    )
    assert (page == "rgb(255, 255, 255)") is not dark
    assert driver.execute_script(CONTRAST) >= 4.5
