"""What the page of the subspaces says of rates that are known."""

from __future__ import annotations

from itertools import product

import pandas as pd
import pytest

from latentcode.answers import CLASSES
from latentcode.experiments.studies.subspaces.page import page, verdicts
from latentcode.experiments.studies.subspaces.plan import jobs

RATES = {("operation", "trained"): 0.6, ("operation", "shuffled"): 0.1,
         ("operation", "untrained"): 0.2, ("none", "random"): 0.0, ("none", "whole"): 0.3}
PLACE = {"task": "sraven", "kind": "hyla", "site": "code", "layer": 3, "part": "main"}


def table(*trained: float) -> pd.DataFrame:
    """Return the rates of a place, a seed for each rate of the trained search."""
    rows = []
    for seed, rate in enumerate(trained):
        rates = RATES | {("operation", "trained"): rate}
        for (key, value), donor, of in product(
                rates.items(), ("operation+operands", "operands"), CLASSES):
            value = value if of == "operation" else 0.0
            value = value if donor != "operands" else value / 4
            rows.append({**PLACE, "seed": seed, "objective": key[0], "search": key[1], "rank": 16,
                         "donor": donor, "class": of, "value": value, "low": value, "high": value,
                         "n": 100, "n_combinations": 10})
    return pd.DataFrame(rows)


def test_the_margin_is_to_the_best_of_the_controls() -> None:
    (row,) = verdicts(table(0.6)).to_dict("records")
    assert (row["shuffled"], row["untrained"], row["whole"]) == (0.1, 0.2, 0.3)
    assert row["margin"] == pytest.approx(0.3)
    assert row["without"] == pytest.approx(0.15)


@pytest.mark.parametrize(("rates", "holds"), [((0.6, 0.5), "yes"), ((0.6, 0.35), "no")])
def test_it_has_to_hold_in_every_seed(rates: tuple[float, ...], holds: str) -> None:
    found = table(*rates)
    (line,) = [line for line in page(found, verdicts(found), 2).splitlines()
               if line.startswith("| sraven | hyla | code | 3 | operation | 2 |")]
    assert line.split(" | ")[-2] == holds


def test_the_study_makes_no_more_searches_than_it_was_given() -> None:
    def several(value: object) -> int:
        return len(value) if isinstance(value, tuple) else 1

    searches = [several(job.settings.get("objective", "operation"))
                * several(job.settings.get("rank", 4))
                * several(job.settings.get("searches", ("trained", "shuffled", "untrained")))
                for job in jobs()]
    assert sum(searches) == 60
    assert len({job.folder for job in jobs()}) == len(jobs())
