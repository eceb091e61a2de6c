"""The study of the context: a model whose context codes carry the operation, and the criteria."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from inferred import Inferred, inferring_model
from places import ROOT

import latentcode as lc
from latentcode.answers import CLASSES
from latentcode.errors import ArtifactError, ConfigError, TooFewCountError
from latentcode.experiments.evidence.study import study
from latentcode.experiments.studies.context import inside, parts
from latentcode.experiments.studies.context.contrasts import (
    contrasts,
    criteria_of,
    described,
    enough_bases,
    key_of_patch,
    statements,
)
from latentcode.experiments.studies.context.patches import (
    CONTEXT,
    SOURCES,
    directions,
    planned,
)
from latentcode.files.storage import read_json
from latentcode.probes.interventions import Patch
from latentcode.probes.interventions.listed import layer_sets
from latentcode.probes.interventions.of_model import _check, outcomes_of_model
from latentcode.probes.interventions.patches import PATCHES
from latentcode.runs.named import load_run

N = 200
WORDS = study("context").plan.ask["patched"].settings["patches"]
BOTH = "operation+operands"


@cache
def found() -> pd.DataFrame:
    """Return the share of each class, a row per patch of the study."""
    task = Inferred()
    plan = planned(WORDS, task, "sraven", range(2))
    outcomes, counts = outcomes_of_model(
        inferring_model(), task, plan, split="train", n=N, n_reference=2_000, batch_size=N)
    assert counts["n_known"] == N
    shares = outcomes.groupby("intervention")[list(CLASSES)].mean()
    keys = [key_of_patch(patch) for patch in plan]
    named = pd.DataFrame(keys, columns=["source", "site", "scope", "layers"])
    return named.join(shares)[[patch.alpha == 1.0 for patch in plan]]


def share(name: str, source: str, scope: str, layers: tuple[int, ...], site: str = "code") -> float:
    rows = found()
    one = rows[(rows["source"] == source) & (rows["site"] == site) & (rows["scope"] == scope)
               & (rows["layers"] == layers)]
    assert len(one) == 1
    return float(one[name].iloc[0])


@pytest.mark.parametrize("layers", [(0,), (0, 1)])
def test_codes_at_the_context_carry_the_operation_and_nothing_else(layers: tuple[int, ...]) -> None:
    for source in (BOTH, "operation+operands+rest", "class_mean"):
        assert share("operation", source, "context", layers) == 1.0, source
    for source in ("operands", "operands+rest", "class_mean_base"):
        assert share("base", source, "context", layers) == 1.0, source
    for source in ("unrelated", "class_mean_third"):
        assert share("operation", source, "context", layers) == 0.0, source
    assert share("operation", "class_mean_group", "context", layers) < 0.5


def test_codes_anywhere_else_carry_nothing() -> None:
    rows = found()
    for scope in ("operands", "response", "outside context"):
        of_scope = rows[(rows["scope"] == scope) & (rows["site"] == "code")]
        assert of_scope["base"].tolist() == [1.0] * len(of_scope) != [], scope
    assert share("base", BOTH, "context", (1,)) == 1.0


def test_with_all_codes_held_an_exchanged_context_changes_nothing() -> None:
    assert share("base", "frozen", "context", (0,), "residual") == 1.0
    assert share("operation", BOTH, "context", (0,), "residual") == 1.0
    assert share("answer", BOTH, "everything", (0, 1), "code+value") == 1.0


def test_random_codes_at_the_context_change_the_answer_and_their_own_do_not() -> None:
    outcomes, _ = outcomes_of_model(inferring_model(), Inferred(), [
        Patch("identity", "context", (0, 1)), Patch("random", "context", (0,))],
        split="train", n=N, batch_size=N)
    assert outcomes.groupby("intervention")["unchanged"].mean().tolist()[0] == 1.0
    assert outcomes.groupby("intervention")["unchanged"].mean().tolist()[1] < 0.9


@pytest.mark.parametrize("name", ["sraven", "logic"])
def test_every_patch_fits_and_every_contrast_is_measured(name: str) -> None:
    config = lc.preset("smoke", name)
    task = lc.make_counterfactuals(lc.make_task(config.task))
    model = lc.HookedTransformer(config.model)
    plan = planned(WORDS, task, name, range(config.model.n_layers))
    assert len(set(plan)) == len(plan)
    for pairs in directions(task).values():
        _check(model, pairs, plan, 10, 10, 100)
    asked = contrasts([key_of_patch(patch) for patch in plan if patch.alpha == 1.0], "confirmatory")
    assert {one.statement for one in asked} == {
        statement for statement, rule in CONTEXT["statements"].items()
        if rule["patch"]["place"] in task.places}


def test_the_layers_of_the_criteria_are_patched() -> None:
    task = lc.make_counterfactuals(lc.make_task(lc.preset("small", "sraven").task))
    plan = planned(WORDS, task, "sraven", range(4))
    asked = contrasts([key_of_patch(patch) for patch in plan if patch.alpha == 1.0], "confirmatory")
    for statement, rule in CONTEXT["statements"].items():
        mine = [one for one in asked
                if one.statement == statement and one.one[3] == tuple(rule["patch"]["layers"])]
        beyond = CONTEXT["refuted_by"] if statement.startswith("codes at the context") else ()
        assert {one.against for one in mine} >= {*rule["against"], *beyond}, statement
    sets = layer_sets(("each", "upward", "above", "upper"), range(4))
    assert sets == ((0,), (1,), (2,), (3,), (0, 1), (0, 1, 2), (0, 1, 2, 3), (1, 2, 3), (2, 3))


def test_criteria_of_the_published_size_are_measured_at_their_layers() -> None:
    words = study("context_published").plan.ask["patched"].settings["patches"]
    task = lc.make_counterfactuals(lc.make_task(lc.preset("paper", "sraven").task))
    plan = planned(words, task, "sraven", range(4))
    asked = contrasts([key_of_patch(patch) for patch in plan], "published")
    stated = criteria_of("published")["statements"]
    assert set(CONTEXT["statements"]) < set(stated)
    for statement, rule in stated.items():
        mine = {one.against for one in asked if one.statement == statement
                and one.one[3] == tuple(rule["patch"]["layers"])}
        beyond = CONTEXT["refuted_by"] if statement.startswith("codes at the context") else ()
        assert mine == {*rule["against"], *beyond}, statement


def test_runs_of_the_published_size_count_by_their_own_criteria() -> None:
    folder = ROOT / "experiments/results/runs/paper_sraven"
    run = lc.load_run(folder / "seed=1,split_seed=1,kind=hyla")
    assert not described(run, "confirmatory")["counts"]
    assert described(run, "published")["counts"]
    for known, enough in ((39, False), (40, True)):
        patched = pd.DataFrame({"direction": ["to sum", "from sum"], "drawn": 400, "counted": 400,
                                "known": [known, 400]})
        assert enough_bases(patched, "published") is enough
        assert enough_bases(patched, "confirmatory")


def test_sources_of_the_criteria_are_writes() -> None:
    for rule in criteria_of("published")["statements"].values():
        for source in (rule["source"], *rule["against"]):
            assert SOURCES.get(source, source) in PATCHES
        assert rule["class"] in CLASSES


STATEMENT = "codes at the context carry the operation"


def differences(**changed: tuple[float, float]) -> pd.DataFrame:
    """Return the contrasts of three runs: `low` and `value` by run, direction and source."""
    rows = []
    for run in range(3):
        for direction in ("to sum", "from sum"):
            for against in ("operands", "unrelated", "another place", "frozen codes"):
                low, value = changed.get(f"{run} {direction} {against}", changed.get(
                    f"{direction} {against}", changed.get(against, (0.2, 0.4))))
                rows.append({
                    "role": "confirmatory", "task": "sraven", "kind": "hyla", "run": str(run),
                    "counts": True, "statement": STATEMENT, "site": "code", "scope": "context",
                    "layers": "0,1", "direction": direction, "against": against, "low": low,
                    "high": 1.0,
                    "value": value})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("changed", "verdict", "but"), [
    ({}, "met", ""),
    ({"1 to sum unrelated": (-0.1, 0.3)}, "undecided", ""),
    ({"operands": (0.01, 0.05)}, "undecided", ""),
    ({"from sum unrelated": (-0.1, 0.0)}, "refuted", ""),
    ({"from sum frozen codes": (-0.1, 0.0)}, "met", "frozen codes: refuted"),
    ({"2 to sum another place": (-0.1, 0.2)}, "met", "another place: undecided"),
])
def test_a_word_needs_both_directions_every_source_and_every_run(
    changed: dict[str, tuple[float, float]], verdict: str, but: str
) -> None:
    row = statements(differences(**changed)).iloc[0]
    assert (row["verdict"], row["but"]) == (verdict, but)
    assert row[["primary", "expected"]].all()


def test_two_runs_and_runs_that_do_not_know_their_rules_decide_nothing() -> None:
    whole = differences()
    assert statements(whole[whole["run"] != "0"])["verdict"].tolist() == ["undecided"]
    whole["counts"] = whole["run"] != "0"
    assert statements(whole)["verdict"].tolist() == ["undecided"]


def test_runs_that_chose_a_place_do_not_judge_it() -> None:
    statement = "codes of all other queries carry the operation"
    looked_at = criteria_of("published")["statements"][statement]["leave_out"][0]
    whole = differences().assign(role="published", statement=statement)
    whole = whole[whole["against"].isin(["operands", "unrelated"])]
    whole["run"] = whole["run"].replace("0", looked_at)
    assert statements(whole)[["verdict", "runs"]].values.tolist() == [["met", 2]]
    whole.loc[whole["run"] != looked_at, ["low", "high"]] = -0.2, 0.0
    assert statements(whole)["verdict"].tolist() == ["refuted"]
    alone = statements(whole[whole["run"] == looked_at])
    assert alone[["verdict", "runs"]].values.tolist() == [["undecided", 0]]


@pytest.mark.parametrize(("which", "label"), [("source_labels", "to sum"),
                                              ("base_labels", "from sum")])
def test_both_directions_are_drawn(which: str, label: str) -> None:
    task = lc.make_counterfactuals(lc.make_task(lc.preset("small", "sraven").task))
    pairs = directions(task)[label].sample("ood", 300, torch.Generator().manual_seed(0))
    counted = pairs[pairs.counts]
    assert len(counted) > 250
    here = counted.source_label if which == "source_labels" else counted.base_label
    names = np.array(lc.make_counterfactuals(task.task).constituents)
    assert set(names[here]) == {"sum"}
    there = counted.base_label if which == "source_labels" else counted.source_label
    assert len(set(names[there])) == 6


def test_what_is_looked_at_in_codes(smoke_run: Callable[[str, str], lc.Run]) -> None:
    run = smoke_run("sraven", "hyla")
    config = run.config.task
    assert isinstance(config, lc.SravenConfig)
    found = inside.codes_at(run, "ood", 12)
    model, m = run.config.model, config.n_features
    assert found["pair"].shape == (12, model.n_layers, model.n_heads)
    assert found["context"].shape == (12, model.n_layers, 6, 9 * m, model.n_heads)
    _, cache = run.load_model().run_with_cache(lc.instances(run, n=12).inputs)
    pattern = cache["blocks.1.attn.hook_pattern"].numpy()
    np.testing.assert_allclose(found["pair"][:, 1], pattern[:, :, -1, -1], atol=1e-5)
    np.testing.assert_allclose(found["context"][:, 1, 2, 4], pattern[:, :, 2 * m + m - 1, 4],
                               atol=1e-5)


def test_means_on_a_line_have_one_dimension() -> None:
    labels = np.repeat(np.arange(4), 5)
    line = labels[:, None] * np.array([[1.0, 2.0, 0.0]])
    assert inside.participation(line, labels) == pytest.approx(1.0)
    square = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], dtype=float)[labels]
    assert inside.participation(square, labels) == pytest.approx(2.0)


@pytest.mark.slow
def test_the_study_of_a_model_is_extended_by_a_group(tmp_path: Path) -> None:
    """The page itself speaks of all groups."""
    plan = study("context").plan
    patched = replace(plan.ask["patched"], settings={
        "patches": WORDS, "n": 30, "seed": 0, "batch_size": 30})
    (tmp_path / "README.md.jinja2").write_text("{{ tables.rates | length }}", encoding="utf-8")
    out, work = tmp_path / "out", tmp_path / "work"
    plan = replace(plan, out=str(out), ask={"patched": patched}, runs={
        "exploratory": ("logic-linear",), "replication": ("logic-softmax",)})
    mine = replace(study("context"), plan=plan, folder=tmp_path)
    with pytest.raises(ArtifactError, match=r"study\.json"):
        mine.run(work, only=("replication",))
    replace(mine, plan=replace(plan, runs={"exploratory": ("logic-linear",)})).run(work)
    written = {path.stem: pd.read_csv(path) for path in (out / "tables").glob("*.csv")}
    assert set(written) == {"runs", "rates", "over_runs", "contrasts", "statements"}
    rates = written["rates"]
    assert np.allclose(rates[list(CLASSES)].sum(axis=1), 1.0, atol=0.01)
    whole = rates[(rates["site"] == "code+value+residual") & (rates["scope"] == "everything")]
    assert whole["answer"].tolist() == [1.0]
    assert set(written["statements"]["verdict"]) == {"undecided"}  # one run decides nothing
    assert (out / "figures" / "exploratory_logic.png").stat().st_size > 10_000
    before = (out / "tables" / "rates.csv").read_text(encoding="utf-8")
    mine.run(work, only=("replication",))
    rates = pd.read_csv(out / "tables" / "rates.csv")
    assert rates["role"].unique().tolist() == ["exploratory", "replication"]
    assert (out / "tables" / "rates.csv").read_text(encoding="utf-8").startswith(before)
    assert [run["group"] for run in read_json(out / "study.json")["runs"]] == list(plan.runs)


@pytest.mark.parametrize("patch", ["class_mean", "class_mean_base", "class_mean_third",
                                   "class_mean_pooled", "steer"])
def test_a_mean_of_few_problems_is_an_error(patch: str) -> None:
    with pytest.raises(TooFewCountError, match=r"the mean of '\+\d' is over \d training instances; "
                       "expected at least 10, which a larger n_reference gives"):
        outcomes_of_model(inferring_model(), Inferred(), [Patch(patch, "context", (0,))],
                          split="train", n=50, n_reference=24)


def test_held_codes_and_pooled_means_have_their_sites() -> None:
    with pytest.raises(ConfigError, match="'frozen' at site 'code'; expected 'residual'"):
        outcomes_of_model(inferring_model(), Inferred(), [Patch("frozen", "context", (0,))])
    with pytest.raises(ConfigError, match="'class_mean_pooled' at site 'value'; expected 'code'"):
        outcomes_of_model(inferring_model(), Inferred(), [
            Patch("class_mean_pooled", "within context", (0,), "value")])


@pytest.mark.slow
def test_what_is_taken_apart_adds_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "N", 40)
    monkeypatch.setattr(parts, "N_FITTED", 20)
    run = load_run("sraven-hyla")
    found = parts.heads_and_keys(run, seed=1)
    sets, ranks = found["sets"], found["ranks"]
    assert np.allclose(ranks.groupby("of")["share"].sum(), 1.0)
    assert ranks.groupby("of")["name"].nunique().to_dict() == {"heads": 2 * 16, "keys": 27}
    whole = sets[sets["size"] == sets["among"]]
    carried = parts.carried(run, run, seed=1)
    itself = carried[(carried["map"] == "its own") & (carried["from"] == BOTH)]
    for direction, rate in zip(itself["direction"], itself["operation"], strict=True):
        assert rate > 0.5
        of_all = whole.loc[whole["direction"] == direction, "operation"]
        assert of_all.tolist() == pytest.approx([rate] * 2 * 3)
    # A model's own codes, mapped to themselves, are its codes.
    exact = carried[carried["map"].isin(("heads", "linear")) & (carried["from"] == BOTH)]
    assert (exact["r2"] > 0.99).all()
    assert exact.groupby("direction")["operation"].min().gt(0.5).all()


@pytest.mark.slow
def test_of_values_the_contexts_tokens_alone_are_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "N", 40)
    names = parts.heads_and_keys(load_run("sraven-softmax"))["ranks"].query("of == 'keys'")["name"]
    assert len(names) == 18
    assert all(name.startswith(("row1", "row2")) for name in names)


def test_maps_between_seeds_find_what_was_planted() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, 4, 5, generator=rng, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 2, 1])
    heads = -2.0 * x[..., order] + 1.0
    assert parts._r2(parts._by_heads(x, heads)(x), heads) == pytest.approx(1.0)
    mixed = x @ torch.randn(5, 5, generator=rng, dtype=torch.float64) + 0.5
    assert parts._r2(parts._linear(x, mixed)(x), mixed) > 0.999
    assert parts._r2(parts._by_heads(x, mixed)(x), mixed) < 0.9
    apart = torch.einsum("nqkh,qkhg->nqkg", x, torch.randn(3, 4, 5, 5, generator=rng,
                                                           dtype=torch.float64))
    assert parts._r2(parts._of_each_position(x, apart)(x), apart) > 0.999
    assert parts._r2(parts._linear(x, apart)(x), apart) < 0.5
