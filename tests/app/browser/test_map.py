"""Does every mark and every tool of the map do what it says?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from latentcode.experiments.benchmarks.browser import settle

playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")
expect = playwright.expect

if TYPE_CHECKING:
    from explorer import Explorer

pytestmark = pytest.mark.slow

MODEL = "sraven-hyla"
PCA = {"model": MODEL, "projection": "PCA", "colour": "rule"}
FIRST = "document.querySelector('.st-key-map .lc-map').codeMap.panels[0]"


def tool(explorer: Explorer, name: str) -> None:
    button = explorer.page.locator(".lc-tools button", has_text=re.compile(f"^{name}$"))
    button.click()


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


def inside(explorer: Explorer, shares: tuple[tuple[float, float], tuple[float, float]]) -> int:
    """Return how many points are drawn in a box of the map."""
    (left, top), (right, bottom) = shares
    positions = np.array(explorer.page.evaluate(
        f"() => Array.from({{length: {FIRST}.points.length / 2}}, (_, i) => {FIRST}.position(i))"))
    field = area(explorer)
    x, y = positions[:, 0] / field["width"], positions[:, 1] / field["height"]
    return int(((x > left) & (x < right) & (y > top) & (y < bottom)).sum())


def test_a_box_selects_what_lies_in_it_and_a_double_click_clears(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    explorer.picture()
    tool(explorer, "Box")
    box = ((0.3, 0.3), (0.6, 0.7))
    drag(explorer, *box)
    explorer.headline("Selection:").wait_for()
    settle(explorer.page)
    selected, every = explorer.selected()
    assert every == 2_000
    # The corners are where the mouse was last seen, within a pixel or so.
    assert selected == pytest.approx(inside(explorer, box), abs=25)
    assert explorer.map()["painted"] == [selected]
    assert explorer.query()["select"].startswith(("B", "L"))
    field = area(explorer)
    explorer.page.mouse.dblclick(field["x"] + 6, field["y"] + 6)
    expect(explorer.headline("No selection")).to_be_visible()
    assert explorer.map()["painted"] == [0]
    assert "select" not in explorer.query()
    explorer.check()


def test_a_new_outline_takes_the_place_of_the_old_one(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    first = explorer.lasso(60)
    # It begins inside the old one, which stays where it is and gives way.
    second = explorer.lasso(40, x=0.42)
    assert second != first
    assert len(explorer.map()["outlines"]) == 1
    explorer.check()


def test_the_picture_is_moved_and_zoomed_and_comes_back(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    explorer.picture()
    whole = domain(explorer)
    tool(explorer, "Pan")
    drag(explorer, (0.5, 0.5), (0.7, 0.6))
    explorer.until(lambda: domain(explorer)[0] < whole[0] - 1e-6)
    moved = domain(explorer)
    field = area(explorer)
    explorer.page.mouse.move(field["x"] + field["width"] / 2, field["y"] + field["height"] / 2)
    explorer.page.mouse.wheel(0, -400)
    explorer.until(lambda: np.ptp(domain(explorer)[:2]) < 0.95 * np.ptp(moved[:2]))
    tool(explorer, "Whole picture")
    explorer.until(lambda: bool(np.allclose(domain(explorer), whole, atol=1e-6)))
    assert "select" not in explorer.query()
    explorer.check()


def test_who_has_lost_all_points_is_told_how_to_find_them(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    explorer.picture()
    whole, field = domain(explorer), area(explorer)
    back = explorer.page.get_by_role("button", name="No point is in view")
    expect(back).to_be_hidden()
    explorer.page.mouse.move(field["x"] + 6, field["y"] + 6)
    for _ in range(4):
        explorer.page.mouse.wheel(0, -2_500)
        explorer.page.wait_for_timeout(100)
    expect(back).to_be_visible()
    shown = np.ptp(domain(explorer)[:2]) / np.ptp(whole[:2])
    assert shown == pytest.approx(1 / 200, rel=0.05)
    back.click()
    explorer.until(lambda: bool(np.allclose(domain(explorer), whole, atol=1e-6)))
    expect(back).to_be_hidden()
    explorer.check()


def test_a_value_of_the_legend_is_hidden_and_shown(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    shown = explorer.map()
    value = shown["names"].index("sum")
    button = explorer.page.locator(f".lc-legend button[data-value='{value}']")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "false")
    left = sum(of != value for of in shown["values"])
    filtered = f"() => {FIRST}.plot.get('filteredPoints').length"
    explorer.until(lambda: explorer.page.evaluate(filtered) == left)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    explorer.until(lambda: explorer.page.evaluate(
        f"() => {FIRST}.plot.get('isPointsFiltered')") is False)
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
    before = shares(explorer)
    hidden = sorted(before, key=before.__getitem__)[-2:]
    names = explorer.map()["names"]
    for name in hidden:
        explorer.page.locator(f".lc-legend button[data-value='{names.index(name)}']").click()
    # A little larger, so that it begins outside of the first.
    fewer, _ = explorer.lasso(91)
    assert 0 < fewer < everything
    assert explorer.map()["painted"] == [fewer]
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


def test_names_stand_in_the_picture_until_they_are_switched_off(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL})
    explorer.picture()
    names = explorer.page.locator(".st-key-map .lc-names span")
    assert names.count() > 0
    known = set(map(str, explorer.map()["names"]))
    assert {name.inner_text() for name in names.all()} <= known
    tool(explorer, "Names")
    expect(names).to_have_count(0)
    explorer.check()


def test_the_mouse_shows_the_problem_and_both_answers(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    explorer.point_at()
    card = explorer.page.locator(".lc-card")
    expect(card.locator(".answer")).to_contain_text("The model answers")
    assert card.locator("[data-token]").count() > 0
    ring = explorer.page.locator(".st-key-map .lc-hover")
    expect(ring).to_have_count(1)
    explorer.page.mouse.move(2, 2)
    expect(card).to_be_hidden()
    explorer.check()


def find(explorer: Explorer, text: str) -> None:
    box = explorer.page.get_by_label("Find", exact=True)
    box.fill(text)
    with explorer.rerun():
        box.press("Enter")


def test_instances_are_found_by_number_and_by_value(explorer: Explorer) -> None:
    explorer.open(query=PCA)
    shown = explorer.map()
    find(explorer, "rule_2=sum")
    selected, _ = explorer.selected()
    assert selected == sum(of == shown["names"].index("sum") for of in shown["values"])
    assert explorer.map()["painted"] == [selected]
    find(explorer, "17")
    explorer.until(lambda: explorer.instance() == 17)
    expect(explorer.page.locator(".st-key-map .lc-ring")).to_have_count(1)
    find(explorer, "no such thing")
    explorer.headline("No selection").wait_for()
    expect(explorer.message()).to_contain_text("no such thing")
    explorer.check()


def test_an_outline_lies_where_it_was_drawn_though_the_plane_is_turned(explorer: Explorer) -> None:
    """What a picture shows is turned towards the layer before; the address has the plane's own."""
    explorer.open(query={"model": MODEL})
    explorer.lasso(70)
    drawn: dict[str, Any] = explorer.map()["outlines"][0]
    url = explorer.page.url
    explorer.page.goto("about:blank")
    explorer.page.goto(url)
    explorer.headline("Selection:").wait_for()
    again = explorer.map()["outlines"][0]
    size = float(np.ptp(np.array(drawn["points"]), axis=0).max())
    centre = np.mean(drawn["points"], axis=0)
    assert np.abs(np.mean(again["points"], axis=0) - centre).max() < 0.05 * size
    explorer.check()


@pytest.fixture
def other_site() -> Iterator[Callable[[str], str]]:
    """Serve a page of another site that frames an address, and return where it is."""
    framed: list[str] = []

    class Framing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(f"<iframe src='{framed[-1]}'></iframe>".encode())

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal."""

    with HTTPServer(("127.0.0.1", 0), Framing) as site:
        Thread(target=site.serve_forever, daemon=True).start()

        def framing(address: str) -> str:
            framed.append(address)
            return f"http://127.0.0.1:{site.server_port}/"

        yield framing
        site.shutdown()


def test_no_other_site_frames_the_explorer(
    explorer: Explorer, other_site: Callable[[str], str]
) -> None:
    told: list[str] = []
    explorer.page.on("console", lambda message: told.append(message.text))
    explorer.page.goto(other_site(explorer.server.url()))
    explorer.until(lambda: explorer.page.frames[-1].url.startswith("chrome-error:"))
    assert any("frame-ancestors" in text for text in told)
