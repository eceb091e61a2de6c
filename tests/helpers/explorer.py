"""The explorer as a person meets it: pages, widgets, points that are clicked."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, BrowserContext, Locator, Page, WebSocket, expect
from small_app import drawn_codes
from small_zoo import tiny_run
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

import latentcode as lc
from latentcode.experiments.benchmarks.browser import (
    LONELY,
    PAINTED,
    PATIENCE,
    WINDOW,
    Server,
    lasso,
    settle,
    wait_for_picture,
)

expect.set_options(timeout=1e3 * PATIENCE)

LONG_NAME = "runs/a_folder_of_my_experiments/kind=hyla,seed=1,learning_rate=0.003"
"""Codes whose name, like the value of one of their labels, is longer than its place."""

MAP = """chart => {
    const map = document.querySelector(`${chart} .lc-map`).codeMap;
    return {names: map.data.colour.names, values: Array.from(map.values), selected: map.selected,
            outlines: map.data.outlines,
            painted: map.panels.map(panel => panel.plot.get('selectedPoints').length),
            points: map.panels.map(panel => Array.from(panel.points))};
}"""
"""What a map shows."""

INSTANCE = re.compile(r"^Instance \d+")
COUNT = re.compile(r"Selection: ([\d,]+) of ([\d,]+) instances")
STILL = """() => document.getAnimations().every(one => one.playState !== 'running'
    || one.effect.getComputedTiming().endTime === Infinity)"""
"""Whether nothing on the page moves to another place."""
FITTED = """() => [...document.querySelectorAll('.js-plotly-plot')].every(plot => {
    const place = plot.closest('[data-testid=stPlotlyChart]');
    return !place?.checkVisibility() || Math.abs(plot._fullLayout?.width - place.clientWidth) < 1;
})"""
"""Whether every chart that can be seen is as wide as its place."""

@dataclass
class Explorer:
    """A page of the explorer in a browser.

    errors   tracebacks of the page's JavaScript, and what breaks the content policy
    foreign  addresses that the page asked for on other hosts
    asked    how often the page has asked the server to run it again
    run      what became of that: "asked", "begun" or "ended"
    """

    page: Page
    server: Server
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    asked: int = 0
    run: str = "ended"

    @classmethod
    def opened(
        cls, browser: Browser, server: Server, *, dark: bool = False, still: bool = False
    ) -> Explorer:
        """Open a browser that knows nothing of earlier ones.

        still  as for people who ask for less motion: without a graphics card, what moves on a page
               costs processor time
        """
        context: BrowserContext = browser.new_context(
            viewport={"width": WINDOW[0], "height": WINDOW[1]},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce" if still else "no-preference")
        context.set_default_timeout(1e3 * PATIENCE)
        explorer = cls(context.new_page(), server)
        explorer.page.on("pageerror", lambda error: explorer.errors.append(str(error)))
        explorer.page.on("console", lambda message: explorer._hear(message.text))
        explorer.page.on("request", lambda request: explorer._note(request.url))
        explorer.page.on("websocket", explorer._follow)
        return explorer

    def cleared(self, server: Server) -> Explorer:
        """Make it know nothing of what was done in it, and return it."""
        self.page.goto("about:blank")
        self.page.set_viewport_size({"width": WINDOW[0], "height": WINDOW[1]})
        self.page.mouse.move(0, 0)
        session = self.page.context.new_cdp_session(self.page)
        session.send("Storage.clearDataForOrigin", {
            "origin": server.url().rstrip("/"), "storageTypes": "local_storage,cookies"})
        session.send("Page.resetNavigationHistory")  # which has an end, after 50 steps
        session.detach()
        self.server, self.errors, self.foreign = server, [], []
        self.asked, self.run = 0, "ended"
        return self

    def _hear(self, text: str) -> None:
        if "Content Security Policy" in text:
            self.errors.append(text)

    def _note(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "localhost":
            self.foreign.append(url)

    def _follow(self, socket: WebSocket) -> None:
        """Note the messages that the page and the server send each other."""
        def sent(message: bytes | str) -> None:
            if BackMsg.FromString(_bytes(message)).HasField("rerun_script"):
                self.asked, self.run = self.asked + 1, "asked"

        def received(message: bytes | str) -> None:
            kind = ForwardMsg.FromString(_bytes(message)).WhichOneof("type")
            if kind == "new_session" and self.run == "asked":
                self.run = "begun"
            elif kind == "script_finished" and self.run == "begun":
                self.run = "ended"

        socket.on("framesent", sent)
        socket.on("framereceived", received)

    @contextmanager
    def rerun(self) -> Iterator[None]:
        """Do something to a widget, and wait until the page has been run again and shows it.

        What `settle` sees does not tell: until the server answers, the page looks as if nothing
        had been asked of it.
        """
        before = self.asked
        yield
        self.until(lambda: self.asked > before and self.run == "ended")
        self.page.evaluate(PAINTED)
        settle(self.page)

    def open(self, page: str = "", query: Mapping[str, str] | None = None) -> Explorer:
        """Open a page by its URL and wait until it is there."""
        self.page.goto(self.server.url(page, query))
        # The first page of a model reads its codes, for which torch is loaded.
        self.page.locator("[data-testid=stMainBlockContainer] :is(h5, [data-testid=stAlert])"
                          ).first.wait_for(timeout=3e3 * PATIENCE)
        settle(self.page)
        return self

    def query(self) -> dict[str, str]:
        """Return what the address says, one value for each name."""
        return {name: values[0]
                for name, values in parse_qs(urlsplit(self.page.url).query).items()}

    def close(self) -> None:
        self.page.context.close()

    def choose(self, label: str, option: str) -> None:
        """Choose an option of a list in the sidebar."""
        self.page.get_by_role("combobox", name=label, exact=True).click()
        with self.rerun():
            self.page.get_by_role("option", name=option, exact=True).click()

    def type_in(self, label: str, text: str) -> None:
        """Type into a list of the sidebar, as one does with the path of a folder."""
        box = self.page.get_by_role("combobox", name=label, exact=True)
        box.click()
        box.fill(text)
        box.press("Enter")

    def press(self, label: str, option: str) -> None:
        """Choose one of a row of buttons."""
        group = self.page.get_by_role("radiogroup", name=label, exact=True)
        with self.rerun():
            group.get_by_role("radio", name=option, exact=True).click()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds, such as that a chart shows something else."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "it does not come to hold"
            self.page.wait_for_timeout(50)

    def go_to(self, title: str) -> None:
        """Change the page by the menu above it."""
        self.page.get_by_role("navigation").get_by_role("link", name=title, exact=True).click()
        expect(self.page).to_have_title(f"{title} · latentcode")
        settle(self.page)

    def picture(self, key: str = "map") -> None:
        """Wait until points are painted."""
        wait_for_picture(self.page, _styled(key))

    def lasso(self, radius: float, **where: float) -> tuple[int, int]:
        """Draw around points, and return how many of how many are selected."""
        self.picture()
        lasso(self.page, radius, **where)
        return self.selected()

    def selected(self) -> tuple[int, int]:
        """Return what the headline of the selection says."""
        found = COUNT.search(self.headline("Selection:").inner_text())
        assert found is not None
        return int(found[1].replace(",", "")), int(found[2].replace(",", ""))

    def resize(self, width: int, height: int) -> None:
        """Make the window so large, and wait until the charts are drawn anew."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.wait_for_function(FITTED)
        settle(self.page)

    def download(self, button: Locator) -> Path:
        """Click a button, and return the file that the browser got."""
        # While a part of the page opens or closes, what is below the mouse when it is let go may
        # not be what it was pressed on, which is no click.
        self.page.wait_for_function(STILL)
        with self.page.expect_download() as waiting:
            button.click()
        path: Path = waiting.value.path()
        return path

    def headline(self, text: str | re.Pattern[str]) -> Locator:
        """Return the headline that has this text."""
        return self.page.get_by_role("heading", level=5).filter(has_text=text)

    def message(self) -> Locator:
        """Return the messages of the page: errors, warnings, hints."""
        return self.page.get_by_test_id("stAlert")

    def panel(self, key: str) -> str:
        """Return the HTML of a panel beside the map, with its numbers."""
        drawn: str = self.page.locator(f"{_styled(key)} .lc-told").first.inner_html()
        return drawn

    def chart(self, key: str) -> list[dict[str, Any]]:
        """Return the traces of a chart, with arrays as lists."""
        # A chart that is drawn anew is missing for a moment.
        drawn = self.page.wait_for_function(
            "plot => { const data = document.querySelector(plot)?._fullData;"
            "return data && JSON.stringify(data.map(trace => ({"
            "name: trace.name, x: Array.from(trace.x || []), y: Array.from(trace.y || []), "
            "z: trace.z ? Array.from(trace.z, row => Array.from(row)) : []}))); }",
            arg=f"{_styled(key)} .js-plotly-plot")
        data: list[dict[str, Any]] = json.loads(drawn.json_value())
        return data

    def listed(self) -> int:
        """Return the number of rows of the list of selected instances."""
        # Drawn on a canvas; the table for screen readers is inside of it.
        rows = self.page.locator("[data-testid=stDataFrame] [role=grid]").last.get_attribute(
            "aria-rowcount")
        assert rows is not None
        return int(rows) - 1  # the names of the columns are one of them

    def map(self, key: str = "map") -> dict[str, Any]:
        """Return what a map shows: names, values, selected, outlines, points."""
        self.picture(key)
        shown: dict[str, Any] = self.page.evaluate(MAP, _styled(key))
        return shown

    def point_at(self, key: str = "map") -> int:
        """Move the mouse over a point that stands alone, and return the number of its instance."""
        self.picture(key)
        point = self.page.evaluate(LONELY, _styled(key))
        self.page.mouse.move(point["x"], point["y"])
        self.page.locator(f"{_styled(key)} .lc-card").filter(
            has_text=f"instance {point['instance']}").wait_for()
        return int(point["instance"])

    def click_a_point(self) -> int:
        """Click a point that stands alone, and return the number of its instance."""
        instance = self.point_at()
        self.page.mouse.down()
        self.page.mouse.up()
        self.headline(re.compile(rf"^Instance {instance}\b")).wait_for()  # another is shown before
        settle(self.page)
        return instance

    def instance(self) -> int:
        """Return the instance that is looked at."""
        return int(self.headline(INSTANCE).inner_text().split()[1])

    def chosen(self) -> dict[str, str]:
        """Return what the widgets of the sidebar show."""
        bar = self.page.get_by_role("region", name="Sidebar")
        # Streamlit loads the script of its buttons when they are first needed.
        expect(bar.get_by_test_id("stSkeleton")).to_have_count(0)
        lists = {box.get_attribute("aria-label") or "": box.input_value()
                 for box in bar.get_by_role("combobox").all()}
        buttons = {group.get_attribute("aria-label") or "":
                   group.get_by_role("radio", checked=True).inner_text().strip()
                   for group in bar.get_by_role("radiogroup").all()}
        return {**lists, **buttons}

    def check(self) -> None:
        """Check that nothing has gone wrong: no traceback, no error box, no other host asked."""
        expect(self.page.get_by_test_id("stException")).to_have_count(0)
        expect(self.page.get_by_test_id("stAlertContentError")).to_have_count(0)
        assert self.errors == []
        assert self.foreign == []


def _styled(key: str) -> str:
    """Return where on the page an element with a key is, in CSS."""
    return f".st-key-{key.replace(' ', '-')}"


def _bytes(message: bytes | str) -> bytes:
    return message.encode() if isinstance(message, str) else message


def make_folders(root: Path) -> Path:
    """Make a folder of a trained run and its codes.

    Beside them codes that were drawn: `a`, `b` and `c` of the same instances, `LONG_NAME`, and
    `hostile`, whose labels look like markup.
    """
    run = tiny_run(root / "run")
    lc.extract(run, split="ood", n=120).save(root / "codes")
    for seed, name in enumerate("abc"):
        drawn_codes(seed).save(root / name)
    drawn = drawn_codes(n=120)
    labels = drawn.labels.assign(
        hostile=["<b onclick='x'>a</b>", "<img src=http://elsewhere.example/x.png>"] * 60)
    labels["<img src=http://elsewhere.example/y.png>"] = labels["hostile"]
    replace(drawn, labels=labels).save(root / "hostile")
    long = "the third value of the row is the sum of the first two"
    replace(drawn, labels=drawn.labels.assign(rule_0=drawn.labels["rule_0"].replace(
        {"sum": long}))).save(root.parent / LONG_NAME)
    return root
