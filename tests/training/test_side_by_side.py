"""Runs trained side by side are the runs trained alone, and an error of one is told."""

from dataclasses import replace
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.errors import TrainingError
from latentcode.training import train_side_by_side


@pytest.mark.slow
def test_side_by_side_equals_alone(tmp_path: Path) -> None:
    configs = {tmp_path / kind: lc.preset("smoke", "logic", kind) for kind in ("hyla", "softmax")}
    runs = train_side_by_side(configs)
    for path, config in configs.items():
        alone = lc.train(config, tmp_path / "alone" / path.name, progress=False)
        assert runs[path].metrics().equals(alone.metrics())
    again = train_side_by_side(configs)  # complete runs stay as they are
    assert [run.id for run in again.values()] == [run.id for run in runs.values()]


@pytest.mark.slow
def test_an_error_in_one_run_is_raised_after_the_others_are_done(tmp_path: Path) -> None:
    good = lc.preset("smoke", "logic", "softmax")
    bad = replace(good, training=replace(good.training, learning_rate=1e30))
    with pytest.raises(TrainingError, match=r"not finite|the loss is"):
        train_side_by_side({tmp_path / "bad": bad, tmp_path / "good": good})
    assert lc.Run.open(tmp_path / "good").is_complete
