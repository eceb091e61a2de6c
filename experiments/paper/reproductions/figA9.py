"""Fig. A9: how many SRAVEN tasks and problem instances are there?"""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
import torch

from latentcode.config import SravenConfig
from latentcode.experiments.paper.claims import Claim
from latentcode.experiments.paper.measuring.sraven_counts import count_sraven, distinct_instances
from latentcode.experiments.paper.reproduction import NO_RUNS, Findings, Reproduction, Work
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.probes.common.figures import panels

N_FEATURES, N_VALUES, GRID_SIZE = range(1, 9), (4, 8, 16), 3
ESTIMATED = range(1, 5)
"""Features up to which distinct grids are estimated; beyond, it takes long."""
N_DRAWN = 4_000
MANY = 100
"""How many times the instances of the longest training are `orders of magnitude` more."""


def distinct_grids(n_features: int, n_values: int, n: int) -> pd.DataFrame:
    """Return an estimate of the number of distinct permuted grids, with its standard error."""
    found = distinct_instances(n_features, n_values, GRID_SIZE, n,
                               torch.Generator().manual_seed(0))
    return pd.DataFrame([{"n_features": n_features, "n_values": n_values,
                          "distinct": found.mean, "distinct_se": found.se, "drawn": n}])


def measure(work: Work) -> Findings:
    """Return the number of tasks over M, by the printed formula and by ours, and of instances."""
    counts = pd.DataFrame([
        {"n_features": m, "n_values": k, **asdict(count_sraven(m, k, GRID_SIZE))}
        for k in N_VALUES for m in N_FEATURES])
    estimates = pd.concat([
        work.task_table(distinct_grids, n_features=m, n_values=k, n=work.size(N_DRAWN, 50))
        for k in N_VALUES for m in ESTIMATED], ignore_index=True)
    table = counts.merge(estimates, how="left", on=["n_features", "n_values"])
    at = table[(table["n_features"] == 4) & (table["n_values"] == 8)].to_dict("records")[0]
    wrong = counts[(counts["n_values"] == 8) & (counts["tasks"] != counts["tasks_printed"])]
    return Findings(
        summary=f"With 4 features there are {at['tasks']:,} tasks; the printed formula gives "
                f"{at['tasks_printed']:,}, and differs from the count for {len(wrong)} of "
                f"{len(N_FEATURES)} numbers of features. With 8 values they have "
                f"{float(at['instances']):.2g} instances, whatever the order of the features; "
                f"told apart by it, as they are shown, {float(at['instances_shown']):.2g}, in "
                f"about {at['distinct']:.2g} distinct grids.",
        # Whole numbers beyond 64 bits are kept as floats.
        tables={"counts": table.astype(dict.fromkeys(counts.columns[2:], float))},
        figures={"figA9": _figure(table)},
        evidence={claim.id: _evidence(claim, table) for claim in work.claims},
        notes=("The printed formula subtracts M from the number of permutations, (M!)^(G-1), "
               "without saying why.",
               "No formula is printed for Fig. A9B. Ours counts generating choices. Distinct grids "
               "are fewer than these as they are shown, as several rules or permutations may give "
               "the same panels."))


def _evidence(claim: Claim, table: pd.DataFrame) -> pd.DataFrame:
    """Does the printed formula give the number of tasks; are there many more instances?"""
    found = {(row["n_features"], row["n_values"]): row for row in table.to_dict("records")}
    rows = []
    for member, config in claim.setting.grid.members().items():
        assert isinstance(config.task, SravenConfig)
        at = found[config.task.n_features, config.task.n_values]
        seen = config.training.steps * config.training.batch_size
        holds = (at["tasks"] == at["tasks_printed"] if claim.id == "figA9-number-of-tasks"
                 else at["instances"] >= MANY * seen)
        rows.append({"member": member, "value": float(holds)})
    return evidence(rows)


def _figure(table: pd.DataFrame) -> Figure:
    with panels(1, 2, 7.6, 3.0) as (figure, ((left, right),)):
        tasks = table[table["n_values"] == N_VALUES[0]]
        left.plot(tasks["n_features"], tasks["tasks"], color=PALETTE[0], marker="o", markersize=4,
                  label="combinations × permutations")
        printed = tasks[tasks["tasks_printed"] > 0]  # 0 has no place on the axis
        left.plot(printed["n_features"], printed["tasks_printed"], color=PALETTE[3], marker="x",
                  linestyle="dashed", label="printed formula")
        left.set_title("A tasks", loc="left")
        left.legend(loc="upper left")
        for color, (k, rows) in zip(PALETTE, table.groupby("n_values"), strict=False):
            right.plot(rows["n_features"], rows["instances"].astype(float), color=color,
                       marker="o", markersize=4, label=f"K = {k}")
            right.plot(rows["n_features"], rows["distinct"], color=color, marker="_",
                       linestyle="dotted")
        right.axhline(40e6, color=GREY, linestyle="dashed", linewidth=1.0)
        right.annotate("40 M: longest training", (8, 40e6), xytext=(0, -9), ha="right",
                       textcoords="offset points", fontsize=7.5, color=GREY)
        right.plot([], [], color=GREY, marker="_", linestyle="dotted",
                   label="distinct grids, as shown")
        right.set_title("B problem instances", loc="left")
        right.legend(loc="upper left")
        for axes in (left, right):
            axes.set_yscale("log")
            axes.set_xticks(list(N_FEATURES))
            axes.set_xlabel("features M")
    return figure


REPRODUCTIONS = (Reproduction(
    "figA9", "The number of SRAVEN tasks and problem instances", NO_RUNS, measure),)
