"""Do bars recolour the page and does the track choose a layer, by mouse and keyboard?"""

from __future__ import annotations

import re

from explorer import Explorer, expect

DRAWN = {"model": "runs/hostile", "projection": "PCA"}


def test_a_bar_recolours_the_page_and_the_track_chooses_the_layer(explorer: Explorer) -> None:
    explorer.open(query={**DRAWN, "pair": "response->row3", "colour": "loss"})
    rows = explorer.page.locator(".knn-purity-row")
    rows.first.wait_for()
    before = explorer.map()
    shown = explorer.page.locator(".knn-purity")  # small, and names from files are text
    box, row = shown.bounding_box(), rows.first.bounding_box()
    assert box is not None
    assert row is not None
    assert max(box["height"], 8 * row["height"]) <= 150.0
    assert shown.locator("img").count() == 0
    assert "<img src=" in shown.inner_text()
    assert rows.first.get_attribute("data-label") == "rule"  # what the codes were drawn by
    said = explorer.page.get_by_text(re.compile(
        "coloured by loss.*These codes separate rule best: 1.00 of"))
    expect(said).to_be_visible()
    pressed = explorer.page.locator(".knn-purity-row[aria-pressed=true]")
    assert pressed.get_attribute("data-label") == "loss"
    with explorer.rerun():
        rows.first.click()
    explorer.until(lambda: explorer.query().get("colour") != "loss")
    explorer.until(lambda: pressed.get_attribute("data-label") == "rule")
    assert explorer.chosen()["Colour by"] == "rule"
    explorer.until(lambda: explorer.map()["names"] != before["names"])
    with explorer.rerun():  # and by the keyboard, where the focus has stayed
        explorer.page.keyboard.press("Tab")
        explorer.page.keyboard.press("Enter")
    explorer.until(lambda: pressed.get_attribute("data-label") != "rule")
    second = rows.nth(1).get_attribute("data-label")
    assert pressed.get_attribute("data-label") == second
    explorer.until(lambda: explorer.query().get("colour") == second)
    with explorer.rerun():
        rows.first.click()
    explorer.until(lambda: explorer.query().get("colour") == "rule")
    # The track.
    layers = explorer.page.locator(".track-layers button")
    layers.first.wait_for()
    points = explorer.map()["points"]
    assert explorer.chosen()["Layer"] == "1"
    assert explorer.page.locator(".track-current").count() == 1
    # From 0 to 1, the lowest and the highest value, and what they are.
    numbers = explorer.page.locator(".track-number").all_text_contents()
    assert numbers[:2] == ["0", "1"]
    assert 1 <= len(numbers[2:]) <= 2
    assert all(0.0 <= float(number) <= 1.0 for number in numbers[2:])
    told = explorer.page.locator(".track-measured")
    expect(told).to_contain_text("nearest neighbours that agree on rule")
    with explorer.rerun():
        layers.first.click()
    explorer.until(lambda: explorer.query()["layer"] == "0")
    assert explorer.chosen()["Layer"] == "0"
    explorer.until(lambda: explorer.map()["points"] != points)
    explorer.until(lambda: layers.first.get_attribute("aria-pressed") == "true")
    explorer.press("Layer", "1")
    explorer.until(lambda: layers.last.get_attribute("aria-pressed") == "true")
    explorer.check()
