"""Is every page whole by its address, and does what was chosen go along to the others?"""

from __future__ import annotations

import re
import socket
from xml.etree import ElementTree

from explorer import LONG_NAME, Explorer, expect
from playwright.sync_api import Browser

from latentcode.app.settings import PAGES as MENU_OF
from latentcode.experiments.benchmarks.browser import Server

MODEL = "sraven-hyla"
OTHER = "sraven-softmax"
"""A model that is not the one that the explorer opens on."""
LOGIC = "logic-hyla"
CODES = "runs/codes"
OF_MODEL = {"model": MODEL}
BECAME = re.compile("^(It gives|The answer stays)")
"""What Intervene says became of the answer."""
MARKS = (".js-plotly-plot .ytick text", ".js-plotly-plot .annotation",
         ".js-plotly-plot .legend .traces")
XTICKS = ".js-plotly-plot .xtick text"
PAGES = [
    ("Explore", OF_MODEL, "2,000 codes of sraven-hyla", ()),
    ("Model", {"model": LONG_NAME}, "Which values of a label", MARKS[:1]),
    ("Model", {**OF_MODEL, "steps": "log"}, "How the model was trained",
     (".st-key-cosines .ytick text", *(f".st-key-training {mark}" for mark in (*MARKS, XTICKS)))),
]
"""Title, what its address asks for, a headline that it must have, and marks that must not overlap.
"""
WIDTHS = (900, 1_600)

CUT_OFF = """selector => [...document.querySelectorAll(selector)].filter(
    e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)"""
"""The texts of what is wider than its box."""
OVERLAP = """selector => {
    const boxes = [...document.querySelectorAll(selector)].map(e => e.getBoundingClientRect())
        .filter(b => b.width && b.height);
    return boxes.filter((a, i) => boxes.some((b, j) => j > i && a.left < b.right - 1
        && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)).length;
}"""
"""How many boxes lie on another one."""
MENU = """() => [...document.querySelectorAll('[data-testid=stTopNav] .rc-overflow-item')].filter(
    item => getComputedStyle(item).opacity !== '0' && item.getBoundingClientRect().height
        && item.querySelector('a')).map(item => item.innerText.split('\\n').at(-1).trim())"""
"""The titles of the pages in the menu that are not hidden behind "more"."""


def test_every_page_is_whole_at_its_address(explorer: Explorer) -> None:
    for title, query, headline, apart in PAGES:
        name = next(name for name, other, _ in MENU_OF if other == title)
        explorer.open(name, query)
        expect(explorer.page).to_have_title(f"{title} · latentcode")
        expect(explorer.headline(headline).first).to_be_visible()
        for marks in apart:
            explorer.page.locator(marks).first.wait_for(state="attached")
        for width in WIDTHS:
            explorer.resize(width, 900)
            wide = explorer.page.evaluate(
                "() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, (title, width)
            for marks in apart:
                assert explorer.page.evaluate(OVERLAP, marks) == 0, (title, width, marks)
        explorer.check()
    # A chart of the last one is taken along.
    chart = explorer.page.locator(".st-key-training")
    chart.hover()
    drawn = ElementTree.parse(explorer.download(chart.locator(".modebar-btn"))).getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    explorer.check()


def test_model_layer_and_colour_can_be_changed(explorer: Explorer) -> None:
    # A page that is gone says so, before the first one.
    explorer.open("compare", {"models": MODEL})
    expect(explorer.page.get_by_role("dialog")).to_contain_text("does not seem to exist")
    expect(explorer.page).to_have_title("Explore · latentcode")
    explorer.picture()
    explorer.open(query={**OF_MODEL, "projection": "PCA", "colour": "rule"})
    before, chosen = explorer.map(), explorer.chosen()
    explorer.press("Layer", "2")
    explorer.until(lambda: explorer.map()["points"] != before["points"])
    assert explorer.map()["names"] == before["names"]
    assert explorer.query()["layer"] == "2"
    # Another task has pairs and colours of its own.
    explorer.choose("Model", LOGIC)
    explorer.headline(f"codes of {LOGIC}").wait_for()
    now = explorer.chosen()
    for name in ("Pair (query → key)", "Colour by"):
        assert now[name] != chosen[name]
    pair, colour = re.escape(now["Pair (query → key)"]), re.escape(now["Colour by"])
    expect(explorer.page.get_by_text(re.compile(f"{pair}, coloured by {colour}"))).to_be_visible()
    explorer.choose("Model", CODES)
    expect(explorer.headline(f"120 codes of {CODES}")).to_be_visible()
    explorer.until(lambda: len(explorer.map()["values"]) == 120)
    explorer.choose("Colour by", "accuracy")
    explorer.until(lambda: set(explorer.map()["names"]) <= {"wrong", "right"})
    assert (explorer.query()["model"], explorer.query()["colour"]) == (CODES, "accuracy")
    # Every page is in the menu, and in a narrow window most are.
    titles = [title for _, title, _ in MENU_OF]
    explorer.page.set_viewport_size({"width": 1_280, "height": 800})
    explorer.until(lambda: explorer.page.evaluate(MENU) == titles)
    explorer.page.set_viewport_size({"width": 900, "height": 800})
    explorer.until(lambda: 2 <= len(explorer.page.evaluate(MENU)) <= len(titles))
    expect(explorer.page.get_by_test_id("stTopNav").get_by_test_id("stIconMaterial").first
           ).to_be_hidden()
    explorer.check()


def test_a_path_of_a_model_can_be_typed(explorer: Explorer) -> None:
    explorer.open("model", OF_MODEL)
    # The list takes paths, and has the whole name of a model.
    explorer.type_in("Model", "runs/nothing")
    expect(explorer.message()).to_contain_text("does not exist")
    expect(explorer.page.get_by_test_id("stException")).to_have_count(0)
    # It is not the end: another model can be chosen.
    box = explorer.page.get_by_role("combobox", name="Model", exact=True)
    box.click()
    box.fill("experiments")
    option = explorer.page.get_by_role("option").get_by_text(LONG_NAME)
    option.wait_for()
    assert explorer.page.evaluate(CUT_OFF, "[role=option], [role=option] *") == []
    option.click()
    # The box has no space for it, so that it stands below.
    expect(explorer.page.get_by_test_id("stSidebar").get_by_text(LONG_NAME, exact=True)
           ).to_be_visible()
    explorer.check()


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
    explorer.go_to("Model")
    explorer.headline("Which values of a label").wait_for()
    explorer.go_to("Intervene")
    explorer.headline(BECAME).wait_for()
    back(explorer)
    expect(page).to_have_title("Model · latentcode")
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


def test_what_is_said_of_a_page_changes_the_address_of_no_other(explorer: Explorer) -> None:
    """Streamlit may say it before the address has gone to the page, and then once more with it."""
    explorer.open("explore", OF_MODEL)
    before = explorer.page.url
    said = explorer.page.evaluate("""() => ['/explore?stays=model&a=1', '/model?stays=model&a=1',
        '/model?stays=model&a=2'].map(address => {
            history.pushState({}, '', address);
            return [history.length, location.pathname + location.search];
        })""")
    assert said == [[said[0][0], before.partition(explorer.server.url().rstrip("/"))[2]],
                    [said[0][0] + 1, "/model?a=1"], [said[0][0] + 1, "/model?a=2"]]


def test_back_to_a_page_that_was_left_before_its_end_shows_what_is_chosen(
    explorer: Explorer,
) -> None:
    explorer.open("explore", {"v": "1", "model": OTHER, "layer": "2"})
    explorer.page.evaluate(
        "() => ['/model', '/intervene'].map(page => history.pushState({}, '', page))")
    back(explorer)
    explorer.headline("Which values of a label").wait_for()
    assert (explorer.chosen()["Model"], explorer.chosen()["Layer"]) == (OTHER, "2")
    assert explorer.query()["layer"] == "2"


def test_pages_keep_the_model_the_instance_and_the_selection(explorer: Explorer) -> None:
    explorer.open(query={"model": OTHER, "instance": "7", "projection": "PCA"})
    assert explorer.instance() == 7
    selected = explorer.lasso(110)
    explorer.go_to("Intervene")
    explorer.headline(BECAME).wait_for()
    assert explorer.chosen()["Model"] == OTHER
    expect(explorer.page.get_by_label("Problem", exact=True)).to_have_value("7")
    explorer.go_to("Explore")
    explorer.picture()
    explorer.until(lambda: explorer.map()["painted"] == [selected[0]])
    explorer.press("Beside the map", "Problem")
    assert (explorer.chosen()["Model"], explorer.instance()) == (OTHER, 7)
    explorer.go_to("Model")
    explorer.page.go_back()
    expect(explorer.page).to_have_title("Explore · latentcode")
    explorer.headline(f"codes of {OTHER}").wait_for()
    assert explorer.chosen()["Model"] == OTHER
    explorer.check()


def test_the_dark_theme_follows_the_browser(browser: Browser, server: Server) -> None:
    explorer = Explorer.opened(browser, server, dark=True).open("model", OF_MODEL)
    assert explorer.page.evaluate(
        "() => getComputedStyle(document.querySelector('.stApp')).backgroundColor"
        ) == "rgb(18, 23, 29)"
    explorer.check()
    explorer.close()


def test_a_name_that_is_not_the_servers_is_refused(server: Server) -> None:
    """A page from elsewhere can give its own name the address of this machine."""
    for host, answer in (("localhost", "101"), ("127.0.0.1", "101"), ("example.org", "400")):
        with socket.create_connection(("localhost", server.port), timeout=30.0) as connection:
            connection.sendall("\r\n".join((
                "GET /_stcore/stream HTTP/1.1", f"Host: {host}:{server.port}",
                f"Origin: http://{host}:{server.port}", "Connection: Upgrade",
                "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
            )).encode())
            assert connection.recv(64).split()[1].decode() == answer, host
