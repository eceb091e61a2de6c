"""Does a click on the track choose a layer?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from small_app import drawn_codes
from small_page import serving_page

from latentcode.experiments.benchmarks.browser import Server

playwright = pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")

if TYPE_CHECKING:
    from explorer import Explorer
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

PAGE = """
import streamlit as st
from latentcode.app.charts import track
from latentcode.app.state.sidebar import choose_codes

chosen = choose_codes()
st.markdown(f"##### Layer {chosen.layer}")
st.fragment(track.show)(chosen, "rule")
"""


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("track")
    drawn_codes().save(root / "runs" / "codes")
    with serving_page(PAGE, root, root / "runs") as started:
        yield started


def test_a_click_chooses_the_layer(explorer: Explorer) -> None:
    explorer.open(query={"model": "runs/codes", "pair": "response->row3"})
    layers = explorer.page.locator(".track-layers button")
    layers.first.wait_for()
    assert explorer.chosen()["Layer"] == "1"
    assert explorer.page.locator(".track-current").count() == 1
    # From 0 to 1, the lowest and the highest value, and what they are.
    numbers = explorer.page.locator(".track-number").all_text_contents()
    assert numbers[:2] == ["0", "1"]
    assert 1 <= len(numbers[2:]) <= 2
    assert all(0.0 <= float(number) <= 1.0 for number in numbers[2:])
    told = explorer.page.locator(".track-measured")
    playwright.expect(told).to_contain_text("nearest neighbours that agree on rule")
    with explorer.rerun():
        layers.first.click()
    explorer.headline("Layer 0").wait_for()
    assert explorer.chosen()["Layer"] == "0"
    assert "layer=0" in explorer.page.url
    explorer.until(lambda: layers.first.get_attribute("aria-pressed") == "true")
    explorer.press("Layer", "1")
    explorer.until(lambda: layers.last.get_attribute("aria-pressed") == "true")
    explorer.check()
