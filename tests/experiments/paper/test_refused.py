"""Verdicts: what cannot be judged is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from judged_claims import CLAIMS, Rows, best, judged, values_for

from latentcode.errors import ConfigError
from latentcode.experiments.paper.verdicts import COMPARED, evidence, judge


def dropped(*names: str) -> Callable[[Rows], Rows]:
    return lambda rows: [{key: value for key, value in row.items() if key not in names}
                         for row in rows]


def with_(**values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [{**rows[0], **values}, *rows[1:]]


@pytest.mark.parametrize(("name", "change", "named"), [
    ("tabA1-sraven-hyla", with_(member="kind=hylla"), "kind=hylla"),
    ("tabA1-sraven-hyla", with_(member="kind=hyla: layer 0"), "layer 0"),
    ("tabA1-sraven-hyla", with_(control="shuffled labels"), "shuffled labels"),
    ("tabA1-sraven-hyla", dropped("run", "seed", "split_seed"), "two values"),
    ("tabA1-sraven-hyla-ahead", with_(run=None, seed=None, split_seed=None), "seeds .*kind=hyla"),
    ("tabA2-k-4", with_(seed=0, split_seed=0), "seeds .*n_values=4"),
    ("tabA2-k-4", dropped("se"), "^se .*n_values=4"),
    ("tabA2-less-than-half-a-percent", dropped("low", "high"), "^low .*n_values=8"),
    ("tabA2-less-than-half-a-percent",
     lambda rows: [*rows, {**rows[0], "run": None, "seed": 1, "split_seed": 1}], "2 rows"),
    ("fig5f-rule-decodable", with_(control="shuffled codes"), "shuffled codes"),
    ("fig5f-rule-decodable", with_(control=None), "control"),
    ("fig5f-rule-decodable", dropped("low", "high"), "^low .*kind=softmax, kind=linear"),
    ("fig5f-strongly-predictive", with_(member=COMPARED), COMPARED),
    ("figA9-number-of-tasks", with_(value=0.5), "0.5"),
    ("figA9-number-of-tasks", with_(value=float("nan")), "n_features=1.* no finite value")])
def test_what_cannot_be_judged_is_named(
    name: str, change: Callable[[Rows], Rows], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        judged(name, change(values_for(CLAIMS[name], "differs")))


def test_a_table_without_a_column_is_refused() -> None:
    claim = CLAIMS["tabA1-sraven-hyla"]
    table = evidence(best(claim)).drop(columns=["se", "seed"])
    with pytest.raises(ConfigError, match=r"tabA1-sraven-hyla .*seed, se"):
        judge(claim, table)
