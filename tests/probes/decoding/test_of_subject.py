"""From a run to its decoded codes in one call."""

from __future__ import annotations

from pathlib import Path

import pytest

import latentcode as lc
from latentcode.tasks.logic.task import FuzzyLogic


def test_the_tasks_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's own, and the one that is drawn from: for two splits and two models."""
    run = lc.train(lc.preset("smoke", "logic"), tmp_path / "run", progress=False)
    made: list[lc.LogicConfig] = []
    make = FuzzyLogic.__init__

    def spy(self: FuzzyLogic, config: lc.LogicConfig) -> None:
        made.append(config)
        make(self, config)

    monkeypatch.setattr(FuzzyLogic, "__init__", spy)
    result = lc.decode(run, labels=["term_1"], n_train=200, n_heldout=200)
    assert [config.inputs for config in made] == ["uniform", "fixed_context"]
    assert set(result.table["features"]) >= {"code", "untrained"}
