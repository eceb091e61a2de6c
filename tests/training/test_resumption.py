"""Interrupted and resumed = never interrupted, bit for bit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from disk import outcome
from torch import Tensor

from latentcode.config import RunConfig
from latentcode.errors import RunError
from latentcode.runs import Run
from latentcode.training import train

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


def test_interrupted_again_and_again(
    tiny: Make, tmp_path: Path, meddle: Meddle, uninterrupted: dict[str, bytes]
) -> None:
    resume = False
    for done in (3, 6, 9):
        with meddle(3, interrupt), pytest.raises(KeyboardInterrupt):
            train(tiny(), tmp_path / "run", resume=resume, progress=False)
        assert Run.open(tmp_path / "run").checkpoints()[-1] == done
        resume = True
    run = train(tiny(), tmp_path / "run", resume=True, progress=False)
    assert outcome(run.path) == uninterrupted


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


def test_resuming_with_another_configuration_names_the_fields(tiny: Make, tmp_path: Path) -> None:
    run = train(tiny(), tmp_path / "run", progress=False)
    with pytest.raises(RunError, match=r"training\.learning_rate: 0\.01 in the run, 0\.5 asked "
                       r"for; training\.seed: 0 in the run, 3 asked for"):
        train(tiny(learning_rate=0.5, seed=3), run.path, resume=True)


def test_resuming_nothing_is_refused(tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"run folder .* does not exist"):
        train(tiny(), tmp_path / "nothing", resume=True)
