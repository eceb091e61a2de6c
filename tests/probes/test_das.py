"""A search finds the subspace of a hand-built model that carries one thing, and no other.

The residual stream that enters layer 1 of `operands_model` holds a query's rule and the symbol in
blocks of K numbers each; the codes of `operation_model` are the rule and nothing else. In bridges
searches learn, and what follows from a place is what the hooked model computes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hand_built import FIRST, MODELS, RULE_0, RULE_1, SECOND
from selector import K, Selector
from small_factorial import TEMPLATES, LearntModels, factorial_prompts
from small_text import small_text, text_model

from latentcode.errors import LatentCodeError
from latentcode.metrics import CLASSES
from latentcode.models.patched.sites import capture, run_patched
from latentcode.models.pretrained import load_pretrained
from latentcode.probes.common.results import where
from latentcode.probes.das import DASResult, Search, das, logits_from
from latentcode.prompts.pairs import PromptCounterfactuals
from latentcode.tasks.text.counterfactuals import TextCounterfactuals

BOTH = "operation+operands"
STEPS = 60


def found(name: str, site: str, layer: int, rank: int, *objectives: str) -> DASResult:
    return das(
        MODELS[name](), Selector(), objectives, site=site, layer=layer, rank=rank,
        searches=("trained", "shuffled"), split="train", n_train=300, n=100, steps=STEPS,
        learning_rate=0.05, n_bootstrap=100)


def rate(result: DASResult, search: str, of: str, objective: str, source: str = BOTH) -> float:
    rows = where(result.table, search=search, objective=objective, source=source, **{"class": of})
    return float(rows["value"].iloc[0])


@pytest.mark.slow
def test_a_stream_that_holds_both_has_a_subspace_for_each() -> None:
    result = found("operands", "residual", 1, 2 * K, "operation", "operands")
    assert rate(result, "whole", "answer", "none") == 1.0
    for objective, without in (("operation", "operands"), ("operands", "interchange")):
        assert rate(result, "trained", objective, objective) > 0.95
        assert rate(result, "shuffled", objective, objective) < 0.5
        # A source that lacks what the subspace carries leaves the answer.
        assert rate(result, "trained", "base", objective, without) > 0.95
    last = result.curves.set_index(["objective", "search"])["loss"]
    assert (last.xs("trained", level=1) < 0.8 * last.xs("shuffled", level=1)).all()


@pytest.mark.slow
def test_codes_that_are_the_operation_have_no_subspace_of_the_operands(tmp_path: Path) -> None:
    result = found("operation", "code", 0, K, "operation", "operands")
    assert rate(result, "whole", "operation", "none") == 1.0
    assert rate(result, "trained", "operation", "operation") > 0.95
    assert rate(result, "trained", "operands", "operands") < 0.2
    assert rate(result, "random", "operation", "none") < 0.5
    again = DASResult.load(result.save(tmp_path / "result"))
    assert np.allclose(again.table["value"], result.table["value"])
    assert list(again.summary()["search"]) == 2 * ["trained", "shuffled"] + ["random", "whole"]
    assert "Without controls: untrained." in again.caveats


@pytest.mark.parametrize(("name", "place"), [
    ("operands", ("residual", 0)), ("operands", ("residual", 1)), ("operands", ("code", 1)),
    ("operands", ("z", 0)), ("operands", ("z", 1)),
    ("answer", ("code", 0)), ("operation", ("code", 0))])
def test_what_follows_from_a_place_is_what_the_hooked_model_computes(
    name: str, place: tuple[str, int]
) -> None:
    search = Search.prepared(MODELS[name](), Selector(), place, n_train=20, n=50, split="train",
                             known=True, seed=0)
    held = search.heldout
    rows = torch.arange(len(held)).flip(0)
    sources = held.pairs.batch(BOTH)
    _, theirs = capture(search.model, sources.inputs, [place])
    mask = search.task.scope("row", held.pairs)
    mask = mask[:, None] if place[0] == "code" else mask.any(2).view(
        *mask.shape[:2], *[1] * (theirs[place].ndim - 2))
    expected = run_patched(search.model, held.pairs.bases.inputs, {
        place: lambda live: torch.where(mask, theirs[place], live)})
    with torch.no_grad():
        own, patched = (logits_from(search.model, place, held, rows, x[rows])
                        for x in (held.own, held.sources[BOTH]))
    first = int(held.query.min())
    torch.testing.assert_close(own[:, first:], held.clean[rows, first:])
    torch.testing.assert_close(patched[:, first:], expected[rows, first:])
    assert not torch.allclose(patched[:, first:], own[:, first:])


def test_the_subspace_of_the_operation_lies_in_the_blocks_of_the_rules() -> None:
    search = Search.prepared(MODELS["operands"](), Selector(), ("residual", 1), n_train=300, n=20,
                             split="train", known=True, seed=0)
    basis, _ = search.fit("operation", 2 * K, shuffled=False, steps=STEPS, batch_size=64,
                          learning_rate=0.05, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(basis.T @ basis, torch.eye(2 * K), atol=1e-5, rtol=0)
    share = basis.square().sum(1)  # of each dimension of the stream that is in the subspace
    rules, symbols = (torch.cat([share[block] for block in blocks]).mean()
                      for blocks in ((RULE_0, RULE_1), (FIRST, SECOND)))
    assert rules > 0.4 > 0.1 > symbols


@pytest.mark.parametrize(("arguments", "message"), [
    ({"objective": "rule"}, "objective 'rule'"), ({"rank": 0}, "rank is 0"),
    ({"rank": 2 * 24 + 1}, "dimensions of residual"), ({"site": "value"}, "site 'value'"),
    ({"layer": 7}, "layer 7"), ({"n_bootstrap": 99}, "n_bootstrap is 99"),
    ({"searches": ("random",)}, "search 'random'")])
def test_what_cannot_be_searched(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(LatentCodeError) as error:
        das(MODELS["operands"](), Selector(), **{
            "site": "residual", "layer": 1, "searches": ["trained"], "split": "train", "n_train": 8,
            "n": 20, "n_bootstrap": 100, **arguments})
    assert message in str(error.value)


# --- Language models ------------------------------------------------------------------------------


def rate_of_rank(
    result: DASResult, search: str, of: int, source: str = BOTH, rank: int = 4
) -> float:
    rows = where(result.table, search=search, source=source, rank=rank, **{"class": [*CLASSES][of]})
    return float(rows["value"].iloc[0])


@pytest.mark.slow
def test_a_search_finds_what_a_random_subspace_does_not_have(learnt_models: LearntModels) -> None:
    model = load_pretrained(learnt_models("gpt2"))
    task = PromptCounterfactuals(model, factorial_prompts())
    result = das(
        model, task, "operation", site="residual", layer=1, searches=("trained", "untrained"),
        n_train=144, n=144, steps=100, learning_rate=0.05, n_bootstrap=100)
    assert result.settings["n_known"] == 144
    assert result.settings["d"] == 32
    # All of the stream at the last token brings the whole answer of the source.
    assert rate_of_rank(result, "whole", 3, rank=32) == 1.0
    assert rate_of_rank(result, "whole", 1, "interchange", rank=32) == 1.0
    assert rate_of_rank(result, "whole", 0, "control", rank=32) == 1.0
    # Four dimensions bring its operation, on countries that were not trained on, and it alone.
    assert rate_of_rank(result, "trained", 1) > 0.5
    assert rate_of_rank(result, "trained", 1) > rate_of_rank(result, "random", 1) + 0.4
    assert rate_of_rank(result, "trained", 0, "operands") > 0.8
    assert rate_of_rank(result, "trained", 1) > rate_of_rank(result, "untrained", 1) + 0.4
    losses = where(result.curves, search="trained")["loss"].to_numpy()
    assert losses[-1] < 0.8 * losses[0]
    assert set(result.table["source"]) == {BOTH, "interchange", "operands", "control", "unrelated"}


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma2"])
@pytest.mark.parametrize("place", [("residual", 1), ("code", 0), ("code", 1), ("z", 0)])
def test_what_follows_from_a_place_of_a_bridge_is_what_the_hooked_model_computes(
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
    result = das(model, task, ("operation", "operands"), rank=2, searches=("shuffled",),
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
    _, losses = search.fit(
        "operation", 2, shuffled=False, generator=torch.Generator().manual_seed(0), steps=2,
        batch_size=8, learning_rate=0.01)
    assert len(losses) == 2
