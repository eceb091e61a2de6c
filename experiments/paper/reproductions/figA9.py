"""Fig. A9: how many SRAVEN tasks and problem instances are there (B.1)?

With M features, K symbols, G columns and R = 8 rules:

    combinations   C(R + M - 1, M)   multisets of rules
    permutations   (M!)^(G-1)        orders of the other columns' features against the last one's
    tasks          combinations x permutations

Permuting all columns in the same way changes nothing but the names of the features, hence G - 1
and not G. The paper prints (M!)^(G-1) - M without saying why; that would leave no permutation at
all at M = 1, where there is exactly one. Both are given here.

Fig. A9B has no printed formula. Let g_r be the number of feature grids that obey rule r
(`feature_grids_per_rule`). Then

    instances        (M!)^(G-1) h_M(g)       sum over the tasks of prod_m g_{r_m}
    instances_shown  (M!)^(G-1) (sum_r g_r)^M

count *generating choices*; h_M is the sum of the products of all multisets of M of the g_r. The
first counts a problem once whatever the order of the response tokens, as B.1 counts tasks; the
second tells apart which response token has which rule, as the grids that a model is shown do.
Neither counts *distinct grids*, which are fewer than the second: several rules may produce the
same feature (all zeros are constant, sum and difference), and several permutations the same
panels. There is no closed form for them, and `distinct_grids` estimates their number.
"""

from __future__ import annotations

from math import comb, factorial

import pandas as pd
import torch

from latentcode.config import SravenConfig
from latentcode.experiments.paper.claims import Claim
from latentcode.experiments.paper.reproduction import NO_RUNS, Findings, Reproduction, Work
from latentcode.experiments.paper.sraven_answers import (
    candidate_features,
    count_alignments,
    instances_at_once,
    partner_tokens,
)
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.style import GREY, PALETTE, Figure
from latentcode.metrics import mean_metric
from latentcode.probes.common.figures import panels
from latentcode.tasks.sraven.task import (
    RULES,
    feature_grids_per_rule,
    permute_features,
    random_permutations,
    rules_that_hold,
    sample_features,
)

N_FEATURES, N_VALUES, GRID_SIZE = range(1, 9), (4, 8, 16), 3
ESTIMATED = range(1, 5)
"""Features up to which distinct grids are estimated; beyond, it takes long."""
N_DRAWN = 4_000
MANY = 100
"""How many times the instances of the longest training are `orders of magnitude` more."""


def count_sraven(
    n_features: int, n_values: int, grid_size: int = GRID_SIZE
) -> dict[str, int]:
    """Return the numbers of this module's docstring for one M, K and G, as exact integers.

    `permutations_printed` and `tasks_printed` are by the paper's formula.
    """
    sizes = feature_grids_per_rule(n_values, grid_size)
    combinations = comb(len(RULES) + n_features - 1, n_features)
    permutations = factorial(n_features) ** (grid_size - 1)
    products = [1] + [0] * n_features  # h_0 .. h_M of the rules seen so far
    for size in sizes:
        for m in range(1, n_features + 1):
            products[m] += size * products[m - 1]
    return {
        "combinations": combinations,
        "permutations": permutations,
        "permutations_printed": permutations - n_features,
        "tasks": combinations * permutations,
        "tasks_printed": combinations * (permutations - n_features),
        "instances": permutations * products[n_features],
        "instances_shown": permutations * sum(sizes) ** n_features}


def distinct_grids(
    n_features: int, n_values: int, n: int, grid_size: int = GRID_SIZE
) -> pd.DataFrame:
    """Return an estimate, without bias, of the number of distinct permuted grids from n drawn ones.

    The sum over generating choices of 1 / (choices that give the same grid) counts every grid
    once. A choice is a tuple of M features that obey some rule and a relative permutation; a rule
    is drawn in proportion to its number of feature grids, which draws a feature in proportion to
    the number of rules that it obeys, and the estimate divides by that.
    """
    sizes = feature_grids_per_rule(n_values, grid_size)
    generator = torch.Generator().manual_seed(0)
    partners = partner_tokens(n_features, grid_size)
    odds = torch.tensor([s / sum(sizes) for s in sizes], dtype=torch.float64)
    values = []
    block = instances_at_once(n_features, grid_size)
    for start in range(0, n, block):
        m = min(block, n - start)
        rules = torch.multinomial(odds, m * n_features, replacement=True, generator=generator)
        features = sample_features(rules.view(m, n_features), n_values, grid_size, generator)
        obeyed = rules_that_hold(features, n_values).sum(-1).double().prod(1)
        permutations = random_permutations((m, grid_size), n_features, generator)
        grid = permute_features(features.movedim(1, -1), permutations)
        allowed = rules_that_hold(candidate_features(grid), n_values).any(-1)
        values.append(1.0 / (obeyed * count_alignments(allowed, partners)))
    estimate = mean_metric(torch.cat(values).numpy())
    choices = float(sum(sizes) ** n_features * factorial(n_features) ** (grid_size - 1))
    return pd.DataFrame([{"n_features": n_features, "n_values": n_values,
                          "distinct": estimate.mean * choices,
                          "distinct_se": estimate.se * choices, "drawn": n}])


def measure(work: Work) -> Findings:
    """Return the number of tasks over M, by the printed formula and by ours, and of instances."""
    counts = pd.DataFrame([
        {"n_features": m, "n_values": k, **count_sraven(m, k)}
        for k in N_VALUES for m in N_FEATURES])
    estimates = pd.concat([
        work.table(None, distinct_grids, n_features=m, n_values=k, n=work.size(N_DRAWN, 50))
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
