"""Is a claim's verdict found in seconds, in a real browser?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright.sync_api", reason="tests in a browser need playwright")

from latentcode.app.data.evidence import evidence
from latentcode.app.pages.evidence import ROW

if TYPE_CHECKING:
    from explorer import Explorer

pytestmark = pytest.mark.slow

TITLE = "What the paper claims"


@pytest.fixture
def page(explorer: Explorer) -> Explorer:
    explorer.open("evidence")
    explorer.headline(TITLE).wait_for()
    return explorer


def click_row(explorer: Explorer, row: int) -> None:
    frame = explorer.page.get_by_test_id("stDataFrame").first.bounding_box()
    explorer.page.mouse.click(frame["x"] + 300, frame["y"] + 36 + ROW * (row + 0.5))


def test_a_verdict_is_found_opened_and_its_data_downloaded(page: Explorer, tmp_path: Path) -> None:
    table = evidence().table
    differ = table[table["verdict"] == "differs"]
    with page.rerun():
        page.page.get_by_role("radio", name=f"{len(differ)} differ").click()
    assert page.listed() == len(differ)
    assert page.query()["verdict"] == "differs"
    row = list(differ.index).index("figA9-number-of-tasks")
    click_row(page, row)
    page.headline(differ["claim"].iloc[row][:20]).wait_for()
    assert page.query()["claim"] == "figA9-number-of-tasks"
    figure = page.page.locator(".st-key-evidence-figure img")
    page.until(lambda: figure.evaluate("image => image.naturalWidth") > 0)
    with page.page.expect_download() as waiting:
        page.page.get_by_role("button", name="counts.csv").click()
    waiting.value.save_as(tmp_path / "counts.csv")
    offered = evidence().files("paper", "figA9")["counts.csv"]
    assert (tmp_path / "counts.csv").read_bytes() == offered
    page.check()


def test_it_fits_windows(page: Explorer) -> None:
    click_row(page, 0)
    claim = page.headline("On held-out functions")
    claim.wait_for()
    listed = page.page.get_by_test_id("stDataFrame").first

    def beside() -> bool:
        box = listed.bounding_box()
        return bool(claim.bounding_box()["x"] >= box["x"] + box["width"])

    for width in (900, 1280, 1600):
        page.page.set_viewport_size({"width": width, "height": 800})
        page.until(lambda width=width: beside() == (width > 1000))
        page.until(lambda width=width: page.page.evaluate(
            "document.documentElement.scrollWidth") <= width)
    page.check()
