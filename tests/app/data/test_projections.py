"""Is every label offered once, under a name and with values that a person can read?"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from small_app import PAIR, RULES, drawn_codes

from latentcode.app.data.projections import LegendEntry, colour_labels, legend_entries, value_name
from latentcode.probes.knn_purity import response_labels


def letters(*counts: int) -> pd.Series:
    return pd.Series([letter for letter, n in zip("abcdefghijklmnopq", counts, strict=False)
                      for _ in range(n)], name="letter")


def test_every_label_that_tells_points_apart_is_offered_once() -> None:
    drawn = drawn_codes()
    assert response_labels(drawn.labels, drawn.pair(PAIR)) == {"rule_0": "rule"}
    assert drawn.label("rule", PAIR).name == "rule_0"
    assert colour_labels(drawn, PAIR) == ["rule", "combination", "loss", "accuracy"]
    # Those of other tokens are offered as well.
    codes = replace(drawn, labels=drawn.labels.assign(
        target_0=[0, 1] * 45, target_1=[0, 1] * 45, number=range(90), same="always"))
    offered = colour_labels(codes, PAIR)
    assert offered[:2] == ["rule", "target"]
    assert set(offered) == {"rule", "target", "target_1", "combination", "loss", "accuracy"}


def test_of_many_values_the_rare_ones_share_a_line() -> None:
    values = letters(3, 1, 5, 1, 9)
    assert legend_entries(values, most=3) == [
        LegendEntry("c", ("c",)), LegendEntry("e", ("e",)), LegendEntry("other (3)", tuple("abd"))]
    assert legend_entries(values, most=5)[-1] == LegendEntry("e", ("e",))
    # Of equally frequent ones, the first.
    assert [entry.name for entry in legend_entries(letters(1, 1, 1, 1), most=3)] == [
        "a", "b", "other (2)"]


def test_values_are_in_order_and_accuracies_in_words() -> None:
    rule = drawn_codes().labels["rule_0"]
    assert legend_entries(rule) == [LegendEntry(name, (name,)) for name in sorted(RULES)]
    accuracy = drawn_codes().labels["accuracy"]
    assert legend_entries(accuracy) == [LegendEntry("wrong", (0.0,)), LegendEntry("right", (1.0,))]
    assert value_name("feature_accuracy", 0.5) == "0.5"
    assert value_name("share", 1.0) == "1.0"
    assert value_name("rule", "+1") == "+1"
