"""An entry of the zoo is built from a run in one command, and is then what its card says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import latentcode as lc
from latentcode import zoo
from latentcode.config import LogicConfig
from latentcode.errors import ConfigError, RunError
from latentcode.experiments.zoo.describe import (
    describe_training,
    notes,
    setting_of,
    training_command,
)
from latentcode.experiments.zoo.entries import Build, informative_pairs, main
from latentcode.sweep import load_grid

MODELS = {"sraven": "sraven-hyla", "logic": "logic-softmax", "language": "text-linear"}
"""Models of the zoo, from which entries are made again."""


@pytest.fixture
def trained(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    return smoke_run("sraven", "hyla")


@pytest.mark.slow
@pytest.mark.parametrize("task", MODELS)
def test_an_entry_is_what_its_card_says(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    run, name = lc.load_run(MODELS[task]), f"{task}-tiny"
    arguments = [str(run.path), "--name", name, "--out", str(tmp_path / "zoo"), "--n", "200",
                 "--n-codes", "100"]
    main(arguments)
    entry = tmp_path / "zoo" / name
    assert f"wrote {entry}" in capsys.readouterr().out
    assert os.listdir(tmp_path / "zoo") == [name]
    found = zoo.verify(entry)
    assert found.problems == []
    assert found.metrics["difference"].abs().max() < 1e-6
    assert set(found.metrics["split"]) == set(lc.make_task(run.config.task).splits)
    card = zoo.load_card(entry)
    assert (card.name, card.kind) == (name, MODELS[task].split("-")[1])
    assert card.training["minutes"] == "not known"
    assert card.commands["build"].endswith(f" --name {name} --n 200 --n-codes 100")
    codes = lc.load_codes(entry)
    assert len(codes) == 100
    assert codes.meta["run"] == name
    assert [p.name for p in codes.pairs] == list(informative_pairs(run.config.task))
    with pytest.raises(RunError, match="exists already"):
        main(arguments)


def test_a_training_is_described(trained: lc.Run) -> None:
    told = describe_training(trained, 30)
    assert (told["updates"], told["precision"]) == (30, "float32")
    assert told["minutes"] < 10
    unknown = replace(trained, provenance={**trained.provenance, "git_commit": None})
    assert describe_training(unknown, 30)["commit"] == "not known"


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


def test_a_name_is_a_word(tmp_path: Path) -> None:
    for name in ("a/b", "", ".", ".."):
        with pytest.raises(ConfigError, match="expected a word"):
            Build(tmp_path / "no run", name, tmp_path).build()
    assert not list(tmp_path.iterdir())
