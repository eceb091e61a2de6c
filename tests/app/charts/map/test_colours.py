"""Does every point have the colour and the place that its label says?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from scipy.spatial.distance import pdist

from latentcode.app.charts.map.colours import clusters, colours, distinct
from latentcode.app.charts.map.component import point_size
from latentcode.app.data.projections import MOST_ENTRIES

SIGHTS = {
    "trichromat": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "protanope": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranope": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474],
                    [-0.0118, 0.0429, 0.9689]]}
"""What becomes of linear RGB (Machado et al. 2009)."""
LMS = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
LAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
"""From linear RGB to Oklab (Ottosson 2020), in which distances are those that people see."""


def closest(colors: Sequence[str], sight: np.ndarray) -> float:
    """Return the distance in Oklab of the two colours that are most alike."""
    srgb = np.array([to_rgb(color) for color in colors])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    lab = np.cbrt(np.clip(linear @ sight.T, 0.0, 1.0) @ LMS.T) @ LAB.T
    return float(pdist(lab).min())


def test_every_point_has_the_colour_of_its_value() -> None:
    label = pd.Series(["sum", "constant", "sum", "sum"], name="rule")
    shown = colours(label, title="rule", dark=False)
    assert [shown.names[value] for value in shown.values] == label.tolist()
    assert shown.counts == (1, 3)
    assert len(set(shown.colors)) == 2
    assert not shown.continuous


def test_rare_values_are_counted_together() -> None:
    label = pd.Series([f"c{i:02}" for i in range(30) for _ in range(i + 1)], name="combination")
    shown = colours(label, title="combination", dark=True)
    assert len(shown.names) == len(shown.colors) == len(set(shown.colors)) == MOST_ENTRIES
    assert shown.names[:-1] == tuple(f"c{i:02}" for i in range(19, 30))
    assert shown.names[-1] == "other (19)"
    assert shown.counts[-1] == sum(range(1, 20))
    named = [shown.names[value] for value in shown.values]
    assert all(name in (value, "other (19)") for name, value in zip(named, label, strict=True))


def test_measurements_lie_on_a_scale() -> None:
    label = pd.Series([2.0, 4.0, np.nan, 3.0], name="loss")
    shown = colours(label, title="loss", dark=False)
    assert shown.continuous
    assert shown.values.tolist() == [0, 63, 64, 32]
    assert shown.colors[64] not in shown.colors[:64]  # that of what is missing
    assert shown.bounds == ("2", "4")


@pytest.mark.parametrize("dark", [False, True])
def test_colours_can_be_told_apart(dark: bool) -> None:
    assert len(set(distinct(24, dark))) == 24
    for sight in SIGHTS.values():
        assert closest(distinct(MOST_ENTRIES, dark), np.array(sight)) > 0.05


def test_a_name_stands_where_its_value_is_alone() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    which = rng.integers(0, 3, 900)
    points = centres[which] + 0.3 * rng.normal(size=(900, 2))
    mixed = np.where(which == 2, rng.integers(0, 2, 900), which)
    found = clusters(points, colours(pd.Series(mixed).map({0: "a", 1: "b"}).rename("rule"),
                                     title="rule", dark=False))
    assert {name["value"] for name in found} == {0, 1}
    for name in found:
        # The third place has both values, and the name of neither.
        assert np.linalg.norm(np.array(name["at"]) - centres[name["value"]]) < 1.0


def test_a_value_that_is_everywhere_has_no_name() -> None:
    rng = np.random.default_rng(0)
    label = pd.Series(rng.choice(["a", "b", "c", "d"], 4_000), name="rule")
    assert clusters(rng.normal(size=(4_000, 2)), colours(label, title="rule", dark=False)) == []


def test_more_points_are_smaller() -> None:
    sizes = [point_size(n) for n in (1, 2_000, 20_000, 100_000, 1_000_000)]
    assert sizes == sorted(sizes, reverse=True)
    assert 1.0 <= sizes[-1] < sizes[0] <= 8.0
