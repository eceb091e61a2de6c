"""Is everything there, and readable, in narrow windows and in either theme?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from latentcode.app.main import PAGES
from latentcode.experiments.benchmarks.browser import settle

playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")
expect = playwright.expect

if TYPE_CHECKING:
    from explorer import Explorer

pytestmark = pytest.mark.slow

MODEL = "sraven-hyla"
TITLES = [title for _, title, _ in PAGES]

MENU = """() => [...document.querySelectorAll('[data-testid=stTopNav] .rc-overflow-item')].filter(
    item => getComputedStyle(item).opacity !== '0' && item.getBoundingClientRect().height
        && item.querySelector('a')).map(item => item.innerText.split('\\n').at(-1).trim())"""
"""The titles of the pages in the menu that are not hidden behind "more"."""
TOUCHING = """() => {
    const boxes = [...document.querySelectorAll('.handles-bar output')].map(number => {
        const text = document.createRange();
        text.selectNodeContents(number);
        return text.getBoundingClientRect();
    });
    return boxes.filter((a, i) => boxes.some((b, j) => j !== i && a.left < b.right + 2
        && b.left < a.right + 2 && a.top < b.bottom && b.top < a.bottom)).length;
}"""
"""How many numbers under bars touch another one."""


def test_every_page_is_in_the_menu(explorer: Explorer) -> None:
    explorer.page.set_viewport_size({"width": 1_280, "height": 800})
    explorer.open("intervene", {"model": MODEL})
    explorer.until(lambda: explorer.page.evaluate(MENU) == TITLES)
    menu = explorer.page.get_by_test_id("stTopNav").get_by_role("link").last.bounding_box()
    tour = explorer.page.locator(".tour-start").bounding_box()
    assert menu["x"] + menu["width"] <= tour["x"]
    # In a narrow one most are, and none lies under the link to the tour.
    explorer.page.set_viewport_size({"width": 900, "height": 800})
    explorer.until(lambda: 5 <= len(explorer.page.evaluate(MENU)) <= len(TITLES))
    expect(explorer.page.get_by_test_id("stTopNav").get_by_test_id("stIconMaterial").first
           ).to_be_hidden()
    explorer.check()


def test_numbers_under_bars_do_not_touch(explorer: Explorer) -> None:
    explorer.open("idea", {"model": MODEL})
    explorer.page.locator(".handles-bar").first.wait_for()
    for width in (900, 1_600):
        explorer.page.set_viewport_size({"width": width, "height": 900})
        explorer.until(lambda: explorer.page.evaluate(TOUCHING) == 0)
        settle(explorer.page)
        assert explorer.page.evaluate(TOUCHING) == 0
    explorer.check()


def test_tables_are_whole(explorer: Explorer) -> None:
    """What is wider than its column is scrolled, in a box that ends in sight."""
    explorer.page.set_viewport_size({"width": 900, "height": 800})
    explorer.open("decode", {"model": MODEL})
    table = explorer.page.locator(".st-key-whole-decoding-table table")
    table.wait_for()
    assert table.evaluate("table => table.scrollWidth - table.parentElement.clientWidth") <= 1
    explorer.open("results", {"model": MODEL, "saved": "interventions"})
    table = explorer.page.locator(".st-key-whole-result table")
    table.wait_for()
    box = table.locator("..")
    assert box.evaluate("box => getComputedStyle(box).overflowX") == "auto"
    assert box.bounding_box()["height"] < 600
    explorer.check()


def test_a_figure_opens_large(explorer: Explorer) -> None:
    explorer.page.set_viewport_size({"width": 1_280, "height": 800})
    explorer.open("evidence", {"claim": "tabA1-logic-hyla-ahead"})
    small = explorer.page.locator(".st-key-evidence-figure img")
    small.wait_for()
    explorer.page.get_by_role("button", name="Open large").click()
    large = explorer.page.locator(".st-key-evidence-large img")
    large.wait_for()
    explorer.until(lambda: large.bounding_box()["width"] > 1_000 > small.bounding_box()["width"])
    explorer.page.keyboard.press("Escape")
    expect(large).to_have_count(0)
    explorer.check()
