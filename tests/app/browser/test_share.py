"""Does a link open what was on the screen, and can a chart be taken along?"""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

from explorer import Explorer

from latentcode.app.share.address import VERSION

PCA = {"model": "sraven-hyla", "projection": "PCA", "colour": "rule"}


def link(explorer: Explorer) -> str:
    """Click the button, and return the link: from where it stands, for want of a clipboard."""
    explorer.page.evaluate(
        "() => { navigator.clipboard.writeText = () => Promise.reject(); }")
    explorer.page.get_by_role("button", name="Copy link").click()
    found = explorer.page.get_by_label("Link of this view").input_value()
    assert found.startswith(explorer.server.url())
    assert len(found) < 8_000
    return found


def arrive(explorer: Explorer, address: str) -> Explorer:
    return explorer.open(address.removeprefix(explorer.server.url()))


def test_a_link_opens_the_same(opened: Callable[[], Explorer]) -> None:
    one, other = opened(), opened()
    one.open(query=PCA)
    one.lasso(120)
    arrive(other, link(one))
    other.picture()
    assert other.selected() == one.selected()
    assert other.map()["outlines"] == one.map()["outlines"]
    assert other.chosen() == one.chosen()
    assert other.query() == one.query()
    assert other.query()["v"] == str(VERSION)
    assert other.message().all_inner_texts() == []
    for explorer in (one, other):
        explorer.check()


def test_a_link_says_what_it_cannot_bring(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    own = link(explorer)
    known = re.search(r"weights=([0-9a-f]{8})%7Esraven-hyla", own)
    assert known is not None
    arrive(explorer, own.replace(known[1], "00000000") + "&later=1&v=2")
    said = " ".join(explorer.message().all_inner_texts())
    for part in ("weights of sraven-hyla are not those", "left out: later.", "have format 2"):
        assert part in said
    explorer.until(lambda: "later" not in explorer.page.url)
    explorer.check()


def test_maps_and_charts_are_saved(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    explorer.picture()
    png = explorer.download(explorer.page.get_by_role("button", name="PNG")).read_bytes()
    assert png.startswith(b"\x89PNG")
    explorer.open("results", {"model": "sraven-hyla"})
    chart = explorer.page.locator(".st-key-training")
    chart.hover()
    drawn = ElementTree.parse(explorer.download(chart.locator(".modebar-btn"))).getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    explorer.check()
