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
    from playwright.sync_api import Locator

pytestmark = pytest.mark.slow

SRAVEN = "sraven-hyla"
LOGIC = "logic-hyla"
LONG = 600_000.0
"""Milliseconds that 200 problems may take on a busy machine."""


def pick(explorer: Explorer, label: str, option: str) -> None:
    """Choose an option of a list."""
    explorer.page.get_by_role("combobox", name=re.compile(f"^{label}")).click()
    with explorer.rerun():
        explorer.page.get_by_role("option", name=option, exact=True).click()


def begin(explorer: Explorer) -> Locator:
    """Begin, and return the button that stops it: the server's menu has one, too."""
    explorer.page.get_by_role("button", name="Replicate on").click()
    stop = explorer.page.locator(".st-key-replicate").get_by_role("button", name="Stop")
    expect(stop).to_be_visible()
    expect(explorer.page.get_by_role("button", name="Replicate on")).to_have_count(0)
    return stop


def test_every_kind_of_control(explorer: Explorer) -> None:
    explorer.open("intervene", {"model": SRAVEN, "instance": "3"})
    page, before = explorer.page, explorer.chart("answers")
    with explorer.rerun():
        page.get_by_role("button", name="Another one").click()
    with explorer.rerun():
        page.get_by_label("Problem", exact=True).fill("7")
        page.get_by_label("Problem", exact=True).press("Enter")
    assert explorer.chart("answers") != before
    explorer.press("Replace the rule of token", "2")
    pick(explorer, "Codes", "other rule and operands")
    expect(page.get_by_text("Whose answer it is")).to_be_visible()
    pick(explorer, "Heads", "1")
    page.keyboard.press("Escape")
    explorer.press("Scope", "row")
    expect(page.get_by_text("The response attending to every key.")).to_be_visible()
    pick(explorer, "Codes", "other problem")
    with explorer.rerun():
        page.get_by_label("Number of the other problem").fill("9")
        page.get_by_label("Number of the other problem").press("Enter")
    pick(explorer, "Codes", "by hand")
    with explorer.rerun():
        page.get_by_role("slider").first.press("ArrowRight")
    assert "numbers=" in page.url
    with explorer.rerun():
        page.get_by_role("button", name="Its own", exact=True).click()
    assert "numbers=" not in page.url
    expect(page.get_by_text("leave every bit of the output as it is")).to_be_visible()
    explorer.check()


def test_it_is_replicated_on_200_problems(explorer: Explorer) -> None:
    explorer.open("intervene", {"model": LOGIC, "what": "other term and operands"})
    page = explorer.page
    begin(explorer)
    expect(page.get_by_text("200 of 200 problems", exact=True)).to_be_visible(timeout=LONG)
    settle(page)
    said = re.search(r"Over (\d+) instances the answer stays A\(x\) in (\d+) %",
                     page.locator(".st-key-replicate").inner_text())
    assert said is not None
    counted, stays = int(said[1]), int(said[2])
    assert 50 < counted <= 200
    shown = explorer.chart("replicated")
    assert [bar["name"] for bar in shown] == ["what was written", "same terms", "other problems",
                                              "random codes"]
    assert round(100 * shown[0]["y"][0]) == stays
    expect(page.get_by_text(f"{counted} of 200 instances count")).to_be_visible()
    settle(page)
    with page.expect_download() as download:
        page.locator(".st-key-replicate").get_by_role("button", name="Table, CSV").click()
    rows = list(csv.DictReader(download.value.path().read_text("utf-8").splitlines()))
    assert len(rows) == 4 * counted
    # It stays for another problem, and goes with another writing.
    with explorer.rerun():
        page.get_by_role("button", name="Another one").click()
    expect(page.get_by_text("200 of 200 problems", exact=True)).to_be_visible()
    explorer.press("Scope", "row")
    expect(page.get_by_role("button", name="Replicate on")).to_be_visible()
    expect(page.get_by_text("200 of 200 problems")).to_have_count(0)
    explorer.check()


def test_it_stops_and_goes_on(explorer: Explorer) -> None:
    explorer.open("intervene", {"model": SRAVEN})
    page = explorer.page
    begin(explorer).click()
    stopped = page.get_by_text(re.compile(r"^Stopped at \d+ of 200 problems$"))
    expect(stopped).to_be_visible(timeout=LONG)
    seen = stopped.inner_text()
    page.wait_for_timeout(3_000)
    assert stopped.inner_text() == seen
    page.get_by_role("button", name="Go on").click()
    page.locator(".st-key-replicated .js-plotly-plot").wait_for(timeout=LONG)
    # Whatever else is changed ends it, and leaving the page.
    explorer.press("Scope", "row")
    expect(page.get_by_role("button", name="Replicate on")).to_be_visible(timeout=LONG)
    begin(explorer)
    explorer.go_to("Results")
    explorer.go_to("Intervene")
    expect(stopped).to_be_visible(timeout=LONG)
    explorer.check()


def test_a_narrow_window_stacks_its_columns(explorer: Explorer) -> None:
    explorer.open("intervene", {"model": SRAVEN, "instance": "3"})
    explorer.chart("answers")
    for width, stacked in ((900, True), (1_280, False), (1_600, False)):
        explorer.page.set_viewport_size({"width": width, "height": 1_000})
        explorer.page.wait_for_timeout(1_000)
        main = explorer.page.get_by_test_id("stMain")
        assert main.evaluate("all => all.scrollWidth - all.clientWidth") <= 0
        problem, answers = (explorer.page.locator(place).bounding_box()
                            for place in (".problem", ".st-key-answers"))
        assert (answers["y"] > problem["y"] + problem["height"]) == stacked
        ticks = explorer.page.locator(".st-key-answers .xaxislayer-above .xtick text")
        places = sorted((box["x"], box["x"] + box["width"]) for box in (
            tick.bounding_box() for tick in ticks.all()))
        assert len(places) >= 8
        assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
        angles = ticks.evaluate_all("all => all.map(tick => tick.getAttribute('transform') || '')")
        assert not [angle for angle in angles if re.search(r"rotate\((?!0)", angle)]
    explorer.check()
