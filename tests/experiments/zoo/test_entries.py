"""An entry of the zoo is built from a run in one command, and is then what its card says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from small_zoo import sign, tiny_zoo

import latentcode as lc
from latentcode import zoo
from latentcode.config import LogicConfig
from latentcode.errors import ArtifactError, ConfigError, RunError
from latentcode.experiments.zoo.cards import renew
from latentcode.experiments.zoo.describe import (
    describe_training,
    notes,
    setting_of,
    training_command,
)
from latentcode.experiments.zoo.entries import Build, informative_pairs, interventions, main
from latentcode.files.migrations import CURRENT
from latentcode.metrics import is_by_constituent
from latentcode.probes.interventions.standard import SOURCES
from latentcode.probes.saved import load_result
from latentcode.sweep import load_grid
from latentcode.zoo.card import README

TINY = ("--n", "200", "--n-codes", "100", "--n-probe", "250", "--n-interventions", "200")
MODELS = {"sraven": "sraven-hyla", "logic": "logic-softmax", "language": "text-linear"}
"""Models of the zoo, from which entries are made again: sources need models that know answers."""


@pytest.fixture
def trained(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    return smoke_run("sraven", "hyla")


@pytest.mark.slow
@pytest.mark.parametrize("task", MODELS)
def test_an_entry_is_what_its_card_says(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, name = lc.load_run(MODELS[task]), f"{task}-tiny"
    arguments = [str(run.path), "--name", name, "--out", str(tmp_path), *TINY,
                 "--methods", "pca", "tsne"]
    main(arguments)
    entry = tmp_path / name
    assert f"wrote {entry}" in capsys.readouterr().out
    assert os.listdir(tmp_path) == [name]
    found = zoo.verify(entry)
    assert found.problems == []
    assert found.metrics["difference"].abs().max() < 1e-6
    assert set(found.metrics["split"]) == set(lc.make_task(run.config.task).splits)
    card = zoo.load_card(entry)
    assert (card.name, card.kind) == (name, MODELS[task].split("-")[1])
    assert set(card.results) == {path.name for path in (entry / "results").iterdir()}
    assert card.training["minutes"] == "not known"
    assert card.commands["build"].endswith(
        f" --name {name} --n 200 --n-codes 100 --n-probe 250 --n-interventions 200 "
        "--methods pca tsne")
    assert not list(entry.rglob("*.png"))
    codes = lc.load_codes(entry)
    assert len(codes) == 100
    assert codes.meta["run"] == name
    assert [p.name for p in codes.pairs] == list(informative_pairs(run.config.task))
    for result in card.results:
        if result.startswith("codes-"):
            continue
        loaded = load_result(entry / "results" / result)
        assert loaded is not None
        assert loaded.FORMAT in CURRENT
    planes = load_result(entry / "results" / "projection-tsne")
    assert planes is not None
    points = vars(planes)["coordinates"]
    assert {"sraven": {"target", "accuracy"}, "logic": {"target", "r2"},
            "language": {"copied", "query_accuracy"}}[task] <= set(points)
    assert points["projection_x"].dtype == "float32"
    with pytest.raises(RunError, match="exists already"):
        main(arguments)


@pytest.mark.slow
def test_the_controls_are_there(tmp_path: Path) -> None:
    entry = Build(lc.load_run("sraven-hyla").path, "tiny", tmp_path, n=50, n_codes=40, n_probe=250,
                  n_interventions=100, methods=()).build()
    caused = lc.InterventionResult.load(entry / "results/interventions").table
    assert {*SOURCES, "random", "identity"} == set(caused["patch"])
    assert {"pair", "row", "everything"} == set(caused["scope"])
    identity = caused[(caused["patch"] == "identity") & (caused["metric"] == "unchanged")]
    assert len(identity) == 2
    assert (identity["value"] == 1.0).all()
    decoded = lc.DecodingResult.load(entry / "results/decoding").table
    assert {"code", "residual", "untrained", "shuffled"} == set(decoded["features"])
    cosines = pd.read_csv(entry / "results/similarity/cosines.csv")
    assert cosines["value"].abs().max() == 1.0
    assert {"code", "untrained"} <= set(cosines["features"])


def test_a_training_is_described(trained: lc.Run) -> None:
    told = describe_training(trained, 30)
    assert (told["updates"], told["precision"]) == (30, "float32")
    assert told["minutes"] < 10
    unknown = replace(trained, provenance={**trained.provenance, "git_commit": None})
    assert describe_training(unknown, 30)["commit"] == "not known"


def test_an_older_card_is_renewed(trained: lc.Run, tmp_path: Path) -> None:
    entry = tiny_zoo(trained, tmp_path)
    card = zoo.load_card(entry)
    assert any(map(is_by_constituent, card.metrics["ood"]))
    older = replace(card, metrics={
        split: {name: m for name, m in found.items() if not is_by_constituent(name)}
        for split, found in card.metrics.items()})
    (entry / README).write_text(older.to_markdown(), encoding="utf-8")
    sign(entry, older)
    renew(entry)
    assert zoo.load_card(entry) == card
    assert zoo.verify(entry).problems == []
    # What was changed by somebody else is not vouched for.
    (entry / "config.yaml").write_text((entry / "config.yaml").read_text() + "\n")
    with pytest.raises(ArtifactError, match=r"config\.yaml was damaged or changed"):
        renew(entry)


@pytest.mark.slow
def test_models_of_a_grid_of_the_library_name_it() -> None:
    for name in ("paper_logic", "sraven_known", "spans_small"):
        for member, config in load_grid(name).members().items():
            if config.task.name == "language":
                config = replace(config, task=replace(config.task, revision="a-state"))
            assert training_command(config, member) == (
                f"latentcode sweep --grid {name} --out runs/{name}", f"runs/{name}/{member}")
            assert setting_of(config) == ("paper" if name == "paper_logic" else None)


def test_other_models_are_trained_again_from_their_configuration() -> None:
    config = lc.preset("small", "sraven", "hyla")
    config = replace(config, training=replace(config.training, steps=7_000))
    assert training_command(config, "mine") == (
        "latentcode train sraven --config models/zoo/mine/config.yaml --out runs/mine",
        "runs/mine")
    assert setting_of(config) is None
    assert ("setting of its own (`config.yaml`), 7,000 updates of 128 instances on a GPU; the "
            "paper's takes 156,250 of 128. It draws no verdict") in notes(config, 7_000, "a GPU")[0]
    assert any("did not finish" in note for note in notes(config, 6_000, "a GPU"))


def test_limits_are_said() -> None:
    small, paper, smoke = (lc.preset(name, "sraven", "hyla") for name in
                           ("small", "paper", "smoke"))
    said = " ".join(notes(small, 3_000, "a CPU"))
    for words in ("`small`, 3,000 updates of 128 instances on a CPU", "no verdict",
                  "not permuted", "the paper permutes 4", "one seed"):
        assert words in said
    assert "paper's setting" in notes(paper, 156_250, "a GPU")[0]
    assert not any("permuted" in note for note in notes(paper, 156_250, "a GPU"))
    assert "learnt nothing" in notes(smoke, 30, "a CPU")[0]
    text = next(iter(load_grid("spans_small").members().values()))
    assert any("the 360 tokens of `text/spans`" in note for note in notes(text, 6_000, "a CPU"))


def test_pairs_are_the_task_s() -> None:
    for task in ("sraven", "logic"):
        for setting in ("paper", "small", "smoke"):
            config = lc.preset(setting, task, "hyla").task
            offered = lc.make_task(config).pairs
            assert set(informative_pairs(config)) <= set(offered)
            assert informative_pairs(config)[0] == next(iter(offered))
    assert informative_pairs(LogicConfig(n_examples=32))[1] == "query->example.30"


@pytest.mark.parametrize("n_layers", [1, 2, 4])
def test_every_write_has_its_control_at_the_same_place(n_layers: int) -> None:
    chosen = interventions(n_layers)
    assert len(chosen) == len(set(chosen))
    for one in chosen:
        if one.value in SOURCES:
            assert {replace(one, value=other) for other in SOURCES} <= set(chosen)


def test_a_name_is_a_word(tmp_path: Path) -> None:
    for name in ("a/b", "", ".", ".."):
        with pytest.raises(ConfigError, match="expected a word"):
            Build(tmp_path / "no run", name, tmp_path).build()
    assert not list(tmp_path.iterdir())
