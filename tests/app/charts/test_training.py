"""Can the steps and the losses be read off the axes of a training?"""

from __future__ import annotations

import pandas as pd
import pytest

from latentcode.app.charts.training import training_chart


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
