"""How long does a person wait for the explorer?

    python -m latentcode.experiments.benchmarks.explorer

starts `latentcode explore` and a real browser, and measures the seconds (1) from starting the
server to the first picture, (2) from asking a warm server for the page to the picture, in a warm
browser, (3) from the end of a lasso to when all panels show the new selection, at several numbers
of points, and of a model, into which the mean code of the selection is written, and (4) from a
click on a point of a zoo model's map to its problem, and from opening *Intervene* to its answer, on
a server that has shown its first picture for ten seconds. It measures the memory of the server,
too, before and after further visitors open pages. A picture is there when points have been painted
on its canvas. Needs Debian's package chromium, or Chrome.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
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
from latentcode.experiments.benchmarks.figures import bars
from latentcode.experiments.benchmarks.harness import Spread
from latentcode.experiments.benchmarks.report import RESULTS, Report
from latentcode.figures.markdown import markdown_table
from latentcode.progress import bar
from latentcode.runs.named import load_run, zoo_folders
from latentcode.subjects import extract
from latentcode.tasks import make_task
from latentcode.tasks.pairs import Pair
from latentcode.zoo import load_card

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUESTION = "explorer"
MODEL = "logic-hyla"
"""Model of the zoo whose codes are selected, where it is there."""
TARGETS = {"page": 3.0, 20_000: 0.4, 100_000: 1.0}
"""Seconds that may pass from asking for the page to the picture, and from a lasso to its panels."""
FIRST = 2.0
"""Seconds that a first click on a point, and a first Intervene, may take."""
SHOWN = "sraven-hyla"
"""Model of the zoo that first clicks and visitors look at."""
STOOD = 10.0
"""Seconds that a page stands before its first clicks are timed."""
VISITED = ("explore", "compare", "similarity", "decode", "intervene")
MOST_MIB = 300
"""Memory that a further visitor may take."""
MOST_READ = 20_000
"""Codes of a model; more points are drawn at random, as extracting them takes minutes."""
SMALLEST, LARGEST = 60.0, 170.0
"""Radii of the lassos in pixels. Each is larger than the one before, so that it begins outside."""


def codes_of(n: int, model: str | None) -> LatentCodes:
    """Return n codes at one layer and pair: of a model of the zoo, or drawn at random."""
    if model is not None:
        run = load_run(model)
        task = make_task(run.config.task).probe_config
        return extract(run, split="ood", n=n, pairs=load_card(model).codes.pairs[:1],
                       layers=[run.config.model.n_layers - 1], problems=task,
                       progress=bar(f"extract {n:,} codes"))
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


def first_picture(browser: Browser, folder: Path) -> float:
    """Return the seconds from starting a server to the first picture."""
    page = browser.new_page(viewport={"width": WINDOW[0], "height": WINDOW[1]})
    begin = time.perf_counter()
    with serving([folder], folder / "cache", folder / "server.log") as server:
        seconds = seconds_to_picture(page, server, begin)
    page.close()
    return seconds


def first_looks(browser: Browser, folder: Path) -> tuple[float, float]:
    """Return the seconds from the first click on a point to its problem, and from asking for
    Intervene to its answer: each on a server whose first picture has stood for ten seconds."""
    seconds = []
    for look in (_problem_of_a_point, _intervened):
        page = browser.new_page(viewport={"width": WINDOW[0], "height": WINDOW[1]})
        with serving([folder], folder / "cache", folder / "server.log") as server:
            page.goto(server.url("explore", {"model": SHOWN, "beside": "Selection"}))
            wait_for_picture(page)
            settle(page)
            page.wait_for_timeout(1e3 * STOOD)
            seconds.append(look(page))
        page.close()
    return seconds[0], seconds[1]


def _problem_of_a_point(page: Page) -> float:
    point = page.evaluate(LONELY, ".st-key-map")
    page.mouse.move(point["x"], point["y"])
    page.locator(".st-key-map .lc-card").filter(has_text=f"instance {point['instance']}").wait_for(
        timeout=1e3 * PATIENCE)
    begin = time.perf_counter()
    page.mouse.down()
    page.mouse.up()
    page.get_by_role("heading", name=f"Instance {point['instance']}", level=5).wait_for(
        timeout=1e3 * PATIENCE)
    page.evaluate(PAINTED)
    return time.perf_counter() - begin


def _intervened(page: Page) -> float:
    begin = time.perf_counter()
    page.get_by_role("navigation").get_by_role("link", name="Intervene", exact=True).click()
    page.wait_for_selector(".st-key-answers .js-plotly-plot", timeout=1e3 * PATIENCE)
    page.evaluate(PAINTED)
    return time.perf_counter() - begin


def visitors(
    browser: Browser, folder: Path, more: int, visited: Sequence[str] = VISITED
) -> dict[str, Any]:
    """Return the MiB of the server when somebody has been on pages, and after `more` others."""
    held: list[float] = []
    contexts = []
    with serving([folder], folder / "cache", folder / "server.log") as server:
        for _ in range(1 + more):
            contexts.append(browser.new_context())
            page = contexts[-1].new_page()
            for name in visited:
                page.goto(server.url(name, {
                    "models" if name == "compare" else "model": SHOWN}))
                page.wait_for_selector("[data-testid=stMainBlockContainer] h5",
                                       timeout=1e3 * PATIENCE)
                settle(page)
            held.append(server.memory())
        for context in contexts:
            context.close()
    return {"visited": list(visited), "model": SHOWN, "mib": held,
            "mib_of_a_visitor": (held[-1] - held[0]) / more, "target_mib": MOST_MIB}


def warm_picture(page: Page, server: Server) -> float:
    """Return the seconds from asking for the page to the picture."""
    page.goto("about:blank")
    return seconds_to_picture(page, server, time.perf_counter())


def seconds_to_picture(page: Page, server: Server, begin: float) -> float:
    """Ask for the page; return the seconds from `begin` to the picture once nothing moves."""
    page.goto(server.url())
    wait_for_picture(page)
    seconds = time.perf_counter() - begin
    settle(page)
    return seconds


def selections(
    page: Page, server: Server, name: str, codes: LatentCodes, rounds: int
) -> tuple[float, list[float]]:
    """Return the seconds from asking for the codes to their picture, and from lassos to panels.

    The first lasso, which fits the probe, comes first and is one more than `rounds`.
    """
    colour = next(str(c) for c in codes.labels.columns
                  if codes.labels[c].dtype.kind != "f" and 1 < codes.labels[c].nunique() <= 40)
    begin = time.perf_counter()
    page.goto(server.url(query={"model": name, "projection": "PCA", "n": f"{len(codes):,}",
                                "colour": colour}))
    wait_for_picture(page)
    seconds = time.perf_counter() - begin
    settle(page)
    return seconds, lassos(page, rounds)


def lassos(page: Page, rounds: int) -> list[float]:
    """Return the seconds from lassos to panels, of one more than `rounds`: the first is apart."""
    return [lasso(page, float(radius)) for radius in np.linspace(SMALLEST, LARGEST, rounds + 1)]


def case(name: str, seconds: Sequence[float], **others: Any) -> dict[str, Any]:
    """Return one measurement as plain data, with the load of the machine at its end."""
    return {"name": name, "seconds": asdict(Spread.of(seconds)), "raw_seconds": list(seconds),
            "load": os.getloadavg()[0], **others}


def main(
    points: tuple[int, ...] = (2_000, 20_000, 100_000, 1_000_000),
    model: str | None = None,
    starts: int = 3,
    rounds: int = 7,
    more: int = 3,
    out: Path = RESULTS / QUESTION,
    smoke: bool = False,
) -> None:
    """Time the explorer in a real browser; write JSON, a table and a figure.

    Args:
        points: Numbers of points that lassos are drawn in; beyond 20,000, drawn at random.
        model: Model of the zoo whose codes these are; default: logic-hyla where the zoo has it,
            otherwise codes drawn at random.
        starts: How often a server is started.
        rounds: How often a page is asked for, and lassos drawn at each number of points.
        more: Further visitors whose memory is measured.
        out: Folder of the result.
        smoke: Few points and rounds, to see that it works.
    """
    if smoke:
        points, starts, rounds, more = (2_000,), 1, 2, 1
    check(len(points) > 0 and starts > 0 and rounds > 1 and more > 0,
          f"points is {points}, starts {starts}, rounds {rounds} and more {more}; expected at "
          "least one number of points, 1 start, 2 rounds and 1 more visitor")
    if model is None and MODEL in zoo_folders() and not smoke:
        model = MODEL
    cases = []
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        folder = Path(temporary).resolve()
        report = Report(QUESTION, torch.device("cpu"), {
            "points": list(points), "codes": model or "drawn at random", "starts": starts,
            "rounds": rounds, "smoke": smoke, "browser": f"Chromium {browser.version}",
            "window": list(WINDOW), "projection": "PCA",
            "targets_seconds": {str(k): v for k, v in TARGETS.items()}})
        # More codes than a model is asked for in a minute or two are drawn at random.
        read = [n for n in points if model is None or n <= MOST_READ]
        known = codes_of(max(read), model) if read else None
        for n in points:
            codes = known if n in read else codes_of(n, None)
            assert codes is not None
            codes.subset(np.arange(n)).save(folder / "codes" / str(n))
        cases.append(case("server start to first picture",
                          [first_picture(browser, folder) for _ in range(starts)]))
        alone = folder / "alone"
        alone.mkdir()
        looked = [first_looks(browser, alone) for _ in range(starts)]
        for name, seconds in zip(("first click to its problem", "first Intervene to its answer"),
                                 zip(*looked, strict=True), strict=True):
            cases.append(case(f"{name}, ten seconds after the first picture", seconds,
                              target=FIRST))
        memory = visitors(browser, alone, more, VISITED[:2] if smoke else VISITED)
        with serving([folder / "codes"], folder / "cache", folder / "server.log") as server:
            page = browser.new_page(viewport={"width": WINDOW[0], "height": WINDOW[1]})
            warm_picture(page, server)
            cases.append(case("page to picture, all warm",
                              [warm_picture(page, server) for _ in range(rounds)],
                              target=TARGETS["page"]))
            for n in points:
                picture, (first, *later) = selections(
                    page, server, f"codes/{n}", LatentCodes.load(folder / "codes" / str(n)), rounds)
                cases.append(case(f"page to picture, first time, {n:,} points", [picture]))
                cases.append(case(f"lasso to panels, {n:,} points", later, first_seconds=first,
                                  target=TARGETS.get(n)))
            page.goto(server.url("explore", {"model": SHOWN, "beside": "Selection"}))
            wait_for_picture(page)
            settle(page)
            first, *later = lassos(page, rounds)
            cases.append(case(f"lasso to panels and the answer, {SHOWN}", later,
                              first_seconds=first))
    report.finish(out, cases, f"{table(cases)}\n\n{of_visitors(memory)}", figure(cases),
                  memory=memory)


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per measurement."""
    rows = []
    for measured in cases:
        target, first = measured.get("target"), measured.get("first_seconds")
        rows.append([measured["name"], Spread(**measured["seconds"]).text(),
                     f"{measured['seconds']['most']:.2f}", "" if target is None else f"{target:g}",
                     "" if first is None else f"{first:.2f}", f"{measured['load']:.1f}"])
    return markdown_table(["from ... to ...", "seconds, median (quartiles)", "slowest", "target",
                           "the first one, which fits the probe or loads the models", "load"], rows)


def of_visitors(memory: dict[str, Any]) -> str:
    """Return what the server holds for a visitor, in a sentence."""
    return (f"Memory of the server: {memory['mib'][0]:,.0f} MiB after one visitor of "
            f"{len(memory['visited'])} pages, {memory['mib_of_a_visitor']:.0f} MiB more for each "
            f"of {len(memory['mib']) - 1} others (target: at most {MOST_MIB}).")


def figure(cases: Sequence[dict[str, Any]]) -> Any:
    """Return a bar of seconds per measurement."""
    return bars([measured["name"] for measured in cases],
                [{"explorer": Spread(**measured["seconds"])} for measured in cases],
                "seconds (median, quartiles)")


if __name__ == "__main__":
    tyro.cli(main)
