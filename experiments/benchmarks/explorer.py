"""How long does a person wait for the explorer?

    python -m latentcode.experiments.benchmarks.explorer

starts `latentcode explore` and a real browser, and measures the seconds (1) from starting the
server to the first picture, (2) from asking a warm server for the page to the picture, in a warm
browser, (3) from the end of a lasso to when all panels show the new selection, at several numbers
of points, and of a model, into which the mean code of the selection is written, and (4) from a
click on a point of a zoo model's map to its problem, on a server that has shown its first picture
for ten seconds. A picture is there when points have been painted on its canvas. Needs Debian's
package chromium, or Chrome.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import tyro

from latentcode.codes import LatentCodes
from latentcode.errors import check
from latentcode.experiments.benchmarks.browser import (
    LONELY,
    PAINTED,
    PATIENCE,
    WINDOW,
    Server,
    chromium,
    lasso,
    serving,
    settle,
    wait_for_picture,
)
from latentcode.experiments.benchmarks.harness import Benchmark, spread, spread_text
from latentcode.figures.text import markdown_table
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MODEL = "sraven-hyla"
"""Model of the zoo whose map is clicked on."""
VIEW = {"model": MODEL, "projection": "PCA", "beside": "Selection"}
"""What the address of its map says."""
TARGETS = {"page": 3.0, 20_000: 0.4, 100_000: 1.0, "click": 2.0}
"""Seconds that may pass from asking for the page to the picture, from a lasso to its panels, and
from a first click on a point to its problem."""
STOOD = 10.0
"""Seconds that a page stands before its first click is timed."""
SMALLEST, LARGEST = 60.0, 170.0
"""Radii of the lassos in pixels. Each is larger than the one before, so that it begins outside."""


@dataclass(frozen=True, kw_only=True)
class Explorer(Benchmark):
    """Time the explorer in a real browser; write JSON and a table."""

    QUESTION = "explorer"

    points: tuple[int, ...] = (2_000, 20_000, 100_000)
    """Numbers of points, drawn at random, that lassos are drawn in."""
    starts: int = 3
    """How often a server is started."""

    def measure(self) -> tuple[list[dict[str, Any]], str]:
        points, starts, rounds = (
            ((2_000,), 1, 2) if self.smoke else (self.points, self.starts, self.rounds))
        check(len(points) > 0 and starts > 0 and rounds > 1,
              f"points is {points}, starts {starts} and rounds {rounds}; expected at least one "
              "number of points, 1 start and 2 rounds")
        cases: list[dict[str, Any]] = []

        def add(name: str, seconds: Sequence[float], **others: Any) -> None:
            cases.append({"name": name, "seconds": spread(seconds), "raw_seconds": list(seconds),
                          "load": os.getloadavg()[0], **others})

        with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
            folder = Path(temporary).resolve()
            for n in points:
                random_codes(n).save(folder / "codes" / str(n))
            add("server start to first picture",
                [first_picture(browser, folder) for _ in range(starts)],
                browser=f"Chromium {browser.version}")
            add("first click to its problem, ten seconds after the first picture",
                [first_click(browser, folder) for _ in range(starts)],
                target=TARGETS["click"])
            with opened(browser, folder / "codes", folder) as (page, server):
                seconds_to_picture(page, server)
                add("page to picture, all warm",
                    [seconds_to_picture(page, server) for _ in range(rounds)],
                    target=TARGETS["page"])
                for n in points:
                    picture = seconds_to_picture(page, server, {
                        "model": f"codes/{n}", "projection": "PCA", "n": f"{n:,}",
                        "colour": "rule"})
                    first, *later = lassos(page, rounds)
                    add(f"page to picture, first time, {n:,} points", [picture])
                    add(f"lasso to panels, {n:,} points", later, first_seconds=first,
                        target=TARGETS.get(n))
                seconds_to_picture(page, server, VIEW)
                first, *later = lassos(page, rounds)
                add(f"lasso to panels and the answer, {MODEL}", later, first_seconds=first)
        rows = [[case["name"], spread_text(case["seconds"]), f"{case['seconds']['most']:.2f}",
                 f"{case['target']:g}" if case.get("target") else "",
                 f"{case['first_seconds']:.2f}" if "first_seconds" in case else "",
                 f"{case['load']:.1f}"] for case in cases]
        return cases, markdown_table(
            ["from ... to ...", "seconds, median (quartiles)", "slowest", "target",
             "the first one, which fits the probe", "load"], rows)


def random_codes(n: int) -> LatentCodes:
    """Return n codes of eight heads at one layer and pair, around the means of eight rules."""
    rng = np.random.default_rng(0)
    rule = rng.integers(0, 8, n)
    scores = rng.normal(size=(8, 8))[rule] + 0.6 * rng.normal(size=(n, 8))
    names = np.array([f"rule {r}" for r in range(8)], dtype=object)
    labels = pd.DataFrame({
        "rule": names[rule], "combination": [f"combination {c}" for c in rng.integers(0, 40, n)],
        "split": "ood", "accuracy": (rng.random(n) < 0.8).astype(float), "loss": rng.random(n)})
    return LatentCodes(scores[:, None, None].astype(np.float32), labels,
                       (Pair("response->response", "drawn at random", None),), (0,),
                       {"split": "ood", "seed": 0})


@contextmanager
def opened(browser: Browser, folder: Path, place: Path) -> Iterator[tuple[Page, Server]]:
    """Serve a folder, with cache and log at a place; yield an empty page of the window's size."""
    page = browser.new_page(viewport={"width": WINDOW[0], "height": WINDOW[1]})
    with serving([folder], place / "cache", place / "server.log") as server:
        yield page, server
    page.close()


def first_picture(browser: Browser, folder: Path) -> float:
    """Return the seconds from starting a server to the first picture."""
    begin = time.perf_counter()
    with opened(browser, folder, folder) as (page, server):
        return seconds_to_picture(page, server, begin=begin)


def first_click(browser: Browser, folder: Path) -> float:
    """Return the seconds from the first click on a point to its problem, on a server whose first
    picture has stood for ten seconds."""
    with opened(browser, folder, folder) as (page, server):
        seconds_to_picture(page, server, VIEW)
        page.wait_for_timeout(1e3 * STOOD)
        point = page.evaluate(LONELY, ".st-key-map")
        page.mouse.move(point["x"], point["y"])
        page.locator(".st-key-map .lc-card").filter(
            has_text=f"instance {point['instance']}").wait_for(timeout=1e3 * PATIENCE)
        begin = time.perf_counter()
        page.mouse.down()
        page.mouse.up()
        page.get_by_role("heading", name=f"Instance {point['instance']}", level=5).wait_for(
            timeout=1e3 * PATIENCE)
        page.evaluate(PAINTED)
        return time.perf_counter() - begin


def seconds_to_picture(
    page: Page, server: Server, query: dict[str, str] | None = None, begin: float | None = None
) -> float:
    """Ask for the first page; return the seconds to the picture, once nothing moves any more.

    Args:
        page: Where the page is opened.
        server: The server.
        query: What the address says of the page's state.
        begin: When the clock started; default: now.
    """
    page.goto("about:blank")
    begin = time.perf_counter() if begin is None else begin
    page.goto(server.url("explore" if query else "", query))
    wait_for_picture(page)
    seconds = time.perf_counter() - begin
    settle(page)
    return seconds


def lassos(page: Page, rounds: int) -> list[float]:
    """Return the seconds from lassos to panels: `rounds`, after the first, which fits the probe."""
    return [lasso(page, float(radius)) for radius in np.linspace(SMALLEST, LARGEST, rounds + 1)]


if __name__ == "__main__":
    tyro.cli(Explorer).run()
