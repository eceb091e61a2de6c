"""A small zoo that a test may change."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_zoo import NAME, tiny_zoo

import latentcode as lc


@pytest.fixture(scope="session")
def run(smoke_run: Callable[[str, str], lc.Run]) -> lc.Run:
    return smoke_run("sraven", "hyla")


@pytest.fixture(scope="session")
def pristine(run: lc.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_zoo(run, tmp_path_factory.mktemp("zoo")).parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the cache, for this test alone."""
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def entry(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The entry of a zoo that a test may change, in an empty working directory."""
    shutil.copytree(pristine, tmp_path / "zoo")
    monkeypatch.setattr("latentcode.runs.run.ZOO", tmp_path / "zoo")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "zoo" / NAME
