"""Runs that were trained elsewhere: which are published, and what the others are refused for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import latentcode as lc
from latentcode.errors import ArtifactError, RunError
from latentcode.experiments.paper import intake, long_runs
from latentcode.experiments.paper import queue as queues
from latentcode.experiments.paper.intake import MOST_APART, accept, recomputed
from latentcode.experiments.paper.long_runs import main
from latentcode.experiments.paper.queue import Stage, write_page
from latentcode.runs import Run
from latentcode.sweep.grid import Grid, parse_yaml, read_grid

GRID = """
base: {preset: smoke, task: logic, training.steps: 40, training.warmup_steps: 5,
       training.eval_instances: 512, training.eval_every: 20, training.milestones: [20, 40]}
axes: {training.seed: [0, 1]}
"""
STAGES = (Stage("one"),)


def grid(name: str) -> Grid:
    return read_grid(parse_yaml(GRID, name), name)


@pytest.fixture(autouse=True)
def grids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "load_grid", grid)
    monkeypatch.setattr(intake, "QUEUE", STAGES)
    monkeypatch.setattr(long_runs, "write_page", lambda out: write_page(out, STAGES))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The two members of the grid, in folders of other names."""
    at = tmp_path_factory.mktemp("trained")
    first, second = (lc.train(config, at / f"mine{index}", progress=False).path
                     for index, config in enumerate(grid("one").members().values()))
    return first, second


def test_an_honest_run_is_published_where_it_belongs(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    main(["accept", str(trained[1]), "--out", str(out)])
    said = capsys.readouterr().out
    target = out / "one" / "seed=1"
    assert f"wrote run {target}" in said
    run = Run.open(target)
    assert run.id == Run.open(trained[1]).id
    assert run.checkpoints() == [40]  # as `publish` of the long trainings has it
    assert run.load_checkpoint().is_published
    assert "| seed=1 | 40 |" in (out / "README.md").read_text()
    with pytest.raises(SystemExit):
        main(["accept", str(trained[1]), "--out", str(out)])
    assert "is there already" in capsys.readouterr().err


def test_metrics_are_those_of_the_weights_and_of_other_instances_near_them(
    trained: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.open(trained[0])
    same = recomputed(run)
    assert set(same["step"]) == {20, 40}
    assert same["apart"].max() < 1e-3  # on one kind of device they are the same instances
    made = intake.evaluate

    def others(*args: object, seed: int, **kwargs: object) -> object:
        return made(*args, seed=seed + 1, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(intake, "evaluate", others)
    near = recomputed(run)["apart"]
    assert 0.1 < near.max() < MOST_APART


def test_weights_of_another_run_are_refused(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """Those of the other seed, whose digests and configuration hash are put right."""
    forged = tmp_path / "forged"
    shutil.copytree(trained[0], forged)
    checkpoint = Path("checkpoints") / "step_0000040"
    for file in (trained[1] / checkpoint).iterdir():
        shutil.copy(file, forged / checkpoint)
    hashes = [Run.open(path).provenance["config_hash"] for path in trained]
    state = forged / checkpoint / "state.json"
    state.write_text(state.read_text().replace(hashes[1], hashes[0]))
    with pytest.raises(RunError, match=r"at step 40, and its weights have .* standard errors away"):
        accept(forged, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


Line = dict[str, Any]


def changed(trained: Path, to: Path, change: Callable[[list[Line]], None]) -> Path:
    """Return a copy of a run whose recorded metrics were changed."""
    copy = shutil.copytree(trained, to)
    file = copy / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    change(lines)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return copy


def last(lines: list[Line], metric: str = "r2") -> Line:
    return next(line for line in reversed(lines) if line["metric"] == metric)


@pytest.mark.parametrize(("change", "message"), [
    (lambda lines: last(lines).update(mean=0.99), r"records r2 0\.9900 on .*away; expected"),
    (lambda lines: last(lines).update(mean=0.99, se=1e3), r"records r2 0\.9900 on .*inf standard"),
    (lambda lines: last(lines).update(mean=0.99, n=1), r"records r2 0\.9900 on .*away; expected"),
    (lambda lines: lines.remove(last(lines)), r"records loss.* at step 40; expected loss, r2"),
    (lambda lines: lines.append({**last(lines), "mean": 0.99}), "two rows of r2 on"),
    (lambda lines: lines.append({**last(lines), "step": 39, "mean": 0.99}), "steps that fall"),
    (lambda lines: lines.append({**last(lines), "split": "better"}), "has the splits better"),
])
def test_metrics_that_the_weights_do_not_give_are_refused(
    trained: tuple[Path, Path], tmp_path: Path, change: Callable[[list[Line]], None], message: str
) -> None:
    with pytest.raises(RunError, match=message):
        accept(changed(trained[0], tmp_path / "changed", change), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_what_else_is_refused(trained: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "runs"
    half = shutil.copytree(trained[0], tmp_path / "half")
    shutil.rmtree(half / "checkpoints" / "step_0000040")
    with pytest.raises(RunError, match=r"expected that of its last step, 40, with weights"):
        accept(half, out)
    damaged = shutil.copytree(trained[0], tmp_path / "damaged")
    weights = damaged / "checkpoints" / "step_0000040" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(ArtifactError):
        accept(damaged, out)
    config = Run.open(trained[0]).config
    other = replace(config, training=replace(config.training, learning_rate=0.01))
    foreign = lc.train(other, tmp_path / "foreign", progress=False)
    with pytest.raises(RunError, match="has a configuration that no grid has; expected a member"):
        accept(foreign.path, out)
    assert not out.exists()
