"""Where criteria are met follows from the tables alone, and the page shows what the tables hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

import latentcode as lc
from latentcode.answers import CLASSES
from latentcode.experiments.evidence.criteria import FOLDER, criteria
from latentcode.experiments.evidence.study import study
from latentcode.experiments.studies.operation.criteria import CRITERIA, met
from latentcode.experiments.studies.operation.places import (
    all_places,
    interventions,
    main_places,
    sanity,
)
from latentcode.files.migrations import FORMER_CLASSES
from latentcode.probes.interventions.of_model import _check
from latentcode.tasks.logic.counterfactuals import WINDOWS


def comparisons(differences: dict[tuple[str, str, str], tuple[float, float]]) -> pd.DataFrame:
    """Return rows of one place: (run, class, against) -> mean and low end."""
    return pd.DataFrame([
        {"task": "sraven", "kind": "hyla", "run": run, "site": "code", "scope": "row",
         "layers": "2,3", "patch": "operation+operands", "class": name, "against": against,
         "value": value, "low": low,
         "high": 2 * value - low}
        for (run, name, against), (value, low) in differences.items()])


def said(differences: dict[tuple[str, str, str], tuple[float, float]]) -> dict[str, bool]:
    return met(comparisons(differences)).set_index("statement")["met"].to_dict()


def test_a_word_needs_every_run_and_every_comparison() -> None:
    good = {(run, "operation", against): (0.3, 0.2) for run in "ab"
            for against in ("operands", "unrelated")}
    assert said(good) == {"carries the operation": True, "carries the operands": False,
                           "carries the answer": False}
    for spoiled in ({("b", "operation", "unrelated"): (0.3, -0.01)},
                    {("b", "operation", "operands"): (0.3, float("nan"))},
                    {(run, "operation", "operands"): (0.09, 0.05) for run in "ab"}):
        assert not said({**good, **spoiled})["carries the operation"]
    assert not said({key: value for key, value in good.items() if key[2] != "unrelated"})[
        "carries the operation"]


def test_the_answer_is_compared_with_the_minimal_pair_too() -> None:
    found = {("a", "answer", against): (0.5, 0.4)
             for against in ("interchange", "operands", "unrelated")}
    assert said(found)["carries the answer"]
    assert not said({**found, ("a", "answer", "interchange"): (0.5, -0.1)})["carries the answer"]
    assert not said({**found, ("a", "answer", "interchange"): (0.01, 0.001)})["carries the answer"]


def test_criteria_speak_of_classes_and_sources() -> None:
    for rule in CRITERIA["statements"].values():
        assert rule["class"] in CLASSES
        assert rule["source"] == "operation+operands"
    assert CRITERIA["window"] == WINDOWS[0]
    assert CRITERIA["windows"] == sorted(WINDOWS)


@pytest.mark.parametrize("name", ["sraven", "logic"])
def test_every_place_can_be_written(name: str) -> None:
    config = lc.preset("smoke", name)
    task = lc.make_counterfactuals(lc.make_task(config.task))
    model = lc.HookedTransformer(config.model)
    n_layers = config.model.n_layers
    places = all_places(task, n_layers)
    assert len(set(places)) == len(places)
    assert set(main_places(task, n_layers)) <= set(places)
    assert places[-1] == sanity(task, n_layers)
    chosen = interventions(task, n_layers, places)
    _check(model, task, chosen, 10, 10, 0)
    assert {"permuted" in i.value for i in chosen} == ({True, False} if name == "logic"
                                                     else {False})


@pytest.mark.slow
def test_the_study_of_a_model(tmp_path: Path) -> None:
    plan = study("operation").plan
    ask = {name: replace(asked, of=("logic",), settings={**asked.settings, "n": 40},
                         steps=asked.steps and (50_000,)) for name, asked in plan.ask.items()}
    out = replace(study("operation"), plan=replace(
        plan, runs={"logic": ("logic-linear",)}, ask=ask, out=str(tmp_path / "out"))).run(
            tmp_path / "work").parent
    rates = pd.read_csv(out / "tables" / "rates.csv", dtype={"layers": str})
    whole = rates[(rates["site"] == "code+value+residual") & (rates["class"] == "answer")
                  & (rates["patch"] == "operation+operands")]
    assert whole["value"].tolist() == [1.0]
    place = "| linear | code+value+residual, everything, layers 0,1 | 0.00 ("
    assert place in (out / "README.md").read_text(encoding="utf-8")
    assert pd.read_csv(out / "tables" / "along.csv")["step"].unique().tolist() == [50_000]
    assert {path.name for path in (out / "figures").iterdir()} == {"logic.png", "along.png"}


@pytest.mark.parametrize(("name", "part"), [
    ("operation", None), ("context", None), ("context", "published")])
def test_committed_criteria_are_read_under_the_names_of_today(name: str, part: str | None) -> None:
    """The files stay as they were committed; statements are their words, classes renamed."""
    written = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    found = dict(criteria(name))
    if part is None:
        for whole in (written, found):
            whole.pop("published", None)
    else:
        written, found = written[part], dict(found[part])
    statements, words = found.pop("statements"), written.pop("words")
    assert found == written
    assert list(statements) == list(words)
    for statement, rule in statements.items():
        assert rule["class"] in CLASSES
        assert rule == {**words[statement], "class": FORMER_CLASSES.get(
            words[statement]["class"], words[statement]["class"])}
    assert {rule["class"] for rule in statements.values()} >= {"operation", "answer"}
