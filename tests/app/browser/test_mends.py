"""Do lists, marks and messages say what there is, where a person looks for it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from small_app import drawn_codes

from latentcode.experiments.benchmarks.browser import Server, serving, settle
from latentcode.runs.named import zoo_folders

playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")
expect = playwright.expect

if TYPE_CHECKING:
    from explorer import Explorer
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

MODEL = "sraven-hyla"
LONG = "the third value of the row is the sum of the first two"
"""A label's value of more than forty letters."""
CODES = "a_folder_of_my_experiments/kind=hyla,seed=1,learning_rate=0.003"
WIDTHS = (900, 1_280, 1_600)

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


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that is started in a project, with codes of long names and a link that leads out."""
    root = tmp_path_factory.mktemp("mends") / Path(CODES).parent
    drawn = drawn_codes(n=300)
    labels = drawn.labels.assign(rule_0=drawn.labels["rule_0"].replace({"sum": LONG}))
    codes = replace(drawn, labels=labels)
    codes.save(root / Path(CODES).name)
    codes.save(root / "tests" / "golden")
    codes.save(root.parent / "elsewhere")
    (root / "pyproject.toml").touch()
    (root / "link").symlink_to(root.parent / "elsewhere")
    with serving([root], root.parent / "cache", root.parent / "server.log") as started:
        yield started


def resize(explorer: Explorer, width: int) -> None:
    """Give the window another width, and wait until the charts have followed."""
    explorer.page.set_viewport_size({"width": width, "height": 900})
    explorer.page.wait_for_timeout(1_000)
    settle(explorer.page)


def test_the_first_address_of_a_server_may_be_any_page(explorer: Explorer) -> None:
    """It stands first in this file: no other page has been opened in this server."""
    explorer.open("decode", {"model": MODEL})
    expect(explorer.headline("What can be read out of the codes?")).to_be_visible()
    explorer.check()


def test_the_list_has_each_model_once_and_its_whole_name(explorer: Explorer) -> None:
    explorer.open(query={"model": MODEL, "projection": "PCA"})
    explorer.page.get_by_role("combobox", name="Model", exact=True).click()
    options = explorer.page.get_by_role("option")
    options.first.wait_for()
    names = options.all_inner_texts()
    assert sorted(names) == sorted([*zoo_folders(), CODES])
    assert explorer.page.evaluate(CUT_OFF, "[role=option], [role=option] *") == []
    options.get_by_text(CODES).click()
    # The box has no space for it, so that it stands below.
    expect(explorer.page.get_by_test_id("stSidebar").get_by_text(CODES, exact=True)).to_be_visible()
    explorer.check()


def test_a_click_on_the_matrix_counts_while_it_is_drawn_anew(explorer: Explorer) -> None:
    explorer.open("similarity", {"model": MODEL, "centring": "raw"})
    chart = explorer.page.locator(".st-key-cosine-matrix")
    area = chart.locator(".nsewdrag").first.bounding_box()
    explorer.page.mouse.move(area["x"] + 0.44 * area["width"], area["y"] + 0.19 * area["height"])
    told = chart.locator(".hovertext").first
    told.wait_for()
    one, other = (told.text_content() or "").rsplit(":", 1)[0].split(" and ")
    explorer.page.mouse.down()
    with explorer.rerun():
        explorer.page.get_by_role("radio", name="2", exact=True).dispatch_event("click")
    explorer.page.mouse.up()
    explorer.until(lambda: explorer.query().get("cell") == f"{one}~{other}")
    assert explorer.query()["layer"] == "2"
    explorer.check()


def test_the_axes_of_a_training_can_be_read(explorer: Explorer) -> None:
    explorer.open("results", {"model": MODEL, "steps": "log"})
    explorer.chart("training")
    for width in WIDTHS:
        resize(explorer, width)
        for axis in (".xtick text", ".ytick text", ".annotation, .legend .traces"):
            assert explorer.page.evaluate(OVERLAP, f".st-key-training {axis}") == 0, (width, axis)
    explorer.check()


@pytest.mark.parametrize(("page", "model"), [("similarity", CODES), ("similarity", MODEL),
                                             ("decode", MODEL)])
def test_nothing_is_cut_off_or_overlaps(explorer: Explorer, page: str, model: str) -> None:
    explorer.open(page, {"model": model})
    explorer.page.locator(".js-plotly-plot").first.wait_for()
    for width in WIDTHS:
        resize(explorer, width)
        wide = explorer.page.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, width
        for axis in (".ytick text", ".annotation", ".legend .traces"):
            for chart in ("cosine-matrix", "two-codes", "decoding"):
                found = explorer.page.evaluate(OVERLAP, f".st-key-{chart} {axis}")
                assert found == 0, (width, chart, axis)
    explorer.check()
