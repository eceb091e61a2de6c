"""Models with known heads are what they are said to be, and the study finds it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from latentcode.experiments.findings import heads
from latentcode.models.hooks import evaluating
from latentcode.subjects.streams import stream_texts


def test_two_words_differ_in_two_signs_and_products_are_words() -> None:
    signs = heads.signs()
    assert (signs @ signs.T - heads.N_SIGNS * torch.eye(heads.N_WORDS)).max() == 2
    assert torch.equal(signs[5] * signs[9], signs[5 ^ 9])


@pytest.mark.parametrize("kind", heads.ANSWERING)
def test_prompts_are_alike_but_for_their_words(kind: str) -> None:
    prompts = heads.prompts(kind, seed=1)
    words = [text.split() for text in prompts["prompt"]]
    for place in [*zip(*words, strict=True), prompts["answer"]]:
        assert len(set(place)) == heads.N_WORDS
    for said, answer in zip(words, prompts["answer"], strict=True):
        expected = said[said.index(said[-1]) + 1] if kind == "induction" else said[-1]
        assert answer.strip()[1:] == expected[1:]


@pytest.mark.parametrize("name", list(heads.MODELS)[:2])
def test_models_answer_and_heads_attend_where_they_should(name: str) -> None:
    known = heads.MODELS[name]
    model = heads.make(known, seed=1)
    for kind in (kind for kind, roles in heads.ANSWERING.items() if set(roles) <= set(known.heads)):
        (batch,) = stream_texts(model, heads.prompts(kind, 1)).batches()
        with evaluating(model.model):
            logits, cache = model.model.run_with_cache(batch.tokens)
        assert torch.equal(logits[batch.read].argmax(-1), batch.targets[batch.read])
        words = model.texts(batch.tokens[0].tolist())
        places = {"previous": len(words) - 2, "induction": words.index(words[-1]) + 1,
                  "duplicate": words.index(words[-1])}
        for role in heads.ANSWERING[kind]:
            layer, head = known.heads[role]
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"][0, head, -1]
            assert pattern[places[role]] > 0.98, (name, kind, role)


def test_random_heads_are_as_they_were_drawn() -> None:
    known = heads.MODELS["12 heads"]
    one, other = heads.make(known, seed=0).model, heads.make(known, seed=1).model
    fresh = type(one)(one.config, 0)
    for layer, head in known.random:
        mine, drawn = one.layer(layer).attn, fresh.layer(layer).attn
        assert torch.equal(mine.W_Q[head], drawn.W_Q[head])
        torch.testing.assert_close(mine.W_O[head], known.quiet * drawn.W_O[head])
        assert not torch.equal(mine.W_Q[head], other.layer(layer).attn.W_Q[head])


@pytest.mark.slow
def test_the_study_finds_the_heads_and_that_answers_hang_on_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads.main(tmp_path, seeds=1, n_bootstrap=100)
    known = pd.read_csv(tmp_path / "known.csv")
    assert len(known) == 5
    assert known["score"].tolist() == pytest.approx([1] * 5, abs=heads.WITHIN)
    assert (known[["mean lost", "resample lost"]] == 1).all(axis=None)
    judged = pd.read_csv(tmp_path / "verdicts.csv")
    assert judged["known heads score 1"].all()
    assert judged["known heads cause the answer"].all()
    assert "12 heads" in capsys.readouterr().out
