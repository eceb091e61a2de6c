"""Sets of heads that act together: hand-built ones are found, and called what they are."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from known_heads import Asked, known_model, random_model, signed_texts
from small_language_models import SmallModels

from latentcode.models.pretrained import load_pretrained
from latentcode.probes.heads.ablate import Ablation, mean_z
from latentcode.probes.heads.sets import (
    ablated,
    attributed,
    find_sets,
    halves,
    named,
    ranked,
    writes,
)
from latentcode.prompts import PretrainedLanguageModel


@pytest.mark.parametrize("kind", ["redundant", "synergetic"])
def test_a_pair_that_acts_together_is_found_and_called_what_it_is(kind: str) -> None:
    asked, texts = Asked(known_model(kind)), signed_texts()
    table, settings = find_sets(asked, texts, size=2, n_paired=3, n_random=2)
    assert settings["n_texts"] == [12, 12]
    pair = table[(table["heads"] == "0.0 0.1") & (table["how"] != "random")]
    assert set(pair["how"]) == {"attributed", "pair"} | (
        {"greedy"} if kind == "redundant" else set())
    assert set(pair["acts"]) == {kind}
    assert pair["set"].nunique() == 1
    row = pair.iloc[0]
    assert row["effect"] == pytest.approx(np.log(2), abs=0.03)
    assert row["sum"] == pytest.approx(0.0 if kind == "redundant" else 2 * np.log(2), abs=0.1)
    assert row["interaction"] == pytest.approx(row["effect"] - row["sum"])
    assert (pair["difference"] > 0.1 * (kind == "redundant")).all()


def test_heads_that_only_add_up_are_called_additive() -> None:
    model = known_model("redundant")
    with torch.no_grad():  # a read-out without slope: nothing that is said changes
        model.unembed.W_U.zero_()
        model.unembed.W_U[8] = torch.tensor([1e-3, -1e-3])
    table, _ = find_sets(Asked(model), signed_texts(), size=2, n_random=2)
    assert (table["interaction"].abs() < 1e-4).all()


def test_effects_of_sets_are_those_of_heads_and_of_hooks() -> None:
    model, texts = random_model(vocabulary=2), signed_texts()
    asked = Asked(model)
    means = mean_z(asked, texts)
    sets = [((0, 1),), ((1, 2),), ((0, 1), (1, 0), (1, 2)), ((0, 0), (0, 3))]
    sums, counts = ablated(asked, texts, sets, means, n_read=None)
    mean = {heads: float(sums[heads].sum() / counts.sum()) for heads in sets}
    alone = Ablation(asked, texts, kinds=("mean",), n_read=None, control=False).run().table(100)
    loss = alone[alone["quantity"] == "loss"].set_index(["layer", "head"])["value"]
    for one in sets[:2]:
        assert mean[one] == pytest.approx(loss[one[0]], abs=1e-6)
    expected, n = 0.0, 0
    with torch.no_grad():
        for batch in texts:
            clean = model(batch.tokens)
            new = model.run_with_hooks(batch.tokens, fwd_hooks=[
                (f"blocks.{layer}.attn.hook_z", _putting(means[layer], heads))
                for layer, heads in ((0, [1]), (1, [0, 2]))])
            losses = [-x.log_softmax(-1).gather(2, batch.targets[..., None])[..., 0]
                      for x in (clean, new)]
            expected += float((losses[1] - losses[0])[batch.read].sum())
            n += int(batch.read.sum())
    assert mean[sets[2]] == pytest.approx(expected / n, abs=1e-6)


@pytest.mark.parametrize("name", ["ours", "llama", "gemma2", "neox", "lfm2"])
def test_estimates_sum_up_to_what_ablating_all_heads_does(
    name: str, small_models: SmallModels
) -> None:
    asked = Asked(random_model(vocabulary=2)) if name == "ours" else PretrainedLanguageModel(
        load_pretrained(small_models(name)))
    texts = signed_texts()
    means = mean_z(asked, texts)
    whole = tuple((layer, head) for layer in means for head in range(4))
    sums, counts = ablated(asked, texts, [whole], means, n_read=None)
    effect = float(sums[whole].sum() / counts.sum())
    estimate = attributed(asked, texts, means, steps=20, n_read=None)
    assert estimate.sum((1, 2)).mean() == pytest.approx(effect, rel=1e-3, abs=1e-4)


def test_one_step_is_the_slope_where_nothing_is_ablated() -> None:
    asked, texts = Asked(random_model(vocabulary=2, d_head_v=3).double()), signed_texts()
    means = mean_z(asked, texts)
    slope = attributed(asked, texts, means, steps=1, n_read=None)[0]
    small = 1e-4
    for layer, head in ((0, 2), (1, 1)):
        expected, n = 0.0, 0
        with torch.no_grad():
            for batch in texts:
                losses = []
                for share in (-small, small):
                    logits = asked.model.run_with_hooks(batch.tokens, fwd_hooks=[
                        (f"blocks.{layer}.attn.hook_z", _going(means[layer], head, share))])
                    losses.append(-logits.log_softmax(-1).gather(
                        2, batch.targets[..., None])[..., 0][batch.read].sum())
                expected += float(losses[1] - losses[0]) / (2 * small)
                n += int(batch.read.sum())
        assert slope[layer, head] == pytest.approx(expected / n, rel=1e-4, abs=1e-9)


def test_estimates_put_a_redundant_pair_first_where_one_step_cannot() -> None:
    asked, texts = Asked(known_model("redundant")), signed_texts()
    means = mean_z(asked, texts)
    several, one = (attributed(asked, texts, means, steps=steps) for steps in (5, 1))
    assert set(ranked(several, [0])[:2]) == {(0, 0), (0, 1)}
    assert several.mean(0)[0, :2].min() > 0.01
    assert np.abs(one[0, 0, :2]).max() < 1e-6


def test_searches_take_the_best_of_what_they_try() -> None:
    """On the texts that sets are found on, no other pair of heads loses more."""
    asked, texts = Asked(random_model(vocabulary=2)), signed_texts()
    table, _ = find_sets(asked, texts, size=2, n_candidates=8, n_paired=0, n_random=28)
    found_on, _ = halves(texts, 0)
    means = mean_z(asked, found_on)
    heads = [(layer, head) for layer in range(2) for head in range(4)]
    alone, _ = ablated(asked, found_on, [(head,) for head in heads], means)
    first = max(heads, key=lambda head: alone[head,].sum())
    pairs = [tuple(sorted(pair)) for pair in combinations(heads, 2) if first in pair]
    together, _ = ablated(asked, found_on, pairs, means)
    best = max(pairs, key=lambda pair: together[pair].sum())
    assert table[table["how"] == "greedy"]["heads"].tolist() == [named(best)]
    assert len(table[table["how"] == "random"]) == 28


def test_halves_share_no_text_and_progress_ends() -> None:
    texts = signed_texts()
    first, second = ({text for batch in half for text in batch.text.tolist()}
                     for half in halves(texts, 0))
    assert not first & second
    assert len(first | second) == 24
    told: list[tuple[int, int]] = []
    find_sets(Asked(known_model("redundant")), texts, size=2, n_random=1, n_paired=2,
              progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] == told[0][1]


def test_writes_of_a_layer_are_one() -> None:
    means = dict(enumerate(torch.arange(16.0).view(2, 4, 2)))
    first, second = writes(((0, 1), (1, 0), (1, 3)), means)
    assert (first.heads, second.heads) == ((1,), (0, 3))
    assert second.z is not None
    assert torch.equal(second.z, means[1][[0, 3]])


def _putting(mean: torch.Tensor, heads: list[int]) -> Any:
    def put(z: torch.Tensor, hook: object) -> torch.Tensor:
        z[:, :, heads] = mean[heads]
        return z
    return put


def _going(mean: torch.Tensor, head: int, share: float) -> Any:
    def go(z: torch.Tensor, hook: object) -> torch.Tensor:
        z[:, :, head] += share * (mean[head] - z[:, :, head])
        return z
    return go
