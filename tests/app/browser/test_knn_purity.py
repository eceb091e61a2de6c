"""Does a click on a label's bar recolour the page, by mouse and keyboard, and is it compact?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from small_app import drawn_codes
from small_page import serving_page

from latentcode.experiments.benchmarks.browser import Server

if TYPE_CHECKING:
    from explorer import Explorer
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

PAGE = """
import streamlit as st
from latentcode.app.charts import knn_purity
from latentcode.app.state.sidebar import choose_codes, choose_look

chosen = choose_codes()
colour = choose_look(chosen.codes, chosen.pair)[1]
st.markdown(f"##### Coloured by {colour}")

@st.fragment
def body():
    st.markdown(knn_purity.sentence(chosen, colour))
    knn_purity.show(chosen, colour)

body()
"""


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("knn_purity")
    codes = drawn_codes(n=120)
    labels = codes.labels.assign(
        hostile=["<b onclick='x'>a</b>", "<img src=http://elsewhere.example/x.png>"] * 60)
    labels["<img src=http://elsewhere.example/y.png>"] = labels["hostile"]
    type(codes)(codes.scores, labels, codes.pairs, codes.layers, codes.meta).save(
        root / "runs" / "codes")
    with serving_page(PAGE, root, root / "runs") as started:
        yield started


def test_a_click_on_a_bar_recolours_the_page(explorer: Explorer) -> None:
    explorer.open(query={"model": "runs/codes", "colour": "loss"})
    rows = explorer.page.locator(".knn-purity-row")
    rows.first.wait_for()
    assert explorer.headline("Coloured by loss").is_visible()
    assert rows.first.get_attribute("data-label") == "rule"  # what the codes were drawn by
    assert explorer.page.get_by_text("These codes separate rule best: 1.00 of").is_visible()
    pressed = explorer.page.locator(".knn-purity-row[aria-pressed=true]")
    assert pressed.get_attribute("data-label") == "loss"
    with explorer.rerun():
        rows.first.click()
    explorer.headline("Coloured by rule").wait_for()
    explorer.until(lambda: pressed.get_attribute("data-label") == "rule")
    assert explorer.chosen()["Colour by"] == "rule"
    explorer.until(lambda: "colour=loss" not in explorer.page.url)
    with explorer.rerun():  # and by the keyboard, where the focus has stayed
        explorer.page.keyboard.press("Tab")
        explorer.page.keyboard.press("Enter")
    explorer.until(lambda: pressed.get_attribute("data-label") != "rule")
    second = rows.nth(1).get_attribute("data-label")
    assert pressed.get_attribute("data-label") == second
    explorer.headline(f"Coloured by {second}").wait_for()
    explorer.check()


def test_bars_are_small_and_names_from_files_are_text(explorer: Explorer) -> None:
    explorer.open(query={"model": "runs/codes"})
    shown = explorer.page.locator(".knn-purity")
    shown.wait_for()
    box, row = shown.bounding_box(), explorer.page.locator(".knn-purity-row").first.bounding_box()
    assert box is not None
    assert row is not None
    assert box["height"] <= 150.0
    assert 8 * row["height"] <= 150.0
    assert explorer.page.locator(".knn-purity img").count() == 0
    assert "<img src=" in shown.inner_text()
    explorer.check()
