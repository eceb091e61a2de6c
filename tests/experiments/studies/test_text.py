"""What is said of language models follows from the criteria alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from small_text import document
from text_files import write_documents

import latentcode as lc
from latentcode.config.presets import follow_task
from latentcode.experiments.evidence.study import Study, study
from latentcode.experiments.paper.token_losses import CONTROL, REPEATED
from latentcode.experiments.studies.text.measuring import (
    CRITERIA,
    factorial_places,
    places,
    varying,
)
from latentcode.experiments.studies.text.verdicts import (
    PLACE_STATEMENTS,
    copying,
    kinds_apart,
    moving,
    places_said,
    statements,
    telling,
)
from latentcode.probes.common.results import where
from latentcode.tasks.text.patterns import INDUCTION, PATTERNS

SEEDS = 0, 1, 2


def test_criteria_speak_of_pairs_and_labels(tmp_path: Path) -> None:
    assert set(CRITERIA["pairs"]) <= set(PATTERNS)
    assert CRITERIA["pairs"][0] == INDUCTION
    assert set(CRITERIA["labels"]) <= {"copied", "next_class", "key_class", "query_class"}
    for n_layers in (1, 2, 6):
        assert len(set(places(n_layers))) == len(places(n_layers))


@pytest.mark.parametrize(("gains", "verdict"), [
    ((0.3, 0.2, 0.1), "yes"), ((0.3, 0.2, 0.09), "undecided"), ((0.05, 0.0, 0.09), "no"),
    ((0.3, 0.2), "undecided"), ((0.3, 0.2, float("nan")), "undecided")])
def test_copying_needs_every_seed_and_enough_of_them(
    gains: tuple[float, ...], verdict: str
) -> None:
    losses = pd.DataFrame([
        {"kind": "hyla", "seed": seed, "class": name, "loss": loss}
        for seed, gain in enumerate(gains)
        for name, loss in ((REPEATED, 2.0), (CONTROL, 2.0 + gain + 1e-9))])
    assert copying(losses)["copies"].tolist() == [verdict]


def scores(code: dict[str, float], controls: float = 0.5, half: float = 0.02,
           layer: int = 0) -> pd.DataFrame:
    """Return scores of one label: kind -> that of the code, the same in every seed."""
    return pd.DataFrame([
        {"kind": kind, "seed": seed, "layer": layer, "pair": INDUCTION, "label": "copied",
         "features": features, "metric": "accuracy", "value": value, "low": value - half,
         "high": value + half, "chance": controls}
        for kind, own in code.items() for seed in SEEDS
        for features, value in (("code", own), ("untrained", controls), ("shuffled", controls),
                              ("residual", 0.9))])


@pytest.mark.parametrize(("code", "half", "verdict"), [
    (0.60, 0.02, "yes"), (0.54, 0.02, "undecided"), (0.60, 0.11, "undecided"),
    (0.51, 0.02, "no"), (0.40, 0.02, "no")])
def test_a_code_tells_what_every_control_does_not(
    code: float, half: float, verdict: str
) -> None:
    assert telling(scores({"hyla": code}, half=half))["tells"].tolist() == [verdict]


def test_a_label_that_hardly_varies_is_undecided() -> None:
    assert telling(scores({"hyla": 0.97}, controls=0.96))["tells"].tolist() == ["undecided"]


def test_one_control_that_tells_as_much_is_enough() -> None:
    table = scores({"hyla": 0.60})
    table.loc[table["features"] == "untrained", "value"] = 0.60
    assert telling(table)["tells"].tolist() == ["no"]
    table.loc[(table["features"] == "untrained") & (table["seed"] == 2), "value"] = 0.50
    assert telling(table)["tells"].tolist() == ["undecided"]


def test_kinds_are_apart_where_no_seed_is_between() -> None:
    table = scores({"hyla": 0.7, "softmax": 0.6})
    assert kinds_apart(table)["more"].tolist() == ["hyla"]
    spoiled = table.copy()
    at = (table["kind"] == "softmax") & (table["features"] == "code") & (table["seed"] == 1)
    spoiled.loc[at, "value"] = 0.71
    assert kinds_apart(spoiled)["more"].tolist() == ["undecided"]
    assert kinds_apart(table[table["seed"] < 2])["more"].tolist() == ["undecided"]
    assert kinds_apart(scores({"hyla": 0.64, "softmax": 0.60}))["more"].tolist() == ["undecided"]


@pytest.mark.parametrize(("source", "control", "verdict"), [
    (0.5, 0.1, "yes"), (0.18, 0.1, "undecided"), (0.11, 0.1, "no"), (0.0, 0.1, "no")])
def test_writing_brings_an_answer_beyond_the_control(
    source: float, control: float, verdict: str
) -> None:
    pairs = pd.DataFrame([
        {"kind": "hyla", "seed": seed, "site": "code", "scope": "row", "layers": "1", "n": 100,
         "metric": "flip", "patch": patch, "value": value, "low": value - 0.02,
         "high": value + 0.02}
        for seed in SEEDS for patch, value in (("interchange", source), ("control", control))])
    assert moving(pairs)["brings"].tolist() == [verdict]
    few = pairs["n"].where((pairs["patch"] != "control") | (pairs["seed"] != 2), 49)
    assert moving(pairs.assign(n=few))["brings"].tolist() == ["undecided"]
    assert moving(pairs.iloc[:0]).empty


def compared(value: float) -> pd.DataFrame:
    """Return differences of the operation from two controls, the same in every seed."""
    return pd.DataFrame([
        {"task": "language", "kind": "hyla", "run": str(seed), "site": "code", "scope": "row",
         "layers": "1", "patch": "operation+operands", "class": "operation", "against": against,
         "value": value, "low": value - 0.05, "high": value + 0.05}
        for seed in SEEDS for against in ("operands", "unrelated")])


def test_words_are_asked_where_enough_instances_count() -> None:
    streams = pd.DataFrame([
        {"part": "language", "kind": "hyla", "seed": seed, "inputs": "", "layer": 1,
         "metric": "balanced_accuracy", "label": "answer", "width": 128, "features": features,
         "value": 0.3, "chance": 0.1, "n_classes": 8}
        for seed in SEEDS for features in ("residual", "untrained residual")])

    def asked(known: int, streams: pd.DataFrame = streams) -> pd.DataFrame:
        counted = pd.DataFrame([{"kind": "hyla", "known": known}] * len(SEEDS))
        return statements(compared(0.5), counted, streams)

    assert asked(CRITERIA["instances"] - 1).empty
    found = asked(CRITERIA["instances"]).set_index("statement").loc["carries the operation"]
    assert found["met"]
    assert found["met in these layers"]
    few = asked(CRITERIA["instances"], streams.assign(n_classes=2))
    assert few["met"].any()
    assert not few["met in these layers"].any()
    assert "carries the operands" not in set(few["statement"])
    reached = streams.assign(value=streams["value"].where(streams["features"] != "residual", 0.4))
    late = asked(CRITERIA["instances"], reached).set_index("statement").loc["carries the operation"]
    assert late["met"]
    assert not late["met in these layers"]


@pytest.mark.parametrize(("value", "known", "is_met"), [
    (0.5, 50, [True]), (0.09, 50, [False]), (0.5, 49, [])])
def test_a_code_says_where_to_copy_from(value: float, known: int, is_met: list[bool]) -> None:
    counted = pd.DataFrame([{"kind": "hyla", "known": 99, "known elsewhere": known}] * len(SEEDS))
    found = places_said(compared(value), counted)
    assert list(found[found["statement"] == "says where to copy from"]["met"]) == is_met
    assert not found[found["statement"] != "says where to copy from"]["met"].any()
    assert "met in these layers" not in found


def small(runs: tuple[str, ...], root: Path, n: int) -> Study:
    """Return the study of some runs below a folder, with fewer instances."""
    whole = study("text")
    fewer = {"n": n, "n_train": 200, "n_heldout": 100}
    ask = {name: replace(one, settings={key: fewer.get(key, value)
                                        for key, value in one.settings.items()})
           for name, one in whole.plan.ask.items()}
    return replace(whole, root=root, plan=replace(
        whole.plan, runs={"some": runs}, ask=ask, out=str(root / "out")))


@pytest.mark.slow
def test_a_model_that_copies_nothing_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    start = lc.preset("smoke", "language", "hyla")
    text = write_documents(tmp_path / "text", 200, document)
    task = replace(start.task, text=str(text), n_vocabulary=300)
    config = replace(start, task=task, model=replace(start.model, **follow_task(start.task, task)))
    run = lc.train(config, tmp_path / "runs" / "run", progress=False)
    assert factorial_places(run)[-1] == ("code+value", "everything", (0, 1))
    asked, work = small(("runs/run",), tmp_path, 60), tmp_path / "work"
    page = asked.run(work).read_text()
    assert "not asked: 0 instances count, 1 seed |" in page
    assert "copied" in varying(run)
    assert "| yes |" not in page
    told = pd.read_csv(tmp_path / "out" / "tables" / "telling.csv")
    assert set(told["tells"]) == {"undecided"}
    assert set(told["pair"]) == set(CRITERIA["pairs"])
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    assert asked.run(work).read_text() == page
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*")} == before


@pytest.mark.slow
def test_models_that_copy_are_asked(tmp_path: Path) -> None:
    shutil.copytree("experiments/results/runs/spans_small", tmp_path / "runs")
    page = small(("runs/seed=*,kind=softmax",), tmp_path, 150).run(tmp_path / "work").read_text()
    tables = {name: pd.read_csv(tmp_path / "out" / "tables" / f"{name}.csv")
              for name in ("runs", "statements", "places", "classes", "elsewhere_classes",
                           "copying")}
    assert len(tables["runs"]) == 3
    assert tables["runs"]["known"].between(CRITERIA["instances"], 150).all()
    assert tables["runs"]["known elsewhere"].between(CRITERIA["instances"], 150).all()
    assert list(tables["copying"]["copies"]) == ["yes"]
    assert not tables["statements"].empty
    # All codes and values of a source are the source.
    for name in ("classes", "elsewhere_classes"):
        whole = where(tables[name], site="code+value", patch="operation+operands")
        whole = whole[whole["class"] == "answer"]
        assert len(whole)
        assert (whole["rate"] > 0.9).all()
    assert set(PLACE_STATEMENTS.values()) == set(tables["places"]["statement"])
    assert "`text/spans`" in page
    assert "not asked" not in page
