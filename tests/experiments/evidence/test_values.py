"""Tables of measured values: completed, and refused with one line that names what is wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from latentcode.errors import ConfigError
from latentcode.experiments.evidence.values import COLUMNS, evidence

RUN: dict[str, Any] = {"member": "kind=hyla", "run": "a", "seed": 0, "split_seed": 1, "value": 0.9}


def test_columns_are_completed_and_typed() -> None:
    table = evidence([RUN, {"member": "n_values=8", "value": np.float32(0.25), "se": 0, "n": 4096}])
    assert tuple(table.columns) == COLUMNS
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


@pytest.mark.parametrize(("changes", "message"), [
    ({"colour": 3}, "evidence of 'kind=hyla' has unknown column(s) colour; expected: member,"),
    ({"member": None}, "evidence of None lacks column(s) member"),
    ({"member": 3}, "member in evidence of 3 is 3; expected a name"),
    ({"value": None}, "evidence of 'kind=hyla' lacks column(s) value"),
    ({"value": float("nan")}, "value in evidence of 'kind=hyla' is nan; expected a finite number"),
    ({"value": float("inf")}, "value in evidence of 'kind=hyla' is inf; expected a finite number"),
    ({"value": "0.9"}, "value in evidence of 'kind=hyla' is '0.9'; expected a finite number"),
    ({"seed": 0.5}, "seed in evidence of 'kind=hyla' is 0.5; expected a whole number"),
    ({"seed": None}, "seed in evidence of 'kind=hyla' is None and split_seed 1; expected both"),
    ({"seed": None, "split_seed": None}, "seed in evidence of 'kind=hyla' is None; expected that "
                                         "of run a"),
    ({"low": 0.1}, "low in evidence of 'kind=hyla' is 0.1 and high None; expected both"),
    ({"low": 0.1, "high": 0.0}, "low in evidence of 'kind=hyla' is 0.1; expected at most high"),
    ({"se": -1}, "se in evidence of 'kind=hyla' is -1.0; expected at least 0"),
])
def test_what_is_wrong_with_a_row_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        evidence([{**RUN, **changes}])
    assert "\n" not in str(caught.value)


def test_a_value_is_given_once() -> None:
    with pytest.raises(ConfigError, match=r"two values of the same .*: kind=hyla, None, a, 0, 1; "):
        evidence([RUN, {**RUN, "value": 0.8}])
    assert len(evidence([RUN, {**RUN, "run": "b"}])) == 2
