"""`latentcode reproduce` where there are no experiments, and where pages cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from latentcode.cli import commands


def test_a_wheel_says_where_the_experiments_are(
    monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    said = refused("reproduce", "fig2c")
    assert said.startswith("error: latentcode reproduce needs the folder experiments/, which an")
    assert f"git clone --depth 1 {commands.REPOSITORY} && cd latentcode && make env" in said


def test_where_pages_go_is_tried_first(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    assert "is a link to nowhere" in refused(
        "reproduce", "fig2c", "--report", "--pages", tmp_path / "link", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
