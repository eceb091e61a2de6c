"""Does every mark and every tool of the map do what it says?"""

from __future__ import annotations

import re

import numpy as np
import pytest
from explorer import INSTANCE, Explorer, expect

from latentcode.experiments.benchmarks.browser import settle

MODEL = "sraven-hyla"
PCA = {"model": MODEL, "projection": "PCA", "colour": "rule"}
FIRST = "document.querySelector('.st-key-map .lc-map').codeMap.panels[0]"
PLACES = """() => {
    const {panels} = document.querySelector('.st-key-map .lc-map').codeMap;
    return panels.map(panel => ({
        rings: [...panel.marks.querySelectorAll('.lc-hover')].map(
            ring => ['cx', 'cy'].map(at => Number(ring.getAttribute(at)))),
        points: Array.from({length: panel.points.length / 2}, (_, i) => panel.position(i)),
    }));
}"""
"""The rings in each picture, and where in it each instance is."""

PRESS = """([clientX, clientY]) => new Promise(done => requestAnimationFrame(() => {
    const canvas = document.querySelector('.st-key-map .lc-field canvas');
    const event = (type, buttons) => canvas.dispatchEvent(new MouseEvent(
        type, {clientX, clientY, buttons, bubbles: true, view: window}));
    event('mousemove', 0);
    event('mousedown', 1);
    requestAnimationFrame(() => requestAnimationFrame(() => { event('mouseup', 0); done(); }));
}))"""
"""The mouse arrives and is pressed between two frames."""


def tool(explorer: Explorer, name: str) -> None:
    explorer.page.locator(".lc-tools button", has_text=re.compile(f"^{name}$")).click()


def domain(explorer: Explorer) -> list[float]:
    found: list[float] = explorer.page.evaluate(
        f"() => [...{FIRST}.xScale.domain(), ...{FIRST}.yScale.domain()]")
    return found


def area(explorer: Explorer) -> dict[str, float]:
    found = explorer.page.locator(".st-key-map .lc-field").first.bounding_box()
    assert found is not None
    return found


def drag(explorer: Explorer, *shares: tuple[float, float]) -> None:
    """Press at the first place of the map, given in shares of its size, and let go at the last."""
    field = area(explorer)
    places = [(field["x"] + x * field["width"], field["y"] + y * field["height"])
              for x, y in shares]
    explorer.page.mouse.move(*places[0])
    explorer.page.mouse.down()
    for place in places[1:]:
        explorer.page.mouse.move(*place, steps=60)
    explorer.page.wait_for_timeout(150)  # the outline follows the mouse with a delay
    explorer.page.mouse.up()


def inside(
    explorer: Explorer, shares: tuple[tuple[float, float], tuple[float, float]], margin: float = 0.0
) -> int:
    """Return how many points are drawn in a box of the map, `margin` pixels wider on each side."""
    (left, top), (right, bottom) = shares
    positions = np.array(explorer.page.evaluate(
        f"() => Array.from({{length: {FIRST}.points.length / 2}}, (_, i) => {FIRST}.position(i))"))
    field = area(explorer)
    x, y = positions[:, 0], positions[:, 1]
    width, height = field["width"], field["height"]
    return int(((x > left * width - margin) & (x < right * width + margin)
                & (y > top * height - margin) & (y < bottom * height + margin)).sum())


def test_points_are_moved_and_outlined(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    explorer.picture()
    # The wheel and the tool Pan.
    whole, field, page = domain(explorer), area(explorer), explorer.page
    back = page.get_by_role("button", name="No point is in view")
    expect(back).to_be_hidden()
    tool(explorer, "Pan")
    drag(explorer, (0.5, 0.5), (0.7, 0.6))
    explorer.until(lambda: domain(explorer)[0] < whole[0] - 1e-6)
    moved = domain(explorer)
    page.mouse.move(field["x"] + field["width"] / 2, field["y"] + field["height"] / 2)
    page.mouse.wheel(0, -400)
    explorer.until(lambda: np.ptp(domain(explorer)[:2]) < 0.95 * np.ptp(moved[:2]))
    tool(explorer, "Whole picture")
    explorer.until(lambda: bool(np.allclose(domain(explorer), whole, atol=1e-6)))
    # Who has lost all points is told how to find them.
    page.mouse.move(field["x"] + 6, field["y"] + 6)
    for _ in range(4):
        page.mouse.wheel(0, -2_500)
        page.wait_for_timeout(100)
    expect(back).to_be_visible()
    shown = np.ptp(domain(explorer)[:2]) / np.ptp(whole[:2])
    assert shown == pytest.approx(1 / 200, rel=0.05)
    back.click()
    explorer.until(lambda: bool(np.allclose(domain(explorer), whole, atol=1e-6)))
    expect(back).to_be_hidden()
    assert "select" not in explorer.query()
    # A box, which a double click clears.
    tool(explorer, "Box")
    box = ((0.3, 0.3), (0.6, 0.7))
    drag(explorer, *box)
    explorer.headline("Selection:").wait_for()
    settle(page)
    selected, every = explorer.selected()
    assert every == 2_000
    # The corners are where the mouse was last seen, within a few pixels.
    assert inside(explorer, box, -3.0) <= selected <= inside(explorer, box, 3.0)
    assert explorer.map()["painted"] == [selected]
    assert explorer.query()["select"].startswith("L")
    page.mouse.dblclick(field["x"] + 6, field["y"] + 6)
    expect(explorer.headline("No selection")).to_be_visible()
    assert explorer.map()["painted"] == [0]
    explorer.until(lambda: "select" not in explorer.query())
    # A lasso, which changes every panel.
    tool(explorer, "Lasso")
    more, _ = explorer.lasso(150)
    panels = {key: explorer.panel(key) for key in ("distribution", "mean code", "confusion")}
    assert explorer.map()["painted"] == [more]
    # The next begins inside the old outline, which stays where it is and gives way.
    few, _ = explorer.lasso(60)
    assert 0 < few < more < every
    for key, before in panels.items():
        explorer.until(lambda key=key, before=before: explorer.panel(key) != before)
    explorer.until(lambda: explorer.map()["painted"] == [few])
    assert len(explorer.map()["outlines"]) == 1
    explorer.press("Beside the map", "List")
    explorer.until(lambda: explorer.listed() == min(few, 1_000))
    png = explorer.download(page.get_by_role("button", name="PNG")).read_bytes()
    assert png.startswith(b"\x89PNG")
    explorer.check()


def test_a_press_far_from_where_the_mouse_was_pans_with_its_tool_alone(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    explorer.picture()
    field = area(explorer)
    for name in ("Lasso", "Box", "Pan"):
        tool(explorer, name)
        before = domain(explorer)
        explorer.page.mouse.move(field["x"] + 6, field["y"] + 6)
        explorer.page.evaluate(PRESS, [field["x"] + 300, field["y"] + 200])
        assert (domain(explorer) == before) == (name != "Pan")
    explorer.check()


def test_a_point_is_looked_at_by_mouse_and_keyboard(explorer: Explorer) -> None:
    page = explorer.open(query=PCA).page
    explorer.picture()
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
    settle(page)
    # Names stand in the picture, and the mouse shows the problem.
    names = page.locator(".st-key-map .lc-names span")
    assert names.count() > 0
    assert {name.inner_text() for name in names.all()} <= set(map(str, explorer.map()["names"]))
    tool(explorer, "Names")
    expect(names).to_have_count(0)
    explorer.point_at()
    card = page.locator(".lc-card")
    expect(card.locator(".answer")).to_contain_text("The model answers")
    assert card.locator("[data-token]").count() > 0
    expect(page.locator(".st-key-map .lc-hover")).to_have_count(1)
    page.mouse.move(2, 2)
    expect(card).to_be_hidden()
    # A click leaves it beside the map.
    clicked = explorer.click_a_point()
    assert explorer.instance() == clicked
    assert explorer.query()["instance"] == str(clicked)
    expect(page.locator(".st-key-map .lc-ring")).to_have_count(1)
    problem = page.locator("[data-testid=stHtml] .problem")
    for width in (1_280, 1_600):  # it is there with its last row
        page.set_viewport_size({"width": width, "height": 1_000})
        problem.wait_for()
        hidden = problem.evaluate("all => [all, ...all.querySelectorAll('div')].map(part => ["
                                  "part.scrollHeight - part.clientHeight, "
                                  "part.scrollWidth - part.clientWidth]).flat()")
        assert max(hidden) <= 0
    answer = page.locator("[data-testid=stHtml] .answer")
    expect(answer).to_contain_text("The model answers")
    assert f"instance {clicked}" in explorer.panel("bars")
    table = page.locator("[data-testid=stMain] [data-testid=stDataFrame]").first
    table.scroll_into_view_if_needed()
    nearest = table.bounding_box()
    page.mouse.click(nearest["x"] + 15, nearest["y"] + 50)
    explorer.until(lambda: explorer.instance() != clicked)
    page.get_by_role("button", name="Close").click()
    expect(explorer.headline("No selection")).to_be_visible()
    expect(explorer.headline(INSTANCE)).to_have_count(0)
    # The first problem is what is looked at where nobody has chosen another.
    explorer.until(lambda: explorer.query()["instance"] == "0")
    explorer.press("Beside the map", "Problem")
    assert explorer.instance() == 0
    # A click counts while the picture is drawn anew.
    pointed = explorer.point_at()
    page.mouse.down()
    with explorer.rerun():
        page.get_by_role("radio", name="2", exact=True).dispatch_event("click")
    page.mouse.up()
    explorer.headline(f"Instance {pointed}").wait_for()
    assert explorer.query()["layer"] == "2"
    explorer.check()


def shares(explorer: Explorer) -> dict[str, int]:
    """Return the share of each value of the colour in the selection, in percent."""
    table = explorer.page.locator(".st-key-distribution .lc-shares")
    return {name: int(share.rstrip("%")) for name, share in zip(
        table.locator("tbody th").all_inner_texts(),
        table.locator("tbody td:nth-child(3)").all_inner_texts(), strict=True)}


def test_an_outline_leaves_out_what_the_legend_hides(explorer: Explorer) -> None:
    explorer.open(query={**PCA, "colour": "context_1"})
    everything, _ = explorer.lasso(90)
    before, shown = shares(explorer), explorer.map()
    hidden = sorted(before, key=before.__getitem__)[-2:]

    def click(name: str, left: bool) -> None:
        button = explorer.page.locator(
            f".lc-legend button[data-value='{shown['names'].index(name)}']")
        button.click()
        expect(button).to_have_attribute("aria-pressed", str(left).lower())

    click(hidden[0], False)
    left = sum(of != shown["names"].index(hidden[0]) for of in shown["values"])
    filtered = f"() => {FIRST}.plot.get('filteredPoints').length"
    explorer.until(lambda: explorer.page.evaluate(filtered) == left)
    click(hidden[0], True)
    explorer.until(lambda: explorer.page.evaluate(
        f"() => {FIRST}.plot.get('isPointsFiltered')") is False)
    for name in hidden:
        click(name, False)
    # A little larger, so that it begins outside of the first.
    fewer, _ = explorer.lasso(91)
    assert 0 < fewer < everything
    explorer.until(lambda: explorer.map()["painted"] == [fewer])
    assert all((shares(explorer)[name] > 0) == (name not in hidden)
               for name, share in before.items() if share > 2)
    said = explorer.page.get_by_text(f"hidden: 2 values of context_1 ({', '.join(hidden)})")
    expect(said).to_be_visible()
    url = explorer.page.url
    explorer.page.goto("about:blank")
    explorer.page.goto(url)
    expect(said).to_be_visible()
    assert explorer.selected()[0] == fewer
    explorer.until(lambda: explorer.map()["painted"] == [fewer])
    explorer.check()


def test_two_places_stand_side_by_side(explorer: Explorer) -> None:
    page = explorer.open("explore", PCA).page
    page.get_by_role("button", name="A code of the context").click()
    explorer.until(lambda: explorer.query().get("pair") == "row1.panel3->row1.panel3")
    settle(page)
    page.get_by_role("combobox", name="Show").click()
    with explorer.rerun():
        page.get_by_role("option", name="two maps").click()
    explorer.until(lambda: len(page.evaluate(PLACES)) == 2)
    explorer.picture("map")
    assert explorer.query()["second_place"] == "layer 3, response->response"
    assert len(explorer.map("map")["names"]) == 8
    # The instance under the mouse has a ring in every picture.
    instance = explorer.point_at("map")
    shown = page.evaluate(PLACES)
    assert len(shown) == 2
    for panel in shown:
        ring, = panel["rings"]
        assert ring == pytest.approx(panel["points"][instance], abs=0.5)
    page.mouse.move(2, 2)
    explorer.until(lambda: not any(panel["rings"] for panel in page.evaluate(PLACES)))
    page.set_viewport_size({"width": 375, "height": 800})
    fields = page.locator(".st-key-map .lc-field")
    explorer.until(lambda: fields.first.bounding_box()["width"] > 250)
    assert fields.count() == 2
    explorer.check()
