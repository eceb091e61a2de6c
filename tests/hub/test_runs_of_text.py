"""A run of text goes to the hub with excerpts: its codes can be read where its text is not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hub_server import Hub
from text_files import write_documents

import latentcode as lc
from latentcode.config.presets import follow_task
from latentcode.errors import ConfigError
from latentcode.tasks.text import cache

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


@pytest.mark.slow
def test_codes_are_the_same_where_the_text_is_not(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATENTCODE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_KNOWN", {})
    start = lc.preset("smoke", "language", "hyla")
    task = replace(start.task, text=str(write_documents(tmp_path / "text")), n_vocabulary=300)
    config = replace(start, task=task, model=replace(
        start.model, **follow_task(start.task, task)))
    run = lc.train(config, tmp_path / "run", progress=False)
    scores = lc.extract(run, split="test", n=8).scores
    run.push_to_hub("user/language")
    for folder in ("run", "text", "cache"):
        shutil.rmtree(tmp_path / folder)
    with pytest.raises(ConfigError, match="does not exist"):
        lc.make_task(run.config.task)
    back = lc.load_run("hf://user/language")
    np.testing.assert_array_equal(lc.extract(back, split="test", n=8).scores, scores)
