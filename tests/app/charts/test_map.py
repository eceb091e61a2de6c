"""Does every point have the colour and the place that its label says?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from latentcode.app.charts.map import clusters, colours
from latentcode.app.charts.theme import grey
from latentcode.app.data.projections import MOST_ENTRIES


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
    assert (shown.names[-1], shown.colors[-1], shown.others) == ("other (19)", grey(True), True)
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
