"""Verdicts: what cannot be judged is said."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from judged_claims import CLAIMS, Rows, best, judged, values_for

from latentcode.errors import ConfigError
from latentcode.experiments.evidence.verdicts import (
    COMPARED,
    evidence,
    judge,
)


def dropped(*names: str) -> Callable[[Rows], Rows]:
    return lambda rows: [{key: value for key, value in row.items() if key not in names}
                         for row in rows]


def with_(**values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [{**rows[0], **values}, *rows[1:]]


@pytest.mark.parametrize(("name", "change", "message"), [
    ("tabA1-sraven-hyla", with_(member="kind=hylla"),
     "unknown member in values of claim tabA1-sraven-hyla 'kind=hylla'; expected one of: kind="),
    ("tabA1-sraven-hyla", with_(member="kind=hyla: layer 0"), "unknown member in values of claim"),
    ("tabA1-sraven-hyla", with_(control="shuffled labels"),
     "control in values of claim tabA1-sraven-hyla is 'shuffled labels'; expected None for rule"),
    ("tabA1-sraven-hyla", dropped("run", "seed", "split_seed"),
     "two values of the same member"),
    ("tabA1-sraven-hyla-ahead", with_(run=None, seed=None, split_seed=None),
     "seeds in values of claim tabA1-sraven-hyla-ahead are missing for kind=hyla; expected those "
     "of its run"),
    ("tabA2-k-4", with_(seed=0, split_seed=0),
     "seeds in values of claim tabA2-k-4 are given for n_values=4; expected se and n of the task"),
    ("tabA2-k-4", dropped("se"), "se in values of claim tabA2-k-4 is missing for n_values=4; "),
    ("tabA2-less-than-half-a-percent", dropped("low", "high"),
     "low in values of claim tabA2-less-than-half-a-percent is missing for n_values=8; expected"),
    ("tabA2-less-than-half-a-percent",
     lambda rows: [*rows, {**rows[0], "run": None, "seed": 1, "split_seed": 1}],
     "evidence of 'n_values=8', of which the task alone is measured, has 2 rows; expected one"),
    ("fig5f-rule-decodable", with_(control="shuffled codes"),
     "unknown control in values of claim fig5f-rule-decodable 'shuffled codes'; expected one of: "
     "shuffled labels, the code of the untrained model"),
    ("fig5f-rule-decodable", with_(control=None), "unknown control in values of claim"),
    ("fig5f-rule-decodable", dropped("low", "high"),
     "low in values of claim fig5f-rule-decodable is missing for kind=softmax, kind=linear, "),
    ("fig5f-strongly-predictive", with_(member=COMPARED),
     "unknown member in values of claim fig5f-strongly-predictive 'kind=softmax'; expected one of: "
     "all members"),
    ("figA9-number-of-tasks", with_(value=0.5), "is 0.5; expected 1.0 (holds) or 0.0"),
    ("figA9-number-of-tasks", with_(value=float("nan")), "value in evidence of 'n_features=1' is"),
])
def test_what_cannot_be_judged_is_said(
    name: str, change: Callable[[Rows], Rows], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        judged(name, change(values_for(CLAIMS[name], "differs")))
    assert "\n" not in str(caught.value)


def test_a_table_without_a_column_is_refused() -> None:
    claim = CLAIMS["tabA1-sraven-hyla"]
    table = evidence(best(claim)).drop(columns=["se", "seed"])
    with pytest.raises(ConfigError, match=r"claim tabA1-sraven-hyla lack column\(s\) seed, se"):
        judge(claim, table)
