"""Long trainings that are short, for the tests of what trains them and of what is kept of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_long_runs import STAGES, use_small_grids

from latentcode.experiments.paper import long_runs


@pytest.fixture
def grids(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_grids(monkeypatch)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("long_runs")
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_small_grids(monkeypatch)
        long_runs.work(at, STAGES, processes=2)
    return at


@pytest.fixture
def trained(grids: None, trained_once: Path, tmp_path: Path) -> Path:
    """Finished long trainings, a copy for each test."""
    return Path(shutil.copytree(trained_once, tmp_path / "runs"))
