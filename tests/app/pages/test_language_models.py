"""Do the pages of a language model show what was read of it?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from asked_language import begun, texts_file
from small_app import charts, component, map_shown, shown, text
from small_language_models import SmallModels

from latentcode.app.language.page import Pair
from latentcode.app.language.planes import choose_plane
from latentcode.app.language.reading import Reading, texts_for
from latentcode.app.language.work import Work
from latentcode.app.main import language_pages
from latentcode.app.pages.heads import CHANGES
from latentcode.app.settings import LANGUAGE
from latentcode.prompts.texts import source_of


@pytest.fixture
def one(
    small_models: SmallModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Work]:
    with begun(monkeypatch, small_models("gpt2"), texts_file(tmp_path)) as work:
        assert work.job.error is None
        yield work


def test_there_are_no_such_pages_without_one() -> None:
    assert language_pages() == ()


def test_the_map_says_which_pairs_are_drawn(one: Work) -> None:
    read = one.job.read
    assert read is not None
    page = shown("texts")
    drawn = map_shown(page)
    assert len(drawn.planes[0]) == len(read.codes)
    assert f"{len(read.codes):,} of the {read.n_pairs:,} pairs" in text(page)
    assert language_pages() == LANGUAGE
    of_layer = map_shown(shown("texts", lm_layer="1", lm_colour="distance"))
    assert not np.allclose(of_layer.planes[0], drawn.planes[0])
    numbers = [int(name.split()[0]) for name in of_layer.names]
    assert numbers == sorted(numbers)


def test_what_is_read_while_a_page_is_shown_comes_with_the_next(
    one: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = one.job
    whole = job.read
    assert whole is not None
    assert job.model is not None
    texts = texts_for(job.model, source_of(one.given.texts), n=9, longest=12)
    reading = Reading(texts)
    for batch in reading.batches():
        reading.add(batch)
    few = reading.read(whole=False)
    job.read, job.is_over = few, False
    with monkeypatch.context() as patch:
        # More is read just after the page has looked at what there is.
        patch.setattr("latentcode.app.pages.texts.choose_plane", lambda layers: (
            setattr(job, "read", whole), choose_plane(layers))[1])
        page = shown("texts")
    assert not page.error
    drawn = map_shown(page)  # the page has seen it, and is shown anew
    assert len(drawn.planes[0]) == len(drawn.values) == len(whole.codes)
    job.read = few
    page = shown("texts")
    drawn = map_shown(page)
    assert len(drawn.planes[0]) == len(drawn.values) == len(few.codes)


def test_a_pair_is_shown_in_its_text(one: Work) -> None:
    page = shown("texts", lm_pair="3.7.2")
    assert not page.error
    assert "Text 3: the query is token 7, the key 5 before it." in text(page)
    read = one.job.read
    assert read is not None
    assert component(page, "attention")["html"].count(" data-token=") == len(read.tokens[3])
    scores = component(page, "attention")["scores"]
    assert len(scores) == 4
    assert len(scores[0]) == 8
    (heads,) = (frame.value for frame in page.dataframe if "attention" in frame.value)
    assert heads["attention"].is_monotonic_decreasing
    (near,) = (frame.value for frame in page.dataframe if "in the text" in frame.value)
    assert near["distance"].is_monotonic_increasing
    assert Pair.named("3.2.7") is None
    assert not shown("texts", lm_pair="99.7.2").error


def test_a_head_has_a_card_with_its_texts(one: Work) -> None:
    page = shown("heads", lm_head="L1H2")
    assert not page.error
    assert "L1H2" in text(page)
    assert sum(len(trace.x) for trace in charts(page)["heads"].data) == 8 + 1
    texts = component(page, "shaded")["texts"]
    read = one.job.read
    assert read is not None
    largest = np.argsort(-read.maxima[:, 1, 2], kind="stable")[0]
    assert f"text {largest}" in texts[0]["title"]
    assert [len(row) for row in texts[0]["rows"]] == list(range(1, len(texts[0]["pieces"]) + 1))
    page.button("ablate").click().run()
    assert not page.error
    assert "Mean ablation" in text(page)
    (effects,) = (frame.value for frame in page.dataframe if "this head" in frame.value)
    assert list(effects["what changes"]) == list(CHANGES.values())
    for name in ("this head", "control"):
        assert effects[name].str.fullmatch(r"\S+ \[\S+, \S+\]").all()
    assert "No head yet" in text(shown("heads", lm_head="L7H9"))


def test_next_tokens_stand_before_and_after_an_edit(one: Work) -> None:
    page = shown("prompt", prompt="The capital of France is")
    assert ["next token", "prompt"] in [list(frame.value.columns) for frame in page.dataframe]
    edited = shown("prompt", prompt="The capital of France is", edited="The capital of Paris is")
    assert not edited.error
    assert "leaves every bit" in text(edited) or edited.info
    tables = [list(frame.value.columns) for frame in edited.dataframe]
    assert ["next token", "before", "after"] in tables


@pytest.mark.slow
def test_another_colour_after_t_sne_leaves_the_page_whole(one: Work) -> None:
    page = shown("texts", lm_plane="t-SNE")
    assert not page.error
    for colour in ("distance", "drawn"):
        page.selectbox("lm_colour").set_value(colour).run(timeout=120)
        assert not page.exception
        assert not page.error
        assert map_shown(page).shown["colour"]["title"] == colour


def test_a_patch_shows_base_source_and_control(one: Work) -> None:
    page = shown("prompt", prompt="The capital of France is", source="The river of France is",
                 lm_site="residual stream")
    assert not page.error
    assert ["next token", "base", "patched", "source"] in [
        list(frame.value.columns) for frame in page.dataframe]
