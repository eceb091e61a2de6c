"""What is made of rates of subspaces that are known."""

from __future__ import annotations

from itertools import product

import pandas as pd
import pytest

from latentcode.answers import CLASSES
from latentcode.experiments.evidence.study import study
from latentcode.experiments.studies.subspaces.rates import criterion, rates

RATES = {("operation", "trained"): 0.6, ("operation", "shuffled"): 0.1,
         ("operation", "untrained"): 0.2, ("none", "random"): 0.0, ("none", "whole"): 0.3}
SHARE = {"operation+operands": 1.0, "operands": 0.25, "interchange": 0.4, "unrelated": 0.5}
"""Source -> its rate, of that of the source that was trained with."""
PLACE = {"task": "sraven", "kind": "hyla", "site": "code", "layer": 3}


def table(*trained: float) -> pd.DataFrame:
    """Return the rates of a place, a seed for each rate of the trained search."""
    rows = []
    for seed, rate in enumerate(trained):
        of_search = RATES | {("operation", "trained"): rate}
        for (key, value), source, of in product(of_search.items(), SHARE, CLASSES):
            value = value * SHARE[source] if of == "operation" else 0.0
            rows.append({**PLACE, "seed": seed, "objective": key[0], "search": key[1], "rank": 16,
                         "source": source, "class": of, "value": value, "low": value, "high": value,
                         "n": 100, "n_combinations": 10})
    return pd.DataFrame(rows)


def test_the_margin_is_to_the_best_of_the_controls() -> None:
    (row,) = rates(table(0.6)).to_dict("records")
    assert (row["shuffled"], row["untrained"], row["whole"]) == (0.1, 0.2, 0.3)
    assert row["margin"] == pytest.approx(0.3)
    assert (row["without"], row["minimal_pair"], row["unrelated"]) == pytest.approx(
        (0.15, 0.24, 0.3))


@pytest.mark.parametrize(("trained", "exceeds"), [((0.6, 0.5), True), ((0.6, 0.35), False)])
def test_controls_have_to_be_exceeded_in_every_seed(
    trained: tuple[float, ...], exceeds: bool
) -> None:
    (row,) = criterion(rates(table(*trained)), {}).to_dict("records")
    assert row["exceeds"] is exceeds
    assert row["seeds"] == 2
    assert row["margin"] == pytest.approx(min(trained) - 0.3)


@pytest.mark.parametrize(("read", "there"), [(0.04, False), (0.7, True)])
def test_no_operation_is_met_where_the_answer_is_there_already(
    read: float, there: bool
) -> None:
    (row,) = criterion(rates(table(0.6, 0.5)), {("sraven", "hyla", 3): read}).to_dict("records")
    assert row["exceeds"]
    assert row["there"] is there
    (unknown,) = criterion(rates(table(0.6, 0.5)), {}).to_dict("records")
    assert unknown["there"]


def test_the_study_makes_no_more_searches_than_it_was_given() -> None:
    asked = study("subspaces")

    def several(value: object) -> int:
        return len(value) if isinstance(value, list) else 1

    searches = [len([run for group in one.of for run in asked.opened()[group]])
                * several(one.settings.get("objective", "operation"))
                * several(one.settings.get("rank", 4))
                * several(one.settings.get("searches", ["trained", "shuffled", "untrained"]))
                for one in asked.plan.ask.values()]
    assert sum(searches) == 60
