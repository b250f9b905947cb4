"""The page as people get it: on desktops and phones, in light and dark, without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from browser import browser, needs_browser, view
from report.series import POINTS, grid, write_series

from attngen.report import report_page

pytestmark = [needs_browser, pytest.mark.slow]

DRAWN = """
    return [...document.querySelectorAll('.plot')].filter(p => p.offsetParent)
        .map(p => [p.id, p.querySelectorAll('.trace, .hm image, .heatmaplayer image').length]);
"""
# What reaches beyond the right edge, if it is not inside something that scrolls or cuts.
OVERFLOWING = """
    const wide = document.documentElement.clientWidth, found = [];
    for (const e of document.querySelectorAll('body *')) {
        if (e.closest('.scroll, pre, svg, script, style, select') || !e.offsetParent) continue;
        const r = e.getBoundingClientRect();
        if (r.width && r.right > wide + 1) found.push(e.tagName + '#' + e.id + '.' + e.className);
    }
    return found;
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    write_series(folder, grid(), day=1)
    write_series(folder, grid({128: 1.25, 32: 0.9}, seed=3), day=2)
    path = folder / "report.html"
    path.write_text(report_page(folder), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with browser() as driver:
        yield driver


def opened(driver: Any, page: str, width: int, *, dark: bool = False) -> Any:
    driver.get_log("browser")
    driver.get_log("performance")
    view(driver, width, dark=dark)
    driver.get(page)
    return driver


def choose(driver: Any, **values: str) -> None:
    for name, value in values.items():
        driver.execute_script(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event(e.tagName === 'INPUT' ? 'input' : 'change'));",
            name,
            value,
        )
        assert driver.execute_script(f"return document.getElementById('{name}').value") == value


def texts(driver: Any, selector: str) -> list[str]:
    found = driver.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
    )
    return [str(text) for text in found]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_it_opens_on_any_screen(driver: Any, page: str, width: int, dark: bool) -> None:
    opened(driver, page, width, dark=dark)
    assert driver.title == "demo – attngen report"
    assert driver.get_log("browser") == []
    for entry in driver.get_log("performance"):
        event = json.loads(entry["message"])["message"]
        if event["method"] == "Network.requestWillBeSent":
            assert event["params"]["request"]["url"].startswith(("file:", "data:", "blob:"))
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert driver.execute_script(OVERFLOWING) == []
    drawn = dict(driver.execute_script(DRAWN))
    assert drawn == {"explore-plot": 3, "roofline-plot": 5, "compare-plot": 3}
    back = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(246, 247, 249)") is not dark


def test_the_numbers_are_those_of_the_series(driver: Any, page: str) -> None:
    opened(driver, page, 1440)
    assert texts(driver, "#cards .value")[0] == str(POINTS)
    busy, failed = texts(driver, ".warning")
    assert "before 1 of the points were measured (load up to 1.25)" in busy
    assert "1 failed, the first: head_dim 64, q_len 4096" in failed
    cards = dict(
        zip(
            texts(driver, "#compare-cards .name"),
            texts(driver, "#compare-cards .value"),
            strict=True,
        )
    )
    assert [cards[name] for name in ("faster", "slower", "same", "unclear")] == [
        "10",
        "10",
        "10",
        "0",
    ]
    assert len(texts(driver, "#rows tbody tr")) == POINTS + 2
    assert len(texts(driver, "#changes tbody tr")) == POINTS


def test_any_two_keys_as_lines_and_heat_map(driver: Any, page: str) -> None:
    opened(driver, page, 1440)
    choose(driver, view="heat", metric="peer torch-sdpa", x="head_dim", y="threads")
    plot = "document.getElementById('explore-plot')"
    kinds = driver.execute_script(f"return {plot}.data.map(t => [t.type, t.x, t.y])")
    assert kinds == [["heatmap", ["32", "64", "128"], ["1", "2"]]]
    (label,) = texts(driver, "#slices label")
    assert label.startswith("q_len best128256512")
    choose(driver, view="lines", metric="seconds", x="q_len", y="head_dim")
    lines = driver.execute_script(f"return {plot}.data.map(t => [t.name, t.x.length])")
    assert lines == [["head_dim 32", 5], ["head_dim 64", 5], ["head_dim 128", 5]]
    choose(driver, view="heat", y="")
    assert "A heat map needs two keys." in texts(driver, "#explore-note")[0]
    assert driver.get_log("browser") == []


def test_the_table_is_sorted_and_filtered(driver: Any, page: str) -> None:
    opened(driver, page, 1440)
    heads = texts(driver, "#rows thead th")
    column = heads.index("median time") + 1
    by_time = f"document.querySelector('#rows thead th:nth-child({column}) button').click()"
    driver.execute_script(by_time)
    rising = texts(driver, f"#rows tbody td:nth-child({column})")
    driver.execute_script(by_time)
    falling = texts(driver, f"#rows tbody td:nth-child({column})")
    assert rising[-2:] == falling[-2:] == ["–", "–"]  # what was not measured stays at the end
    assert rising[:POINTS] == falling[:POINTS][::-1]
    assert rising[0].startswith("126 µs")
    sort = "return document.querySelector('#rows [aria-sort]').getAttribute('aria-sort')"
    assert driver.execute_script(sort) == "descending"
    choose(driver, filter="head_dim 64 threads=2")
    assert texts(driver, "#count") == ["6 of 32 points"]
    choose(driver, filter="failed")
    assert texts(driver, "#count") == ["1 of 32 points"]


def test_a_command_is_copied(driver: Any, page: str) -> None:
    opened(driver, page, 1440)
    driver.execute_script(
        "window.copied = []; Object.defineProperty(navigator, 'clipboard', {configurable: true,"
        "value: {writeText: async text => { window.copied.push(text); }}});"
        "document.querySelector('#rows .copy').click();"
    )
    (command,) = driver.execute_script("return window.copied")
    assert command == "attngen run specs/demo.yaml --set head_dim=32 --q-len 128 --threads 1"


def test_another_series_is_shown_when_it_is_chosen(driver: Any, page: str) -> None:
    opened(driver, page, 1440)
    assert texts(driver, "#origin")[0].startswith("2026-12-02 15:20:11 UTC")
    choose(driver, series="0")
    assert texts(driver, "#origin")[0].startswith("2026-12-01 15:20:11 UTC")
    assert driver.get_log("browser") == []
