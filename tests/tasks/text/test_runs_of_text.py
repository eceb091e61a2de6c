"""Can a run of text be read without the text, and not be trained on another one?"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from disk import flip
from text_files import write_documents

import latentcode as lc
from latentcode.config import RunConfig, fill_in
from latentcode.devices import make_generator
from latentcode.errors import ArtifactError, ConfigError, RunError
from latentcode.files.storage import read_json, write_json
from latentcode.hub import to_share
from latentcode.presets import follow_task
from latentcode.runs.run import check_resumable
from latentcode.tasks import make_task
from latentcode.tasks.text import cache


def configured(folder: Path) -> RunConfig:
    start = lc.preset("smoke", "language", "softmax")
    task = replace(start.task, text=str(folder), n_vocabulary=300, n_tokens=24)
    model = replace(start.model, **follow_task(start.task, task))
    return replace(start, task=task, model=model)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lc.Run:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_KNOWN", {})
    config = configured(write_documents(tmp_path / "text"))
    return lc.train(config, tmp_path / "run", progress=False)


@pytest.fixture(scope="module")
def published(
    tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunConfig, torch.Tensor, Path]:
    """The configuration of a run whose text is gone, what it draws, and a published copy."""
    root = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LATENTCODE_CACHE", str(root / "cache"))
        patch.setattr(cache, "_KNOWN", {})
        run = lc.train(configured(write_documents(root / "text")), root / "run", progress=False)
        before = drawn(run.config)
    run.publish(root / "copy")
    for name in ("run", "cache", "text"):
        shutil.rmtree(root / name)
    return run.config, before, root / "copy"


@pytest.fixture
def elsewhere(
    published: tuple[RunConfig, torch.Tensor, Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The published copy alone on another machine."""
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_KNOWN", {})
    return Path(shutil.copytree(published[-1], tmp_path / "copy"))


def drawn(config: RunConfig) -> torch.Tensor:
    return make_task(config.task).sample("test", 5, make_generator(0, "test")).inputs


def test_the_run_says_which_text_it_was_trained_on(run: lc.Run) -> None:
    task = run.config.task
    assert task.revision
    assert (run.path / "text" / "text.json").is_file()
    asked = replace(run.config, task=replace(task, revision=""))
    assert fill_in(asked, run.config) == run.config
    other = replace(run.config, task=replace(task, revision="other"))
    assert fill_in(other, run.config) == other
    assert lc.train(asked, run.path, resume=True, progress=False).config == run.config
    with pytest.raises(RunError, match=f"task.revision: '{task.revision}' in the run, 'other' ask"):
        check_resumable(run, other)


def test_a_run_is_read_where_its_text_is_not(
    published: tuple[RunConfig, torch.Tensor, Path], elsewhere: Path
) -> None:
    config, before, _ = published
    with pytest.raises(ConfigError, match="does not exist"):
        make_task(config.task)
    copy = lc.Run.open(elsewhere)
    task = make_task(copy.config.task)
    assert task.config == config.task
    assert task.splits == ("train", "test", "ood")
    assert torch.equal(drawn(copy.config), before)
    with pytest.raises(ConfigError, match="does not exist"):
        task.in_order(0)
    assert {f"text/{name}" for name in (
        "text.json", "tokenizer.json", "excerpts.safetensors", "documents.parquet")
            } <= set(to_share("run", elsewhere))


@pytest.mark.slow
def test_training_does_not_go_on_with_another_text(run: lc.Run) -> None:
    config, found = run.config, drawn(run.config)
    longer = replace(config, training=replace(config.training, steps=40))
    (Path(config.task.text) / "first" / "000.txt").write_text("changed")
    assert torch.equal(drawn(config), found)
    with pytest.raises(ConfigError, match=f"revision .* now; expected '{config.task.revision}'"):
        lc.train(config, run.path, resume=True, progress=False)
    fresh = replace(longer, task=replace(config.task, revision=""))
    other = lc.train(fresh, run.path.with_name("other"), progress=False)
    assert other.config.task.revision != config.task.revision


def test_damaged_excerpts_are_noticed(elsewhere: Path) -> None:
    flip(elsewhere / "text" / "excerpts.safetensors")
    with pytest.raises(ArtifactError, match=r"excerpts.safetensors was damaged"):
        make_task(lc.Run.open(elsewhere).config.task)


def test_a_damaged_description_is_noticed(elsewhere: Path) -> None:
    file = elsewhere / "text" / "text.json"
    whole = read_json(file)
    for key, value in (("splits", "train"), ("splits", ["unknown"]), ("end", None), ("text", {}),
                       ("text", []), ("sha256", {}), ("format_version", 99)):
        write_json(file, {**whole, key: value})
        with pytest.raises(ArtifactError, match=rf"text\.json .*({key}|version 99)"):
            make_task(lc.Run.open(elsewhere).config.task)
    write_json(file, whole)
    make_task(lc.Run.open(elsewhere).config.task)


@pytest.mark.slow
def test_an_interrupted_run_ends_as_an_undisturbed_one(run: lc.Run, tmp_path: Path) -> None:
    config = replace(run.config, training=replace(
        run.config.training, checkpoint_every=7, keep_checkpoints=None))
    whole = lc.train(config, tmp_path / "whole", progress=False)
    shutil.copytree(whole.path, tmp_path / "halves")
    for step in (21, 28, 30):
        shutil.rmtree(tmp_path / "halves" / whole.checkpoint_path(step).relative_to(whole.path))
    halves = lc.train(config, tmp_path / "halves", progress=False, resume=True)
    assert halves.provenance["resumed"][0]["step"] == 14
    assert whole.metrics().equals(halves.metrics())
