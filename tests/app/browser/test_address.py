"""Does an address hold the whole view, and does Back show what it says, a step at a time?"""

from __future__ import annotations

from collections.abc import Callable

from explorer import Explorer, expect

from latentcode.experiments.benchmarks.browser import settle

MODEL = "sraven-hyla"
OTHER = "sraven-linear"
OF_MODEL = {"model": MODEL}
"""Without it a person's own run is what is opened first."""


def back(explorer: Explorer) -> None:
    with explorer.rerun():  # a Back before the last one is shown would take its place
        explorer.page.go_back()


def test_back_goes_through_choices_and_pages_and_shows_what_they_were(explorer: Explorer) -> None:
    page = explorer.page
    page.goto("about:blank")
    explorer.open("explore", OF_MODEL)
    first = page.url
    assert explorer.query()["colour"] == explorer.chosen()["Colour by"]
    explorer.choose("Model", OTHER)
    explorer.press("Layer", "2")
    explorer.click_a_point()  # which is no step
    explorer.go_to("Similarity")
    explorer.headline("How similar").wait_for()
    explorer.go_to("Decode")
    explorer.headline("No probes yet").wait_for()
    back(explorer)
    expect(page).to_have_title("Similarity · latentcode")
    assert (explorer.chosen()["Model"], explorer.chosen()["Layer"]) == (OTHER, "2")
    back(explorer)
    expect(page).to_have_title("Explore · latentcode")
    explorer.headline(f"codes of {OTHER}").wait_for()
    assert explorer.chosen()["Layer"] == explorer.query()["layer"] == "2"
    back(explorer)
    assert (explorer.chosen()["Model"], explorer.query()["model"]) == (OTHER, OTHER)
    back(explorer)
    explorer.headline(f"codes of {MODEL}").wait_for()
    assert page.url == first
    explorer.check()
    page.go_back()
    expect(page).to_have_url("about:blank")


def test_an_address_that_nobody_has_changed_gives_the_same_picture(
    explorer: Explorer, opened: Callable[[], Explorer]
) -> None:
    explorer.open("explore", OF_MODEL)
    for name in ("model", "split", "n", "layer", "pair", "projection", "colour", "show", "beside"):
        assert name in explorer.query()
    explorer.choose("Colour by", "loss")
    expect(explorer.page.locator(".lc-legend")).to_contain_text("shades by rank")
    shared, shown = explorer.page.url, explorer.chosen()
    other = opened()
    other.page.goto(shared)
    other.picture()
    settle(other.page)
    assert other.chosen() == shown
    assert other.page.url == shared
    other.check()


def test_the_keyboard_goes_from_point_to_point_and_opens_one(explorer: Explorer) -> None:
    explorer.open("explore", OF_MODEL)
    explorer.picture()
    page = explorer.page
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("stTopNavLink").first).to_be_focused()
    page.locator(".st-key-map .lc-field").focus()
    page.keyboard.press("ArrowRight")
    ringed = page.evaluate("document.querySelector('.st-key-map .lc-map').codeMap.ringed")
    assert ringed > 0
    page.keyboard.press("Enter")
    explorer.headline(f"Instance {ringed}").wait_for()
    explorer.check()


def test_the_context_is_a_click_away_and_stands_beside_the_papers_pair(explorer: Explorer) -> None:
    explorer.open("explore", {**OF_MODEL, "projection": "PCA"})  # others take a while at first
    explorer.page.get_by_role("button", name="A code of the context").click()
    explorer.until(lambda: explorer.query().get("pair") == "row1.panel3->row1.panel3")
    settle(explorer.page)
    explorer.page.get_by_role("button", name="Both side by side").click()
    explorer.headline("at two places").wait_for()
    explorer.picture("compare chart")
    assert len(explorer.map("compare chart")["names"]) == 8
    explorer.page.set_viewport_size({"width": 375, "height": 800})
    fields = explorer.page.locator(".st-key-compare-chart .lc-field")
    explorer.until(lambda: fields.first.bounding_box()["width"] > 250)
    assert fields.count() == 2
    explorer.check()
