"""Models with known heads are what is said of them, and the study finds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from places import ROOT

from latentcode.experiments.studies.heads import asking
from latentcode.experiments.studies.heads.models import MODELS, make
from latentcode.experiments.studies.heads.words import (
    KINDS,
    N_CODES,
    PIECES,
    Words,
    codes,
    id_of,
    prompts,
    twice,
)
from latentcode.models.modes import evaluating
from latentcode.probes.common.results import where
from latentcode.probes.heads.texts import read_texts

TABLES = {path.stem: pd.read_csv(path) for path in (
    ROOT / "experiments" / "results" / "heads" / "tables").glob("*.csv")}


def code_of(word: str) -> torch.Tensor:
    return codes()[int(word[-2:])]


def test_codes_are_a_group_and_apart() -> None:
    signs = codes()
    assert (signs @ signs.T - 6 * torch.eye(N_CODES)).max() == 2
    for i in range(N_CODES):
        for j in range(N_CODES):
            assert torch.equal(signs[i] * signs[j], signs[i ^ j])
    for values in ([twice(i) for i in range(N_CODES)], [i ^ twice(i) for i in range(N_CODES)]):
        assert sorted(values) == list(range(N_CODES))


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_what_is_said_of_them(kind: str, alike: bool) -> None:
    found = prompts(kind, 1, alike=alike)
    words = [text.split() for text in found["prompt"]]
    for said, answer in zip(words, found["answer"], strict=True):
        if kind == "induction":
            assert answer.strip() == said[said.index(said[-1]) + 1]
            continue
        of = {alphabet: [word for word in said if word[0] == alphabet] for alphabet in "abcde"}
        expected = {"duplicate": lambda of=of: code_of(of["b"][-1]),
                    "redundant": lambda of=of: code_of(of["c"][0]),
                    "synergetic": lambda of=of: code_of(of["d"][0]) * code_of(of["e"][0])}
        assert torch.equal(code_of(answer), expected[kind]())
    if alike:
        for column in [*zip(*words, strict=True), found["answer"]]:
            assert len(set(column)) == N_CODES


def test_words_and_their_ids() -> None:
    assert Words().encode([" a00 e31"]) == [[id_of("a", 0), len(PIECES) - 1]]
    assert Words().locate(" b05 c07")[1] == [(0, 4), (4, 8)]
    assert Words().decode([id_of("b", 5), id_of("c", 7)]) == " b05 c07"


@pytest.mark.parametrize("name", MODELS)
def test_models_answer_and_heads_look_where_they_are_said_to(name: str) -> None:
    of = MODELS[name]
    assert of.n == int(name.split()[0])
    assert len(of.random) + len(of.heads) == of.n
    model = make(of, seed=1)
    for kind in (kind for kind in KINDS if set(asking.ROLES[kind]) <= set(of.heads)):
        (batch,) = read_texts(model, prompts(kind, 1)).batches()
        with evaluating(model.model):
            logits, cache = model.model.run_with_cache(batch.tokens)
        assert torch.equal(logits[batch.read].argmax(-1), batch.targets[batch.read])
        words = model.texts(batch.tokens[0].tolist())
        last = len(words) - 1
        for role in asking.ROLES[kind]:
            layer, head = of.heads[role]
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"][0, head, -1]
            place = {"previous": last - 1, "induction": words.index(words[-1]) + 1,
                     "duplicate": words.index(words[-1])}.get(role)
            if place is None:
                sought = {"first synergetic": " d", "second synergetic": " e"}.get(role, " c")
                place = next(i for i, word in enumerate(words) if word.startswith(sought))
            assert pattern[place] > 0.98, (name, kind, role)


def test_random_heads_are_as_they_were_drawn() -> None:
    of = MODELS["12 heads"]
    one, other = make(of, seed=0).model, make(of, seed=1).model
    fresh = type(one)(one.config, 0)
    for layer, head in of.random:
        mine, drawn = one.layer(layer).attn, fresh.layer(layer).attn
        for weight in ("W_Q", "W_K", "W_V", "rel_pos_bias"):
            assert torch.equal(getattr(mine, weight)[head], getattr(drawn, weight)[head])
        torch.testing.assert_close(mine.W_O[head], of.quiet * drawn.W_O[head])
        assert not torch.equal(mine.W_Q[head], other.layer(layer).attn.W_Q[head])


@pytest.mark.slow
def test_a_model_of_two_heads_is_told(tmp_path: Path) -> None:
    found = asking.ask("2 heads", "induction", tmp_path, seed=3, n_bootstrap=100)
    for row in found["known"]:
        assert row["score"] == pytest.approx(1.0, abs=1e-3)
        assert row["fresh_high"] < 0.5
        assert row["mean_lost"] == row["resample_lost"] == 1.0
    assert [row["called"] for row in found["pairs"]] == ["synergetic"]


def test_shares_are_of_all_heads_and_prompts() -> None:
    rows = pd.DataFrame([
        {"model": "m", "seed": 0, "prompts": kind, "measured": "loss", "n": n, "within": within,
         "above": 1, "below": 0} for kind, n, within in (("one", 10, 10), ("other", 30, 20))])
    every = where(asking.with_all(rows), prompts="all").iloc[0]
    assert (every["n"], every["share"], every["sure_share"]) == (40, 0.75, 0.05)


def test_cells_are_over_seeds() -> None:
    found = asking.over_seeds(pd.DataFrame({
        "model": ["m", "m", "n"], "seed": [0, 1, 0], "metric": [None, None, "x"],
        "value": [0.5, 0.25, np.nan], "n": [3, 3, 4]}))
    assert found.to_dict("records") == [
        {"model": "m", "metric": "", "value": "0.25 to 0.50", "n": "3"},
        {"model": "n", "metric": "x", "value": "", "n": "4"}]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS)[1:])
def test_what_the_results_say_is_found_again(name: str, tmp_path: Path) -> None:
    # Twelve heads are asked on all kinds of prompts, 144, which take ten times as long, on one.
    for kind in KINDS if name == "12 heads" else KINDS[:1]:
        found = asking.ask(name, kind, tmp_path, seed=0)
        for table, columns in (
                ("known", ["role", "score", "mean_lost", "resample_lost", "off"]),
                ("pairs", ["heads", "built", "called", "value"])):
            now = pd.DataFrame(found.get(table, []))
            before = where(TABLES[table], model=name, prompts=kind, seed=0).reset_index(drop=True)
            assert len(now) == len(before)
            for column in (column for column in columns if column in now):
                if pd.api.types.is_numeric_dtype(now[column]):
                    np.testing.assert_allclose(now[column], before[column], rtol=0.01, atol=1e-3)
                else:
                    assert now[column].tolist() == before[column].tolist()
