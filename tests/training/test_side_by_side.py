"""Runs trained side by side are the runs trained alone, and an error of one is told."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import latentcode as lc
from latentcode.errors import TrainingError
from latentcode.training import train_side_by_side


@pytest.mark.slow
def test_side_by_side_equals_alone_though_one_fails(tmp_path: Path) -> None:
    good = {tmp_path / kind: lc.preset("smoke", "logic", kind) for kind in ("hyla", "softmax")}
    bad = good[tmp_path / "softmax"]
    bad = replace(bad, training=replace(bad.training, learning_rate=1e30))
    with pytest.raises(TrainingError, match=r"not finite|the loss is"):
        train_side_by_side({tmp_path / "bad": bad, **good}, processes=2)
    ids = {}
    for path, config in good.items():
        run = lc.Run.open(path)
        assert run.is_complete
        alone = lc.train(config, tmp_path / "alone" / path.name, progress=False)
        assert run.metrics().equals(alone.metrics())
        ids[path] = run.id
    again = train_side_by_side(good, processes=1)  # complete runs stay as they are
    assert {path: run.id for path, run in again.items()} == ids


SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
import latentcode as lc
from latentcode.training import train_side_by_side
if __name__ == "__main__":
    config = lc.preset("smoke", "logic", "softmax")
    config = replace(config, training=replace(
        config.training, steps=100_000, checkpoint_every=100_000))
    train_side_by_side({Path(sys.argv[1]) / str(i): config for i in range(4)}, processes=1)
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Four trainings, one at a time, the first of which has begun."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path)],
                               start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        metrics = tmp_path / "0" / "metrics.jsonl"
        for _ in range(1_800):  # the kernel may have to be compiled first
            if metrics.exists() and "training_loss" in metrics.read_text():
                break
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def check_stopped(folder: Path) -> None:
    """The only checkpoints are that of the start and that of the stop, and no other run began."""
    assert [step > 0 for step in lc.Run.open(folder / "0").checkpoints()] == [False, True]
    assert not any((folder / str(i)).exists() for i in (1, 2, 3))


@pytest.mark.slow
def test_ctrl_c_stops_all_runs_and_begins_no_other(
    started: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    os.killpg(started.pid, signal.SIGINT)  # as a terminal does, to every process of the group
    started.wait(timeout=120)
    check_stopped(tmp_path)


@pytest.mark.slow
def test_a_worker_stops_with_a_checkpoint_when_its_owner_is_killed(
    started: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    worker = int((tmp_path / "0" / ".lock").read_text().split()[1])
    assert worker != started.pid
    started.kill()
    started.wait()
    for _ in range(600):
        try:
            # An orphan that nobody reaps stays in the table of processes, as a zombie.
            if Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
        except OSError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the worker goes on without its owner")
    check_stopped(tmp_path)
