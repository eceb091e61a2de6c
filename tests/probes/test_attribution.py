"""Where one code provably selects the operation, attribution finds it, and it alone.

In language models: derivatives of bridges, sums of paths, roles of layouts.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hand_built import operation_model
from prompt_pairs import pairs_of
from selector import K, Selector
from small_factorial import TEMPLATES, LearntModels, factorial_prompts
from small_language_models import SmallModels
from small_text import CONFIG, small_text, text_model
from torch import Tensor
from transformer_lens.tools.analysis.attribution_patching import cache_activation_and_gradient

import latentcode as lc
from latentcode.config import SravenConfig
from latentcode.devices import make_generator
from latentcode.errors import ProbeError
from latentcode.models.patched.sites import SITES, capture, gradients, run_patched
from latentcode.models.pretrained import load_pretrained
from latentcode.probes.attribution import (
    SHARE,
    AttributionResult,
    attribute,
    doublings,
    named,
    smallest_set,
)
from latentcode.probes.interventions.estimates import Setting, known_answers, step
from latentcode.prompts.pairs import ROLES, PromptCounterfactuals
from latentcode.tasks import make_counterfactuals, make_task
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs
from latentcode.tasks.text.counterfactuals import TextCounterfactuals

SYMBOL, ASKED, OTHER = range(3)


class ByRole(Selector):
    """The queries by what they are to the question: the one whose rule differs, the other."""

    def roles(self, pairs: MinimalPairs) -> tuple[tuple[str, ...], Tensor]:
        asked = 1 + pairs.slot[:, None]
        role = torch.full((len(pairs), 3), OTHER).scatter(1, asked, ASKED)
        role[:, 0] = SYMBOL
        return ("symbol", "asked", "other"), role


@pytest.fixture(scope="module")
def result() -> AttributionResult:
    return attribute(operation_model(), ByRole(), "interchange", split="train", n=120,
                     n_patched=60, batch_size=40, n_bootstrap=200)


def test_only_the_code_that_selects_has_attribution(result: AttributionResult) -> None:
    codes = result.maps[result.maps["site"] == "code"].set_index(["query", "key"])
    assert len(codes) == 9
    assert codes.loc[("asked", "symbol"), "gradient"] > 1.0
    assert codes.loc[("asked", "symbol"), "path"] > 1.0
    others = codes.drop(index=("asked", "symbol"))
    assert others[["gradient_absolute", "path_absolute"]].max(axis=None) < 1e-3
    # The values do not differ between an instance and its source.
    assert result.maps.query("site == 'value'")["path_absolute"].max() < 1e-3


def test_the_heads_sum_to_the_place(result: AttributionResult) -> None:
    methods = ["path", "gradient"]
    heads = result.heads.query("site == 'code'").groupby(["query", "key"])[methods].sum()
    places = result.maps.query("site == 'code'").set_index(["query", "key"])[methods]
    np.testing.assert_allclose(heads, places.loc[heads.index], atol=1e-5)
    assert len(result.heads.query("site == 'code'")) == 9 * K


def test_patches_agree_in_sign_and_rank(result: AttributionResult) -> None:
    patches = result.patches.query("site == 'code'").set_index(["query", "key"])
    found = patches.loc[("asked", "symbol")]
    assert found["chosen"] == "strongest"
    assert found["rate"] == 1.0
    assert found["low"] > 1.0
    assert patches["effect"].abs().idxmax() == patches["gradient"].idxmax() == ("asked", "symbol")
    r = result.correlations.query("site == 'code' and among == 'all' and measure == 'pearson'")
    assert (r["value"] > 0.99).all()


def test_the_small_set_is_that_code(result: AttributionResult) -> None:
    small = result.smallest.set_index("site").loc["code"]
    assert (small["size"], small["rate"], small["held_all"]) == (1.0, 1.0, 1.0)
    (chosen,) = result.chosen.itertuples()
    assert (chosen.site, chosen.layer, chosen.query, chosen.key) == ("code", 0, "asked", "symbol")
    curve = result.curve.query("site == 'code'").set_index(["order", "size"])["rate"]
    assert (curve["path"] == curve["gradient"]).all()
    assert (curve["path"] == 1.0).all()
    assert curve["random", 1] < 1.0
    assert np.isnan(result.smallest.set_index("site").loc["value", "size"])
    assert "All values bring the source's answer in 0.00, not surely more than 0.2: no set" in (
        result.caveats[1])


def test_what_few_places_or_a_wide_interval_say_is_not_shown(result: AttributionResult) -> None:
    code = result.summary().set_index("site").loc["code"]
    assert (code["small set"], code["of all"]) == (1, "100%")
    low = {"searched_low": {"code": 0.19, "value": 0.0}}
    unsure = dataclasses.replace(result, settings={**result.settings, **low})
    assert "small set" not in unsure.summary()
    assert len(unsure.caveats) == 3
    few = dataclasses.replace(result, correlations=result.correlations.assign(n_places=19))
    assert "r of path" not in few.summary()
    enough = dataclasses.replace(result, correlations=result.correlations.assign(n_places=20))
    assert "r of path" in enough.summary()


def test_where_roles_are_places_both_queries_have_their_share() -> None:
    found = attribute(operation_model(), Selector(), "interchange", split="train", n=60,
                      sites="code", n_patched=40, n_bootstrap=100)
    asked = found.maps.query("key == 'token 0'").set_index("query")["path"]
    assert (asked[["token 1", "token 2"]] > 0.5).all()
    assert found.smallest["size"].item() == 2


def test_what_cannot_be_asked() -> None:
    model = operation_model()
    with torch.no_grad():
        model.unembed.W_U.copy_(model.unembed.W_U.roll(1, 1))  # now it is always wrong
    with pytest.raises(ProbeError, match="of 20 instances of train, the model answers 0 and their "
                                         "sources rightly; expected at least four"):
        attribute(model, Selector(), "interchange", split="train", n=20)


def test_sizes_double_up_to_the_last() -> None:
    assert [doublings(last) for last in (1, 8, 9)] == [[1], [1, 2, 4, 8], [1, 2, 4, 8, 9]]


@pytest.mark.parametrize(("n_ranked", "expected"), [(8, ([3, 5], 5)), (4, None)])
def test_what_is_not_needed_is_taken_out_again(n_ranked: int, expected: object) -> None:
    def rate(places: np.ndarray) -> float:
        """Answers become the source's where places 3 and 5 are both written."""
        return float({3, 5} <= set(places.tolist()))

    found = smallest_set(rate, np.array([3, 1, 0, 2, 5, 4, 6, 7, 8])[:n_ranked], SHARE)
    assert expected == (None if found is None else (found[0].tolist(), found[1]))


def test_a_block_is_a_query_panel_and_a_cell_a_key_panel(result: AttributionResult) -> None:
    task = make_counterfactuals(make_task(SravenConfig(n_features=2)))
    roles, _ = task.roles(task.sample("train", 2, make_generator(0, "t")))
    maps = named("code", roles, range(2)).assign(path=0.0)
    here = (maps["query"] == "row3.panel2 own") & (maps["layer"] == 1)
    maps.loc[here & (maps["key"] == "row1.panel3 own"), "path"] = 5.0
    maps.loc[here & (maps["key"] == "row1.panel3 other 1"), "path"] = 2.0
    figure = dataclasses.replace(result, maps=maps, settings={
        "roles": roles, "sites": ["code"], "source": "operands"}).figure()
    # The codes from the feature that is asked about to itself, then all others; of layer 1.
    for axes, most in ((figure.axes[1], 5.0), (figure.axes[3], 2.0)):
        drawn = axes.images[0].get_array()
        assert drawn is not None
        assert drawn.shape == (9, 9)
        assert np.argwhere(drawn).tolist() == [[3 * 2 + 0, 3 * 1 + 2]]
        assert drawn.max() == most


# --- Language models ------------------------------------------------------------------------------


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
    result = attribute(gpt2, task, n=n, n_patched=n, n_bootstrap=100, n_checked=12, n_ranked=12,
                       n_points=8)
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
        return attribute(model, task, n=task.n_pairs("ood"), n_patched=40, n_points=2, **QUICK,
                         **settings)

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
    result = attribute(model, task, split="prompts", n=len(rows), n_patched=len(rows),
                       n_points=2, **QUICK)
    assert (result.settings["source"], result.settings["rate"]) == ("interchange", "flip")
    assert result.settings["n_known"] == len(rows)
    # Values of both sites hang on each other: alone neither needs to bring the answer.
    assert result.maps["path_absolute"].max() > 1e-3
    assert len(result.heads.query("site == 'value'")) * 2 * 6 == len(
        result.heads.query("site == 'code'"))  # of each key: 2 groups of values, 4 heads, 6 queries
    with pytest.raises(lc.errors.UnknownNameError, match="expected one of: interchange"):
        attribute(model, task, "operands", split="prompts", n=8)


def test_texts_are_attributed_where_their_answer_is_known() -> None:
    class Untrained(TextCounterfactuals):
        """Pairs that count whatever a model says."""

        def right(self, pairs: MinimalPairs, logits: torch.Tensor, of: str) -> torch.Tensor:
            return torch.ones_like(pairs.counts)

    task = Untrained(small_text())
    model = text_model()
    result = attribute(model, task, "operands", n=300, n_points=2, **QUICK)
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


# --- Maps of activations ----------------------------------------------------------------------


def test_effects_and_estimates_of_activations_are_those_of_plain_hooks(
    small_models: SmallModels,
) -> None:
    model = load_pretrained(small_models("llama"), dtype=torch.float64)
    frame = pd.DataFrame(pairs_of(model))
    layouts = PromptCounterfactuals(model, frame).layouts
    rows = frame[layouts == np.bincount(layouts).argmax()]
    task = PromptCounterfactuals(model, rows)
    result = attribute(model, task, split="prompts", n=len(rows), n_checked=6, n_bootstrap=100,
                       sites=("z", "mlp_out", "residual"))
    table = result.activations
    (pairs,) = task.batches("prompts", len(rows), 250, generator())
    own, theirs = (x.long() for x in task.two_answers(pairs))
    instance = torch.arange(len(pairs))

    def difference(logits: Tensor) -> Tensor:
        return (logits[instance, -1, theirs] - logits[instance, -1, own]).detach()

    before = difference(model(pairs.bases.inputs))
    _, cache = model.run_with_cache(pairs.sources.inputs)
    _, base = model.run_with_cache(pairs.bases.inputs)
    labels = result.settings["labels"]
    patched = table[table["effect"].notna()]
    assert set(patched["site"]) == {"z", "mlp_out", "residual"}
    assert set(patched["chosen"]) == {"strongest", "random"}
    for row in patched.itertuples():
        name = SITES[row.site].hook.format(row.layer)
        at = (slice(None), labels.index(row.position),
              *((int(row.head),) if row.site == "z" else ()))

        def put(live: Tensor, hook: object, x: Tensor, at: Any = at) -> Tensor:
            live = live.clone()
            live[at] = x[at]
            return live

        after = model.run_with_hooks(pairs.bases.inputs, fwd_hooks=[
            (name, partial(put, x=cache[name]))])
        assert row.effect == pytest.approx(float((difference(after) - before).mean()), abs=1e-5)
        little = model.run_with_hooks(pairs.bases.inputs, fwd_hooks=[
            (name, partial(put, x=base[name] + 1e-3 * (cache[name] - base[name])))])
        slope = float((difference(little) - before).mean()) / 1e-3
        assert row.gradient == pytest.approx(slope, rel=2e-2, abs=2e-3)
    assert patched["effect"].abs().max() > 0.01
    strongest = table[table["chosen"] == "strongest"]
    assert strongest["control"].notna().all()
    np.testing.assert_allclose(strongest["difference"], strongest["effect"] - strongest["control"],
                               atol=1e-6)
    assert list(result.summary()["site"]) == ["z", "mlp_out", "residual"]
    assert len(result.said()) == 3
    assert len(result.figure().axes) == 6  # a map and its colours of each site


def test_the_last_stream_is_all_of_the_effect_along_its_path(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("llama"), dtype=torch.float64)
    task = PromptCounterfactuals(model, pd.DataFrame(pairs_of(model)))
    places = [("residual", layer) for layer in range(model.cfg.n_layers)]
    known = Setting(model, task, "interchange", places, 60).known(
        task.sample("prompts", 6, generator()))
    assert known is not None
    # What enters the first layer, from the base's to the source's: the whole difference.
    moved = (step(task, known.pairs, known.own, known.theirs, known.answered)
             - step(task, known.pairs, known.own, known.theirs, known.unpatched.logits))
    total = known.estimates("path", "residual")[:, 0].sum((1, 2))
    torch.testing.assert_close(total, moved, rtol=1e-2, atol=1e-3)


def test_one_pair_has_a_map_without_intervals(small_models: SmallModels) -> None:
    model = load_pretrained(small_models("llama"))
    rows = pairs_of(model)[:1]
    result = attribute(model, PromptCounterfactuals(model, pd.DataFrame(rows)), split="prompts",
                       n=1, sites="z", n_checked=2, n_bootstrap=100)
    assert result.activations["gradient_low"].isna().all()
    assert result.activations["effect"].notna().sum() == 4
