"""Do heat maps, points in a plane and metrics show their data, with the right numbers?"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize, TwoSlopeNorm

from latentcode.codes import LatentCodes
from latentcode.codes.latent_codes import MOST_ROWS
from latentcode.errors import ConfigError, ProbeError, RunError, UnknownNameError
from latentcode.figures.panels import LONGEST, ScatterCell, heat_map, metrics_figure, scatter_figure
from latentcode.figures.style import PALETTE, Figure, style
from latentcode.metrics import Metric
from latentcode.presets import preset
from latentcode.runs import Run
from latentcode.tasks.pairs import Pair


def make_codes(labels: pd.DataFrame, heads: int = 3, token: int | None = 1) -> LatentCodes:
    scores = np.random.default_rng(0).normal(size=(len(labels), 2, 1, heads)).astype(np.float32)
    return LatentCodes(scores, labels, (Pair("q->k", "one", token),), (1, 4), {"run": "r"})


def drawn(figure: Figure) -> tuple[Axes, np.ndarray, list[str]]:
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
    axes, shown, names = drawn(codes.figure())
    assert names == ["+1", "sum"]
    assert axes.get_ylabel() == "rule"
    assert axes.get_title() == "layer 4, q->k, 6 instances"
    chosen = (RULES["rule_1"] == "+1").to_numpy()
    expected = np.array([codes.scores[rows, 1, 0].mean(axis=0) for rows in (chosen, ~chosen)])
    np.testing.assert_allclose(shown, expected - expected.mean(axis=0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(drawn(codes.figure(centred=False))[1], expected, rtol=1e-6)
    _, shown, names = drawn(codes.figure("rule_0", layer=1, centred=False))
    assert names == ["x", "y"]
    np.testing.assert_allclose(shown[0], codes.scores[::2, 0, 0].mean(axis=0), rtol=1e-6)


def test_the_mean_that_is_taken_off_is_that_of_the_values() -> None:
    """However often each occurs; and the bar says what is shown."""
    labels = pd.DataFrame({"rule": ["a"] * 5 + ["b"]})
    codes = make_codes(labels, token=None)
    means = codes.mean_by("rule", layer=4, pair="q->k")
    figure = codes.figure("rule")
    np.testing.assert_allclose(drawn(figure)[1], means - means.mean(), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(drawn(figure)[1].sum(axis=0), 0.0, atol=1e-6)
    assert figure.axes[1].get_ylabel() == "mean score − mean of rows"
    assert codes.figure("rule", centred=False).axes[1].get_ylabel() == "mean score"
    single = codes[:5].figure("rule")
    assert single.axes[1].get_ylabel() == "mean score"
    np.testing.assert_allclose(drawn(single)[1], codes[:5].mean_by("rule", layer=4, pair="q->k"))


def test_without_a_label_that_instances_share_the_mean_of_all_is_shown() -> None:
    codes = make_codes(pd.DataFrame({"prompt": list("abcdef"), "split": ["ood"] * 6}), token=None)
    _, shown, names = drawn(codes.figure())
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
    axes, _, names = drawn(figure)
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


def test_cells_have_names_and_numbers_that_can_be_read_on_their_colour() -> None:
    matrix = pd.DataFrame([[0.0, 0.25], [np.nan, 1.0]], index=["$a", "b"], columns=["c", "d"])
    figure = Figure()
    axes = figure.subplots()
    image = heat_map(axes, matrix, Normalize(0.0, 1.0), numbers=True)
    draw(figure)
    np.testing.assert_array_equal(image.get_array(), matrix)
    assert [text.get_text() for text in axes.get_xticklabels()] == ["c", "d"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["$a", "b"]
    written = {text.get_text(): text.get_color() for text in axes.texts}
    assert written == {"0.00": "white", "0.25": "white", "1.00": "black"}
    signed = heat_map(axes, matrix, TwoSlopeNorm(0.0, -1.0, 1.0))
    assert signed.get_cmap() != image.get_cmap()


def test_of_many_numbered_columns_some_are_named() -> None:
    axes = Figure().subplots()
    heat_map(axes, pd.DataFrame(np.eye(20), columns=range(100, 120)), Normalize(0.0, 1.0))
    assert list(axes.get_xticks()) == list(range(0, 20, 2))
    assert [text.get_text() for text in axes.get_xticklabels()][:2] == ["100", "102"]


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


def cell(row: str, column: str, values: list[object], name: str, seed: int = 0) -> ScatterCell:
    points = np.random.default_rng(seed).normal(size=(len(values), 2))
    return ScatterCell(row, column, points, pd.Series(values, name=name))


def test_a_figure_has_a_panel_per_cell_and_names_the_categories() -> None:
    figure = scatter_figure([cell("hyla", "layer 0", ["a", "b", "a", "c"], "term"),
                             cell("hyla", "layer 1", ["c", "c", "b", "b"], "term", seed=1)])
    legend = figure.axes[2].get_legend()
    assert legend.get_title().get_text() == "term"
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]


@pytest.mark.parametrize(("cells", "message"), [
    ([cell("a", "b", [1, 2], "x")] * 2, "same row and column"),
    ([cell("1", "1", [1], "x"), cell("1", "2", [1], "y")], "mixes labels"),
    ([cell("a", "b", [0.5, float("nan")], "x")], "1 values that are not finite"),
    ([cell("a", "b", list(range(57)), "x")], "57 categories cannot be told apart"),
])
def test_places_that_cannot_be_drawn_are_errors(cells: list[ScatterCell], message: str) -> None:
    with pytest.raises(ProbeError, match=message):
        scatter_figure(cells)


def test_the_palette_differs_in_lightness_or_hue_for_every_kind_of_colour_vision() -> None:
    """No two colours coincide after simulated loss of red, green or blue cones."""
    lms = np.array([[0.31399, 0.63951, 0.04650], [0.15537, 0.75789, 0.08670],
                    [0.01775, 0.10945, 0.87257]])
    # Vienot, Brettel and Mollon (1999) and Brettel (1997), in linear RGB -> LMS.
    without = {
        "red": np.array([[0, 1.05118, -0.05116], [0, 1, 0], [0, 0, 1]]),
        "green": np.array([[1, 0, 0], [0.95131, 0, 0.04867], [0, 0, 1]]),
        "blue": np.array([[1, 0, 0], [0, 1, 0], [-0.86745, 1.86727, 0]])}
    srgb = np.array([mpl.colors.to_rgb(c) for c in PALETTE])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    for matrix in without.values():
        seen = np.clip((np.linalg.inv(lms) @ matrix @ lms @ linear.T).T, 0, 1)
        shown = np.where(seen <= 0.0031308, 12.92 * seen, 1.055 * seen ** (1 / 2.4) - 0.055)
        distance = np.linalg.norm(shown[:, None] - shown, axis=-1)
        assert distance[np.triu_indices(len(PALETTE), 1)].min() > 0.15


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    before = dict(mpl.rcParams)
    mpl.rcParams["font.size"] = 23.0
    try:
        with style():
            assert mpl.rcParams["font.size"] == 9.0
        scatter_figure([cell("a", "b", ["x", "y"], "term")])
        assert mpl.rcParams["font.size"] == 23.0
    finally:
        mpl.rcParams["font.size"] = before["font.size"]
    assert dict(mpl.rcParams) == before
