"""Fig. 5E: cosines between the mean codes of rules in HYLA, beside the rules that it confuses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize, TwoSlopeNorm

from latentcode.experiments.paper.measuring.known_rules import (
    caveat,
    confusion,
    knows_rules,
    titled,
)
from latentcode.experiments.paper.measuring.mean_codes import (
    LARGEST_OTHER,
    SHUFFLED,
    sum_and_difference,
)
from latentcode.experiments.paper.measuring.over_runs import controls_of, judged, n_runs, nothing
from latentcode.experiments.paper.reproduction import Findings, Reproduction, Work, about, by_preset
from latentcode.figures.heat_maps import heat_map
from latentcode.figures.style import Figure
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import where
from latentcode.probes.similarity import SimilarityResult, similarity
from latentcode.runs import Run
from latentcode.tasks.sraven.rules import RULES

SHOWS = by_preset("sraven", kinds="kind=hyla", small=("training.steps=9000",))
N = {"paper": 4_096, "small": 2_048, "smoke": 300}


def measure(work: Work) -> Findings:
    """Return the cosines of mean codes in the last layer, and the confusion of the rules."""
    runs = list(work.runs_of(SHOWS[work.preset]))
    if not runs:
        return nothing("HYLA on SRAVEN")
    n = N[work.preset]
    compared = [work.measured(run, similarity, SimilarityResult, label="rule", n=n)
                for _, run in runs]
    alike = _of_runs(runs, [sum_and_difference(result) for result in compared])
    confused = _of_runs(runs, [work.table(run, confusion, n=n) for _, run in runs])
    cosines = _of_runs(runs, [_last_layer(result) for result in compared])
    last = alike[alike["layer"] == alike["layer"].max()]
    rows = where(last, features="code", centring="raw")
    known = {run.name for _, run in runs if knows_rules(run)}
    evidence = {claim.id: [
        {**row, "control": row["against"]} for row in rows[rows["run"].isin(known)].to_dict(
            "records") if row["against"] in controls_of(claim)] for claim in work.claims}
    _, first = runs[0]
    return Findings(
        summary=_said(rows),
        tables={"sum_and_difference": alike, "cosines": cosines, "confusion": confused},
        figures={"fig5e": _drawn(where(cosines, run=first.name), where(confused, run=first.name),
                                 titled([first]))},
        evidence=judged(evidence),
        notes=("Judged on models that know their rules alone, as one that takes sum for difference "
               "would show the same.",
               "The picture is of the first run, the numbers of all. Centred: the mean of the "
               "rules taken away first.", *caveat(run for _, run in runs)))


def _of_runs(runs: Sequence[tuple[str, Run]], tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([table.assign(**about(*of_run))
                      for of_run, table in zip(runs, tables, strict=True)], ignore_index=True)


def _last_layer(result: SimilarityResult) -> pd.DataFrame:
    return where(result.cosines, layer=max(result.settings["layers"]))


def _said(rows: pd.DataFrame) -> str:
    own = rows[rows["against"].isna()]
    if not len(own):
        return "The task's held-out combinations lack sums or differences."
    other, shuffled = (where(rows, against=control)["value"].mean()
                       for control in (LARGEST_OTHER, SHUFFLED))
    mean = own["value"].mean()
    return (f"In HYLA's last layer the mean codes of sum and difference have a cosine of "
            f"{mean:.2f} ({n_runs(own)}); the largest of either with another rule is "
            f"{mean - other:.2f}, with shuffled rules it is {mean - shuffled:.2f}.")


def _drawn(cosines: pd.DataFrame, confused: pd.DataFrame, title: str) -> Figure:
    code = where(cosines, features="code")
    rules = [rule for rule in RULES if rule in set(confused["rule"]) | set(code["row"])]
    signed = TwoSlopeNorm(0.0, -1.0, 1.0)
    shown = [("cosine of mean codes", where(code, centring="raw"), ("row", "column"), signed),
             ("centred", where(code, centring="centred"), ("row", "column"), signed),
             ("answered as", confused, ("rule", "as"), Normalize(0.0, 1.0))]
    # Higher than the squares with their words need, or these would touch its edges.
    with panels(1, len(shown), 3.3 * len(shown), 3.8, title) as (figure, grid):
        for axes, (name, table, (down, across), norm) in zip(grid[0], shown, strict=True):
            matrix = table.pivot(index=down, columns=across, values="value").reindex(
                index=rules, columns=rules)
            drawn = heat_map(axes, matrix, norm, numbers=True, fontsize=6.0, rotation=90.0)
            axes.set(title=name, box_aspect=1.0)
            if not np.isfinite(matrix.to_numpy()).any():
                axes.set_xlabel("the codes do not vary")
            figure.colorbar(drawn, ax=axes, fraction=0.045, pad=0.02)
        for axes in grid[0, 1:]:
            axes.set_yticklabels([])
    return figure


REPRODUCTIONS = (Reproduction(
    "fig5e", "Cosines between the mean codes of rules in HYLA, beside the rules that it confuses",
    SHOWS, measure),)
