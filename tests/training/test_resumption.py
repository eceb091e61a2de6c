"""Interrupted and resumed = never interrupted, bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from disk import outcome
from torch import Tensor

from latentcode.config import RunConfig
from latentcode.errors import ArtifactError, RunError
from latentcode.runs import Run
from latentcode.training import train, train_ensemble

Make = Callable[..., RunConfig]
Meddle = Callable[[int, Callable[[Tensor], Tensor]], AbstractContextManager[None]]


@pytest.fixture
def uninterrupted(tiny: Make, tmp_path: Path) -> dict[str, bytes]:
    return outcome(train(tiny(), tmp_path / "uninterrupted", progress=False).path)


def interrupt(loss: Tensor) -> Tensor:
    os.kill(os.getpid(), signal.SIGINT)
    return loss


@pytest.mark.parametrize("step", [1, 4, 5, 7, 11])
def test_resumed_equals_uninterrupted(
    tiny: Make, tmp_path: Path, meddle: Meddle,
    uninterrupted: dict[str, bytes], step: int,
) -> None:
    with meddle(step, interrupt), pytest.raises(KeyboardInterrupt):
        train(tiny(), tmp_path / "run", progress=False)
    assert Run.open(tmp_path / "run").checkpoints()[-1] == step
    run = train(tiny(), tmp_path / "run", resume=True, progress=False)
    assert outcome(run.path) == uninterrupted
    assert [note["step"] for note in run.provenance["resumed"]] == [step]


def test_what_was_logged_after_the_checkpoint_is_cut_off(
    tiny: Make, tmp_path: Path, meddle: Meddle, uninterrupted: dict[str, bytes]
) -> None:
    with meddle(7, interrupt), pytest.raises(KeyboardInterrupt):
        train(tiny(), tmp_path / "run", progress=False)
    file = tmp_path / "run" / "metrics.jsonl"
    with file.open("a") as lines:
        for step in (8, 9):
            lines.write(f'{{"step": {step}, "split": "train", "metric": "training_loss", '
                        '"mean": 0.1, "se": null, "n": 4}\n')
        lines.write('{"step": 9, "spl')
    train(tiny(), tmp_path / "run", resume=True, progress=False)
    assert file.read_bytes() == uninterrupted["metrics.jsonl"]


def test_a_run_without_any_checkpoint_starts_from_the_beginning(
    tiny: Make, tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    run = Run.create(tmp_path / "run", tiny())
    assert outcome(train(tiny(), run.path, resume=True, progress=False).path) == uninterrupted


def test_resuming_a_complete_run_changes_nothing(tiny: Make, tmp_path: Path) -> None:
    run = train(tiny(), tmp_path / "run", progress=False)
    before = outcome(run.path)
    assert outcome(train(tiny(), run.path, resume=True, progress=False).path) == before


def damage(run: Run, step: int, name: str) -> Path:
    """Cut a file of a checkpoint short and return it."""
    file = run.checkpoint_path(step) / name
    file.write_bytes(file.read_bytes()[:20])
    return file


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "rng.safetensors",
                                  "state.json"])
def test_a_damaged_checkpoint_is_set_aside_for_the_one_before_it(
    tiny: Make, tmp_path: Path, uninterrupted: dict[str, bytes],
    capsys: pytest.CaptureFixture[str], name: str,
) -> None:
    run = train(tiny(), tmp_path / "run", progress=False)
    file = damage(run, 12, name)
    aside = file.parent.with_name("damaged_step_0000012")
    capsys.readouterr()
    run = train(tiny(), run.path, resume=True)
    line, = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert all(str(told) in line for told in (file, "step 12", "step 10", aside))
    assert len((aside / name).read_bytes()) == 20
    note, = run.provenance["resumed"]
    assert note["step"] == 10
    assert str(file) in note["damaged"]["12"]
    assert run.checkpoints() == [10, 12]
    shutil.rmtree(aside)
    assert outcome(run.path) == uninterrupted


def test_a_checkpoint_that_is_damaged_again_is_kept_beside_the_first(
    tiny: Make, tmp_path: Path
) -> None:
    run = train(tiny(), tmp_path / "run", progress=False)
    for _ in range(2):
        damage(run, 12, "model.safetensors")
        train(tiny(), run.path, resume=True, progress=False)
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == [
        "damaged_step_0000012", "damaged_step_0000012_again", "step_0000010", "step_0000012"]


def test_where_every_checkpoint_is_damaged_nothing_is_touched(tiny: Make, tmp_path: Path) -> None:
    run = train(tiny(), tmp_path / "run", progress=False)
    damage(run, 10, "rng.safetensors")
    newest = damage(run, 12, "model.safetensors")
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(ArtifactError, match=rf"step 12, is damaged \({newest} .* \(10\); expected"):
        train(tiny(), run.path, resume=True, progress=False)
    shutil.rmtree(run.checkpoint_path(10))
    with pytest.raises(ArtifactError, match="none before it"):
        train(tiny(), run.path, resume=True, progress=False)
    assert {path: content for path, content in before.items() if path.exists()} == {
        path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_members_of_an_ensemble_go_on_where_all_are_whole(tiny: Make, tmp_path: Path) -> None:
    configs = {tmp_path / str(seed): tiny(seed=seed) for seed in (1, 2)}
    runs = train_ensemble(configs, progress=False)
    finished = {path: outcome(path) for path in runs}
    damage(runs[tmp_path / "2"], 12, "optimizer.safetensors")
    for path, run in train_ensemble(configs, progress=False).items():
        note, = run.provenance["resumed"]
        assert note["step"] == 10
        assert list(note.get("damaged", {})) == (["12"] if path.name == "2" else [])
        shutil.rmtree(path / "checkpoints" / "damaged_step_0000012", ignore_errors=True)
        assert outcome(path) == finished[path]


def test_resuming_with_another_configuration_names_the_fields(tiny: Make, tmp_path: Path) -> None:
    run = train(tiny(), tmp_path / "run", progress=False)
    with pytest.raises(RunError, match=r"training\.learning_rate: 0\.01 in the run, 0\.5 asked "
                       r"for; training\.seed: 0 in the run, 3 asked for"):
        train(tiny(learning_rate=0.5, seed=3), run.path, resume=True)


@pytest.mark.parametrize("steps", [8, 20])
@pytest.mark.parametrize("finished", [True, False])
def test_another_number_of_steps_would_be_another_schedule(
    tiny: Make, tmp_path: Path, steps: int, finished: bool
) -> None:
    run = train(tiny(), tmp_path / "run", progress=False, deadline=None if finished else 0.0)
    assert run.is_complete == finished
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=rf"training\.steps is {steps}, but .* created for 12"):
        train(tiny(steps=steps), run.path, resume=True, progress=False)
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_resuming_nothing_is_refused(tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        train(tiny(), tmp_path / "nothing", resume=True, progress=False)
    assert not (tmp_path / "nothing").exists()
