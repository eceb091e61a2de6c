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


def test_bars_are_dragged_moved_by_keys_and_set(explorer: Explorer) -> None:
    page = explorer.open("intervene", BY_HAND).page
    before, slider = explorer.chart("answers"), bar(explorer, 2)
    own = [value(bar(explorer, head)) for head in range(4)]
    drag(explorer, slider, -1_000)
    most = float(slider.get_attribute("aria-valuemax") or "nan")
    how, *numbers = explorer.query()["numbers"].split("_")
    assert (how, float(numbers[2])) == ("set", most)
    assert [float(numbers[head]) for head in (0, 1, 3)] == pytest.approx(
        [own[head] for head in (0, 1, 3)])
    explorer.until(lambda: explorer.chart("answers") != before)
    # The next one leaves it where it is.
    drag(explorer, bar(explorer, 1), 20)
    assert float(explorer.query()["numbers"].split("_")[3]) == most
    assert value(bar(explorer, 1)) < 0
    page.get_by_role("button", name="Its own", exact=False).click()
    explorer.until(lambda: "numbers" not in explorer.query())
    explorer.until(lambda: value(bar(explorer, 1)) == own[1])
    # Arrow keys.
    slider, now = bar(explorer, 1), own[1]
    slider.focus()
    for key, step in (("ArrowUp", 0.01), ("PageDown", -0.1)):
        with explorer.rerun():
            slider.press(key)
        now += step
        assert value(slider) == pytest.approx(now)
        # It keeps the focus while the page is drawn anew.
        assert slider.evaluate("bar => bar === document.activeElement")
    # A key that is down while the answer to the last one arrives.
    with explorer.rerun():
        slider.press("ArrowUp")
        page.keyboard.down("ArrowUp")
    assert value(slider) == pytest.approx(now + 0.02)
    with explorer.rerun():
        page.keyboard.up("ArrowUp")
    now += 0.02
    assert value(slider) == pytest.approx(now)
    assert float(explorer.query()["numbers"].split("_")[2]) == pytest.approx(now)
    with explorer.rerun():
        slider.press("End")
    assert slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax")
    # A preset is a mean code.
    ticks = bar(explorer, 0).locator("title")
    wanted = next(text for text in ticks.all_text_contents() if text.startswith("sum: "))
    with explorer.rerun():
        page.get_by_role("button", name="sum", exact=True).click()
    assert value(bar(explorer, 0)) == float(wanted.removeprefix("sum: ").replace("−", "-"))
    assert explorer.query()["numbers"].startswith("set_")
    with explorer.rerun():
        page.get_by_role("button", name="Zero", exact=True).click()
    assert set(explorer.query()["numbers"].split("_")[1:]) == {"0"}
    explorer.check()
