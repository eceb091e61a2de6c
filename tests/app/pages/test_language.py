"""Do the pages show a run of text, with its tokens as text and the pair marked in it?"""

from __future__ import annotations

from pathlib import Path

import pytest
from small_app import component, map_shown, open_folders, shown, text
from text_runs import N_TOKENS, hardly_trained

LOOK = {"n": "2000", "projection": "PCA", "instance": "3"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hardly_trained(tmp_path_factory.mktemp("text"))


@pytest.fixture
def folder(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LATENTCODE_CACHE", str(trained.parent / "cache"))
    open_folders(monkeypatch, [trained])
    return trained


def test_explore_marks_the_pair_in_the_text_and_draws_its_scores(folder: Path) -> None:
    page = shown("explore", model="runs/first", **LOOK)
    assert not page.error
    assert map_shown(page).shown["colour"]["title"] in ("copied", "class", "key_token")
    body = "".join(block.proto.body for block in page.get("html"))
    assert body.count(" data-token=") == N_TOKENS
    assert 'title="the query"' in body
    assert "the key of the induction pair" in body
    assert "The model answers" in body
    assert "<b>*" not in body
    page.segmented_control("look").set_value("attention").run()
    assert not page.error
    assert component(page, "attention")["html"].count(" data-token=") == N_TOKENS
    assert "“" in text(page)


def test_other_pages_show_it(folder: Path) -> None:
    assert not shown("model", model="runs/first", n="2000").error
    page = shown("explore", model="runs/first", n="2,000", projection="PCA", show="two maps",
                 second_model="runs/second")
    assert not page.error
    assert len(map_shown(page).planes) == 2


def test_a_text_is_intervened_on_as_other_problems_are(folder: Path) -> None:
    page = shown("intervene", model="runs/first", instance="3")
    assert not page.error
    assert component(page, "tokens")["html"].count(" data-token=") == N_TOKENS
    assert "##### " in text(page)
    for scope in ("context", "operands", "everything"):
        page.selectbox("scope").set_value(scope).run()
        assert not page.error
    assert "leaves every bit of the output" in text(page)
