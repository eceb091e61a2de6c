"""Whole sweeps: out of time, stopped, with a member that breaks, on Ray."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from disk import contents, holder
from here import Here
from places import ROOT, environment

import latentcode as lc
from latentcode.cli import main
from latentcode.errors import ConfigError, RunError
from latentcode.metrics import is_by_constituent
from latentcode.sweep import Grid, executors, parse_budget, sweep
from latentcode.sweep.executors import Job
from latentcode.training.state import TrainingState

BASE = replace(SMOKE := lc.preset("smoke", "logic", "softmax"), training=replace(
    SMOKE.training, steps=12, eval_every=12, eval_instances=32, log_every=4, checkpoint_every=6))
SEEDS = Grid(BASE, {"training.seed": (0, 1, 2, 3)})


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    executor = Here(print)

    def make(work: Callable[[Job], None], environments: Sequence[object]) -> Here:
        executor.work, executor.at_once = work, len(environments)
        return executor

    monkeypatch.setattr(executors, "Workers", make)
    return executor


def start(out: Path, *flags: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "latentcode", "sweep", "--out", str(out), *flags],
        start_new_session=True, cwd=ROOT, env=environment(),
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)


def test_a_sweep_trains_its_members_and_goes_on_where_it_was(here: Here, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    result = sweep(SEEDS, out)
    assert result.missing == ()
    assert len(here.seen) == 4
    for name, config in SEEDS.members().items():
        assert lc.Run.open(out / name).config == config
        assert lc.Run.open(out / name).is_complete
    test = result.summary.query("split == 'test' and metric == 'r2'").iloc[0]
    values = [lc.Run.open(out / name).latest().loc["r2", "test"] for name in SEEDS.members()]
    assert test["mean"] == pytest.approx(pd.Series(values).mean(), abs=1e-12)
    assert test["n"] == 4
    for table in (result.table, result.summary):
        assert table["metric"].map(is_by_constituent).any()
    assert not re.search(r"[\[\]]", str(result))  # the text is about the headline alone
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    again = sweep(SEEDS, out)
    assert len(here.seen) == 4  # nothing is left to be trained
    assert again.table.equals(result.table)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_group_that_fails_is_halved_until_it_works(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = executors.train_ensemble

    def small_device(job: Job, **settings: object) -> object:
        if len(job) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return train(job, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(executors, "train_ensemble", small_device)
    result = sweep(Grid(BASE, {"training.seed": (0, 1, 2, 3, 4)}), tmp_path / "sweep",
                   members_at_once=10)
    assert [len(job) for job in here.seen] == [5, 2, 3, 1, 2]
    assert (result.missing, result.failed) == ((), {})
    said = " ".join(capsys.readouterr().err.split())
    assert ("5 members of a group of 5 failed, now in two halves: 5 member(s) at once: CUDA out "
            "of memory") in said


@pytest.mark.parametrize("members_at_once", [None, 2])
def test_a_member_that_breaks_stops_no_other_and_is_told(
    here: Here, tmp_path: Path, members_at_once: int | None
) -> None:
    rates = Grid(BASE, {"training.learning_rate": (0.001, 1e30)})
    result = sweep(rates, tmp_path / "sweep", members_at_once=members_at_once)
    good, bad = rates.members()
    assert lc.Run.open(tmp_path / "sweep" / good).is_complete
    assert result.missing == (bad,)
    assert set(result.failed) == {bad}
    assert "not finite" in result.failed[bad] or "the loss is" in result.failed[bad]
    assert str(tmp_path) not in result.failed[bad]  # the table is the same wherever it is
    rows = result.table[result.table["member"] == bad]
    assert rows["error"].tolist() == [result.failed[bad]] * len(rows)
    assert not rows["complete"].any()
    assert result.table[result.table["member"] == good]["error"].isna().all()
    assert result.summary["settings_complete"].tolist() == [1] * len(result.summary)
    assert sweep(rates, tmp_path / "sweep", members_at_once=members_at_once).failed == result.failed


def test_a_damaged_run_is_an_error_of_its_member_alone(here: Here, tmp_path: Path) -> None:
    out, first = tmp_path / "sweep", next(iter(SEEDS.members()))
    lc.Run.create(out / first, SEEDS.members()[first])
    (out / first / "config.yaml").write_text("task: {}")
    (out / "sweep.yaml").write_text(SEEDS.to_yaml())
    result = sweep(SEEDS, out)
    assert set(result.failed) == {first}
    assert len(here.seen) == 3


def test_what_cannot_be_swept_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    for grid, settings, message in (
        (SEEDS, {"members_at_once": 0}, "members_at_once is 0"),
        (SEEDS, {"processes": 0}, "processes is 0"),
        (SEEDS, {"ray_address": "auto"}, "but the executor is local"),
        (Grid(BASE, {"task.ood_fraction": (0.5, 0.999)}), {}, "fraction"),
        (Grid(BASE, {"task.ood_fraction": (0.0, 0.5)}), {"select_on": "ood"}, "ood"),
        (Grid(replace(BASE, training=replace(BASE.training, device="cuda:99")),
              {"training.seed": (0,)}), {}, "device is 'cuda:99'"),
    ):
        with pytest.raises(lc.LatentCodeError, match=message):
            sweep(grid, out, **settings)  # type: ignore[arg-type]
    assert not out.exists()


def test_a_folder_holds_one_grid(here: Here, tmp_path: Path) -> None:
    sweep(Grid(BASE, {"training.seed": (0,)}), tmp_path / "sweep")
    with pytest.raises(RunError, match=r"axis training\.seed: \[0\] in the sweep, \[1\] asked"):
        sweep(Grid(BASE, {"training.seed": (1,)}), tmp_path / "sweep")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    with pytest.raises(RunError, match=r"is not one of ours \(no sweep\.yaml\)"):
        sweep(SEEDS, tmp_path / "other")


def test_finished_members_are_published_and_stay_as_they_are(here: Here, tmp_path: Path) -> None:
    rates = Grid(BASE, {"training.learning_rate": (0.001, 1e30)})  # the second one breaks
    out, published = tmp_path / "sweep", tmp_path / "published"
    good, bad = rates.members()
    (published / f".tmp-0123-{good}").mkdir(parents=True)  # of a sweep that was killed meanwhile
    result = sweep(rates, out, publish=published)
    assert [path.name for path in published.iterdir()] == [good]
    copy, run = lc.Run.open(published / good), lc.Run.open(out / good)
    assert (copy.id, copy.config, copy.is_complete) == (run.id, run.config, True)
    assert copy.newest_metrics().equals(run.newest_metrics())
    assert all(torch.equal(a, b) for a, b in zip(
        copy.load_model().parameters(), run.load_model().parameters(), strict=True))
    before = contents(published)
    assert sweep(rates, out, publish=published).failed == result.failed
    assert contents(published) == before
    shutil.rmtree(out / good)
    again = sweep(rates, out, publish=published)  # trained anew, it is another run
    assert "it is finished and not published" in again.failed[good]
    assert again.missing == (bad,)
    assert contents(published) == before
    with pytest.raises(RunError, match="the folder of the sweep; expected another"):
        sweep(rates, out, publish=out)
    with pytest.raises(RunError, match=r"config\.yaml is a file"):
        sweep(rates, out, publish=out / good / "config.yaml")


@pytest.mark.parametrize(("n_gpus", "processes", "sizes"), [
    (1, None, [4]), (1, 2, [2, 2]), (1, 3, [1, 1, 1, 1]), (2, None, [2, 2])])
def test_processes_share_gpus(
    n_gpus: int, processes: int | None, sizes: list[int], here: Here, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_gpu = replace(SEEDS, base=replace(BASE, training=replace(BASE.training, device="cuda")))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    begun: list[int] = []
    monkeypatch.setattr(executors, "train_job", lambda job, deadline: begun.append(len(job)))
    sweep(on_gpu, tmp_path / "sweep", processes=processes)
    assert begun == sizes


def test_a_deadline_that_has_passed_trains_nothing(here: Here, tmp_path: Path) -> None:
    result = sweep(SEEDS, tmp_path / "sweep", deadline=time.time() - 1)
    assert len(result.missing) == 4
    assert result.failed == {}
    assert result.table["complete"].tolist() == [False] * 4
    assert (tmp_path / "sweep" / "table.csv").exists()
    assert not list((tmp_path / "sweep").glob("*/config.yaml"))


@pytest.mark.parametrize(("text", "seconds"), [
    ("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("0.5h", 1800), ("1m1.5s", 61.5)])
def test_budgets(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "0s", "-3m", "m", "two hours"])
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a time such as 90s"):
        parse_budget(text)


@pytest.mark.parametrize(("flags", "message"), [
    ([], "holds no sweep to continue"),
    (["--preset", "smoke"], "a grid has no axes"),
    (["--grid", "smoke_logic", "--kind", "hyla"], "is given together with --kind"),
    (["--grid", "smoke_logic", "--config", "x.yaml"], "is given together with --config"),
    (["--grid", "smoke_logic", "--fix", "kind=hyla"], "--fix kind is no field; expected --axis"),
    (["--grid", "paper_logic", "--fix", "training.seed=9"],
     "--fix training.seed is an axis of grid paper_logic; expected --axis task.split_seed+tr"),
    (["--grid", "smoke_lgic"], "unknown grid 'smoke_lgic'; expected one of: sraven_known"),
    (["--axis", "kind=hyla", "--axis", "kind=softmax"], "--axis kind is given twice"),
    (["--axis", "training.seed=0", "--fix", "training.steps=3,4"], "has 2 values"),
    (["--axis", "training.seed=0", "--config", "x.yaml", "--kind", "hyla"], "together with"),
    (["--axis", "training.seed=0", "--budget", "soon"], "budget is 'soon'"),
])
def test_what_is_wrong_with_a_command_is_one_line(
    flags: Sequence[str], message: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert message in refused("sweep", "--out", tmp_path / "sweep", *flags)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
def test_the_command_says_what_it_found_and_fails_if_a_member_did(
    here: Here, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["sweep", "--out", str(tmp_path / "sweep")]
    main([*flags, "--preset", "smoke", "--fix", "training.steps=12",
          "--axis", "kind=softmax,hyla", "--axis", "training.seed=0,1"])
    out = capsys.readouterr().out
    assert "the best on `test` (`ood` had no say)" in out
    assert "softmax" in out
    assert f"wrote table {tmp_path / 'sweep' / 'table.csv'}" in out
    main(flags)  # the grid is in the folder
    assert capsys.readouterr().out == out
    main([*flags, "--select-on", "ood"])
    assert "the best on `ood` (as the paper does)" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["sweep", "--out", str(tmp_path / "bad"), "--preset", "smoke", "--fix",
              "training.learning_rate=1e30", "--axis", "training.seed=0"])
    assert stopped.value.code == 1
    assert "error: member seed=0: " in capsys.readouterr().err


@pytest.mark.slow
def test_what_a_killed_member_left_is_cleared_away_when_it_is_complete(
    here: Here, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    sweep(SEEDS, out)
    member = out / next(iter(SEEDS.members()))
    wanted = (out / "table.csv").read_bytes()
    (member / "checkpoints" / ".tmp-step_0000006").mkdir()
    (member / ".tmp-12345678-config.yaml").write_text("half")
    sweep(SEEDS, out)
    assert not list(out.rglob(".tmp-*"))
    assert (out / "table.csv").read_bytes() == wanted


LONG_STEPS = 100_000
LONG = ["--preset", "smoke", *(
    word for name in ("steps", "eval_every", "checkpoint_every")
    for word in ("--fix", f"training.{name}={LONG_STEPS}")), "--axis", "training.seed=0,1,2"]


@pytest.mark.slow
def test_a_signal_stops_all_workers_with_checkpoints(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    process = start(out, *LONG, "--processes", "2")
    try:
        for _ in range(1_200):
            files = [out / f"seed={seed}" / "metrics.jsonl" for seed in (0, 1)]
            if all(file.exists() and "training_loss" in file.read_text() for file in files):
                break
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "continue with: latentcode sweep --out" in " ".join(error.decode().split())
    for seed in (0, 1):
        assert 0 < lc.Run.open(out / f"seed={seed}").checkpoints()[-1] < LONG_STEPS
    assert not (out / "seed=2").exists()
    assert pd.read_csv(out / "table.csv")["complete"].tolist().count(False) > 0


@pytest.mark.slow
def test_a_worker_stops_with_a_checkpoint_when_its_owner_is_killed(tmp_path: Path) -> None:
    out, member = tmp_path / "sweep", tmp_path / "sweep" / "seed=0"
    process = start(out, *LONG, "--processes", "1")
    try:
        for _ in range(1_800):  # the kernel may have to be compiled first
            metrics = member / "metrics.jsonl"
            if metrics.exists() and "training_loss" in metrics.read_text():
                break
            time.sleep(0.1)
        worker = holder(member / ".lock")
        assert worker not in (None, process.pid)
    finally:
        process.kill()
        process.communicate()
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
    assert [step > 0 for step in lc.Run.open(member).checkpoints()] == [False, True]
    assert not (out / "seed=1").exists()


@pytest.mark.slow
def test_a_budget_stops_at_checkpoints_and_the_next_start_goes_on(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, undisturbed = tmp_path / "sweep", tmp_path / "undisturbed"
    (tmp_path / "grid.yaml").write_text(SEEDS.to_yaml())
    grid = ["--grid", str(tmp_path / "grid.yaml")]
    clock, update, late = time.time, TrainingState.update, 0.0

    def updated(self: TrainingState) -> None:
        nonlocal late
        update(self)
        late += 3600.0

    with monkeypatch.context() as patch:  # an hour per update: it ends in the second of four
        patch.setattr(TrainingState, "update", updated)
        patch.setattr(time, "time", lambda: clock() + late)
        main(["sweep", "--out", str(out), *grid, "--budget", "20h"])
    assert "the budget is used up" in " ".join(capsys.readouterr().err.split())
    runs = [lc.Run.open(path) for path in sorted(out.glob("seed=*"))]
    assert [run.checkpoints()[-1] for run in runs] == [12, 8]
    assert not pd.read_csv(out / "table.csv")["complete"].all()
    main(["sweep", "--out", str(out)])
    main(["sweep", "--out", str(undisturbed), *grid])
    for name in ("table.parquet", "table.csv", "summary.csv"):
        assert (out / name).read_bytes() == (undisturbed / name).read_bytes()
