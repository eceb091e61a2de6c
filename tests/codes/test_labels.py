"""Are labels of one's own taken as they are, and refused where they cannot be labels?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from latentcode.codes import LatentCodes
from latentcode.codes.latent_codes import label_groups
from latentcode.errors import ConfigError
from latentcode.tasks.pairs import Pair


def make_codes() -> LatentCodes:
    return LatentCodes(np.zeros((3, 1, 1, 2), np.float32), pd.DataFrame({
        "rule_0": ["a", "b", "a"], "combination": ["x", "y", "z"]}), (Pair("q->k", "one", 0),),
        (0,), {"run": "r"})


def test_groups_are_numbered_columns() -> None:
    assert label_groups(["rule_0", "target", "rule_1", "x_y", "combination"]) == {
        "rules": ("rule_0", "rule_1")}


@pytest.mark.parametrize("values", [
    [True, False, True], (1, 2, 3), ["a", "b", "c"], np.arange(3), torch.tensor([1, 0, 1]),
    torch.tensor([0.5, 1.0, 2.0], requires_grad=True), pd.Series(["a", "b", "c"], index=[5, 6, 7]),
    [np.int64(1), 2, 3]])
def test_values_of_any_array_become_a_column(values: Any) -> None:
    codes = make_codes()
    more = codes.with_labels(mine=values)
    wanted = values.tolist() if isinstance(values, torch.Tensor | np.ndarray) else list(values)
    assert more.labels["mine"].tolist() == wanted
    assert list(more.labels) == ["rule_0", "combination", "mine"]
    assert more.scores is codes.scores
    assert "mine" not in codes.labels


@pytest.mark.parametrize(("values", "message"), [
    ([1, 2], r"'mine' has shape \(2,\); expected \(3,\), one value per instance"),
    ([1.0, np.nan, 2.0], r"'mine' has 1 missing values \(NaN or None\) among 3"),
    ([1, "a", 2], "'mine' has values of type mixed-integer; expected one of"),
    ([np.inf, 1.0, 2.0], "'mine' has infinite values"),
    (lambda batch: batch.targets, "'mine' is a function; expected its values"),
])
def test_what_is_no_label_is_said(values: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_codes().with_labels(mine=values)


@pytest.mark.parametrize("name", [
    "combination", "rule_0", "rule", "rules", "rule_7", "layer", "pair", "instance", "head_1"])
def test_a_name_that_stands_for_something_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"label '{name}' exists already"):
        make_codes().with_labels(**{name: [1, 2, 3]})


def test_a_name_is_text() -> None:
    assert "self" in make_codes().with_labels(**{"self": [1, 2, 3]}).labels
    with pytest.raises(ConfigError, match="the name of a label is ' '"):
        make_codes().with_labels(**{" ": [1, 2, 3]})
    codes = make_codes().with_labels(even_1=[1, 2, 3])
    with pytest.raises(ConfigError, match="label 'even' exists already"):
        codes.with_labels(even=[1, 2, 3])
