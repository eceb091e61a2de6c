"""Does a link open what was on the screen, and what does it say that it cannot bring?"""

from __future__ import annotations

import re
from collections.abc import Callable

from explorer import Explorer, expect

from latentcode.app.share import VERSION

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


def test_a_link_opens_the_same_and_says_what_it_cannot_bring(
    opened: Callable[[], Explorer]
) -> None:
    one, other = opened(), opened()
    one.open(query=PCA)
    # The address alone gives the same picture, defaults and all.
    for name in ("model", "split", "n", "layer", "pair", "projection", "colour", "show", "beside"):
        assert name in one.query()
    one.choose("Colour by", "loss")
    expect(one.page.locator(".lc-legend")).to_contain_text("shades by rank")
    one.lasso(120)
    sent = link(one)
    arrive(other, sent)
    other.picture()
    assert other.selected() == one.selected()
    assert other.map()["outlines"] == one.map()["outlines"]
    assert other.chosen() == one.chosen()
    assert other.query() == one.query()
    assert other.query()["v"] == str(VERSION)
    assert other.message().all_inner_texts() == []
    one.check()
    known = re.search(r"weights=([0-9a-f]{8})%7Esraven-hyla", sent)
    assert known is not None
    arrive(other, sent.replace(known[1], "00000000") + "&later=1&v=2")
    said = " ".join(other.message().all_inner_texts())
    for part in ("weights of sraven-hyla are not those", "left out: later.", "have format 2"):
        assert part in said
    other.until(lambda: "later" not in other.page.url)
    other.check()
