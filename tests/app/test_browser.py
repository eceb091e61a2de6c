"""Does the explorer work in a real browser, with a mouse?"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from latentcode.experiments.benchmarks.browser import Server

playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")
expect = playwright.expect

if TYPE_CHECKING:
    from explorer import Explorer

pytestmark = pytest.mark.slow

MODEL = "sraven-hyla"
OTHER = "sraven-softmax"
"""A model that is not the one that the explorer opens on."""
LOGIC = "logic-hyla"
CODES = "runs/codes"
PAGES = {
    "Explore": ("explore", "codes of"),
    "Compare": ("compare", "instances in"),
    "Decode": ("decode", "What can be read out of the codes?"),
    "Similarity": ("similarity", "How similar are the mean codes"),
    "Intervene": ("intervene", "What is written"),
    "Results": ("results", "How the model was trained"),
    "Evidence": ("evidence", "What the paper claims"),
    "The idea": ("idea", "The scores of all heads are a code"),
}
"""Title -> its name in the URL, and a headline that it must have."""


def test_it_opens_on_the_zoo(explorer: Explorer) -> None:
    explorer.open()
    explorer.picture()
    assert explorer.headline("2,000 codes of").count() == 1
    assert explorer.chosen()["Model"] == MODEL
    explorer.check()


@pytest.mark.parametrize("title", PAGES)
def test_every_page_opens_by_its_address(explorer: Explorer, title: str) -> None:
    name, headline = PAGES[title]
    explorer.open(name if title != "Explore" else "", {"model": MODEL})
    expect(explorer.page).to_have_title(f"{title} · latentcode")
    expect(explorer.headline(headline).first).to_be_visible()
    explorer.check()


def test_model_layer_and_colour_can_be_changed(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL, "projection": "PCA"})
    before = explorer.map()
    explorer.press("Layer", "2")
    explorer.until(lambda: explorer.map()["points"] != before["points"])
    assert explorer.map()["names"] == before["names"]
    explorer.choose("Colour by", "accuracy")
    explorer.until(lambda: explorer.map()["names"] != before["names"])
    assert set(explorer.map()["names"]) <= {"wrong", "right"}
    assert explorer.query()["layer"] == "2"
    assert explorer.query()["colour"] == "accuracy"
    explorer.choose("Model", CODES)
    expect(explorer.headline(f"120 codes of {CODES}")).to_be_visible()
    explorer.until(lambda: len(explorer.map()["values"]) == 120)
    assert explorer.query()["model"] == CODES
    explorer.check()


def test_a_lasso_changes_every_panel(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL})
    few, all_ = explorer.lasso(60)
    assert 0 < few < all_ == 2_000
    panels = {key: explorer.panel(key) for key in ("distribution", "mean code", "confusion")}
    assert explorer.map()["painted"] == [few]
    more, _ = explorer.lasso(150)
    assert few < more < all_
    for key, before in panels.items():
        explorer.until(lambda key=key, before=before: explorer.panel(key) != before)
    assert explorer.map()["painted"] == [more]
    explorer.press("Beside the map", "List")
    explorer.until(lambda: explorer.listed() == min(more, 1_000))
    explorer.check()


def test_a_click_shows_the_problem(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL})
    clicked = explorer.click_a_point()
    assert explorer.instance() == clicked
    assert explorer.query()["instance"] == str(clicked)
    expect(explorer.page.locator("[data-testid=stHtml] .problem")).to_be_visible()
    answer = explorer.page.locator("[data-testid=stHtml] .answer")
    expect(answer).to_contain_text("The model answers")
    assert f"instance {clicked}" in explorer.panel("bars")
    nearest = explorer.page.locator("[data-testid=stDataFrame]").first.bounding_box()
    explorer.page.mouse.click(nearest["x"] + 15, nearest["y"] + 50)
    explorer.until(lambda: explorer.instance() != clicked)
    explorer.page.get_by_role("button", name="Close").click()
    expect(explorer.headline("No instance chosen")).to_be_visible()
    assert "instance" not in explorer.query()
    explorer.check()


def test_a_click_counts_while_the_picture_is_drawn_anew(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL, "projection": "PCA"})
    pointed = explorer.point_at()
    explorer.page.mouse.down()
    with explorer.rerun():
        explorer.page.get_by_role("radio", name="2", exact=True).dispatch_event("click")
    explorer.page.mouse.up()
    explorer.headline(f"Instance {pointed}").wait_for()
    assert explorer.query()["layer"] == "2"
    explorer.check()


def test_a_selection_is_kept_and_found_again(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL})
    first = explorer.lasso(60)
    explorer.page.get_by_role("button", name="Keep").click()
    explorer.page.get_by_label("Name", exact=True).fill("a cluster")
    explorer.page.get_by_role("button", name="Keep it").click()
    kept = explorer.page.get_by_text("a cluster", exact=True)
    kept.wait_for()
    explorer.page.keyboard.press("Escape")
    assert explorer.lasso(130) != first
    kept.click()
    explorer.until(lambda: explorer.selected() == first)
    explorer.check()


def test_a_shared_address_gives_the_same_view(
    explorer: Explorer, opened: Callable[[], Explorer]
) -> None:
    explorer.open(query={"model": MODEL})
    explorer.press("Layer", "2")
    explorer.press("Projection", "PCA")
    explorer.choose("Colour by", "combination")
    instance = explorer.click_a_point()
    count = explorer.lasso(110)
    shared, shown = explorer.page.url, explorer.chosen()
    other = opened()
    other.page.goto(shared)
    other.headline("Selection:").wait_for()
    other.picture()
    assert other.chosen() == shown
    assert shown["Layer"] == "2"
    assert other.selected() == count
    assert other.page.url == shared
    other.press("Beside the map", "Problem")
    assert other.instance() == instance
    other.check()


def test_a_picture_comes_back_with_what_is_selected(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL, "projection": "PCA"})
    selected = explorer.lasso(110)
    explorer.go_to("Decode")
    explorer.go_to("Explore")
    explorer.picture()
    explorer.until(lambda: explorer.map()["painted"] == [selected[0]])
    explorer.check()


def test_pages_keep_the_model_and_the_instance(explorer: Explorer) -> None:
    explorer.open(query={"model": OTHER, "instance": "7"})
    assert explorer.instance() == 7
    explorer.go_to("Intervene")
    explorer.headline("What is written").wait_for()
    assert explorer.chosen()["Model"] == OTHER
    expect(explorer.page.get_by_label("Problem", exact=True)).to_have_value("7")
    explorer.go_to("Explore")
    explorer.headline("Instance 7").wait_for()
    assert explorer.chosen()["Model"] == OTHER
    explorer.check()


def test_a_damaged_run_is_a_message(explorer: Explorer, server: Server) -> None:
    explorer.open(query={"model": MODEL})
    explorer.type_in("Model", "runs/damaged")
    expect(explorer.message()).to_contain_text(re.compile("config.yaml"))
    assert explorer.errors == []
    expect(explorer.page.get_by_test_id("stException")).to_have_count(0)
    assert "Traceback" not in explorer.page.inner_text("body")
    # It is not the end: another model can be chosen.
    explorer.choose("Model", CODES)
    expect(explorer.headline(f"codes of {CODES}")).to_be_visible()


def test_back_returns_to_the_page_before(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL})
    explorer.go_to("Decode")
    explorer.page.go_back()
    expect(explorer.page).to_have_title("Explore · latentcode")
    explorer.headline("codes of").wait_for()
    explorer.check()


def test_the_dark_theme_follows_the_browser(browser: object, server: Server) -> None:
    from explorer import Explorer

    grounds = []
    for dark in (False, True):
        explorer = Explorer.opened(browser, server, dark=dark).open(  # type: ignore[arg-type]
            query={"model": MODEL})
        grounds.append(explorer.page.evaluate(
            "() => getComputedStyle(document.querySelector('.stApp')).backgroundColor"))
        explorer.check()
        explorer.close()
    assert grounds == ["rgb(255, 255, 255)", "rgb(18, 23, 29)"]


def test_a_square_of_the_map_chooses_query_and_key(explorer: Explorer) -> None:
    explorer.open("idea", {"model": MODEL})
    squares = explorer.page.locator(".st-key-map-of-codes .js-plotly-plot .nsewdrag").first
    area = squares.bounding_box()
    assert "key" not in explorer.query()
    explorer.page.mouse.click(area["x"] + area["width"] / 3, area["y"] + area["height"] / 3)
    explorer.until(lambda: "key" in explorer.query())
    chosen = explorer.query()
    n_tokens = max(explorer.chart("map of codes")[0]["x"]) + 1
    assert abs(int(chosen["query"]) - n_tokens / 3) < 2
    assert abs(int(chosen["key"]) - n_tokens / 3) < 2
    explorer.check()


def test_another_task_has_pairs_and_colours_of_its_own(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL, "projection": "PCA", "colour": "rule"})
    before = explorer.chosen()
    explorer.choose("Model", LOGIC)
    explorer.headline(f"codes of {LOGIC}").wait_for()
    now = explorer.chosen()
    for name in ("Pair (query → key)", "Colour by"):
        assert now[name] != before[name]
    pair, colour = re.escape(now["Pair (query → key)"]), re.escape(now["Colour by"])
    expect(explorer.page.get_by_text(re.compile(f"{pair}, coloured by {colour}"))).to_be_visible()
    explorer.check()


def test_a_problem_is_there_with_its_last_row(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL, "projection": "PCA", "instance": "3"})
    problem = explorer.page.locator("[data-testid=stHtml] .problem")
    for width in (1_280, 1_600):
        explorer.page.set_viewport_size({"width": width, "height": 1_000})
        problem.wait_for()
        hidden = problem.evaluate("all => [all, ...all.querySelectorAll('div')].map(part => ["
                                  "part.scrollHeight - part.clientHeight, "
                                  "part.scrollWidth - part.clientWidth]).flat()")
        assert max(hidden) <= 0
    explorer.check()


@pytest.mark.parametrize(("host", "answer"), [("localhost", "101"), ("127.0.0.1", "101"),
                                              ("example.org", "400")])
def test_a_name_that_is_not_the_servers_is_refused(
    server: Server, host: str, answer: str
) -> None:
    """A page from elsewhere can give its own name the address of this machine."""
    with socket.create_connection(("localhost", server.port), timeout=30.0) as connection:
        connection.sendall("\r\n".join((
            "GET /_stcore/stream HTTP/1.1", f"Host: {host}:{server.port}",
            f"Origin: http://{host}:{server.port}", "Connection: Upgrade", "Upgrade: websocket",
            "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
        )).encode())
        assert connection.recv(64).split()[1].decode() == answer
