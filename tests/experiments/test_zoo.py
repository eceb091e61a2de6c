"""An entry of the zoo is built from a run in one command, and is then what its card says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.config import LogicConfig
from latentcode.errors import RunError
from latentcode.experiments.zoo import informative_pairs, main, training_command
from latentcode.runs.run import folder_of
from latentcode.sweep import load_grid
from latentcode.zoo import README, Card


@pytest.fixture
def trained(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    return smoke_run("sraven", "hyla")


def test_an_entry_is_what_its_card_says(
    trained: lc.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(trained.path, name="tiny", out=tmp_path, n=200, n_codes=100)
    entry = tmp_path / "tiny"
    assert f"wrote {entry}" in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["tiny"]
    card = Card.read(folder_of(entry))
    assert (card.name, card.kind, card.headline) == ("tiny", "hyla", "accuracy")
    assert (entry / README).read_text(encoding="utf-8") == card.to_markdown()
    run = lc.load_run(entry)
    step = run.checkpoints()[-1]
    metrics = lc.evaluate(run.load_model(), lc.make_task(run.config.task), "ood", 200, seed=0)
    assert card.metrics["ood"]["loss"].mean == pytest.approx(metrics["loss"].mean, abs=1e-6)
    assert (card.training["updates"], card.training["precision"]) == (step, "float32")
    assert card.training["minutes"] < 10
    assert (card.codes.split, card.codes.n) == ("ood", 100)
    assert card.codes.pairs == informative_pairs(run.config.task)
    with pytest.raises(RunError, match="exists already"):
        main(trained.path, name="tiny", out=tmp_path)


def test_a_model_of_a_grid_names_it() -> None:
    member, config = next(iter(load_grid("sraven_known").members().items()))
    assert training_command(config, "mine") == (
        "latentcode sweep --grid sraven_known --out runs/sraven_known",
        f"runs/sraven_known/{member}")
    config = replace(config, training=replace(config.training, learning_rate=0.123))
    assert training_command(config, "mine") == (
        "latentcode train sraven --config models/zoo/mine/config.yaml --out runs/mine",
        "runs/mine")


def test_pairs_are_the_task_s() -> None:
    for task in ("sraven", "logic"):
        for setting in ("paper", "small", "smoke"):
            config = lc.preset(setting, task, "hyla").task
            offered = lc.make_task(config).pairs
            assert set(informative_pairs(config)) <= set(offered)
            assert informative_pairs(config)[0] == next(iter(offered))
    assert informative_pairs(LogicConfig(n_examples=32))[1] == "query->example.30"
