"""Which pairs are drawn, and are their codes those of the forward pass?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from random_texts import batches
from small_language_models import SmallModels

from latentcode.probes.heads.codes import HeadSample, PairSampler, sample_codes
from latentcode.prompts import LanguageModel, load_language_model
from latentcode.prompts.texts import TextBatch


@pytest.fixture(scope="module")
def asked(small_models: SmallModels) -> LanguageModel:
    return load_language_model(small_models("gpt2"))


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_codes_are_those_of_the_forward_pass(
    small_models: SmallModels, architecture: str
) -> None:
    asked = load_language_model(small_models(architecture))
    sample = sample_codes(asked, batches(asked, 6, 4), n=30)
    labels = sample.codes.labels
    assert set(labels["text"]) == set(sample.tokens)
    assert np.array_equal(labels["text"], sample.rows)
    for i, row in enumerate(labels.itertuples()):
        ids = torch.from_numpy(sample.tokens[row.text].astype(np.int64))[None]
        _, cache = asked.model.run_with_cache(ids)
        for layer in range(2):
            code = cache[f"blocks.{layer}.attn.hook_pattern"][
                0, :, row.query_position, row.key_position]
            np.testing.assert_allclose(sample.codes.scores[i, layer, 0], code.detach().numpy(),
                                       atol=1e-5)
        assert row.query_token == asked.texts([int(ids[0, row.query_position])])[0]
        assert f"<<{row.query_token}>>" in row.context or row.kind == "self"
    assert (labels["distance"] == labels["query_position"] - labels["key_position"]).all()
    assert (labels["query_position"] >= 1).all()
    assert (labels["distance"] >= 0).all()


def test_rows_of_one_document_keep_their_own_tokens(asked: LanguageModel) -> None:
    many = [replace(batch, text=batch.text // 4, row=batch.text)
            for batch in batches(asked, 12, 5, least=8)]
    sample = sample_codes(asked, many, n=40)
    labels, by_itself = sample.codes.labels, sample_codes(
        asked, batches(asked, 12, 5, least=8), n=40)
    assert np.array_equal(labels["text"], sample.rows // 4)
    assert len(set(sample.rows)) > 6
    assert by_itself.codes.labels.drop(columns="text").equals(labels.drop(columns="text"))
    for row, ids in by_itself.tokens.items():
        assert np.array_equal(sample.tokens[row], ids)


def same(one: HeadSample, other: HeadSample) -> bool:
    return one.codes.labels.equals(other.codes.labels) and np.allclose(
        one.codes.scores, other.codes.scores, atol=1e-5)


def test_it_is_the_same_sample_in_batches_of_another_size(asked: LanguageModel) -> None:
    few, many = (sample_codes(asked, batches(asked, 40, size), n=60, seed=1) for size in (3, 16))
    assert same(few, many)
    assert not same(few, sample_codes(asked, batches(asked, 40, 3), n=60, seed=2))
    assert len(few) == 60
    assert few.codes.meta["texts"] == 40


def test_queries_are_drawn_uniformly(asked: LanguageModel) -> None:
    drawn = np.zeros(10)
    for seed in range(40):
        sample = sample_codes(asked, batches(asked, 5, 5, least=10, most=10), n=9, seed=seed)
        drawn += np.bincount(sample.codes.labels["query_position"], minlength=10)
    assert drawn[0] == 0
    expected = drawn.sum() / 9
    assert (((drawn[1:] - expected) ** 2) / expected).sum() < 27.9  # chi2, 8 degrees, p < 0.0005


def test_keys_are_drawn_uniformly_or_as_they_are_attended(asked: LanguageModel) -> None:
    text = next(batches(asked, 1, 1, least=6, most=6))
    many = TextBatch(text.tokens.expand(300, -1), text.lengths.expand(300),
                     text.targets.expand(300, -1), text.read.expand(300, -1), torch.arange(300))
    _, cache = asked.model.run_with_cache(text.tokens)
    given = sum(cache[f"blocks.{layer}.attn.hook_pattern"][0].sum(0) for layer in range(2))
    given = given.detach().numpy()[5, 1:6]
    for attended, expected in ((1.0, np.r_[0.0, given / given.sum()]), (0.0, np.full(6, 1 / 6))):
        labels = sample_codes(asked, [many], n=10_000, attended=attended).codes.labels
        keys = labels.loc[labels["query_position"] == 5, "key_position"]
        assert len(keys) == 300
        found = np.bincount(keys, minlength=6) / len(keys)
        np.testing.assert_allclose(found, expected, atol=0.08)


def test_memory_does_not_grow_with_texts(asked: LanguageModel) -> None:
    sampler = PairSampler(asked, n=50)
    for batch in batches(asked, 400, 20):
        sampler.add(batch)
        assert len(sampler._codes) <= 150
        assert len(sampler._tokens) <= 150
    assert len(sampler.finish()) == 50
