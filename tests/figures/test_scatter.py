"""Do figures show their data, look alike, and leave matplotlib as it was?"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from latentcode.errors import ProbeError
from latentcode.figures.panels import ScatterCell, scatter_figure
from latentcode.figures.style import PALETTE, style


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
