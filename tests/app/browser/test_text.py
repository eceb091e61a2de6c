"""Does the explorer show a run of a text, with the pair marked in it, and follow a click?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from explorer import Explorer, expect
from playwright.sync_api import Browser
from text_runs import N_TOKENS, hardly_trained

from latentcode.experiments.benchmarks.browser import LONELY, Server, serving

TEXT = """() => [...document.querySelectorAll('[data-token]')].map(token => {
    const {width, height, right} = token.getBoundingClientRect();
    return {title: token.title, text: token.innerText, seen: width > 0 && height > 0,
            inside: right <= window.innerWidth};
})"""


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("texts")
    with serving([hardly_trained(root)], root / "cache", root / "server.log") as started:
        yield started


def test_the_text_of_a_point_has_its_pair_marked(explorer: Explorer) -> None:
    # The first address of a server may be any page.
    explorer.open("model", {"model": "runs/first"})
    expect(explorer.headline("No probes yet")).to_be_visible()
    explorer.open("", {"model": "runs/first", "projection": "PCA", "instance": "3"})
    explorer.picture()
    tokens = explorer.page.evaluate(TEXT)
    assert len(tokens) == N_TOKENS
    assert all(token["seen"] and token["inside"] for token in tokens)
    marked = [token["title"] for token in tokens]
    assert marked.count("the query") == 1
    assert sum("the key of the induction pair" in title for title in marked) == 1
    # Texts of so few words come several times, at one place of the map: any of them will do.
    point = explorer.page.evaluate(LONELY, ".st-key-map")
    explorer.page.mouse.move(point["x"], point["y"])
    card = explorer.page.locator(".st-key-map .lc-card").filter(
        has_text="instance").inner_text()
    explorer.page.mouse.down()
    explorer.page.mouse.up()
    explorer.headline(card.splitlines()[0].capitalize()).wait_for()
    explorer.until(lambda: explorer.page.evaluate(TEXT) != tokens)
    explorer.check()
