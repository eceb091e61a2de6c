"""Tests of which rules a model knows, and which it takes for another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch.nn.functional as F
from torch import Tensor, nn

from latentcode.config import SravenConfig
from latentcode.experiments.paper.measuring.known_rules import (
    caveat,
    confusion,
    knows_rules,
    least_known,
)

TASK = SravenConfig(n_features=2, n_values=8, permuted=False)


class Adds(nn.Module):
    """Answers every row with the sum of its first two symbols."""

    def forward(self, inputs: Tensor) -> Tensor:
        symbols = inputs.argmax(-1).unflatten(1, (9, TASK.n_features))
        return F.one_hot((symbols[:, 6] + symbols[:, 7]) % TASK.n_values, TASK.n_values).float()


def run_that(model: nn.Module) -> Any:
    return SimpleNamespace(config=SimpleNamespace(task=TASK), load_model=lambda device: model)


def test_confusion_of_a_model_that_always_adds() -> None:
    table = confusion(run_that(Adds()), n=3_000)
    shares = table.pivot(index="rule", columns="as", values="value")
    # a + b is right under a constant row where a = 0, and equals a - b where b is 0 or 4.
    assert shares.loc["constant", "constant"] == pytest.approx(1 / 8, abs=0.05)
    assert shares.loc["constant", "sum"] == pytest.approx(7 / 8, abs=0.05)
    for rule, expected in (("sum", 0.0), ("difference", 3 / 4)):
        if rule in shares.index:
            found = shares.loc[rule, "sum" if rule == "difference" else "difference"]
            assert found == pytest.approx(expected, abs=0.06)
            assert shares.loc[rule, rule] == pytest.approx(1.0 - expected, abs=0.06)
    assert {"sum", "difference"} & set(shares.index), "nothing was tested of the two"
    others = shares.drop(index="distribute-three", errors="ignore")
    if "distribute-three" in others:
        assert others["distribute-three"].isna().all()


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
