"""Does a run show how its metrics changed, with the right numbers?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from latentcode.config import preset
from latentcode.errors import RunError
from latentcode.figures.panels import metrics_figure
from latentcode.metrics import Metric
from latentcode.runs import Run


def make_run(folder: Path) -> Run:
    return Run.create(folder / "run", preset("smoke", task="logic", kind="softmax"))


def test_a_run_shows_a_line_per_split_and_a_panel_per_metric(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for step, value in ((0, -3.0), (10, 0.5), (20, 0.75)):
        run.append_metrics(step, "train", {"training_loss": Metric(1 / (step + 1), 0.1, 9)})
        for split in ("test", "ood"):
            run.append_metrics(step, split, {"loss": Metric(2 / (step + 1), 0.1, 9),
                                             "r2": Metric(value, 0.1, 9),
                                             "r2[x1]": Metric(value, 0.1, 3)})
    figure = run.figure()
    FigureCanvasAgg(figure).draw()
    loss, r2 = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["loss", "r2"]
    assert [line.get_label() for line in loss.lines] == ["training", "test", "ood"]
    assert loss.get_yscale() == "log"
    np.testing.assert_allclose(loss.lines[0].get_ydata(), [1, 1 / 11, 1 / 21])
    np.testing.assert_allclose(r2.lines[1].get_ydata(), [-3.0, 0.5, 0.75])
    np.testing.assert_array_equal(r2.lines[1].get_xdata(), [0, 10, 20])
    assert r2.get_ylim() == (-0.03, 1.03)
    assert '<img alt="metrics over steps"' in run._repr_html_()


def test_a_run_without_metrics_has_no_picture(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(RunError, match="holds no metrics yet"):
        run.figure()
    assert "<img" not in run._repr_html_()


def test_losses_that_are_zero_or_missing_keep_a_plain_axis() -> None:
    table = pd.DataFrame({"step": [0, 1, 2], "split": "train", "metric": "training_loss",
                          "mean": [1.0, 0.0, np.nan], "se": 0.0, "n": 1})
    figure = metrics_figure(table)
    FigureCanvasAgg(figure).draw()
    assert [axes.get_yscale() for axes in figure.axes] == ["linear"]
