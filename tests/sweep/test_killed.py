"""Killed sweeps, and a sweep with a killed Ray worker, leave what one leaves that nobody killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from disk import holder, trained
from here import Here
from places import ROOT, environment

from latentcode.cli import main
from latentcode.errors import RunError
from latentcode.files.storage import exclusive
from latentcode.runs.checkpoints import recorded_step
from latentcode.runs.run import LOCK, Run
from latentcode.sweep import executors

GRID = ("--grid", "smoke_logic", "--axis", "kind=softmax,hyla",
        "--axis", "training.learning_rate=0.003")
STEPS = {f"kind={kind},learning_rate=0.003,seed={seed}": 200
         for kind in ("softmax", "hyla") for seed in (0, 1)}
LONGEST = 1800.0
"""Seconds after which a sweep is given up."""

pytestmark = pytest.mark.slow


def start(out: Path, *flags: str) -> subprocess.Popen[bytes]:
    """Start a sweep in a process group of its own; what it prints goes to a file."""
    command = [sys.executable, "-m", "latentcode", "sweep", "--out", str(out), *GRID, *flags]
    with out.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log, cwd=ROOT,
                                env=environment(OMP_NUM_THREADS="1"))


def finish(out: Path, process: subprocess.Popen[bytes]) -> None:
    code = process.wait(LONGEST)
    assert code == 0, out.with_suffix(".log").read_text()


def done(out: Path) -> dict[str, int]:
    """Return how far the members are."""
    return {member: recorded_step(out / member) for member in STEPS}


def resumed(out: Path) -> dict[str, list[int]]:
    """Return the steps from which members went on."""
    notes = {member: Run.open(out / member).provenance["resumed"] for member in STEPS}
    return {member: [note["step"] for note in found] for member, found in notes.items() if found}


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    while not condition():
        assert process.poll() is None, "the sweep ended before it was to be killed: make it longer"
        assert time.monotonic() - began < LONGEST, "the sweep does not get on"
        time.sleep(0.02)


def await_death(out: Path) -> None:
    """Wait until no process holds a lock below a folder; a killed one may take a moment."""
    for lock in out.rglob(LOCK):
        for _ in range(500):
            try:
                with exclusive(lock):
                    break
            except RunError:
                time.sleep(0.02)
        else:
            raise AssertionError(f"{lock} is still held: a process has survived")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep that nobody killed: in this process, as what trains a member does not matter."""
    out = tmp_path_factory.mktemp("sweeps") / "undisturbed"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(executors, "Workers", Here)
        main(["sweep", "--out", str(out), *GRID])
    return out


def check_same(out: Path, undisturbed: Path) -> None:
    """The tables and the files of every run are the same, byte for byte."""
    for table in ("table.parquet", "table.csv", "summary.csv"):
        assert (out / table).read_bytes() == (undisturbed / table).read_bytes(), table
    for member in STEPS:
        assert trained(out / member) == trained(undisturbed / member), member
    assert list(out.rglob(".tmp-*")) == []
    # The kill struck members in the middle: they went on from a checkpoint.
    assert any(step > 0 for steps in resumed(out).values() for step in steps)


def test_all_processes_are_killed(undisturbed: Path, tmp_path: Path) -> None:
    out, published = tmp_path / "interrupted", tmp_path / "published"
    process = start(out, "--processes", "2", "--publish", str(published))
    wait_until(lambda: sum(done(out).values()) >= 0.4 * sum(STEPS.values()), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    await_death(out)
    assert any(0 < step < STEPS[member] for member, step in done(out).items())
    finish(out, start(out, "--processes", "1", "--publish", str(published)))
    check_same(out, undisturbed)
    assert {path.name for path in published.iterdir()} == set(STEPS)
    for member in STEPS:
        copy, run = Run.open(published / member), Run.open(out / member)
        assert (copy.id, copy.checkpoints()) == (run.id, [200])
        assert copy.newest_metrics().equals(run.newest_metrics())


def test_a_ray_worker_is_killed_in_the_middle_of_a_member(
    undisturbed: Path, tmp_path: Path
) -> None:
    out, victim = tmp_path / "ray", random.Random(0).choice(list(STEPS))
    process = start(out, "--executor", "ray", "--processes", "2")
    wait_until(lambda: done(out)[victim] >= STEPS[victim] // 2, process)
    owner = holder(out / victim / LOCK)
    assert owner is not None
    assert b"ray" in Path(f"/proc/{owner}/cmdline").read_bytes()
    os.kill(owner, signal.SIGKILL)
    finish(out, process)  # nothing is started again by hand
    assert victim in resumed(out)
    check_same(out, undisturbed)
