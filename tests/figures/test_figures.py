"""Do codes and runs show themselves, with the right numbers, whatever their labels are?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from latentcode.codes import LatentCodes
from latentcode.codes.latent_codes import MOST_ROWS
from latentcode.config.presets import preset
from latentcode.errors import ConfigError, RunError, UnknownNameError
from latentcode.figures.figures import LONGEST, metrics_figure
from latentcode.figures.style import Figure
from latentcode.metrics import Metric
from latentcode.runs import Run
from latentcode.tasks.pairs import Pair

PNG = b"\x89PNG"


def make_codes(labels: pd.DataFrame, heads: int = 3, token: int | None = 1) -> LatentCodes:
    scores = np.random.default_rng(0).normal(size=(len(labels), 2, 1, heads)).astype(np.float32)
    return LatentCodes(scores, labels, (Pair("q->k", "one", token),), (1, 4), {"run": "r"})


def heat_map(figure: Figure) -> tuple[Axes, np.ndarray, list[str]]:
    axes = figure.axes[0]
    names = [text.get_text() for text in axes.get_yticklabels()]
    return axes, np.asarray(axes.images[0].get_array()), names


def draw(figure: Figure) -> None:
    FigureCanvasAgg(figure).draw()


RULES = pd.DataFrame({
    "split": ["ood"] * 6, "combination": ["a", "a", "b", "b", "c", "c"],
    "rule_0": ["x", "y"] * 3, "rule_1": ["sum", "sum", "+1", "+1", "+1", "sum"],
    "target": [0.5, 0.25, 1.0, 0.0, 0.125, 2.0]})


def test_rows_are_the_mean_codes_of_the_pairs_own_constituent() -> None:
    codes = make_codes(RULES)
    axes, shown, names = heat_map(codes.figure())
    assert names == ["+1", "sum"]
    assert axes.get_ylabel() == "rule"
    assert axes.get_title() == "layer 4, q->k, 6 instances"
    chosen = (RULES["rule_1"] == "+1").to_numpy()
    expected = [codes.scores[rows, 1, 0].mean(axis=0) for rows in (chosen, ~chosen)]
    np.testing.assert_allclose(shown, expected, rtol=1e-6)
    _, shown, names = heat_map(codes.figure("rule_0", layer=1))
    assert names == ["x", "y"]
    np.testing.assert_allclose(shown[0], codes.scores[::2, 0, 0].mean(axis=0), rtol=1e-6)


def test_without_a_label_that_instances_share_the_mean_of_all_is_shown() -> None:
    codes = make_codes(pd.DataFrame({"prompt": list("abcdef"), "split": ["ood"] * 6}), token=None)
    _, shown, names = heat_map(codes.figure())
    assert names == ["all"]
    np.testing.assert_allclose(shown[0], codes.scores[:, 1, 0].mean(axis=0), rtol=1e-6)


def test_what_cannot_be_drawn_is_said() -> None:
    codes = make_codes(pd.DataFrame({"id": range(MOST_ROWS + 1), "none": [None] * (MOST_ROWS + 1)}))
    with pytest.raises(ConfigError, match=rf"'id' has {MOST_ROWS + 1} values; expected one to"):
        codes.figure("id")
    with pytest.raises(ConfigError, match="'none' has 0 values"):
        codes.figure("none")
    with pytest.raises(UnknownNameError, match="unknown label 'nothing'"):
        codes.figure("nothing")
    with pytest.raises(UnknownNameError, match="unknown layer 0; expected one of: 1, 4"):
        codes.figure(layer=0)
    empty = make_codes(RULES.head(0))
    with pytest.raises(ConfigError, match="no instances"):
        empty.figure()
    assert "<img" not in empty._repr_html_()


def test_text_of_labels_is_neither_mathematics_nor_markup() -> None:
    hostile = RULES.rename(columns={"rule_1": "$\\x$_1"})
    hostile["$\\x$_1"] = ["$\\frac{$", "<script>alert(1)</script>" + "y" * LONGEST] * 3
    codes = make_codes(hostile)
    figure = codes.figure()
    draw(figure)  # mathematics that cannot be parsed raises here
    axes, _, names = heat_map(figure)
    assert axes.get_ylabel() == "$\\x$"
    assert names[0] == "$\\frac{$"
    assert len(names[1]) == LONGEST
    assert names[1].endswith("…")
    page = codes._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_codes_show_a_picture_beside_their_table() -> None:
    page = make_codes(RULES)._repr_html_()
    assert page.count('<img alt="mean codes" src="data:image/png;base64,') == 1
    assert len(page) < 60_000


def test_figures_show_themselves_without_pyplot() -> None:
    code = ("import sys; from latentcode.figures.style import Figure; "
            "figure = Figure(figsize=(1, 1)); "
            "figure.subplots(); sys.stdout.buffer.write(figure._repr_png_()); "
            "sys.exit('matplotlib.pyplot' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.startswith(PNG)


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
    draw(figure)
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
    draw(figure)
    assert [axes.get_yscale() for axes in figure.axes] == ["linear"]
