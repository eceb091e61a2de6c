"""Small folders that pages show."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_app import drawn_codes, open_folders
from small_zoo import tiny_run

from latentcode.runs import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return tiny_run(tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture
def run(trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A trained run without results."""
    copy = trained.publish(tmp_path / "runs" / "tiny")
    open_folders(monkeypatch, tmp_path / "cache", [tmp_path / "runs"])
    return copy


@pytest.fixture
def codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of codes."""
    folder = drawn_codes().save(tmp_path / "runs" / "codes")
    open_folders(monkeypatch, tmp_path / "cache", [tmp_path / "runs"])
    return folder
