"""Can the steps and the losses be read off the axes of a training?"""

from __future__ import annotations

import pandas as pd
import pytest

from latentcode.app.charts.training import MOST_TICKS, log_ticks, training_chart


@pytest.mark.parametrize(("values", "texts"), [
    ([0.011, 0.09], ["0.01", "0.02", "0.05", "0.1"]),
    ([0.3, 2.2], ["0.2", "0.5", "1", "2"]),
    ([1e-5, 3.0], ["1e-5", "1e-4", "0.001", "0.01", "0.1", "1"]),
    ([100, 100_000], ["100", "1,000", "10,000", "100,000"]),
    ([0, 100, 900], ["100", "200", "500", "1,000"]),
    ([1e-12, 1.0], ["1e-12", "1e-10", "1e-8", "1e-6", "1e-4", "0.01", "1"]),
    ([0.0], None)])
def test_ticks_are_few_and_whole(values: list[float], texts: list[str] | None) -> None:
    ticks = log_ticks(pd.Series(values))
    assert ticks.get("ticktext") == texts
    assert len(ticks.get("tickvals", [])) <= MOST_TICKS


def test_losses_and_steps_have_their_ticks() -> None:
    rows = pd.DataFrame({"step": [1, 1_000, 1, 1_000], "split": "ood", "se": 0.0,
                         "metric": ["accuracy", "accuracy", "loss", "loss"],
                         "mean": [0.1, 0.9, 2.0, 0.003]})
    figure = training_chart(rows, log_steps=True, dark=False)
    assert figure.layout.yaxis2.ticktext == ("0.01", "0.1", "1")
    assert figure.layout.yaxis.ticktext is None
    assert figure.layout.xaxis.ticktext == ("1", "10", "100", "1,000")
    assert training_chart(rows, log_steps=False, dark=False).layout.xaxis.ticktext is None


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
