"""What the page of the subspaces says of rates that are known."""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from latentcode.answers import CLASSES
from latentcode.experiments.studies.subspaces.page import page, verdicts, write_page
from latentcode.experiments.studies.subspaces.plan import jobs

RATES = {("operation", "trained"): 0.6, ("operation", "shuffled"): 0.1,
         ("operation", "untrained"): 0.2, ("none", "random"): 0.0, ("none", "whole"): 0.3}
SHARE = {"operation+operands": 1.0, "operands": 0.25, "interchange": 0.4, "unrelated": 0.5}
"""Source -> its rate, of that of the source that was trained with."""
PLACE = {"task": "sraven", "kind": "hyla", "site": "code", "layer": 3, "part": "main"}


def table(*trained: float) -> pd.DataFrame:
    """Return the rates of a place, a seed for each rate of the trained search."""
    rows = []
    for seed, rate in enumerate(trained):
        rates = RATES | {("operation", "trained"): rate}
        for (key, value), source, of in product(
                rates.items(), SHARE, CLASSES):
            value = value * SHARE[source] if of == "operation" else 0.0
            rows.append({**PLACE, "seed": seed, "objective": key[0], "search": key[1], "rank": 16,
                         "source": source, "class": of, "value": value, "low": value, "high": value,
                         "n": 100, "n_combinations": 10})
    return pd.DataFrame(rows)


def test_the_margin_is_to_the_best_of_the_controls() -> None:
    (row,) = verdicts(table(0.6)).to_dict("records")
    assert (row["shuffled"], row["untrained"], row["whole"]) == (0.1, 0.2, 0.3)
    assert row["margin"] == pytest.approx(0.3)
    assert (row["without"], row["minimal_pair"], row["unrelated"]) == pytest.approx(
        (0.15, 0.24, 0.3))


@pytest.mark.parametrize(("rates", "exceeds"), [((0.6, 0.5), "yes"), ((0.6, 0.35), "no")])
def test_controls_have_to_be_exceeded_in_every_seed(
    rates: tuple[float, ...], exceeds: str
) -> None:
    found = table(*rates)
    head, line = (line.split(" | ") for line in page(
        found, verdicts(found), {}, 2).splitlines() if line.startswith(
            ("| task | kind | site | layer | objective | seeds", "| sraven | hyla | code | 3 | "
             "operation | 2 |")))
    assert line[head.index("exceeds its three controls")] == exceeds


@pytest.mark.parametrize(("read", "met"), [(0.04, True), (0.7, False)])
def test_no_operation_is_met_where_the_answer_is_there_already(
    read: float, met: bool
) -> None:
    found = table(0.6, 0.5)
    written = page(found, verdicts(found), {("sraven", "hyla", 3): read}, 2)
    assert ("so that none is met in sraven hyla, code 3." in written) is not met
    assert "in sraven hyla, code 3, seed 0 (0.24 and 0.30); sraven hyla, code 3, seed 1" in written


def test_the_page_that_lies_here_is_that_of_the_results(tmp_path: Path) -> None:
    here = Path("experiments/results")
    shutil.copytree(here / "subspaces", tmp_path / "out")
    write_page(tmp_path / "out", here / "rows")
    for name in ("README.md", "table.csv", "curves.csv", "verdicts.csv"):
        assert (tmp_path / "out" / name).read_text() == (here / "subspaces" / name).read_text()


def test_the_study_makes_no_more_searches_than_it_was_given() -> None:
    def several(value: object) -> int:
        return len(value) if isinstance(value, tuple) else 1

    searches = [several(job.settings.get("objective", "operation"))
                * several(job.settings.get("rank", 4))
                * several(job.settings.get("searches", ("trained", "shuffled", "untrained")))
                for job in jobs()]
    assert sum(searches) == 60
    assert len({job.folder for job in jobs()}) == len(jobs())
