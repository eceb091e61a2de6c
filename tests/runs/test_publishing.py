"""A published run can be used like any other, and training cannot go on from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from disk import contents, flip
from small_runs import CONFIG

import latentcode as lc
from latentcode.errors import ArtifactError, RunError
from latentcode.training import make_optimizer, train_ensemble


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> lc.Run:
    return lc.train(CONFIG, tmp_path_factory.mktemp("runs") / "source", progress=False)


def test_a_published_run_is_the_run_without_the_state_of_training(
    source: lc.Run, tmp_path: Path
) -> None:
    before = contents(source.path)
    run = source.publish(tmp_path / "published")
    assert contents(source.path) == before
    assert set(contents(run.path)) == {
        "config.yaml", "provenance.json", "metrics.jsonl",
        "checkpoints/step_0000004/model.safetensors", "checkpoints/step_0000004/state.json"}
    assert (run.id, run.config, run.provenance) == (source.id, source.config, source.provenance)
    assert run.checkpoints() == [4]
    assert run.is_complete
    assert run.metrics().equals(source.metrics())
    for name, tensor in source.load_model().state_dict().items():
        assert torch.equal(run.load_model().state_dict()[name], tensor)
    np.testing.assert_array_equal(lc.extract(run, n=8).scores, lc.extract(source, n=8).scores)
    again = run.publish(tmp_path / "again")
    assert contents(again.path) == contents(run.path)


@pytest.mark.parametrize(("step", "kept"), [(2, [2]), ((4, 2), [2, 4])])
def test_steps_are_published_with_their_metrics(
    source: lc.Run, tmp_path: Path, step: int | tuple[int, ...], kept: list[int]
) -> None:
    run = source.publish(tmp_path / "published", step=step)
    assert run.checkpoints() == kept
    assert run.metrics()["step"].max() == kept[-1]
    assert run.is_complete == (kept[-1] == 4)
    for wrong, message in ((3, "no checkpoint of step 3"), ((), "step is empty")):
        with pytest.raises(RunError, match=message):
            source.publish(tmp_path / "other", step=wrong)
    assert not (tmp_path / "other").exists()


def test_training_does_not_go_on_from_it(
    source: lc.Run, tmp_path: Path, refused: Callable[..., str]
) -> None:
    run = source.publish(tmp_path / "published", step=2)
    checkpoint, model = run.load_checkpoint(), source.load_model()
    assert checkpoint.is_published
    assert not source.load_checkpoint().is_published
    with pytest.raises(ArtifactError, match=r"published without optimizer\.safetensors"):
        checkpoint.restore_optimizer(make_optimizer(model, CONFIG.training), model)
    with pytest.raises(ArtifactError, match=r"published without rng\.safetensors"):
        checkpoint.restore_generators({"dropout": torch.Generator()})
    before = contents(run.path)
    message = "was published, without the state of the optimiser"
    with pytest.raises(RunError, match=message):
        lc.train(CONFIG, run.path, resume=True, progress=False)
    with pytest.raises(RunError, match=message):
        train_ensemble({run.path: CONFIG}, progress=False)
    assert message in refused("train", "logic", "--out", run.path, "--resume")
    assert contents(run.path) == before


def test_a_damaged_model_is_not_published(source: lc.Run, tmp_path: Path) -> None:
    run = source.publish(tmp_path / "published")
    flip(run.checkpoint_path(4) / "model.safetensors")
    with pytest.raises(ArtifactError, match="was damaged or changed"):
        run.publish(tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_no_run_is_lost_by_publishing(source: lc.Run, tmp_path: Path) -> None:
    run = source.publish(tmp_path / "published", step=2)
    before = contents(run.path)
    (tmp_path / "link").symlink_to(run.path)
    for out in (run.path, tmp_path / "link"):
        with pytest.raises(RunError, match="holds the run that is published"):
            run.publish(out, overwrite=True)
    with run.writing(), pytest.raises(RunError, match="is being written by another"):
        source.publish(run.path, overwrite=True)
    (run.path / ".lock").unlink()
    assert contents(run.path) == before


def test_only_runs_are_replaced_and_only_on_request(source: lc.Run, tmp_path: Path) -> None:
    run = source.publish(tmp_path / "published", step=2)
    with pytest.raises(RunError, match="exists already"):
        source.publish(run.path)
    assert source.publish(run.path, overwrite=True).checkpoints() == [4]
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").touch()
    with pytest.raises(RunError, match="not one of ours"):
        source.publish(tmp_path / "foreign", overwrite=True)
