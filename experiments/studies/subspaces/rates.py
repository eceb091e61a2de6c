"""How often does a trained subspace bring its objective's answer, beside its controls?

The criterion was written down before any search: `subspace_least` in
`experiments/evidence/claims/operation.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from latentcode.experiments.evidence.found import Found, all_tables
from latentcode.experiments.evidence.pages import ROOT
from latentcode.experiments.evidence.rules import everywhere
from latentcode.experiments.studies.operation.criteria import CRITERIA, answer_entering
from latentcode.probes.common.results import blocks, where
from latentcode.probes.das.result import SOURCE

PLACE = ("task", "kind", "site", "layer")
CONTROLS = ("shuffled", "untrained", "whole")
"""What a trained subspace has to exceed."""
WITHOUT = {"operation": "operands", "operands": "interchange"}
"""Objective -> a source that has not what it asks for: no other operation, no other operands."""
LEAST: float = CRITERIA["subspace_least"]
"""By how much the rate has to be higher, as written down before the searches."""
LIMIT: float = CRITERIA["answer_not_there_yet"]
"""How well the answer may be read from what enters a layer for an operation to be met there."""


def tables(found: Found) -> dict[str, pd.DataFrame]:
    """Return the tables of all searches, and `rates`."""
    searched = all_tables(found)
    return {**searched, "rates": rates(searched["searches"])}


def rates(searches: pd.DataFrame) -> pd.DataFrame:
    """Return the rate of the objective's class per model, place and objective, beside its controls.

    margin  the least difference from a control
    without, minimal_pair, unrelated  the rate of that class where the source has not what the
            objective asks for, is the minimal pair's, or shares nothing
    """
    main = where(searches, source=SOURCE)
    rows = []
    for named, _ in blocks(main[main["search"] == "trained"], (*PLACE, "seed", "objective")):
        here = where(main, **{name: named[name] for name in (*PLACE, "seed")},
                     **{"class": named["objective"]})
        trained = where(here, search="trained", objective=named["objective"])
        controls = {name: float(_one(here, name, named["objective"])["value"]) for name in CONTROLS}
        rate = float(trained["value"].iloc[0])
        rows.append({**named, "trained": rate, "low": float(trained["low"].iloc[0]),
                     "high": float(trained["high"].iloc[0]), **controls,
                     "margin": rate - max(controls.values()),
                     "without": _from(searches, named, WITHOUT[str(named["objective"])]),
                     "minimal_pair": _from(searches, named, "interchange"),
                     "unrelated": _from(searches, named, "unrelated"),
                     "n": int(trained["n"].iloc[0])})
    return pd.DataFrame(rows)


def _from(searches: pd.DataFrame, named: dict[str, object], source: str) -> float:
    """Return the rate of the objective's class through its trained subspace, by source."""
    rows = where(searches, **named, search="trained", source=source,
                 **{"class": named["objective"]})
    return float(rows["value"].iloc[0])


def _one(rows: pd.DataFrame, search: str, objective: str) -> pd.Series:
    found = where(rows, search=search)
    return found[found["objective"].isin([objective, "none"])].iloc[0]


def shown(tables: Mapping[str, pd.DataFrame]) -> dict[str, object]:
    """Return what the page says beside the tables: where the criterion is met.

    The study of rows has read answers from residual streams.
    """
    scores = pd.read_csv(ROOT / "experiments/results/rows/tables/scores.csv")
    return {"least": LEAST, "limit": LIMIT,
            "criterion": criterion(tables["rates"], answer_entering(scores))}


def criterion(
    rates: pd.DataFrame, entering: Mapping[tuple[str, str, int], float]
) -> pd.DataFrame:
    """Is the criterion met? A row per place and objective, with the means over the seeds.

    margin    the smallest of any seed
    exceeds   whether the rate exceeds its three controls by enough in every seed
    entering  how well the answer is read from what enters the layer
    there     whether an operation is not met because of that
    """
    rows = []
    for named, block in blocks(rates, (*PLACE, "objective")):
        exceeds = everywhere("margin", block["margin"], "above", LEAST, fewest=1)
        read = entering.get((named["task"], named["kind"], int(named["layer"])))
        means = block[["trained", *CONTROLS, "without", "minimal_pair", "unrelated"]].mean()
        rows.append({**named, "seeds": len(block), **means, "margin": block["margin"].min(),
                     "exceeds": exceeds.verdict == "agrees", "entering": read,
                     "there": exceeds.verdict == "agrees" and named["objective"] == "operation"
                     and not (read is not None and read <= LIMIT)})
    return pd.DataFrame(rows)
