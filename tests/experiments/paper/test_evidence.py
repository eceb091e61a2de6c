"""Tables of measured values: completed, and refused with one line that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from judged_claims import CLAIMS, Rows, judged, values_for

from latentcode.errors import ConfigError
from latentcode.experiments.paper.verdicts import COLUMNS, COMPARED, evidence

RUN: dict[str, Any] = {"member": "kind=hyla", "run": "a", "seed": 0, "split_seed": 1, "value": 0.9}


def test_columns_are_completed_and_typed() -> None:
    table = evidence([RUN, {"member": "n_values=8", "value": np.float32(0.25), "se": 0, "n": 4096}])
    assert list(table.columns) == list(COLUMNS)
    assert table.dtypes.astype(str).to_dict() == {
        "member": "object", "control": "object", "run": "object", "seed": "Int64",
        "split_seed": "Int64", "value": "float64", "low": "float64", "high": "float64",
        "se": "float64", "n": "Int64"}
    assert table["control"].tolist() == [None, None]
    assert table["run"].tolist() == ["a", None]
    assert table["seed"].isna().tolist() == [False, True]
    assert table["value"].tolist() == [0.9, 0.25]
    assert table["n"].tolist() == [pd.NA, 4096]


def test_a_table_that_was_written_is_read_again() -> None:
    table = evidence([RUN, {"member": "n_values=8", "value": True, "low": 0.2, "high": 0.3}])
    again = evidence(table.to_dict("records"))
    pd.testing.assert_frame_equal(again, table)
    assert evidence([]).dtypes.equals(table.dtypes)


@pytest.mark.parametrize(("named", "changes"), [
    ("member", {"member": None}), ("value", {"value": None}), ("value", {"value": float("inf")})])
def test_what_is_wrong_with_a_row_is_named(named: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"\b{named}\b"):
        evidence([{**RUN, **changes}])


def test_a_value_is_given_once() -> None:
    with pytest.raises(ConfigError, match=r"kind=hyla.* two values"):
        evidence([RUN, {**RUN, "value": 0.8}])
    assert len(evidence([RUN, {**RUN, "run": "b"}])) == 2


def with_(**values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [{**rows[0], **values}, *rows[1:]]


@pytest.mark.parametrize(("name", "change", "named"), [
    ("tabA1-sraven-hyla", with_(member="kind=hylla"), "kind=hylla"),
    ("tabA1-sraven-hyla", with_(member="kind=hyla: layer 0"), "layer 0"),
    ("fig5f-rule-decodable", with_(control="shuffled codes"), "shuffled codes"),
    ("fig5f-rule-decodable", with_(control=None), "control"),
    ("fig5f-strongly-predictive", with_(member=COMPARED), COMPARED)])
def test_what_cannot_be_judged_is_named(
    name: str, change: Callable[[Rows], Rows], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        judged(name, change(values_for(CLAIMS[name], "differs")))
