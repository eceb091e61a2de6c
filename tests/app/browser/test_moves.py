"""Each move of the first page: with the mouse, by a click, with the keyboard; and without a server.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from explorer import Explorer, expect
from playwright.sync_api import Browser, Page

from latentcode.app.moves.static import static_page
from latentcode.experiments.benchmarks.browser import serving, settle

OPERATION = "It gives the source's rule on this problem's own operands: 3"
OPERANDS = "It gives its own rule on the source's operands: 6"
OWN = "It gives its own answer: 7"
MET = "In HYLA attention, codes at the context carry the operation."
HEIGHTS = {1_280: 720, 375: 740}


def opened(explorer: Explorer, width: int = 1_280, **query: str) -> Page:
    page = explorer.page
    page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
    explorer.open("what_codes_do", query)
    page.locator(".moves-outcome").wait_for()
    return page


def says(page: Page, outcome: str) -> None:
    expect(page.locator(".moves-outcome")).to_have_text(outcome)


def drag(page: Page, source: str, target: str) -> None:
    """Drag from the middle of one part of the page to that of another."""
    places = [page.locator(part).first.bounding_box() for part in (source, target)]
    (x, y), (to_x, to_y) = ((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
                            for box in places if box is not None)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(to_x, to_y, steps=4)
    expect(page.locator(".moves-ghost")).to_be_visible()
    page.mouse.up()
    expect(page.locator(".moves-ghost")).to_have_count(0)


@pytest.mark.parametrize("width", HEIGHTS)
@pytest.mark.parametrize("query", [{}, {"task": "logic"}, {"task": "text", "kind": "softmax"}],
                         ids=lambda query: query.get("task", "sraven"))
def test_finding_source_and_outcome_are_in_sight(
    explorer: Explorer, width: int, query: dict[str, str]
) -> None:
    page = opened(explorer, width, **query)
    for part in (".moves h5", ".moves-verdict", ".moves-base", ".moves-source", ".moves-outcome"):
        box = page.locator(part).bounding_box()
        assert box is not None
        assert box["x"] >= 0, part
        assert box["x"] + box["width"] <= width, part
        assert box["y"] + box["height"] <= HEIGHTS[width], part
    if width > 1_000:
        box = page.locator(".moves-bars").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= HEIGHTS[width]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    explorer.check()


def test_each_move_brings_its_answer_and_stays_in_the_address(explorer: Explorer) -> None:
    page = opened(explorer)
    says(page, OPERATION)
    expect(page.locator(".moves h5")).to_contain_text(MET)

    page.locator("[data-handle=operands]").click()
    says(page, OPERANDS)
    expect(page.locator(".moves-verdict")).to_have_text("undecided")
    explorer.until(lambda: explorer.query().get("drop") == "operands")
    page.locator("[data-slot=operands]").click()  # takes it back
    says(page, OWN)

    drag(page, "[data-handle=context]", ".moves-base [data-place=context]")
    says(page, OPERATION)
    drag(page, ".moves-source [data-place=operands]", "[data-slot=operands]")
    says(page, OPERANDS)
    drag(page, "[data-handle=context]", "[data-slot=response]")  # goes to its own place alone
    says(page, "What was at the context goes to the context.")
    drag(page, "[data-handle=context]", ".moves h5")
    expect(page.locator("[data-slot=operands]")).to_contain_text("source's codes")

    page.keyboard.press("Escape")
    says(page, OWN)
    page.locator("[data-handle=context]").focus()
    page.keyboard.press("Enter")
    says(page, OPERATION)
    expect(page.locator("[data-handle=context]")).to_be_focused()

    page.get_by_role("radio", name="HYLA").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="softmax")).to_be_focused()
    expect(page.locator(".moves-verdict")).to_have_text("refuted")
    says(page, "It keeps its own answer: 7")
    page.get_by_role("radio", name="values").click()
    says(page, OPERATION)

    page.get_by_text("What would refute this?").click()
    expect(page.locator(".moves-refute")).to_contain_text("other operands alone")
    explorer.until(lambda: explorer.query().get("put") == "values")
    settle(page)
    page.reload()
    says(page, OPERATION)
    expect(page.locator(".moves h5")).to_contain_text("values at the context carry the operation")
    explorer.check()


def test_back_goes_through_what_the_buttons_chose(explorer: Explorer) -> None:
    explorer.page.goto("about:blank")
    page = opened(explorer)
    first = page.url
    page.get_by_role("radio", name="softmax").click()
    says(page, "It keeps its own answer: 7")
    explorer.until(lambda: explorer.query()["kind"] == "softmax")
    page.get_by_role("radio", name="values").click()
    says(page, OPERATION)
    explorer.until(lambda: explorer.query()["put"] == "values")
    page.locator("[data-handle=context]").click()  # which is no step
    says(page, OWN)
    explorer.until(lambda: explorer.query()["drop"] == "nothing")
    for put, kind, outcome in (("codes", "softmax", "It keeps its own answer: 7"),
                               ("codes", "hyla", OPERATION)):
        with explorer.rerun():
            page.go_back()
        says(page, outcome)
        assert (explorer.query()["put"], explorer.query()["kind"]) == (put, kind)
    assert page.url == first
    page.get_by_role("radio", name="linear").click()  # and on from there
    expect(page.locator(".moves h5")).to_contain_text("linear")
    explorer.until(lambda: explorer.query()["kind"] == "linear")
    explorer.check()
    page.go_back()
    explorer.until(lambda: page.url == first)
    page.go_back()
    expect(page).to_have_url("about:blank")


def test_another_problem_is_stored_or_computed(explorer: Explorer) -> None:
    page = opened(explorer, problem="3")
    expect(page.locator(".moves-measured")).to_contain_text("Answers: stored, of sraven-hyla.")
    page.get_by_role("button", name="Another problem").click()
    expect(page.locator(".moves-base")).to_contain_text("Problem 4")
    expect(page.locator(".moves-measured")).to_contain_text("Answers: computed now on sraven-hyla.")
    explorer.until(lambda: explorer.query().get("problem") == "4")
    explorer.check()


def test_the_bare_address_leads_to_own_runs_or_to_the_finding(
    browser: Browser, explorer: Explorer, tmp_path: Path
) -> None:
    explorer.open()
    expect(explorer.page).to_have_title("Explore · latentcode")
    with serving([tmp_path], tmp_path / "cache", tmp_path / "server.log") as server:
        alone = Explorer.opened(browser, server)
        alone.open()
        says(alone.page, OPERATION)
        expect(alone.page).to_have_title("What codes do · latentcode")
        expect(alone.page.locator(".tour-offer")).to_be_visible()
        alone.check()
        alone.close()


def test_the_page_needs_no_server(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "what_codes_do.html"
    file.write_text(static_page(), encoding="utf-8")
    page = browser.new_page(viewport={"width": 375, "height": 740})
    errors: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    says(page, OPERATION)
    page.locator("[data-handle=operands]").click()
    says(page, OPERANDS)
    assert "drop=operands" in page.url
    for number in (1, 2, 3, 0):
        page.get_by_role("button", name="Another problem").click()
        expect(page.locator(".moves-base")).to_contain_text(f"Problem {number}")
    page.get_by_role("radio", name="Text that copies").click()
    page.get_by_role("radio", name="softmax").click()
    page.locator("[data-handle=what]").click()
    page.reload()
    expect(page.locator(".moves h5")).to_contain_text("values carry the token that is copied")
    assert {url.partition("?")[0] for url in asked} == {file.as_uri()}
    assert errors == []
    page.close()
