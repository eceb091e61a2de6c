"""Intervene with a mouse: every kind of control, many problems at once, a narrow window."""

from __future__ import annotations

import csv
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from latentcode.experiments.benchmarks.browser import settle

playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")
expect = playwright.expect

if TYPE_CHECKING:
    from explorer import Explorer

pytestmark = pytest.mark.slow

ANSWER = """turn => {
    const {tokens} = document.querySelector('.tokens'), chosen = {queries: [], keys: []};
    tokens.show({...tokens.data, chosen, turn: tokens.turn + turn}, tokens.report);
}"""
"""No token is chosen, says an answer to the last that the page was told, or to one before."""

SRAVEN = "sraven-hyla"
LOGIC = "logic-hyla"
LONG = 600_000.0
"""Milliseconds that 200 problems may take on a busy machine."""


def pick(explorer: Explorer, label: str, option: str) -> None:
    """Choose an option of a list."""
    explorer.page.get_by_role("combobox", name=re.compile(f"^{label}")).click()
    with explorer.rerun():
        explorer.page.get_by_role("option", name=option, exact=True).click()


def said(explorer: Explorer) -> str:
    """Return what the page says became of the answer."""
    text: str = explorer.headline(re.compile("^(It gives|The answer stays)")).inner_text()
    return text


def test_every_kind_of_control(explorer: Explorer) -> None:
    explorer.open("intervene", {"model": SRAVEN, "instance": "3"})
    page, before = explorer.page, explorer.chart("answers")
    with explorer.rerun():
        page.get_by_role("button", name="Another one").click()
    with explorer.rerun():
        page.get_by_label("Problem", exact=True).fill("7")
        page.get_by_label("Problem", exact=True).press("Enter")
    assert explorer.chart("answers") != before
    pick(explorer, "What is put", "values")
    pick(explorer, "Where", "row")
    pick(explorer, "What is put", "codes")
    page.get_by_text("More choices").click()
    explorer.press("Replace the rule of token", "2")
    pick(explorer, "Heads", "1")
    page.keyboard.press("Escape")
    pick(explorer, "Source", "other problem")
    with explorer.rerun():
        page.get_by_label("Number of the other problem").fill("9")
        page.get_by_label("Number of the other problem").press("Enter")
    pick(explorer, "Source", "by hand")
    with explorer.rerun():
        page.get_by_role("slider").first.press("ArrowRight")
    assert "numbers=" in page.url
    with explorer.rerun():
        page.get_by_role("button", name="Its own", exact=True).click()
    assert "numbers=" not in page.url
    pick(explorer, "Source", "other rule and operands")
    pick(explorer, "In the same pass, also", "held")
    assert explorer.query()["and"] == "held"
    explorer.check()


def test_what_arrived_is_told_apart_in_any_window(explorer: Explorer) -> None:
    explorer.open("intervene", {"model": SRAVEN})
    page = explorer.page
    assert re.fullmatch(r"It gives (.*'s answer on this problem's operands|the source's own "
                        r"answer), \d, not .*, \d\.", said(explorer))
    # Problem and source stand side by side, above the sentence, and all of it is at most one and a
    # half windows high.
    problem, source = (page.locator(".tokens-problem").nth(i).bounding_box() for i in (0, 1))
    assert abs(problem["y"] - source["y"]) < 80
    assert problem["x"] + problem["width"] <= source["x"]
    assert explorer.headline("It gives").bounding_box()["y"] < 700
    height = page.get_by_test_id("stMainBlockContainer").evaluate("all => all.scrollHeight")
    assert height <= 1.5 * 900
    shown = page.locator("[data-testid=stMain] :is([data-testid=stSelectbox], "
                         "[data-testid=stMultiSelect])").filter(visible=True)
    assert shown.count() == 4
    # Random codes, at the same place, bring none of the answers of the source.
    random = {bar["name"]: dict(zip(bar["y"], bar["x"], strict=True)).get("random codes", 0)
              for bar in explorer.chart("controls")}
    assert sum(random.get(name, 0) for name in ("problem's own", "none of these")) == 1
    # The address says which problem that is.
    assert explorer.query()["instance"].isdecimal()
    # A narrow window stacks its columns.
    for width, stacked in ((900, True), (1_280, False), (1_600, False)):
        explorer.resize(width, 1_000)
        main = page.get_by_test_id("stMain")
        assert main.evaluate("all => all.scrollWidth - all.clientWidth") <= 0
        problem, source = (page.locator(".tokens-problem").nth(i).bounding_box()
                           for i in (0, 1))
        assert (source["y"] > problem["y"] + problem["height"]) == stacked
        ticks = page.locator(".st-key-answers .yaxislayer-above .ytick text")
        places = sorted((box["y"], box["y"] + box["height"]) for box in (
            tick.bounding_box() for tick in ticks.all()))
        assert len(places) >= 8
        assert all(end <= begin + 2 for (_, end), (begin, _) in pairwise(places))
    explorer.check()


def test_places_and_tokens_are_dragged_clicked_and_reached_by_keys(explorer: Explorer) -> None:
    page = explorer.open("intervene", {"model": SRAVEN, "instance": "11"}).page
    source = page.locator(".places")
    answer = page.locator(".places-cell[data-place=response]").first
    problem = page.locator(".st-key-tokens .tokens-problem")
    start, end = answer.bounding_box(), problem.bounding_box()
    page.mouse.move(start["x"] + 4, start["y"] + 4)
    page.mouse.down()
    page.mouse.move(start["x"] + 40, start["y"] + 40, steps=4)
    page.mouse.up()  # beside the problem, which puts nothing
    assert explorer.query()["scope"] == "context"
    page.mouse.move(start["x"] + 4, start["y"] + 4)
    page.mouse.down()
    page.mouse.move(end["x"] + 20, end["y"] + 20, steps=8)
    expect(problem.locator(".places-over")).to_have_count(1)
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(page.locator(".places-ghost, .places-over")).to_have_count(0)
    page.mouse.move(start["x"] + 4, start["y"] + 4)
    page.mouse.down()
    page.mouse.move(end["x"] + 20, end["y"] + 20, steps=8)
    with explorer.rerun():
        page.mouse.up()
    assert explorer.query()["scope"] == "response"
    handle = source.get_by_role("button", name="response", exact=True)
    expect(handle).to_have_attribute("aria-pressed", "true")
    with explorer.rerun():
        source.get_by_role("button", name="operands", exact=True).click()
    assert explorer.query()["scope"] == "operands"
    handle.focus()
    with explorer.rerun():
        page.keyboard.press("Enter")
    assert explorer.query()["scope"] == "response"
    # Tokens that were clicked are no longer chosen.
    with explorer.rerun():
        problem.locator("[data-token]").first.click()
    with explorer.rerun():
        source.get_by_role("button", name="context", exact=True).click()
    assert "queries" not in explorer.query()
    # Tokens, one by one.
    token = page.locator(".tokens-bar").locator("xpath=..").locator("[data-token]")
    with explorer.rerun():
        token.nth(24).click()
    assert explorer.query()["queries"] == "24"
    assert explorer.query()["scope"] == "everything"
    assert token.nth(24).get_attribute("aria-pressed") == "true"
    start, end = token.nth(18).bounding_box(), token.nth(20).bounding_box()
    page.get_by_role("button", name="keys", exact=True).click()
    with explorer.rerun():
        page.mouse.move(start["x"] + 4, start["y"] + 4)
        page.mouse.down()
        page.mouse.move(end["x"] + 4, end["y"] + 4, steps=12)
        page.mouse.up()
    assert explorer.query()["keys"] == "18-20"
    token.nth(0).focus()
    page.keyboard.press("ArrowRight")
    with explorer.rerun():
        page.keyboard.press("Enter")
    assert explorer.query()["keys"] == "1_18-20"
    address = page.url
    with explorer.rerun():
        page.get_by_role("button", name="all again").click()
    assert not {"queries", "keys"} & set(explorer.query())
    page.goto(address)
    explorer.headline(re.compile("^(It gives|The answer stays)")).wait_for()
    settle(page)
    assert token.nth(24).get_attribute("aria-pressed") == "true"
    for turn, pressed in ((-1, "true"), (0, "false")):
        page.evaluate(ANSWER, turn)
        assert token.nth(24).get_attribute("aria-pressed") == pressed
    explorer.check()


def test_it_is_replicated_on_200_problems(explorer: Explorer) -> None:
    explorer.open("intervene", {"model": LOGIC, "what": "other term and operands"})
    page = explorer.page
    page.get_by_role("button", name="Replicate on").click()
    expect(page.get_by_text("200 of 200 problems", exact=True)).to_be_visible(timeout=LONG)
    settle(page)
    found = re.search(r"Over (\d+) problems the answer stays the problem's own in (\d+) %",
                      page.locator(".st-key-replicate").inner_text())
    assert found is not None
    counted, stays = int(found[1]), int(found[2])
    assert 50 < counted <= 200
    shown = explorer.chart("replicated")
    assert [bar["name"] for bar in shown] == ["what was written", "same terms", "other problems",
                                              "random codes"]
    assert round(100 * shown[0]["y"][0]) == stays
    expect(page.get_by_text(f"{counted} of 200 instances count")).to_be_visible()
    settle(page)
    file = explorer.download(
        page.locator(".st-key-replicate").get_by_role("button", name="Table, CSV"))
    rows = list(csv.DictReader(file.read_text("utf-8").splitlines()))
    assert len(rows) == 4 * counted
    # It stays for another problem, and goes with another writing.
    with explorer.rerun():
        page.get_by_role("button", name="Another one").click()
    expect(page.get_by_text("200 of 200 problems", exact=True)).to_be_visible()
    pick(explorer, "Where", "row")
    expect(page.get_by_role("button", name="Replicate on")).to_be_visible()
    expect(page.get_by_text("200 of 200 problems")).to_have_count(0)
    explorer.check()
