"""Does the answer follow what a hand changes?"""

from __future__ import annotations

import re

from explorer import Explorer, expect
from playwright.sync_api import Locator

MODEL = "sraven-hyla"
PCA = {"model": MODEL, "projection": "PCA", "colour": "rule"}
CONTROL = re.compile(r"\d+ of 16 give this answer\.")


def answer(explorer: Explorer) -> Locator:
    return explorer.page.get_by_test_id("stMarkdownContainer").get_by_text(
        re.compile("^The answer of token 2 (stays|becomes)"))


def test_a_selections_mean_is_written_while_the_outline_changes(explorer: Explorer) -> None:
    explorer.open(query={**PCA, "instance": "0"})
    page = explorer.page
    explorer.until(lambda: explorer.query().get("look") == "labels")
    explorer.lasso(110)
    # What a part says no more leaves the address.
    explorer.until(lambda: "look" not in explorer.query())
    expect(answer(explorer)).to_be_visible()
    expect(page.get_by_text(CONTROL)).to_contain_text("response->every token, layer 3")
    before = explorer.panel("answer bars")
    few, _ = explorer.lasso(60)
    explorer.until(lambda: explorer.panel("answer bars") != before)
    explorer.press("Where", "this pair")
    expect(page.get_by_text(CONTROL)).to_contain_text(
        f"Mean over {few:,} selected, response->response, layer 3.")
    expect(answer(explorer)).to_contain_text("stays")  # a single code moves none
    assert explorer.query()["at"] == "this pair"
    explorer.press("Beside the map", "Problem")
    explorer.until(lambda: explorer.query().get("look") == "labels")
    assert "at" not in explorer.query()
    explorer.check()
