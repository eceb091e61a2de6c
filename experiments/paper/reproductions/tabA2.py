"""Table A2: how many SRAVEN instances are ambiguous, and what can a perfect solver reach?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from latentcode.experiments.paper.claims import Setting, printed
from latentcode.experiments.paper.reproduction import NO_RUNS, Findings, Reproduction, Work
from latentcode.experiments.paper.sraven_answers import instances
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.metrics import mean_metric
from latentcode.probes.common.figures import panels

N_VALUES = (4, 8, 16)
N_FEATURES = 4
N_INSTANCES = {"paper": 20_000, "small": 4_000, "smoke": 100}
SENSES = {"official": "the official checker counts", "ambiguous": "ambiguous as B.2 words it",
          "solved": "solved by the Bayes-optimal solver"}


def measure(work: Work) -> Findings:
    """Return the share of instances that is ambiguous in both senses, and that can be solved."""
    table = pd.DataFrame([row for k in N_VALUES for row in _shares(work, k)])
    ours = table.set_index(["n_values", "sense"])["value"]
    return Findings(
        summary="; ".join(
            f"K = {k}: the official checker counts {ours[k, 'official']:.5f} of the instances, "
            f"{ours[k, 'ambiguous']:.3f} are ambiguous as B.2 words it, and the Bayes-optimal "
            f"solver gets {ours[k, 'solved']:.3f} right" for k in N_VALUES) + ".",
        tables={"shares": table},
        figures={"tabA2": _figure(table)},
        evidence={claim.id: _evidence(claim.setting, table,
                                      "ambiguous" if claim.kind == "comparison" else "official")
                  for claim in work.claims},
        notes=("B.2 calls an instance ambiguous if other rules and permutations fit the context "
               "and give another answer. The official checker, which Table A2 follows, counts it "
               "only if all features can go wrong at once.",
               "Accuracies on SRAVEN are read against the Bayes-optimal solver, which knows the "
               "rules and all their combinations."))


def _shares(work: Work, k: int) -> list[dict[str, object]]:
    found = instances(work, N_INSTANCES[work.preset], N_FEATURES, k)
    rows: list[dict[str, object]] = []
    for sense in SENSES:
        share = mean_metric(found[sense].to_numpy())
        rows.append({"n_features": N_FEATURES, "n_values": k, "sense": sense, "value": share.mean,
                     "low": max(0.0, share.mean - 1.96 * share.se),
                     "high": min(1.0, share.mean + 1.96 * share.se), "se": share.se, "n": share.n,
                     **(_published(k) if sense == "official" else {})})
    return rows


def _published(k: int) -> dict[str, float | None]:
    """Return the printed share of K values, with its standard error."""
    for claim in printed("tabA2"):
        if _only_value(claim.setting) == k and claim.published is not None:
            return {"published": claim.published.value, "published_error": claim.published.error}
    return {}


def _only_value(setting: Setting) -> int:
    (point,) = setting.grid.points().values()
    return int(point["task.n_values"])


def _evidence(setting: Setting, table: pd.DataFrame, sense: str) -> pd.DataFrame:
    (member,) = setting.grid.points()
    own = table[(table["n_values"] == _only_value(setting)) & (table["sense"] == sense)]
    return evidence([
        {"member": member, **{name: row[name] for name in ("value", "low", "high", "se", "n")}}
        for row in own.to_dict("records")])


def _figure(table: pd.DataFrame) -> Figure:
    with panels(1, 2, 7.4, 2.9, width_ratios=(3, 2)) as (figure, ((left, right),)):
        place = range(len(N_VALUES))
        official = table[table["sense"] == "official"]
        left.errorbar([x - 0.08 for x in place], official["published"],
                      yerr=official["published_error"], fmt="D", color=GREY, capsize=2,
                      markersize=4, label="published")
        for axes, senses in ((left, ("official", "ambiguous")), (right, ("solved",))):
            for color, sense in zip(PALETTE, senses, strict=False):
                own = table[table["sense"] == sense]
                axes.errorbar([x + 0.08 * (sense == "official") for x in place], own["value"],
                              yerr=own["se"], fmt="o", color=color, capsize=2, markersize=4,
                              label=SENSES[sense])
                _label(axes, own["value"].tolist())
            axes.set_xticks(place, [str(k) for k in N_VALUES])
            axes.set_xlim(-0.4, len(N_VALUES) - 0.4)
            axes.set_xlabel(f"values K (M = {N_FEATURES})")
        left.set_yscale("symlog", linthresh=1e-3)
        left.set_ylim(-2e-4, 1.3)
        left.set_ylabel("share of instances")
        right.set_ylim(0.7, 1.03)
        right.set_ylabel("Bayes-optimal accuracy")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _label(axes: Axes, values: Sequence[float]) -> None:
    for x, value in enumerate(values):
        text = np.format_float_positional(value, precision=2, fractional=False)
        axes.annotate(text, (x, value), xytext=(13, 0), textcoords="offset points", va="center",
                      fontsize=8)


REPRODUCTIONS = (Reproduction(
    "tabA2", "Ambiguous instances of SRAVEN and the Bayes-optimal solver", NO_RUNS, measure),)
