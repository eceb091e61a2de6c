"""Subspaces of bridges: they learn, and what follows is what the hooked model computes."""

from __future__ import annotations

import pytest
import torch
from small_factorial import TEMPLATES, LearntModels, factorial_prompts
from small_text import small_text, text_model

from latentcode.answers import CLASSES
from latentcode.models.patched.sites import capture, run_patched
from latentcode.models.pretrained import load_pretrained
from latentcode.probes.common.results import where
from latentcode.probes.das import DASResult, das_model
from latentcode.probes.das.places import logits_from
from latentcode.probes.das.search import Search
from latentcode.prompts.pairs import PromptCounterfactuals
from latentcode.tasks.text.counterfactuals import TextCounterfactuals

BOTH = "operation+operands"


def rate(result: DASResult, search: str, of: int, source: str = BOTH, rank: int = 4) -> float:
    rows = where(result.table, search=search, source=source, rank=rank, **{"class": [*CLASSES][of]})
    return float(rows["value"].iloc[0])


@pytest.mark.slow
def test_a_search_finds_what_a_random_subspace_does_not_have(learnt_models: LearntModels) -> None:
    model = load_pretrained(learnt_models("gpt2"))
    task = PromptCounterfactuals(model, factorial_prompts())
    result = das_model(
        model, task, "operation", site="residual", layer=1, searches=("trained", "untrained"),
        untrained=load_pretrained(learnt_models("gpt2"), untrained=True), n_train=144, n=144,
        steps=100, learning_rate=0.05, n_bootstrap=100)
    assert result.settings["n_known"] == 144
    assert result.settings["d"] == 32
    # All of the stream at the last token brings the whole answer of the source.
    assert rate(result, "whole", 3, rank=32) == 1.0
    assert rate(result, "whole", 1, "interchange", rank=32) == 1.0
    assert rate(result, "whole", 0, "control", rank=32) == 1.0
    # Four dimensions bring its operation, on countries that were not trained on, and it alone.
    assert rate(result, "trained", 1) > 0.5
    assert rate(result, "trained", 1) > rate(result, "random", 1) + 0.4
    assert rate(result, "trained", 0, "operands") > 0.8
    assert rate(result, "trained", 1) > rate(result, "untrained", 1) + 0.4
    losses = where(result.curves, search="trained")["loss"].to_numpy()
    assert losses[-1] < 0.8 * losses[0]
    assert set(result.table["source"]) == {BOTH, "interchange", "operands", "control", "unrelated"}


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma2"])
@pytest.mark.parametrize("place", [("residual", 1), ("code", 0), ("code", 1), ("z", 0)])
def test_what_follows_from_a_place_is_what_the_hooked_model_computes(
    learnt_models: LearntModels, architecture: str, place: tuple[str, int]
) -> None:
    model = load_pretrained(learnt_models(architecture, steps=1))
    # A query that is not the last token, where the answer is read.
    task = PromptCounterfactuals(model, factorial_prompts().assign(query=-2))
    search = Search.prepared(model, task, place, n_train=20, n=40, split="ood", known=False, seed=0)
    held = search.heldout
    rows = torch.arange(len(held)).flip(0)
    inputs = held.pairs.bases.inputs
    _, theirs = capture(model, held.pairs.batch(BOTH).inputs, [place])

    def put(live: torch.Tensor) -> torch.Tensor:
        live = live.clone()
        at = (slice(None), slice(None), 4) if place[0] == "code" else (slice(None), 4)
        live[at] = theirs[place][at]
        return live

    expected = run_patched(model, inputs, {place: put})
    with torch.no_grad():
        own, patched = (logits_from(model, place, held, rows, x[rows])
                        for x in (held.own, held.sources[BOTH]))
    torch.testing.assert_close(own, held.clean[rows])
    torch.testing.assert_close(patched, expected[rows])
    assert not torch.allclose(patched[:, 4], own[:, 4], atol=1e-3)


def test_codes_are_searched_in_few_bits_and_with_what_there_is(learnt_models: LearntModels) -> None:
    model = load_pretrained(learnt_models("gpt2"), dtype=torch.bfloat16)
    frame = factorial_prompts(TEMPLATES[:1])
    task = PromptCounterfactuals(model, frame[frame["operation"] != "river"])
    result = das_model(model, task, ("operation", "operands"), rank=2, searches=("shuffled",),
                       n_train=20, n=24, steps=3, n_bootstrap=100)
    assert set(result.table["source"]) == {BOTH, "interchange", "operands"}
    assert result.settings["d"] == 4 * 6  # heads, and keys
    sums = result.table.groupby(["objective", "search", "source"])["value"].sum()
    assert sums.to_numpy() == pytest.approx(1.0)


def test_texts_are_searched_too() -> None:
    model = text_model()
    task = TextCounterfactuals(small_text())
    search = Search.prepared(model, task, ("code", 1), n_train=20, n=30, split="ood", known=False,
                             seed=0)
    held = search.heldout
    assert torch.equal(held.token, held.pairs.bases.info["query"])
    rows = torch.arange(len(held))
    with torch.no_grad():
        own = logits_from(model, ("code", 1), held, rows, held.own)
    torch.testing.assert_close(own[rows, held.token], held.clean[rows, held.token])
    fit = search.fit("operation", 2, shuffled=False, generator=torch.Generator().manual_seed(0),
                     steps=2, batch_size=8, learning_rate=0.01)
    assert len(fit.losses) == 2
