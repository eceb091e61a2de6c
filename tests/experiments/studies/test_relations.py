"""The made-up world is what its prompts say, and the commands run on it from end to end."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import latentcode as lc
from latentcode import cli
from latentcode.errors import ConfigError, RunError
from latentcode.experiments.studies.relations import __main__ as study
from latentcode.experiments.studies.relations import world
from latentcode.experiments.studies.relations.__main__ import main
from latentcode.experiments.studies.relations.commands import run_command
from latentcode.experiments.studies.relations.page import rates_of
from latentcode.experiments.studies.relations.world import (
    COUNTRIES,
    PHRASINGS,
    VALUES,
    make_sentences,
    minimal_pairs,
    prompts,
    train_language_model,
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of two layers."""
    for name, value in (("WIDTH", 32), ("LAYERS", 2), ("HEADS", 4), ("BATCH", 32),
                        ("LEARNING_RATE", 5e-3)):
        monkeypatch.setattr(world, name, value)


def test_every_fact_is_said_in_all_phrasings_and_trained_in_three() -> None:
    sentences = make_sentences(12, seed=0)
    assert len(sentences) == 12 * len(VALUES) * 4
    for (country, relation), fact in sentences.groupby(["country", "relation"]):
        assert fact["answer"].nunique() == 1
        assert fact["answer"].iloc[0] in VALUES[str(relation)]
        assert fact["prompt"].tolist() == [
            phrasing.format(relation=relation, country=country)
            for both in PHRASINGS.values() for phrasing in both]
        assert fact["trained"].sum() >= 3
        for _, pair in fact.groupby("order"):
            assert pair["control"].tolist() == pair["prompt"].tolist()[::-1]
    assert 0 < (~sentences["trained"]).sum() < 48
    capitals = sentences.loc[sentences["relation"] == "capital"].groupby("country")["answer"]
    assert capitals.first().is_unique
    pd.testing.assert_frame_equal(sentences, make_sentences(12, seed=0))
    assert (sentences["answer"] != make_sentences(12, seed=1)["answer"]).any()


def test_no_word_has_two_meanings() -> None:
    words = [*COUNTRIES, *VALUES, *(value for values in VALUES.values() for value in values),
             "the", "of", "in", "for", "is"]
    assert len(set(words)) == len(words)


def test_minimal_pairs_differ_in_one_word_and_their_answers() -> None:
    sentences = make_sentences(5, seed=0)
    answers = sentences.set_index("prompt")["answer"]
    for order in PHRASINGS:
        pairs = minimal_pairs(sentences, order)
        # Two phrasings; an ordered pair of relations.
        assert len({(pair["prompt"], pair["source"]) for pair in pairs}) == len(pairs) == 5 * 2 * 12
        for pair in pairs:
            ours, theirs, same = (pair[name].split() for name in ("prompt", "source", "control"))
            changed = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
            assert changed == [(pair["label"], pair["source_label"])]
            assert sum(a != b for a, b in zip(ours, same, strict=True)) == 1
            assert pair["answer"] == f" {answers[pair['prompt']]}" == f" {answers[pair['control']]}"
            assert pair["source_answer"] == f" {answers[pair['source']]}" != pair["answer"]
            assert pair["combination"] in ours
    line = prompts(sentences)[0]
    assert line["pairs"] == {"last->relation": [-1, "capital"], "last->country": [-1, "Arvenia"],
                             "last->last": [-1, -1]}


def test_what_is_left_out_is_not_trained_on(small: None, tmp_path: Path) -> None:
    sentences = make_sentences(4, seed=0)
    left_out = ~sentences["trained"]
    assert left_out.sum() > 1
    others = sentences.copy()
    others.loc[left_out, "answer"] = others.loc[~left_out, "answer"].iloc[0]
    wrong = sentences.copy()
    wrong.loc[~left_out, "answer"] = wrong.loc[~left_out, "answer"].to_numpy()[::-1]
    weights = {}
    for name, frame in (("own", sentences), ("others", others), ("wrong", wrong)):
        train_language_model(frame, tmp_path / name, steps=3, seed=0)
        weights[name] = load_file(tmp_path / name / "model.safetensors")
    assert weights["own"].keys() == weights["others"].keys()
    for key, tensor in weights["own"].items():
        assert torch.equal(tensor, weights["others"][key])
    assert any(not torch.equal(t, weights["wrong"][key]) for key, t in weights["own"].items())
    model = lc.load_pretrained(tmp_path / "own")
    tokens = model.to_tokens("the capital of Arvenia is")[0].tolist()
    assert [model.tokenizer.decode([token]) for token in tokens] == [
        "<s>", "the", "capital", "of", "Arvenia", "is"]


def test_rates_stand_beside_those_of_the_control() -> None:
    rows = [{"site": "code", "scope": "row", "layers": layers, "patch": patch, "metric": metric,
             "value": value, "renormalized": renormalized}
            for layers, patch, metric, value, renormalized in (
                ("0", "interchange", "flip", 0.25, False), ("0", "control", "flip", 0.0, False),
                ("0", "interchange", "unchanged", 0.5, False), ("0", "control", "unchanged", 1.0,
                                                                False),
                ("0", "interchange", "flip", 0.75, True), ("0", "interchange", "moved", 9.0, False),
                ("1", "interchange", "flip", 0.5, False), ("1", "interchange", "unchanged", 0.25,
                                                           False),
                ("1", "control", "flip", 0.125, False), ("1", "control", "unchanged", 0.875,
                                                         False))]
    rates = rates_of(pd.DataFrame(rows))
    assert sorted(rates.index) == [("code", "row", "0"), ("code", "row", "1"),
                                   ("code", "row, renormalised", "0")]
    assert rates.loc[("code", "row", "1")].to_dict() == {
        ("flip", "interchange"): 0.5, ("flip", "control"): 0.125, ("unchanged",
                                                                   "interchange"): 0.25,
        ("unchanged", "control"): 0.875}
    assert rates.loc[("code", "row, renormalised", "0"), ("flip", "interchange")] == 0.75


@pytest.mark.slow
def test_from_training_to_the_page(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "run_command", cli.main)  # eight processes would import torch
    out, work = tmp_path / "out", tmp_path / "work"
    main(out, work, countries=4, steps=400)
    page = (out / "README.md").read_text()
    for text in ("What can be read out", "What is caused", "### Relation first",
                 "### Country first", f"latentcode extract {work}/model --prompts",
                 "latentcode intervene "):
        assert text in page
    decoding = lc.DecodingResult.load(out / "decoding")
    assert set(decoding.table["pair"]) == {"last->relation", "last->country", "last->last"}
    assert set(decoding.table["features"]) == {"code", "residual", "untrained", "shuffled"}
    assert set(decoding.per_class["class"]) == set(VALUES)
    assert decoding.settings["heldout"]["split"] == "ood"
    for order in ("relation_first", "country_first"):
        result, values, residuals = (
            lc.InterventionResult.load(out / order / site)
            for site in ("code", "value", "residual"))
        assert set(result.table["scope"]) == {"pair", "pairs", "row", "everything"}
        assert result.settings["n_known"] > 0
        assert set(result.by_constituent["source_label"]) <= set(VALUES)
        identity = rates_of(result.table)[[("flip", "identity"), ("unchanged",
                                                                  "identity")]].dropna()
        assert identity.drop_duplicates().to_numpy().tolist() == [[0.0, 1.0]]
        written = rates_of(residuals.table)
        # The last word is the same in both sentences; what it has gathered later is not.
        assert written.loc[("residual", "row", "0"), ("flip", "interchange")] == 0.0
        assert written.loc[("residual", "row", "1"), ("flip", "interchange")] > 0.5
        assert set(values.table["scope"]) == {"everything"}
        assert (out / "figures" / f"{order}.png").stat().st_size > 1_000
    with pytest.raises(RunError, match="exists already"):
        main(out, work)


def test_a_command_that_fails_stops_everything(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["extract", str(tmp_path / "nowhere"), "--prompts", "prompts.jsonl", "--out",
                 "codes"]
    with pytest.raises(RunError, match=r"`latentcode extract .* ended with status 2"):
        run_command(arguments)
    assert "error: --prompts is 'prompts.jsonl', which is no file" in capfd.readouterr().err


def test_unusable_sizes_and_folders_are_named(tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    for wrong, message in (({"countries": 3}, "countries is 3; expected 4 to 40"),
                           ({"countries": 41}, "countries is 41"),
                           ({"steps": 0}, "steps is 0; expected at least 1")):
        with pytest.raises(ConfigError, match=message):
            main(out, work, **wrong)
        assert not work.exists()
    work.mkdir()
    (work / "mine").write_text("kept")
    with pytest.raises(RunError, match="not one of ours"):
        main(out, work)
    assert (work / "mine").read_text() == "kept"
    assert not out.exists()
