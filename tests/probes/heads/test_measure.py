"""What else is asked of heads is what its own functions say, kept, saved and opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from prompt_pairs import pairs_of
from random_texts import said
from small_language_models import SmallModels

import latentcode as lc
from latentcode.errors import ConfigError, ProbeError, TooFewCountError
from latentcode.probes.heads.ablate import QUANTITIES, Ablation
from latentcode.probes.heads.measure import HeadsResult
from latentcode.probes.heads.sets import find_sets
from latentcode.prompts import LanguageModel, load_language_model
from latentcode.subjects.streams import stream_texts

FEW: dict[str, Any] = {"n_bootstrap": 100, "n_read": 4}


@pytest.fixture(scope="module")
def model(small_models: SmallModels) -> LanguageModel:
    return load_language_model(small_models("gpt2"))


@pytest.fixture(scope="module")
def whole(model: LanguageModel) -> HeadsResult:
    return lc.heads(model, said(14), effects=("mean", "resample"), sets=True, codes=200, **FEW)


def test_effects_and_sets_are_those_of_their_functions(
    model: LanguageModel, whole: HeadsResult
) -> None:
    batches = list(stream_texts(model, said(14)))
    pd.testing.assert_frame_equal(
        whole.effects, Ablation(model, batches, n_read=4).run().table(n_bootstrap=100))
    pd.testing.assert_frame_equal(whole.sets, find_sets(model, batches, **FEW)[0])
    searched = set(whole.sets.loc[whole.sets["how"] != "random", "set"])
    assert (whole.sets["difference"].notna() == whole.sets["set"].isin(searched)).all()


def test_every_table_has_its_columns(whole: HeadsResult) -> None:
    for name, columns in HeadsResult.COLUMNS.items():
        table = whole.tables()[name]
        assert list(table)[:len(columns)] == list(columns), name
        assert len(table), name
    assert len(whole.codes) == whole.settings["codes"]["n"] > 100
    assert whole.figure().axes
    assert any("Look at the sizes" in note for note in whole.caveats)


def test_what_is_not_asked_for_has_no_rows(model: LanguageModel, tmp_path: Path) -> None:
    result = lc.heads(model, said(6), effects=(), n_bootstrap=100, controls=False)
    loaded = HeadsResult.load(result.save(tmp_path / "result"))
    for name in set(HeadsResult.COLUMNS) - {"heads"}:
        assert result.tables()[name].empty
        assert list(loaded.tables()[name]) == list(HeadsResult.COLUMNS[name])
    assert repr(loaded) == repr(result)


def test_interchange_on_prompts_with_sources(model: LanguageModel) -> None:
    pairs = pd.DataFrame(pairs_of(model.model, ("The capital of {}",)))
    result = lc.heads(model, pairs, n_bootstrap=100, controls=False)
    quantities = result.effects.groupby("patch", sort=False)["quantity"].unique().map(set)
    assert dict(quantities) == {
        "mean": set(QUANTITIES), "interchange z": {"flip", "moved"},
        "interchange code": {"flip", "moved"}}
    assert result.settings["interchange"]["n_known"] >= 2


def test_interchange_is_left_out_where_the_model_answers_nothing_unless_it_is_asked_for(
    model: LanguageModel
) -> None:
    pairs = pd.DataFrame(pairs_of(model.model, ("The capital of {}",))).assign(
        answer=300, source_answer=301)
    result = lc.heads(model, pairs, n_bootstrap=100, controls=False)
    assert set(result.effects["patch"]) == {"mean"}
    assert any("Interchange was left out: of" in note for note in result.caveats)
    with pytest.raises(TooFewCountError, match="answers 0 rightly"):
        lc.heads(model, pairs, effects="interchange", n_bootstrap=100, controls=False)


@pytest.mark.slow
def test_labels_of_prompts_of_different_lengths_are_left_out_and_that_is_said(
    model: LanguageModel
) -> None:
    prompts = pd.DataFrame([
        {"prompt": f"The {asked} of {of} is", "query": -1, "key": 1, "answer": " Paris",
         "label": asked, "combination": of}
        for asked in ("capital", "river")
        for of in ("France", "Italy", "Peru and then we", "Lima", "Kenya")])
    options: dict[str, Any] = {"n_bootstrap": 100, "effects": (), "whole": True, "codes": 80}
    result = lc.heads(model, prompts, **options)
    assert any("Labels (label) were not decoded: prompts have" in note
               for note in result.caveats)
    with pytest.raises(ConfigError, match=r"tells is label; prompts have .* equally many tokens"):
        lc.heads(model, prompts, tells=["label"], progress=lambda done, total: pytest.fail(
            "texts are read"))
    alike = prompts[prompts["combination"] != "Peru and then we"]
    told = lc.heads(model, alike.assign(copied=1), controls=False, **options)
    assert set(told.effects["patch"]) == {"tells label"}


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"effects": "nothing"}, ConfigError, "effects has 'nothing'"),
    ({"effects": ("interchange",)}, ConfigError, "the problems have no sources"),
    ({"codes": -1}, ProbeError, "codes is -1"), ({"n_read": 0}, ConfigError, "n_read is 0"),
    ({"sets": True}, ProbeError, "expected at least 4")])
def test_what_cannot_be_asked_is_said(
    options: dict[str, Any], error: type[Exception], message: str, model: LanguageModel
) -> None:
    with pytest.raises(error, match=message):
        lc.heads(model, said(3), controls=False, n_bootstrap=100, **options)
