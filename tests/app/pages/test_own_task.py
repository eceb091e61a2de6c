"""Every page takes a task of one's own, or says in one line what it lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from places import EXAMPLE
from small_app import open_folders, page_test, shown

import latentcode as lc
from latentcode.registry import IMPORTS, import_file, in_environment


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_names: Callable[[], None]
) -> Path:
    """A hardly trained run of the example, which the explorer sees."""
    import_file(str(EXAMPLE))
    config = lc.preset("smoke", "modadd", "softmax")
    config = replace(config, training=replace(
        config.training, steps=2, warmup_steps=0, eval_every=2, eval_instances=64))
    lc.train(config, tmp_path / "runs" / "own", progress=False)
    open_folders(monkeypatch, [tmp_path / "runs"])
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "runs"


@pytest.mark.slow
def test_pages_show_it(folder: Path) -> None:
    page = shown("explore", model="runs/own", projection="PCA", n="2000", instance="3")
    assert not page.error
    problem = "".join(block.proto.body for block in page.get("html"))
    assert "<th" in problem
    assert "sum" in problem
    assert "The model answers" in problem
    assert not shown("model", model="runs/own", n="2000", label="sum").error
    (error,) = shown("intervene", model="runs/own").error
    assert "task 'modadd' offers no minimal pairs" in error.value


def test_a_run_whose_task_is_not_imported_says_what_to_import(
    folder: Path, own_names: Callable[[], None]
) -> None:
    own_names()
    (error,) = page_test("explore", model="runs/own").run().error
    assert "is not registered here" in error.value
    assert "--import modadd.py" in error.value
    assert json.loads(in_environment()[IMPORTS]) == []
