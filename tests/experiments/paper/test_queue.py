"""The queue of the long trainings: its order, and what is kept and published of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from small_long_runs import STAGES

import latentcode as lc
from latentcode.errors import ArtifactError, RunError
from latentcode.experiments.paper import queue as queues
from latentcode.experiments.paper import reproduction
from latentcode.experiments.paper.queue import (
    ALONG,
    QUEUE,
    Stage,
    is_published,
    keep,
    members,
    publish,
    queue,
    table,
    take_up,
)
from latentcode.experiments.paper.reproduction import MEASURED, Work
from latentcode.experiments.paper.runs import find_runs
from latentcode.runs import Run
from latentcode.sweep import GRIDS, load_grid


def test_a_run_of_another_device_or_precision_is_published_too() -> None:
    runs = Path(queues.__file__).parents[1] / "results" / "runs"
    stage, name = Stage("paper_sraven"), "seed=0,split_seed=0,kind=linear"
    config = members(stage, runs)[runs / stage.grid / name]
    assert Run.open(runs / stage.grid / name).config.training.device == "cuda"
    assert config.training.device == "cpu"
    assert is_published(runs / stage.grid / name, config, runs)
    shorter = replace(config, training=replace(config.training, learning_rate=0.5))
    assert not is_published(runs / stage.grid / name, shorter, runs)


@pytest.mark.slow
def test_every_published_run_is_queued_once() -> None:
    names = {stage.grid for stage in QUEUE}
    assert names == {name for name in GRIDS if not name.startswith("sm")}
    for name in names:
        counted = [path for stage in QUEUE if stage.grid == name
                   for path in members(stage, Path("at"))]
        assert sorted(path.name for path in counted) == sorted(load_grid(name).members())


def test_what_is_published_along_a_training_is_a_milestone_and_fits() -> None:
    for name, steps in ALONG.items():
        base = load_grid(name).base
        assert set(steps) <= set(base.training.milestones)
        assert max(steps) == base.training.steps
        assert len(steps) * 4 * lc.HookedTransformer(base.model).n_parameters < 5e6


@pytest.mark.slow
def test_all_are_trained_and_published(trained: Path, tmp_path: Path) -> None:
    rows = table(trained, STAGES)
    assert rows["complete"].tolist() == rows["runs"].tolist() == [2, 1, 2]
    assert (rows["steps"] == rows["of"]).all()
    assert (rows["core-hours left"] == 0.0).all()
    # What was taken up from `keep` has no earlier checkpoint.
    shutil.rmtree(trained / "first" / "seed=0,kind=softmax" / "checkpoints" / "step_0000010")
    out = tmp_path / "published"
    assert len(publish(trained, out, STAGES)) == 5
    assert publish(trained, out, STAGES) == []
    for path in queue(trained, STAGES):
        run = Run.open(out / path.relative_to(trained))
        along = path.parent.name == "first" and path.name == "seed=0,kind=hyla"
        assert run.checkpoints() == ([10, 40] if along else [40])
        assert run.is_complete
        assert run.load_checkpoint().is_published
        assert run.id == Run.open(path).id
    page = (out / "README.md").read_text()
    assert page.count("| seed=") == 5
    assert "4 of 4 runs" in page
    score = Run.open(out / "other/seed=7,kind=hyla").latest().loc["r2", "ood"]
    assert f"{score:.3f} ±" in page
    terms = Run.open(out / "other/seed=7,kind=hyla").latest(by_constituent=True)["ood"]
    assert f"| `{terms.idxmin()}` {terms.min():.3f} |" in page


def ends(run: Run, device: str = "cpu") -> pd.DataFrame:
    """Return something that only the weights tell."""
    weights = run.load_model().state_dict()
    return pd.DataFrame({"weight": [float(sum(w.sum() for w in weights.values()))]})


@pytest.mark.slow
def test_large_runs_are_measured_and_published_without_weights(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "LARGE", {"first": (ends,)})
    out = tmp_path / "published"
    assert len(publish(trained, out, STAGES)) == 5
    assert publish(trained, out, STAGES) == []
    for path in members(STAGES[0], trained):
        whole, run = Run.open(path), Run.open(out / path.relative_to(trained))
        assert run.is_complete
        assert run.id == whole.id
        assert run.latest().equals(whole.latest())
        with pytest.raises(ArtifactError, match=r"without model\.safetensors: it cannot be used"):
            run.load_model()
        with pytest.raises(ArtifactError, match="was published without model"):
            run.publish(tmp_path / "again")
        with pytest.raises(RunError, match="was published"):
            lc.train(run.config, run.path, resume=True)
        assert not list(run.path.rglob("*.safetensors"))
    assert Run.open(out / "other/seed=7,kind=hyla").load_model()
    assert len(list((out / MEASURED).iterdir())) == 4
    assert "published without weights" in repr(Run.open(next((out / "first").glob("seed*"))))
    assert "4 of 4 runs" in (out / "README.md").read_text()
    found = find_runs([out])
    assert sum(map(len, found.finished.values())) == 5
    # What was measured is there for those who have the published run alone.
    monkeypatch.setattr(reproduction, "PUBLISHED", out)
    config = next(iter(members(STAGES[0], trained).values()))
    run = found.of(config)[0]
    assert find_runs([out, trained]).of(config)[0].has_weights
    work = Work("paper", found, tmp_path / "work")
    assert work.table(run, ends).equals(ends(Run.open(trained / run.path.relative_to(out))))


@pytest.mark.slow
def test_no_unfinished_run_is_dropped(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MOST_KEPT", 1)
    for run in (trained / "first").glob("seed=*"):
        shutil.rmtree(run / "checkpoints" / "step_0000040")
    with pytest.raises(RunError, match="4 runs are begun and not finished; expected at most 1"):
        keep(trained, tmp_path / "kept", STAGES)
    assert not (tmp_path / "kept").exists()


def test_unfinished_runs_that_cannot_be_gone_on_with_are_an_error(
    trained: Path, tmp_path: Path
) -> None:
    one, other = (trained / "first" / f"seed={seed},kind=hyla" for seed in (0, 1))
    kept = tmp_path / "kept"
    shutil.copytree(one, kept / other.relative_to(trained))
    with pytest.raises(RunError, match="has another configuration than its name says"):
        take_up(kept, tmp_path / "elsewhere", STAGES)
    with pytest.raises(RunError, match="exists already and is not one of ours"):
        keep(trained, trained, STAGES)


def test_the_grids_of_fuzzy_logic_have_seeds_that_can_be_compared() -> None:
    axis = "task.split_seed+training.seed"
    every = load_grid("paper_logic").axes[axis]
    for name in ("paper_logic_heldout", "paper_logic_ablations"):
        pairs = load_grid(name).axes[axis]
        assert all(pair in every for pair in pairs)
        assert {split for split, _ in pairs} == {0, 1, 2}
