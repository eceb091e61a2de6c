"""Small folders that pages show."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from small_app import drawn_codes, open_folders

import latentcode as lc
from latentcode.app.data.catalog import ROOTS
from latentcode.probes.interventions import Bench
from latentcode.runs import Run


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Codes of two models of the same instances, `a` and `b`, and of other ones, `other`."""
    root = tmp_path_factory.mktemp("saved")
    for name, codes in (("a", drawn_codes(0)), ("b", drawn_codes(1)),
                        ("other", drawn_codes(2, instances=1))):
        codes.save(root / name)
    return root


@pytest.fixture
def folder(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of these codes, which a test may change."""
    shutil.copytree(saved, tmp_path / "runs")
    open_folders(monkeypatch, [tmp_path / "runs"])
    return tmp_path / "runs"


@pytest.fixture
def run(
    smoke_run: Callable[[str, str], Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """A trained run without results."""
    copy = smoke_run("sraven", "hyla").publish(tmp_path / "runs" / "tiny")
    open_folders(monkeypatch, [tmp_path / "runs"])
    return copy


@pytest.fixture
def codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of codes."""
    folder = drawn_codes().save(tmp_path / "runs" / "codes")
    open_folders(monkeypatch, [tmp_path / "runs"])
    return folder


@pytest.fixture(scope="session")
def trained_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs whose models have learned nothing, which is enough to be shown, and codes."""
    root = tmp_path_factory.mktemp("models") / "runs"
    for name, kind in (("sraven", "hyla"), ("logic", "softmax")):
        config = lc.preset("smoke", name, kind)
        config = replace(config, training=replace(config.training, steps=2, warmup_steps=0,
                                                  eval_every=2, eval_instances=64))
        lc.train(config, root / name, progress=False)
    lc.extract(lc.Run.open(root / "sraven"), n=20).save(root / "codes")
    return root


@pytest.fixture(scope="session")
def bench_of(trained_models: Path) -> Callable[[str], Bench]:
    """Return what returns the bench of a model by its name, with the problems of the pages."""

    @cache
    def made(name: str) -> Bench:
        run = Run.open(trained_models / name)
        return Bench.of_run(run, n=4_096, problems=lc.make_task(run.config.task).probe_config)

    return made


@pytest.fixture
def models(trained_models: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `runs` of the models `sraven` and `logic`, which the explorer sees."""
    monkeypatch.setenv(ROOTS, json.dumps([str(trained_models)]))
    return trained_models
