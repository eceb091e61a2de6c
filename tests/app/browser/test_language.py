"""The pages of language models, by mouse and keyboard, in a wide and a narrow window."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

import pytest
from asked_language import texts_file
from explorer import Explorer, expect
from playwright.sync_api import Browser
from small_language_models import SmallModels

from latentcode.app.language.page import MOST_CHARACTERS
from latentcode.experiments.benchmarks.browser import LONELY, Server, serving, settle

WIDTHS = (1_280, 375)
HEIGHT = 900
PROMPT, WORD, OTHER = "The capital of France is", "France", "Paris"
READ = "() => !document.querySelector('[data-testid=stProgress]')"
ANSWER = """edited => {
    const {editing} = document.querySelector('.editing');
    const {own: text, most, turn} = editing;
    editing.show({text, edited, most, turn}, editing.report);
}"""
"""The page answers with a prompt as it was edited last."""
AXES = """() => {
    const layout = document.querySelector('.st-key-heads .js-plotly-plot')?.layout;
    return [layout?.xaxis.title.text, layout?.yaxis.title.text];
}"""
"""What the scatter of heads has along its axes; nothing while it is drawn anew."""
HEAD = """() => {
    const plot = document.querySelector('.st-key-heads .js-plotly-plot');
    if (!plot?._fullLayout?.xaxis || !plot._fullData?.length) return null;
    const {xaxis, yaxis} = plot._fullLayout, {left, top} = plot.getBoundingClientRect();
    const [trace] = plot._fullData;
    return {name: trace.customdata[0][0], x: left + xaxis._offset + xaxis.l2p(trace.x[0]),
            y: top + yaxis._offset + yaxis.l2p(trace.y[0])};
}"""
"""The first head of the scatter, and where it is on the screen; null while it is drawn anew."""


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("language")
    models = SmallModels(root)
    with serving([models("gpt2")], root / "cache", root / "server.log",
                 ["--texts", str(texts_file(root)), "--longest", "12"]) as started:
        yield started


def opened(explorer: Explorer, page: str, width: int = WIDTHS[0], **query: str) -> Explorer:
    """Open a page once all texts are read, and check that it is as wide as the window."""
    explorer.page.set_viewport_size({"width": width, "height": HEIGHT})
    explorer.open(page, query)
    explorer.page.wait_for_function(READ)
    settle(explorer.page)
    assert explorer.page.evaluate("document.documentElement.scrollWidth") <= width
    return explorer


def pair_said(explorer: Explorer) -> tuple[int, int, int]:
    """Return text, query and key of the pair that is shown, as the page says them."""
    explorer.headline("→").wait_for()
    said = explorer.page.get_by_text(re.compile(r"^Text \d+: the query is token")).inner_text()
    text, query, *back = map(int, re.findall(r"\d+", said))
    return text, query, query - (back[0] if back else 0)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_pair_of_a_text_is_shown_and_taken_as_the_source(explorer: Explorer, width: int) -> None:
    page = opened(explorer, "texts", width, lm_layer="1").page
    expect(page.get_by_text(re.compile("^PCA.*of the .* pairs of a query and a key in 24 texts")
                            )).to_be_visible()
    page.locator(".st-key-map .lc-field").scroll_into_view_if_needed()
    explorer.picture()
    point = page.evaluate(LONELY, ".st-key-map")
    page.mouse.move(point["x"], point["y"])
    page.locator(".lc-card").filter(has_text="instance").wait_for()
    with explorer.rerun():
        page.mouse.down()
        page.mouse.up()
    text, query, key = pair_said(explorer)
    assert explorer.query()["lm_pair"] == f"{text}.{query}.{key}"
    expect(page.locator(".attention-problem [data-token]")).to_have_count(12)
    shaded = page.locator(f".attention-problem [data-token='{key}']")
    page.get_by_role("button", name="none", exact=True).click()
    assert "transparent" in shaded.get_attribute("style")
    page.get_by_role("button", name="all", exact=True).click()
    assert "color-mix" in shaded.get_attribute("style")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width == WIDTHS[0]:
        n = len(explorer.map()["values"])
        file = explorer.download(page.get_by_role("button", name="Pairs and codes, CSV"))
        rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8"))))
        assert len(rows) == n
        assert {"text", "query_token", "key_token", "context", "x", "y", "L1H0", "L1H3"} <= {
            *rows[0]}
        assert "L0H0" not in rows[0]
        assert float(rows[5]["x"]) == pytest.approx(explorer.map()["points"][0][5], abs=1e-5)
        # Another pair by the keyboard.
        page.locator(".st-key-map .lc-field").focus()
        page.keyboard.press("ArrowRight")
        with explorer.rerun():
            page.keyboard.press("Enter")
        assert pair_said(explorer) != (text, query, key)
        with explorer.rerun():
            page.get_by_role("button", name="Take it as the source").focus()
            page.keyboard.press("Enter")
        expect(page).to_have_title("Prompt · latentcode")
        assert explorer.query()["source"]
    explorer.check()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_prompt_is_typed_edited_in_place_and_patched(
    explorer: Explorer, width: int
) -> None:
    page = opened(explorer, "prompt", width, lm_site="residual stream").page
    box = page.get_by_role("textbox", name="Prompt", exact=True)
    box.fill(PROMPT)
    with explorer.rerun():
        box.press("Enter")
    assert explorer.query()["prompt"] == PROMPT
    words = page.locator(".editing [data-word]")
    assert words.all_inner_texts() == PROMPT.split()
    words.filter(has_text=WORD).focus()
    page.keyboard.press("Enter")
    field = page.get_by_role("textbox", name=f"In place of {WORD}")
    expect(field).to_be_focused()
    room = MOST_CHARACTERS - len(PROMPT)  # a longer text would not be taken
    expect(field).to_have_attribute("maxlength", str(len(WORD) + room))
    field.fill(OTHER)
    with explorer.rerun():
        field.press("Enter")
    edited = PROMPT.replace(WORD, OTHER)
    assert explorer.query()["edited"] == edited
    expect(page.locator(".editing-new")).to_have_text(f"{WORD} {OTHER}")
    expect(page.get_by_text(re.compile("before and after"))).to_be_visible()
    # A word that is being written stays while an answer comes, and is nowhere in another text.
    page.locator(".editing-new").click()
    page.evaluate(ANSWER, PROMPT)
    field = page.get_by_role("textbox", name=f"In place of {OTHER}")
    expect(field).to_be_focused()
    field.fill("Rome")
    field.press("Enter")
    assert words.all_inner_texts() == PROMPT.split()
    page.evaluate(ANSWER, edited)
    with explorer.rerun():
        page.get_by_role("button", name="Undo").click()
    assert "edited" not in explorer.query()
    # A source is clicked, and patched from.
    sources = page.locator(".st-key-sources").get_by_role("button")  # those that can be seen
    expect(page.get_by_text(re.compile("^After the patch"))).to_have_count(0)
    with explorer.rerun():
        sources.first.click()
    assert explorer.query()["source"]
    for said in ("^After the patch", "from 8 other texts", "leaves every bit as it is"):
        expect(page.get_by_text(re.compile(said))).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    explorer.check()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_head_has_its_card_and_the_scatter_its_axes(explorer: Explorer, width: int) -> None:
    page = opened(explorer, "heads", width).page
    page.locator(".st-key-heads .js-plotly-plot").scroll_into_view_if_needed()
    explorer.until(lambda: page.evaluate(AXES) == ["previous token", "induction"])
    if width == WIDTHS[0]:
        explorer.choose("x axis", "entropy")
        explorer.until(lambda: page.evaluate(AXES) == ["entropy", "induction"])
        assert explorer.query()["lm_x"] == "entropy"

    def hovered() -> bool:
        head = page.evaluate(HEAD)
        if head is None:
            return False
        for aside in (3, 0):
            page.mouse.move(head["x"] - aside, head["y"])
        page.wait_for_timeout(300)  # the label comes a moment later
        return page.locator(".st-key-heads .hovertext").count() > 0

    explorer.until(hovered)
    with explorer.rerun():
        page.mouse.down()
        page.mouse.up()
    explorer.headline(explorer.query()["lm_head"]).wait_for()
    expect(page.locator(".shaded-text")).to_have_count(5)
    with explorer.rerun():
        page.get_by_role("radio", name="one per decile").click()
    expect(page.locator(".shaded-text")).to_have_count(10)
    page.locator(".shaded-text").first.focus()
    told = page.locator(".shaded-told").first.inner_text()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".shaded-told").first).not_to_have_text(told)
    with explorer.rerun():
        page.get_by_role("button", name="What does it cause?").click()
    expect(page.get_by_text(re.compile("^Mean ablation, after"))).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    explorer.check()
