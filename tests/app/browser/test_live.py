"""Does the answer follow what a hand changes, and does the address hold where one looks?"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from explorer import Explorer, expect
from playwright.sync_api import Locator, Route

from latentcode.app.charts.map.addresses import ARRAYS
from latentcode.experiments.benchmarks.browser import settle

MODEL = "sraven-hyla"
PCA = {"model": MODEL, "projection": "PCA", "colour": "rule"}
CONTROL = re.compile(r"\d+ of 16 give this answer\.")
MORE = """() => {
    const map = document.querySelector('.lc-map').codeMap, {planes} = map.data;
    map.update({...map.data, planes: planes.map(
        plane => ({...plane, points: `${plane.points}?more`}))});
}"""
"""Draw points anew that lie at another address."""


def answer(explorer: Explorer) -> Locator:
    return explorer.page.get_by_test_id("stMarkdownContainer").get_by_text(
        re.compile("^The answer of token 2 (stays|becomes)"))


def test_a_selections_mean_is_written_while_the_outline_changes(explorer: Explorer) -> None:
    explorer.open(query={**PCA, "instance": "0"})
    page = explorer.page
    explorer.lasso(110)
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
    explorer.check()


def test_zoom_and_hidden_values_are_in_the_address(
    explorer: Explorer, opened: Callable[[], Explorer]
) -> None:
    explorer.open(query=PCA)
    explorer.picture()
    page, whole = explorer.page, explorer.domains()
    steps = page.evaluate("history.length")
    field = page.locator(".st-key-map .lc-field").bounding_box()
    assert field is not None
    page.mouse.move(field["x"] + 0.6 * field["width"], field["y"] + 0.4 * field["height"])
    page.mouse.wheel(0, -600)
    page.locator(".lc-legend button", has_text="sum").click()
    explorer.until(lambda: {"zoom", "off"} <= {*explorer.query()})
    settle(page)
    zoomed = explorer.domains()
    assert np.ptp(zoomed[0, :2]) < 0.9 * np.ptp(whole[0, :2])
    assert explorer.query()["off"] == "rule_2!sum"
    assert page.evaluate("history.length") == steps  # it is no step
    # More points, as when texts are being read, are looked at as the page says.
    page.evaluate(MORE)
    explorer.picture()
    assert np.allclose(explorer.domains(), zoomed, atol=0.01 * np.ptp(whole[0, :2]))
    other = opened()
    other.page.goto(page.url)
    other.picture()
    other.until(lambda: bool(np.allclose(
        other.domains(), zoomed, atol=0.01 * np.ptp(whole[0, :2]))))
    expect(other.page.locator(".lc-legend button", has_text="sum")).to_have_attribute(
        "aria-pressed", "false")
    settle(other.page)
    assert other.page.url == page.url
    other.press("Layer", "2")  # another picture, which is whole
    other.until(lambda: "zoom" not in other.query())
    assert other.query()["off"] == "rule_2!sum"
    other.page.go_back()
    other.until(lambda: bool(np.allclose(
        other.domains(), zoomed, atol=0.01 * np.ptp(whole[0, :2]))))
    assert other.query()["zoom"] == explorer.query()["zoom"]
    # Of other instances, too, the legend hides what the address does.
    button = other.page.locator(".lc-legend button", has_text="sum")
    values = other.map()["values"]
    other.choose("Instances", "5,000")
    other.until(lambda: other.map()["values"] != values)
    assert other.query()["off"] == "rule_2!sum"
    expect(button).to_have_attribute("aria-pressed", "false")
    explorer.page.get_by_role("button", name="Whole picture").click()
    explorer.until(lambda: "zoom" not in explorer.query())
    explorer.check()
    other.check()


def test_each_picture_of_a_comparison_has_a_zoom_of_its_own(
    explorer: Explorer, opened: Callable[[], Explorer]
) -> None:
    explorer.page.goto(f"{explorer.server.url('compare')}?projection=PCA&colour=rule_0"
                       "&models=runs/a&models=runs/b")
    explorer.picture("compare chart")
    fields = explorer.page.locator(".st-key-compare-chart .lc-field")
    field = fields.nth(1).bounding_box()
    assert field is not None
    explorer.page.mouse.move(field["x"] + field["width"] / 2, field["y"] + field["height"] / 2)
    explorer.page.mouse.wheel(0, -500)
    explorer.until(lambda: explorer.query().get("zooms", "").startswith("~"))
    settle(explorer.page)
    shown = explorer.domains(".st-key-compare-chart")
    other = opened()
    other.page.goto(explorer.page.url)
    other.picture("compare chart")
    other.until(lambda: bool(np.allclose(
        other.domains(".st-key-compare-chart"), shown, atol=0.02 * np.abs(shown).max())))
    other.check()
    # Back undoes what was zoomed after a step, in every picture.
    explorer.page.get_by_role("button", name="Whole picture").click()
    explorer.until(lambda: "zooms" not in explorer.query())
    settle(explorer.page)
    whole = explorer.domains(".st-key-compare-chart")
    before = explorer.query()["colour"]
    # What is zoomed while the new colours are on their way stays, too.
    under_way: list[Route] = []
    explorer.page.route(f"**{ARRAYS}/*", lambda route: under_way.append(route))
    explorer.choose("Colour by", "shared neighbours")
    explorer.until(lambda: bool(under_way))
    explorer.page.mouse.move(field["x"] + field["width"] / 2, field["y"] + field["height"] / 2)
    explorer.page.mouse.wheel(0, -500)
    explorer.until(lambda: not np.allclose(explorer.domains(".st-key-compare-chart"), whole))
    for request in under_way:
        request.continue_()
    explorer.page.unroute(f"**{ARRAYS}/*")
    explorer.until(lambda: explorer.query().get("zooms", "").startswith("~"))
    settle(explorer.page)
    explorer.page.go_back()
    explorer.until(lambda: bool(np.allclose(
        explorer.domains(".st-key-compare-chart"), whole, atol=1e-3 * np.abs(whole).max())))
    assert explorer.query()["colour"] == before
    explorer.check()


def test_what_a_part_says_no_more_leaves_the_address(explorer: Explorer) -> None:
    explorer.open(query={**PCA, "instance": "5"})
    explorer.until(lambda: explorer.query().get("look") == "labels")
    explorer.lasso(110)
    explorer.until(lambda: "look" not in explorer.query())
    assert "at" in explorer.query()
    explorer.press("Beside the map", "Problem")
    explorer.until(lambda: explorer.query().get("look") == "labels")
    assert "at" not in explorer.query()
    explorer.check()
