"""Attribution in language models: derivatives of bridges, sums of paths, roles of layouts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from prompt_pairs import pairs_of
from small_factorial import TEMPLATES, LearntModels, factorial_prompts
from small_language_models import SmallModels
from small_text import CONFIG, small_text, text_model
from torch import Tensor
from transformer_lens.tools.analysis.attribution_patching import cache_activation_and_gradient

import latentcode as lc
from latentcode.models.patched.sites import SITES, capture, gradients, run_patched
from latentcode.models.pretrained import load_pretrained
from latentcode.probes.attribution import AttributionResult, attribute_model
from latentcode.probes.attribution.instances import Setting
from latentcode.probes.attribution.steps import known_answers, step
from latentcode.prompts.outcomes import ROLES
from latentcode.prompts.pairs import PromptCounterfactuals
from latentcode.seeds import make_generator
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs
from latentcode.tasks.text.counterfactuals import TextCounterfactuals

QUICK: dict[str, Any] = {"n_bootstrap": 100, "n_checked": 4, "n_ranked": 4}


@pytest.fixture(scope="module")
def gpt2(learnt_models: LearntModels) -> Any:
    return load_pretrained(learnt_models("gpt2"))


def generator() -> torch.Generator:
    return make_generator(0, "t")


def complete(model: Any, task: Counterfactuals, split: str, source: str, site: str) -> None:
    """Assert that estimates along the path sum to the effect of writing all of a site."""
    places = [(site, layer) for layer in range(model.cfg.n_layers)]
    known = Setting(model, task, source, places, 40).known(task.sample(split, 12, generator()))
    assert known is not None
    assert len(known) >= 4
    total = known.estimates("path", site).sum((1, 2, 3))
    edits = {place: (lambda live, x=x: x) for place, x in known.activations.items()}
    written = run_patched(model, known.pairs.bases.inputs, edits)
    moved = (step(task, known.pairs, known.own, known.theirs, written)
             - step(task, known.pairs, known.own, known.theirs, known.unpatched.logits))
    torch.testing.assert_close(total, moved, rtol=1e-2, atol=1e-3)
    assert moved.abs().min() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("site", ["code", "value"])
@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma2"])
def test_along_the_path_estimates_sum_to_the_effect(
    learnt_models: LearntModels, architecture: str, site: str
) -> None:
    model = load_pretrained(learnt_models(architecture), dtype=torch.float64)
    task = PromptCounterfactuals(model, factorial_prompts())
    complete(model, task, "ood", "operation+operands", site)
    with task.reading(model):  # the logits of the last token alone
        complete(model, task, "ood", "interchange", site)


def test_slopes_are_those_that_transformer_lens_finds(gpt2: Any) -> None:
    task = PromptCounterfactuals(gpt2, factorial_prompts())
    pairs = task.sample("ood", 3, generator())
    own, theirs = task.two_answers(pairs)
    places = [("code", 0), ("code", 1)]
    _, slopes = gradients(gpt2, pairs.bases.inputs, places, lambda logits: step(
        task, pairs, own, theirs, logits))
    names = [SITES[site].hook.format(layer) for site, layer in places]
    for i in range(3):
        def metric(logits: Tensor, i: int = i) -> Tensor:
            return step(task, pairs[i:i + 1], own[i:i + 1], theirs[i:i + 1], logits)[0]

        found = cache_activation_and_gradient(
            gpt2, pairs.bases.inputs[i:i + 1], metric, names_filter=names)
        for place, name in zip(places, names, strict=True):
            gradient = found.gradients[name]
            assert gradient is not None
            torch.testing.assert_close(slopes[place][i:i + 1], gradient)
            assert gradient.abs().max() > 1e-3


def test_effects_are_those_of_patches(gpt2: Any) -> None:
    task = PromptCounterfactuals(gpt2, factorial_prompts())
    n = task.n_pairs("ood")
    result = attribute_model(gpt2, task, n=n, n_patched=n, n_bootstrap=100, n_checked=12,
                             n_ranked=12, n_points=8)
    assert result.settings["source"] == "operation+operands"
    assert result.settings["n_known"] == result.settings["n_patched"] == n
    assert set(result.maps["query"]) == {"", *(f"token {t}" for t in range(6))}
    for site in ("code", "value"):
        r = result.correlations.query(f"site == '{site}' and among == 'all'").set_index(
            ["estimate", "measure"])["value"]
        assert r["path", "pearson"] > 0.9
        strongest = result.patches.query(f"site == '{site}'").nlargest(1, "effect").iloc[0]
        assert strongest["effect"] > 0.5
        # The same by hand.
        effects = []
        drawn = make_generator(0, "interventions ood")
        for pairs in task.batches("ood", n, 250, drawn):
            place = (site, int(strongest["layer"]))
            at = [int(strongest[role].removeprefix("token ")) for role in ("query", "key")
                  if strongest[role]]
            clean, _ = capture(gpt2, pairs.bases.inputs, ())
            _, theirs = capture(gpt2, pairs.others["operation+operands"].inputs, [place])

            def put(live: Tensor, at: list[int], x: Tensor) -> Tensor:
                live = live.clone()
                if len(at) == 2:
                    live[:, :, at[0], at[1]] = x[:, :, at[0], at[1]]
                else:
                    live[:, at[0]] = x[:, at[0]]
                return live

            patched = run_patched(gpt2, pairs.bases.inputs, {
                place: partial(put, at=at, x=theirs[place])})
            assert pairs.candidates is not None
            own, to = pairs.candidates[:, 0].long(), pairs.candidates[:, 3].long()
            rows = torch.arange(len(pairs))
            logs = [x[:, -1].double().log_softmax(-1) for x in (clean, patched)]
            before, after = (x[rows, to] - x[rows, own] for x in logs)
            effects += (after - before).tolist()
        assert len(effects) == n
        assert strongest["effect"] == pytest.approx(np.mean(effects), rel=1e-4)


def totals(result: AttributionResult, site: str, **where: str) -> float:
    """Return the sum of the mean estimates by path over places of a site."""
    rows = result.maps[result.maps["site"] == site]
    for column, value in where.items():
        rows = rows[rows[column] == value]
    assert len(rows)
    return float(rows["path"].sum())


@pytest.mark.slow
def test_roles_bring_layouts_together(learnt_models: LearntModels) -> None:
    model = load_pretrained(learnt_models("gpt2"), dtype=torch.float64)
    templates = (TEMPLATES[0], "in {1} the {0} is now")

    def attributed(*of: str, **settings: Any) -> AttributionResult:
        task = PromptCounterfactuals(model, factorial_prompts(of))
        return attribute_model(model, task, n=task.n_pairs("ood"), n_patched=40, n_points=2,
                               **QUICK, **settings)

    both = attributed(*templates, batch_size=50)
    assert both.settings["roles"] == list(ROLES)
    assert both.settings["n_known"] == 144
    first, second = (attributed(template) for template in templates)
    for site in ("code", "value"):
        apart = totals(first, site) + totals(second, site)
        assert totals(both, site) == pytest.approx(apart / 2, rel=1e-6)
    # "<s> the capital of Peru is", "<s> in Peru the capital is now"
    for layer in (0, 1):
        for role, at, there in (("key", 2, 4), ("query", 5, 6), ("first", 0, 0)):
            ones = [result.maps.query(
                f"site == 'code' and layer == {layer} and query == 'token {q}' and "
                f"key == 'token {k}'")["path"].item()
                for result, q, k in ((first, 5, at), (second, 6, there))]
            found = both.maps.query(f"site == 'code' and layer == {layer} and query == 'query' and "
                                    f"key == '{role}'")["path"].item()
            assert found == pytest.approx(sum(ones) / 2, rel=1e-6, abs=1e-12)


def test_minimal_pairs_are_attributed(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("llama"))
    rows = pairs_of(model)
    task = PromptCounterfactuals(model, pd.DataFrame(rows))
    result = attribute_model(model, task, split="prompts", n=len(rows), n_patched=len(rows),
                             n_points=2, **QUICK)
    assert (result.settings["source"], result.settings["rate"]) == ("interchange", "flip")
    assert result.settings["n_known"] == len(rows)
    # Values of both sites hang on each other: alone neither needs to bring the answer.
    assert result.maps["path_absolute"].max() > 1e-3
    assert len(result.heads.query("site == 'value'")) * 2 * 6 == len(
        result.heads.query("site == 'code'"))  # of each key: 2 groups of values, 4 heads, 6 queries
    with pytest.raises(lc.errors.UnknownNameError, match="expected one of: interchange"):
        attribute_model(model, task, "operands", split="prompts", n=8)


def test_texts_are_attributed_where_their_answer_is_known() -> None:
    class Untrained(TextCounterfactuals):
        """Pairs that count whatever a model says."""

        def right(self, pairs: MinimalPairs, logits: torch.Tensor, of: str) -> torch.Tensor:
            return torch.ones_like(pairs.counts)

    task = Untrained(small_text())
    model = text_model()
    result = attribute_model(model, task, "operands", n=300, n_points=2, **QUICK)
    assert result.settings["roles"][0] == "query"
    # In the sources other tokens follow both places: what hangs on the keys' values.
    values = result.maps.query("site == 'value'").set_index(["layer", "key"])["path_absolute"]
    assert min(values[0, "key"], values[0, "other key"]) > 0.0
    assert values[0, "earlier"] == values[0, "other earlier"] == 0.0
    pairs = task.sample("ood", 6, generator())
    logits = torch.randn(*pairs.bases.inputs.shape, CONFIG.n_vocabulary)
    assert pairs.candidates is not None
    for name, place in (("interchange", 1), ("operands", 2), ("operation+operands", 3)):
        own, theirs = known_answers(task, pairs, name, logits)
        assert torch.equal(own, pairs.candidates[:, 0])
        assert torch.equal(theirs, pairs.candidates[:, place])
