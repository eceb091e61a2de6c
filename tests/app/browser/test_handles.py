"""Bars are dragged: what comes of it on the page and in the URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")
expect = playwright.expect

if TYPE_CHECKING:
    from explorer import Explorer
    from playwright.sync_api import Locator

pytestmark = pytest.mark.slow

MODEL = "sraven-hyla"
BY_HAND = {"model": MODEL, "instance": "3", "what": "by hand", "scope": "row", "layers": "3",
           "how": "set to"}

def bar(explorer: Explorer, head: int) -> Locator:
    return explorer.page.get_by_role("slider", name=f"head {head}", exact=True)


def value(slider: Locator) -> float:
    return float(slider.get_attribute("aria-valuenow") or "nan")


def drag(explorer: Explorer, slider: Locator, by: float) -> None:
    """Drag a bar by so many pixels, and check that the page hears of it when it is let go alone.
    """
    slider.scroll_into_view_if_needed()
    frame = slider.locator("svg").bounding_box()
    assert frame is not None
    middle = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    asked = explorer.asked
    explorer.page.mouse.move(*middle)
    explorer.page.mouse.down()
    explorer.page.mouse.move(middle[0], middle[1] + by, steps=4)
    assert explorer.asked == asked
    with explorer.rerun():
        explorer.page.mouse.up()


def test_a_dragged_bar_changes_the_answer_and_the_url(explorer: Explorer) -> None:
    explorer.open("intervene", BY_HAND)
    before, slider = explorer.chart("answers"), bar(explorer, 2)
    others = [value(bar(explorer, head)) for head in (0, 1, 3)]
    drag(explorer, slider, -1_000)
    most = float(slider.get_attribute("aria-valuemax") or "nan")
    how, *numbers = explorer.query()["numbers"].split("_")
    assert (how, float(numbers[2])) == ("set", most)
    assert [float(numbers[head]) for head in (0, 1, 3)] == pytest.approx(others)
    explorer.until(lambda: explorer.chart("answers") != before)
    # The next one leaves it where it is.
    drag(explorer, bar(explorer, 1), 20)
    assert float(explorer.query()["numbers"].split("_")[3]) == most
    assert value(bar(explorer, 1)) < 0
    explorer.page.get_by_role("button", name="Its own", exact=False).click()
    explorer.until(lambda: "numbers" not in explorer.query())
    explorer.until(lambda: value(bar(explorer, 1)) == others[1])
    explorer.check()


def test_arrow_keys_move_a_bar(explorer: Explorer) -> None:
    explorer.open("intervene", BY_HAND)
    slider = bar(explorer, 1)
    before = value(slider)
    slider.focus()
    for key, step in (("ArrowUp", 0.01), ("PageDown", -0.1)):
        with explorer.rerun():
            slider.press(key)
        before += step
        assert value(slider) == pytest.approx(before)
        # It keeps the focus while the page is drawn anew.
        assert slider.evaluate("bar => bar === document.activeElement")
    # A key that is down while the answer to the last one arrives.
    with explorer.rerun():
        slider.press("ArrowUp")
        explorer.page.keyboard.down("ArrowUp")
    assert value(slider) == pytest.approx(before + 0.02)
    with explorer.rerun():
        explorer.page.keyboard.up("ArrowUp")
    before += 0.02
    assert value(slider) == pytest.approx(before)
    assert float(explorer.query()["numbers"].split("_")[2]) == pytest.approx(before)
    with explorer.rerun():
        slider.press("End")
    assert slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax")
    explorer.check()


def test_a_preset_is_a_mean_code(explorer: Explorer) -> None:
    explorer.open("intervene", BY_HAND)
    ticks = bar(explorer, 0).locator("title")
    wanted = next(text for text in ticks.all_text_contents() if text.startswith("sum: "))
    with explorer.rerun():
        explorer.page.get_by_role("button", name="sum", exact=True).click()
    assert value(bar(explorer, 0)) == float(wanted.removeprefix("sum: ").replace("−", "-"))
    assert explorer.query()["numbers"].startswith("set_")
    with explorer.rerun():
        explorer.page.get_by_role("button", name="Zero", exact=True).click()
    assert set(explorer.query()["numbers"].split("_")[1:]) == {"0"}
    explorer.check()
