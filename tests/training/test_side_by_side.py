"""Runs trained side by side are the runs trained alone, and an error of one is told."""

import os
import signal
import subprocess
import sys
import time
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


STOPPED = """
import sys
from dataclasses import replace
from pathlib import Path
import latentcode as lc
from latentcode.training import train_side_by_side
if __name__ == "__main__":
    config = lc.preset("smoke", "logic", "softmax")
    config = replace(config, training=replace(config.training, steps=100_000))
    train_side_by_side({Path(sys.argv[1]) / str(i): config for i in range(4)}, processes=1)
"""


@pytest.mark.slow
def test_ctrl_c_stops_all_runs_and_begins_no_other(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(STOPPED)
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path)],
                               start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        metrics = tmp_path / "0" / "metrics.jsonl"
        for _ in range(1_800):  # the kernel may have to be compiled first
            if metrics.exists() and "training_loss" in metrics.read_text():
                break
            time.sleep(0.1)
        # A terminal sends Ctrl-C to every process of the group.
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert lc.Run.open(tmp_path / "0").checkpoints()[-1] > 0
    assert not any((tmp_path / str(i)).exists() for i in (1, 2, 3))
