"""Does every step of the tour stand on what its page shows, and does the card do what it offers?"""

from __future__ import annotations

import re
from collections.abc import Callable

from explorer import Explorer, expect
from playwright.sync_api import Locator

from latentcode.app.tour.steps import STEPS, address

PATIENT = 180_000.0
"""Milliseconds until a model has been loaded on a busy machine."""


def go(explorer: Explorer, number: int) -> Locator:
    """Open a step by its address, and return its card when what it points at is there."""
    explorer.page.goto(explorer.server.url() + address(number).removeprefix("./"))
    return at_step(explorer, number)


def at_step(explorer: Explorer, number: int) -> Locator:
    card, step = explorer.page.locator(".tour-card"), STEPS[number - 1]
    expect(card).to_contain_text(f"{number} of {len(STEPS)}", timeout=PATIENT)
    expect(card.locator(".tour-title")).to_have_text(step.title)
    at = explorer.page.locator(step.at)
    expect(at.first).to_be_visible(timeout=PATIENT)
    expect(at).to_have_count(1)
    return card


def says(explorer: Explorer, text: str | re.Pattern[str]) -> None:
    """Check that the page, its card aside, says something."""
    main = explorer.page.get_by_test_id("stMainBlockContainer")
    expect(main.get_by_text(text).locator("visible=true").first).to_be_visible(timeout=PATIENT)


def test_each_step_stands_on_what_its_page_shows(explorer: Explorer) -> None:
    page = explorer.page

    go(explorer, 1)
    coloured = page.locator(".knn-purity-row[aria-pressed=true]")
    expect(coloured).to_have_attribute("data-label", "rule")  # the page opens with the rule
    says(explorer, "These codes separate")

    go(explorer, 2)
    explorer.headline("Instance 5").wait_for()
    says(explorer, "The model answers")
    says(explorer, "Nearest neighbours")
    assert "instance 5" in explorer.panel("bars")

    go(explorer, 3)
    n, of = explorer.selected()
    assert 0 < n < of
    shown = explorer.map()
    assert shown["outlines"]
    assert len({shown["values"][row] for row in shown["selected"]}) == 1  # they share one value
    assert len(shown["names"]) == 8
    assert explorer.chosen()["Colour by"] == "context_1"

    go(explorer, 4)
    layers = page.locator(".track-layers button")
    assert "nothing to separate" in (layers.nth(0).get_attribute("title") or "")
    assert layers.nth(1).get_attribute("aria-pressed") == "true"
    assert "agree on rule" in (layers.nth(3).get_attribute("title") or "")

    go(explorer, 5)
    says(explorer, re.compile(r"^It gives -2's answer on this problem's operands, \d, not the "
                              r"source's own, \d\.$"))
    arrived = {bar["name"]: dict(zip(bar["y"], bar["x"], strict=True))
               for bar in explorer.chart("controls")}["-2 here"]
    assert {name for name, share in arrived.items() if share} == {"what was put"}

    go(explorer, 6)
    expect(page.get_by_role("button", name="Replicate on")).to_be_visible()
    says(explorer, "Applies this patch to 200 problems")

    card = go(explorer, 7)

    def is_aside() -> bool:
        """Whether the card covers nothing of what it describes."""
        mine, its = card.bounding_box(), page.locator(STEPS[6].at).bounding_box()
        return bool(mine and its and mine["x"] > its["x"] + its["width"])

    explorer.until(is_aside)
    says(explorer, "What the paper claims, and what we find")
    for verdict in ("agree", "differ", "are undecided", "not run"):
        says(explorer, re.compile(verdict))
    explorer.check()


def test_next_back_and_close(explorer: Explorer) -> None:
    explorer.open(query={"tour": str(len(STEPS) + 1)})
    page = explorer.page
    expect(explorer.message().first).to_contain_text("There is no tour")
    expect(page.locator(".tour-card")).to_have_count(0)
    page.locator(".tour-start").click()
    card = at_step(explorer, 1)
    expect(card.locator(".tour-back")).to_have_count(0)
    expect(card.get_by_role("link", name="Next")).to_be_focused()
    page.keyboard.press("Enter")
    card = at_step(explorer, 2)
    assert "tour=2" in page.url
    card.get_by_role("link", name="Back").click()
    at_step(explorer, 1)
    explorer.picture()
    explorer.go_to("Compare")  # a page keeps the step
    expect(card).to_contain_text("1 of")
    explorer.until(lambda: "tour=1" in page.url)
    card.locator(".tour-here").click()
    at_step(explorer, 1)
    expect(page).to_have_title("Explore · latentcode")
    explorer.picture()
    with explorer.rerun():
        card.get_by_role("button", name="Close the tour").click()
    expect(card).to_have_count(0)
    explorer.until(lambda: "tour" not in page.url)
    expect(page.locator(".tour-start")).to_be_visible()
    explorer.check()


def test_newcomers_are_offered_the_tour_until_they_decline(
    opened: Callable[[], Explorer]
) -> None:
    explorer = opened()
    page, offer = explorer.page, explorer.page.locator(".tour-offer")
    explorer.open(query={"colour": "rule"})
    page.locator(".tour-start").wait_for()
    expect(offer).to_have_count(0)  # an address that was shared
    explorer.open()
    expect(offer).to_have_text(re.compile("New here"))
    offer.get_by_role("button").click()
    expect(offer).to_have_count(0)
    explorer.open()
    page.locator(".tour-start").wait_for()
    expect(offer).to_have_count(0)
    other = opened()  # a browser of its own
    other.open()
    other.page.locator(".tour-take").click()
    at_step(other, 1)
    other.open()
    other.page.locator(".tour-start").wait_for()
    expect(other.page.locator(".tour-offer")).to_have_count(0)
    other.check()
