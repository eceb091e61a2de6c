"""Is a claim's verdict found in seconds, in a real browser?"""

from __future__ import annotations

from explorer import Explorer, expect

from latentcode.app.data.evidence import evidence
from latentcode.app.pages.evidence import ROW


def click_row(explorer: Explorer, row: int) -> None:
    listed = explorer.page.get_by_test_id("stDataFrame").first
    # The list shows some eight rows; it is drawn anew in the frame after it was scrolled.
    top = listed.locator(".dvn-scroller").evaluate("""(list, top) => new Promise(resolve => {
        list.scrollTop = top;
        requestAnimationFrame(() => requestAnimationFrame(() => resolve(list.scrollTop)));
    })""", ROW * (row - 1))
    frame = listed.bounding_box()
    explorer.page.mouse.click(frame["x"] + 300, frame["y"] + 36 + ROW * (row + 0.5) - top)


def test_a_verdict_is_found_opened_and_its_data_downloaded(explorer: Explorer) -> None:
    page = explorer.open("evidence").page
    table = evidence().table
    differ = table[table["verdict"] == "differs"]
    with explorer.rerun():
        page.get_by_role("radio", name=f"{len(differ)} differ").click()
    assert explorer.listed() == len(differ)
    assert explorer.query()["verdict"] == "differs"
    row = list(differ.index).index("figA9-number-of-tasks")
    click_row(explorer, row)
    claim = explorer.headline(differ["claim"].iloc[row][:20])
    claim.wait_for()
    explorer.until(lambda: explorer.query().get("claim") == "figA9-number-of-tasks")
    figure = page.locator(".st-key-evidence-figure img")
    explorer.until(lambda: figure.evaluate("image => image.naturalWidth") > 0)
    file = explorer.download(page.get_by_role("button", name="counts.csv"))
    assert file.read_bytes() == evidence().files("paper", "figA9")["counts.csv"]
    # It stands beside the list where there is room for it.
    listed = page.get_by_test_id("stDataFrame").first
    for width in (900, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        explorer.until(lambda width=width: (claim.bounding_box()["x"] >= sum(
            listed.bounding_box()[side] for side in ("x", "width"))) == (width > 1000))
        explorer.until(lambda width=width: page.evaluate(
            "document.documentElement.scrollWidth") <= width)
    page.get_by_role("button", name="Open large").click()
    large = page.locator(".st-key-evidence-large img")
    large.wait_for()
    explorer.until(lambda: large.bounding_box()["width"] > 1_000 > figure.bounding_box()["width"])
    page.keyboard.press("Escape")
    expect(large).to_have_count(0)
    explorer.check()
