"""Is what one shows to others what is on the screen?"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from explorer import Explorer, expect
from playwright.sync_api import Browser

from latentcode.app.menu import PAGES
from latentcode.app.share.address import MOST, VERSION
from latentcode.experiments.benchmarks.browser import settle

PCA = {"model": "sraven-hyla", "projection": "PCA", "colour": "rule"}
SVG = "{http://www.w3.org/2000/svg}"
NOTE = "Why <b>two</b> *groups*, & what is ü?"

SHOWN = """() => {
    const {panels: [panel], selected, values, legend: {hidden}} =
        document.querySelector('.st-key-map .lc-map').codeMap;
    const {left, top, width, height} = panel.canvas.getBoundingClientRect(), inside = [];
    const block = panel.canvas.closest('[data-testid=stElementContainer]').getBoundingClientRect();
    const rounded = value => Math.round(100 * value) / 100;
    for (let i = 0; i < values.length; i++) {
        const [x, y] = panel.position(i);
        if (!hidden.has(values[i]) && x > 0 && y > 0 && x < width && y < height)
            inside.push([rounded(left - block.left + x), rounded(top - block.top + y)]);
    }
    return {inside, outline: panel.marks.querySelector('.lc-outline').getAttribute('d'),
            names: [...panel.names.children].map(name => name.textContent)};
}"""
"""The points that a map shows, in pixels of its block, the outline and the names over them."""


def menu(explorer: Explorer) -> None:
    explorer.page.locator(".share-start").click()
    expect(explorer.page.locator(".share-menu")).to_be_visible()


def save(explorer: Explorer, button: str, to: Path) -> Path:
    shutil.copy(explorer.download(explorer.page.locator(".share-menu").get_by_role(
        "button", name=button, exact=True)), to)
    expect(explorer.page.locator(".share-told")).to_contain_text("Saved")
    return to


def link(explorer: Explorer) -> str:
    explorer.page.get_by_role("button", name="Copy link").click()
    found = explorer.page.locator(".share-link").input_value()
    assert found.startswith(explorer.server.url())
    assert len(found) < 8_000
    return found


def arrive(explorer: Explorer, address: str) -> Explorer:
    return explorer.open(address.removeprefix(explorer.server.url()))


def test_a_link_opens_the_same_with_its_note(opened: Callable[[], Explorer]) -> None:
    one, other = opened(), opened()
    one.open(query=PCA)
    one.lasso(120)
    menu(one)
    with one.rerun():
        one.page.get_by_label("Note", exact=True).fill(NOTE + " " * 3 + "x" * MOST)
        one.page.keyboard.press("Enter")
    said = one.message().filter(has_text="Note on this selection")
    expect(said).to_contain_text(NOTE)
    arrive(other, link(one))
    other.picture()
    assert other.selected() == one.selected()
    assert other.map()["outlines"] == one.map()["outlines"]
    assert other.chosen() == one.chosen()
    assert other.query() == one.query()
    assert other.query()["v"] == str(VERSION)
    assert other.message().all_inner_texts() == said.all_inner_texts()  # and nothing else
    other.go_to("Decode")  # of which it is no note
    expect(other.message()).to_have_count(0)
    with one.rerun():
        one.page.get_by_label("Note", exact=True).fill("")
        one.page.keyboard.press("Enter")
    expect(said).to_have_count(0)
    one.page.keyboard.press("Escape")
    expect(one.page.locator(".share-menu")).to_be_hidden()
    expect(one.page.locator(".share-start")).to_be_focused()
    for explorer in (one, other):
        explorer.check()


def test_a_link_says_what_it_cannot_bring(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    menu(explorer)
    own = link(explorer)
    known = re.search(r"weights=([0-9a-f]{8})%7Esraven-hyla", own)
    assert known is not None
    arrive(explorer, own.replace(known[1], "00000000") + "&later=1&v=2")
    said = " ".join(explorer.message().all_inner_texts())
    for part in ("weights of sraven-hyla are not those", "left out: later.", "have format 2"):
        assert part in said
    explorer.until(lambda: "later" not in explorer.page.url)
    explorer.check()


def test_a_picture_is_what_is_on_the_screen(explorer: Explorer, tmp_path: Path) -> None:
    page = explorer.open(query=PCA).page
    explorer.lasso(90)
    page.mouse.move(500, 500)
    page.mouse.wheel(0, -240)  # closer
    page.locator(".lc-legend button", has_text="constant").click()
    explorer.until(lambda: {"zoom", "off"} <= {*explorer.query()})
    settle(page)
    menu(explorer)
    drawn = ElementTree.parse(save(explorer, "SVG", tmp_path / "view.svg")).getroot()
    shown = page.evaluate(SHOWN)
    group = next(one for one in drawn.iter(f"{SVG}g") if "data-points" in one.attrib)
    circles = [(float(one.attrib["cx"]), float(one.attrib["cy"]))
               for one in group.iter(f"{SVG}circle")]
    assert len(shown["inside"]) > 300
    # Points whose middle is outside may reach in.
    assert {(x, y) for x, y in shown["inside"]} <= {*circles}
    assert len(circles) < 1.05 * len(shown["inside"])
    assert shown["outline"] in [one.attrib.get("d") for one in drawn.iter(f"{SVG}path")]
    texts = [one.text for one in drawn.iter(f"{SVG}text")]
    assert {*shown["names"]} <= {*texts}
    assert "2,000 codes of sraven-hyla" in texts
    assert any("latentcode · Explore · model sraven-hyla · split ood" in str(text)
               for text in texts)
    page.get_by_label("What the picture shows").select_option("map")
    png = save(explorer, "PNG", tmp_path / "map.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20], "big") >= 2 * page.locator(".lc-map").bounding_box()["width"]
    explorer.check()


@pytest.mark.parametrize("name", [name for name, *_ in PAGES])
def test_every_page_is_one_file_that_needs_nothing(
    explorer: Explorer, browser: Browser, tmp_path: Path, name: str
) -> None:
    explorer.open(name, {"model": "sraven-hyla"})
    explorer.page.locator(".share-start").wait_for()
    if name == "explore":
        explorer.picture()
    sentence = explorer.page.get_by_role("heading", level=5).first.inner_text()
    menu(explorer)
    file = save(explorer, "Save page", tmp_path / "page.html")
    text = file.read_text(encoding="utf-8")
    assert len(text) < 2_000_000
    assert "<script" not in text
    context = browser.new_context(offline=True, color_scheme="dark")
    try:
        reader = context.new_page()
        asked: list[str] = []
        reader.on("request", lambda request: asked.append(request.url))
        reader.goto(file.as_uri())
        expect(reader.get_by_role("heading", name=sentence.split("\n")[0]).first).to_be_visible()
        assert reader.locator("figure svg").count() + reader.locator("table").count() > 0
        assert reader.locator("details a[download]").count() > 0
        data = reader.locator("details a[download]").first.get_attribute("href") or ""
        assert data.startswith("data:text/csv")
        back = reader.locator("footer a").get_attribute("href") or ""
        assert back.startswith(explorer.server.url())
        assert f"v={VERSION}" in back
        ground = reader.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground != "rgb(255, 255, 255)"  # dark for who reads on dark
        assert all(url.startswith(("file:", "data:")) for url in asked)
        reader.set_viewport_size({"width": 375, "height": 800})
        assert reader.evaluate("document.documentElement.scrollWidth") <= 375
    finally:
        context.close()
    explorer.check()
