"""The made-up world is what its prompts say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import latentcode as lc
from latentcode.experiments.examples import relations
from latentcode.experiments.examples.relations import (
    COUNTRIES,
    PHRASINGS,
    VALUES,
    make_sentences,
    train_language_model,
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of two layers."""
    for name, value in (("WIDTH", 32), ("LAYERS", 2), ("HEADS", 4), ("BATCH", 32),
                        ("LEARNING_RATE", 5e-3)):
        monkeypatch.setattr(relations, name, value)


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
