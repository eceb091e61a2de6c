"""Does the page of results show the training of a model, and what else was saved?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from places import GOLDEN
from small_app import charts, drawn_codes, shown, text

import latentcode as lc
from latentcode.app.pages.results import training_chart
from latentcode.probes.decoding import DecodingResult
from latentcode.probes.similarity import similarity
from latentcode.runs import Run


def test_training_begins_with_the_metric_that_is_quoted_first(run: Run) -> None:
    test = shown("results", model="runs/tiny", steps="log")
    figure = charts(test)["training"]
    assert figure.layout.annotations[0].text == "accuracy"
    assert figure.layout.xaxis.type == "log"
    metrics = run.metrics()
    for split in ("train", "ood"):
        rows = metrics[(metrics["metric"] == "accuracy") & (metrics["split"] == split)]
        trace = next(t for t in figure.data if t.name == split)
        np.testing.assert_allclose(trace.y, rows["mean"])
    assert f"{run.latest().loc['accuracy', 'ood']:.3f}" in text(test)
    panels = [annotation.text for annotation in figure.layout.annotations]
    assert panels == ["accuracy", "feature accuracy", "loss"]
    assert any("feature_accuracy[sum]" in table.value.index for table in test.dataframe)


def test_other_results_are_shown_with_their_summary(codes: Path) -> None:
    result = similarity(drawn_codes(), label="rule", controls=False, n_bootstrap=100)
    result.save(codes / "results" / "similarity", figures=False)
    test = shown("results", model="runs/codes")
    names = [name.replace("_", " ") for name in result.summary().columns if name != "features"]
    assert list(test.table[0].value.columns) == names
    assert "In every row: features code." in [caption.value for caption in test.caption]
    assert "Heads that a code uses" in text(test)
    assert len(test.image) == 1


def test_a_probe_of_one_s_own_is_among_them(
    codes: Path, own_names: Callable[[], None]
) -> None:
    @lc.register_probe("size", sentence=lambda result: "Codes have a size.")
    def size(points: lc.Points) -> np.ndarray:
        """How large are codes?"""
        return np.abs(points.x).sum(axis=1)

    result = size(drawn_codes(), labels="rule", controls=False, n_bootstrap=100)
    result.save(codes / "results" / "size", figures=False)
    own_names()  # an explorer that was not told to import it
    test = shown("results", model="runs/codes")
    assert not test.error
    assert "Size: How large are codes?" in text(test)
    assert "Codes have a size." in text(test)
    assert len(test.image) == 1


def test_decodings_of_more_than_codes_are_results_among_others(codes: Path) -> None:
    """The page of decoding shows what is decoded from codes."""
    names = {"code": "row", "shuffled": "shuffled row", "untrained": "untrained row"}
    decoded = DecodingResult.load(GOLDEN / "frozen" / "decoding")
    replace(decoded, table=decoded.table.replace({"features": names})).save(
        codes / "results" / "rows", figures=False)
    test = shown("results", model="runs/codes")
    assert {"features", "trained", "untrained", "shuffled"} <= set(test.table[0].value.columns)
    assert len(test.image) == 1
    assert "No probes yet" in text(shown("decode", model="runs/codes"))


@pytest.mark.parametrize(("metric", "means", "axis"), [
    ("perplexity", [364.0, 14.0], "log"), ("query_loss", [5.9, 0.5], "log"),
    ("loss", [2.0, -0.1], None), ("accuracy", [0.1, 1.0], (-0.03, 1.03)),
    ("r2", [-8.0, 0.9], (-0.03, 1.03)), ("points", [1.0, 40.0], None),
    ("perplexity", [float("inf"), 3.0], "log"), ("r2", [float("nan"), 0.9], (-0.03, 1.03)),
    ("log_likelihood", [-9.0, -3.0], None)])
def test_every_metric_lies_in_its_panel(
    metric: str, means: list[float], axis: str | tuple[float, float] | None
) -> None:
    rows = pd.DataFrame({"step": [1, 1_000], "split": "ood", "se": 0.0, "metric": metric,
                         "mean": means})
    drawn = training_chart(rows, log_steps=False, dark=False).layout.yaxis
    assert (drawn.type or drawn.range) == axis
