"""Do the benchmarks measure what they say? Turns, ratios and records, never how fast it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from latentcode.errors import ConfigError
from latentcode.experiments.benchmarks import (
    explorer,
    extraction,
    heads,
    interventions,
    training_step,
)
from latentcode.experiments.benchmarks.browser import browser_path
from latentcode.presets import preset
from latentcode.training.state import CHUNK

FRAME = {"question", "command", "started", "finished", "cores", "load_average", "settings",
         "environment", "cases"}


def test_updates_alone_draw_nothing() -> None:
    config = preset("smoke", "logic", "hyla")
    drawing, drawn = training_step.learner(config), training_step.learner(config, sampling=False)
    drawing.update()
    drawn.update()
    batches = [x.member(0).batches for x in (drawing, drawn)]
    for step in (0, CHUNK, 3 * CHUNK):
        assert torch.equal(batches[0][step].inputs, batches[1][step].inputs) == (step == 0)
        assert torch.equal(batches[1][step].inputs, batches[1][0].inputs)
    assert drawing.recent_losses() == drawn.recent_losses()


def test_threads_are_those_that_are_asked_for() -> None:
    assert training_step.TrainingStep(threads=3).cores == 3
    assert training_step.TrainingStep(threads=3, smoke=True).cores == 1


def load(folder: Path, question: str) -> dict[str, Any]:
    """Return the JSON of a result, after checking the files beside it."""
    assert "|---|" in (folder / f"{question}.md").read_text(encoding="utf-8")
    result: dict[str, Any] = json.loads((folder / f"{question}.json").read_text(encoding="utf-8"))
    assert set(result) == FRAME
    assert result["question"] == question
    assert {"device_name", "torch", "numpy", "latentcode", "git_commit"} <= set(
        result["environment"])
    assert set(result["load_average"]) == {"before", "after"}
    return result


@pytest.mark.slow
def test_training_step_at_smoke_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    bfloat16: Callable[[bool], None],
) -> None:
    bfloat16(True)
    monkeypatch.setattr(sys, "argv", ["training_step", "--out", str(tmp_path)])
    training_step.TrainingStep(task=("logic",), kinds=("hyla",), smoke=True, out=tmp_path,
                               precision=("float32", "bf16")).run()
    result = load(tmp_path, "training_step")
    assert str(tmp_path) not in result["command"]
    (case,) = result["cases"]
    assert case["name"] == "logic, hyla"
    for what in ("step", "update"):
        names = list(case[what]["milliseconds"])
        assert names[-2:] == ["ours, float32", "ours, bf16"]
        assert case[what]["baseline"] == names[0]
        assert set(case[what]["speedup"]) == set(names[1:])
        raw = case[what]["raw_seconds_per_unit"]
        assert all(len(raw[name]) == 2 for name in names)
        ratios = [a / b for a, b in zip(raw[names[0]], raw["ours, bf16"], strict=True)]
        assert case[what]["speedup"]["ours, bf16"]["median"] == pytest.approx(np.median(ratios))
    assert all(n % CHUNK == 0 for n in case["step"]["units_per_turn"].values())
    assert set(case["peak_memory_mib"]) == set(names)
    assert "ours, bf16" in capsys.readouterr().out


@pytest.mark.slow
def test_interventions_at_smoke_size(tmp_path: Path) -> None:
    interventions.Interventions(smoke=True, out=tmp_path).run()
    (case,) = load(tmp_path, "interventions")["cases"]
    assert set(case["times"]["milliseconds"]) == {interventions.WHOLE, interventions.SHARED}
    assert case["largest_difference"]["answer"] == 0.0
    assert 0.0 < case["largest_difference"]["p_base_answer"] < 1e-4


@pytest.mark.slow
def test_heads_at_smoke_size(tmp_path: Path) -> None:
    heads.Heads(smoke=True, out=tmp_path).run()
    (case,) = load(tmp_path, "heads")["cases"]
    assert set(case["passes"]) == {heads.METRICS, heads.ALL, heads.WHOLE}
    assert all(ratio["median"] > 0.0 for ratio in case["passes"].values())
    assert min(case["peak_mib"].values()) > 1.0


@pytest.mark.slow
def test_extraction_at_smoke_size(tmp_path: Path) -> None:
    extraction.Extraction(task=("sraven",), kinds=("hyla",), smoke=True, n=6_000,
                          out=tmp_path).run()
    (case,) = load(tmp_path, "extraction")["cases"]
    assert case["batches"]["baseline"] == "forward pass"
    assert len(case["batches"]["speedup"]) == 3
    few, many = case["streamed"]
    assert (few["n"], many["n"]) == (600, 6_000)
    assert many["mib_on_disk"] > few["mib_on_disk"] > 0
    assert all(s["peak_memory_mib"] >= s["peak_memory_before_mib"] > 0 for s in (few, many))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".md"}


@pytest.mark.parametrize("none", [{"points": ()}, {"starts": 0}, {"rounds": 1}])
def test_no_explorer_is_started_for_nothing(
    none: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "chromium", lambda: pytest.fail("a browser is started"))
    with pytest.raises(ConfigError, match="expected at least one number of points, 1 start"):
        explorer.Explorer(out=tmp_path, **none).run()


@pytest.mark.slow
def test_the_explorer_at_smoke_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("playwright") is None or browser_path() is None:
        pytest.skip("the explorer is timed in a real browser, and there is none")
    monkeypatch.setattr(explorer, "STOOD", 0.1)
    explorer.Explorer(smoke=True, out=tmp_path).run()
    cases = {case["name"]: case for case in load(tmp_path, "explorer")["cases"]}
    assert all(case["seconds"]["median"] > 0 for case in cases.values())
    assert {name: len(case["raw_seconds"]) for name, case in cases.items()} == {
        "server start to first picture": 1,
        "first click to its problem, ten seconds after the first picture": 1,
        "page to picture, all warm": 2,
        "page to picture, first time, 2,000 points": 1, "lasso to panels, 2,000 points": 2,
        "lasso to panels and the answer, sraven-hyla": 2}
