"""Sentences about runs, and which models know their rules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd

from latentcode.experiments.paper.reproduction import caveat, knows_rules, least_known, per_kind


def test_the_mean_of_each_kind_is_said_with_the_number_of_runs() -> None:
    rows = pd.DataFrame({"kind": ["hyla", "hyla", "linear"], "value": [0.2, 0.4, 0.5]})
    assert per_kind(rows) == "linear 0.50, HYLA 0.30 (linear one run, HYLA 2 runs)"
    assert per_kind(rows[:2]) == "HYLA 0.30 (2 runs)"


def metrics(**shares: float) -> Any:
    rows = [{"split": "ood", "metric": f"feature_accuracy[{rule}]", "mean": share}
            for rule, share in shares.items()]
    rows += [{"split": "test", "metric": "feature_accuracy[sum]", "mean": 0.1},
             {"split": "ood", "metric": "accuracy", "mean": 0.2}]
    return SimpleNamespace(name="a", newest_metrics=lambda: pd.DataFrame(rows))


def test_a_model_knows_its_rules_where_each_is_right_in_nine_of_ten_held_out_instances() -> None:
    assert knows_rules(metrics(sum=0.90, difference=0.99))
    ignorant = metrics(sum=0.97, difference=0.62)
    assert least_known(ignorant) == ("difference", 0.62)
    assert not knows_rules(ignorant)
    note, = caveat([metrics(sum=0.95), ignorant])
    assert note.startswith("1 model(s) do not know every rule (least: difference right in 0.62")
    assert caveat([metrics(sum=0.95)]) == ()
