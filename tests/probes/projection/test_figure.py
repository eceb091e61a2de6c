"""Do figures show their data, look alike, and leave matplotlib as it was?"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex

from latentcode.errors import ProbeError
from latentcode.figures.style import MARKERS, PALETTE, category_styles, style
from latentcode.probes.projection.figure import ScatterCell, scatter_figure


def cell(row: str, column: str, values: list[object], name: str, seed: int = 0) -> ScatterCell:
    points = np.random.default_rng(seed).normal(size=(len(values), 2))
    return ScatterCell(row, column, points, pd.Series(values, name=name))


def colors_at(figure: object, panel: int) -> dict[tuple[float, float], str]:
    axes = figure.axes[panel]  # type: ignore[attr-defined]
    figure.canvas.draw()  # type: ignore[attr-defined]
    found = {}
    for collection in axes.collections:
        assert isinstance(collection, PathCollection)
        offsets = np.asarray(collection.get_offsets())
        faces = np.broadcast_to(collection.get_facecolor(), (len(offsets), 4))
        found |= {(x, y): to_hex(c) for (x, y), c in zip(offsets, faces, strict=True)}
    return found


def test_a_category_has_one_colour_in_all_panels() -> None:
    cells = [cell("hyla", "layer 0", ["a", "b", "a", "c"], "term"),
             cell("hyla", "layer 1", ["c", "c", "b", "b"], "term", seed=1)]
    figure = scatter_figure(cells)
    expected = dict(zip("abc", PALETTE, strict=False))
    for panel, mine in enumerate(cells):
        colors = colors_at(figure, panel)
        assert len(colors) == 4
        for point, value in zip(mine.coordinates, mine.values, strict=True):
            assert colors[tuple(point)] == expected[value].lower()
    legend = figure.axes[2].get_legend()
    assert legend.get_title().get_text() == "term"
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]


def test_a_measurement_has_one_scale_in_all_panels() -> None:
    cells = [cell("hyla", "layer 0", [0.0, 1.0], "target"),
             cell("hyla", "layer 1", [1.0, 4.0], "target", seed=1)]
    figure = scatter_figure(cells)
    norms = [axes.collections[0].norm for axes in figure.axes[:2]]
    assert {(norm.vmin, norm.vmax) for norm in norms} == {(0.0, 4.0)}
    first, second = colors_at(figure, 0), colors_at(figure, 1)
    assert first[tuple(cells[0].coordinates[1])] == second[tuple(cells[1].coordinates[0])]


def test_whole_numbers_can_be_a_measurement() -> None:
    cells = [cell("hyla", "layer 0", [0, 5, 7], "target")]
    assert scatter_figure(cells).axes[1].get_legend() is not None
    assert scatter_figure(cells, continuous=["target"]).axes[1].get_legend() is None


def test_places_that_cannot_be_drawn_are_errors() -> None:
    with pytest.raises(ProbeError, match="no panels"):
        scatter_figure([])
    with pytest.raises(ProbeError, match="same row and column"):
        scatter_figure([cell("a", "b", [1, 2], "x"), cell("a", "b", [1, 2], "x")])
    with pytest.raises(ProbeError, match="mixes labels"):
        scatter_figure([cell("1", "1", [1], "x"), cell("1", "2", [1], "y")])
    with pytest.raises(ProbeError, match=r"shape \(3, 2\); expected \(2, 2\)"):
        ScatterCell("a", "b", np.zeros((3, 2)), pd.Series([1, 2], name="x"))
    with pytest.raises(ProbeError, match="1 values that are not finite"):
        scatter_figure([cell("a", "b", [0.5, float("nan")], "x")])
    with pytest.raises(ProbeError, match="57 categories cannot be told apart"):
        scatter_figure([cell("a", "b", list(range(57)), "x")])


def test_categories_are_told_apart_by_colour_then_shape() -> None:
    styles = category_styles(range(20))
    assert len(set(styles.values())) == 20
    assert styles[0] == (PALETTE[0], MARKERS[0])
    assert styles[8] == (PALETTE[0], MARKERS[1])


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
