"""Tables A2 and A3, Fig. A1 and A9: counts of SRAVEN, hyperparameters, and attention's equations.

With M features, K symbols, G columns and R = 8 rules, SRAVEN has (B.1, Fig. A9)

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
panels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, factorial
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.config import RunConfig, flatten, to_dict
from latentcode.experiments.paper.claims import load_claims, printed
from latentcode.experiments.paper.reproduction import (
    KIND_TITLES,
    NO_RUNS,
    RUN,
    Findings,
    Reproduction,
    Work,
    about,
    by_preset,
)
from latentcode.experiments.paper.sraven_answers import fresh_instances
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.panels import signed_norm
from latentcode.figures.style import DIVERGING, GREY, PALETTE, Figure
from latentcode.metrics import mean_metric
from latentcode.models import HookedTransformer
from latentcode.models.config import kind_of
from latentcode.models.hypernetwork import TwoWays, two_ways
from latentcode.presets import preset
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import where
from latentcode.runs import Run
from latentcode.tasks import make_task
from latentcode.tasks.sraven.task import RULES, feature_grids_per_rule

# Table A2: ambiguous instances

N_VALUES = (4, 8, 16)
N_FEATURES = 4
N_INSTANCES = {"paper": 20_000, "small": 4_000, "smoke": 100}
SENSES = {"official": "the official checker counts", "ambiguous": "ambiguous as B.2 words it",
          "solved": "solved by the Bayes-optimal solver"}


def ambiguity(work: Work) -> Findings:
    """Return the share of instances that is ambiguous in both senses, and that can be solved."""
    n_values = {claim.id: next(iter(claim.setting.grid.points().values()))["task.n_values"]
                for claim in load_claims() if claim.result == "tabA2"}
    theirs = {n_values[claim.id]: claim.published for claim in printed("tabA2")}
    rows = []
    for k in N_VALUES:
        drawn = work.table(None, fresh_instances, n_features=N_FEATURES, n_values=k, permuted=True,
                           n=N_INSTANCES[work.preset])
        for sense in SENSES:
            share = mean_metric(drawn[sense].to_numpy())
            row = {"n_features": N_FEATURES, "n_values": k, "sense": sense, "value": share.mean,
                   "low": max(0.0, share.mean - 1.96 * share.se),
                   "high": min(1.0, share.mean + 1.96 * share.se), "se": share.se, "n": share.n}
            published = theirs.get(k)
            if sense == "official" and published is not None:
                row |= {"published": published.value, "published_error": published.error}
            rows.append(row)
    table = pd.DataFrame(rows)
    ours = table.set_index(["n_values", "sense"])["value"]
    judged = {}
    for claim in work.claims:
        member, = claim.setting.grid.points()
        sense = "ambiguous" if claim.kind == "comparison" else "official"
        chosen = where(table, n_values=n_values[claim.id], sense=sense)
        judged[claim.id] = evidence(chosen.to_dict("records"), member=member)
    return Findings(
        summary="; ".join(
            f"K = {k}: the official checker counts {ours[k, 'official']:.5f} of the instances, "
            f"{ours[k, 'ambiguous']:.3f} are ambiguous as B.2 words it, and the Bayes-optimal "
            f"solver gets {ours[k, 'solved']:.3f} right" for k in N_VALUES) + ".",
        tables={"shares": table},
        figures={"tabA2": _ambiguity_figure(table)},
        evidence=judged,
        notes=("B.2 calls an instance ambiguous if other rules and permutations fit the context "
               "and give another answer. The official checker, which Table A2 follows, counts it "
               "only if all features can go wrong at once.",
               "Accuracies on SRAVEN are read against the Bayes-optimal solver, which knows the "
               "rules and all their combinations."))


def _ambiguity_figure(table: pd.DataFrame) -> Figure:
    with panels(1, 2, 7.4, 2.9, width_ratios=(3, 2)) as (figure, ((left, right),)):
        place = range(len(N_VALUES))
        official = table[table["sense"] == "official"]
        left.errorbar([x - 0.08 for x in place], official["published"],
                      yerr=official["published_error"], fmt="D", color=GREY, capsize=2,
                      markersize=4, label="published")
        for axes, senses in ((left, ("official", "ambiguous")), (right, ("solved",))):
            for color, sense in zip(PALETTE, senses, strict=False):
                rows = table[table["sense"] == sense]
                axes.errorbar([x + 0.08 * (sense == "official") for x in place], rows["value"],
                              yerr=rows["se"], fmt="o", color=color, capsize=2, markersize=4,
                              label=SENSES[sense])
                for x, value in enumerate(rows["value"]):
                    text = np.format_float_positional(value, precision=2, fractional=False)
                    axes.annotate(text, (x, value), xytext=(13, 0), textcoords="offset points",
                                  va="center", fontsize=8)
            axes.set_xticks(place, [str(k) for k in N_VALUES])
            axes.set(xlim=(-0.4, len(N_VALUES) - 0.4), xlabel=f"values K (M = {N_FEATURES})")
        left.set_yscale("symlog", linthresh=1e-3)
        left.set(ylim=(-2e-4, 1.3), ylabel="share of instances")
        right.set(ylim=(0.7, 1.03), ylabel="Bayes-optimal accuracy")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


# Fig. A9: tasks and problem instances

GRID_SIZE = 3
MOST_FEATURES = 8
MANY = 100
"""How many times the instances of the longest training are `orders of magnitude` more."""


def count_sraven(n_features: int, n_values: int, grid_size: int = GRID_SIZE) -> dict[str, int]:
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
        "combinations": combinations, "permutations": permutations,
        "permutations_printed": permutations - n_features,
        "tasks": combinations * permutations,
        "tasks_printed": combinations * (permutations - n_features),
        "instances": permutations * products[n_features],
        "instances_shown": permutations * sum(sizes) ** n_features}


def counts(work: Work) -> Findings:
    """Return the number of tasks over M, by the printed formula and by ours, and of instances."""
    table = pd.DataFrame([
        {"n_features": m, "n_values": k, **count_sraven(m, k)}
        for k in N_VALUES for m in range(1, MOST_FEATURES + 1)])
    cells = table.set_index(["n_features", "n_values"], drop=False).to_dict("index")
    at, of_eight = cells[4, 8], where(table, n_values=8)
    wrong = (of_eight["tasks"] != of_eight["tasks_printed"]).sum()
    judged = {}
    for claim in work.claims:
        rows = []
        for member, config in claim.setting.grid.members().items():
            task: Any = config.task
            cell = cells[task.n_features, task.n_values]
            seen = config.training.steps * config.training.batch_size
            holds = (cell["tasks"] == cell["tasks_printed"]
                     if claim.id == "figA9-number-of-tasks" else cell["instances"] >= MANY * seen)
            rows.append({"member": member, "value": float(holds)})
        judged[claim.id] = evidence(rows)
    return Findings(
        summary=f"With 4 features there are {at['tasks']:,} tasks; the printed formula gives "
                f"{at['tasks_printed']:,}, and differs from the count for {wrong} of "
                f"{MOST_FEATURES} numbers of features. With 8 values they have "
                f"{float(at['instances']):.2g} instances, whatever the order of the features; "
                f"told apart by it, as they are shown, {float(at['instances_shown']):.2g}.",
        # Whole numbers beyond 64 bits are kept as floats.
        tables={"counts": table.astype(dict.fromkeys(table.columns[2:], float))},
        figures={"figA9": _counts_figure(table)},
        evidence=judged,
        notes=("The printed formula subtracts M from the number of permutations, (M!)^(G-1), "
               "without saying why.",
               "No formula is printed for Fig. A9B. Ours counts generating choices. Distinct grids "
               "are fewer than these as they are shown, as several rules or permutations may give "
               "the same panels."))


def _counts_figure(table: pd.DataFrame) -> Figure:
    with panels(1, 2, 7.6, 3.0) as (figure, ((left, right),)):
        tasks = table[table["n_values"] == N_VALUES[0]]
        left.plot(tasks["n_features"], tasks["tasks"], color=PALETTE[0], marker="o", markersize=4,
                  label="combinations × permutations")
        positive = tasks[tasks["tasks_printed"] > 0]  # 0 has no place on the axis
        left.plot(positive["n_features"], positive["tasks_printed"], color=PALETTE[3], marker="x",
                  linestyle="dashed", label="printed formula")
        left.set_title("A tasks", loc="left")
        for color, (k, rows) in zip(PALETTE, table.groupby("n_values"), strict=False):
            right.plot(rows["n_features"], rows["instances"].astype(float), color=color,
                       marker="o", markersize=4, label=f"K = {k}")
        right.axhline(40e6, color=GREY, linestyle="dashed", linewidth=1.0)
        right.annotate("40 M: longest training", (8, 40e6), xytext=(0, -9), ha="right",
                       textcoords="offset points", fontsize=7.5, color=GREY)
        right.set_title("B problem instances", loc="left")
        for axes in (left, right):
            axes.legend(loc="upper left")
            axes.set(yscale="log", xticks=list(tasks["n_features"]), xlabel="features M")
    return figure


# Table A3: hyperparameters

TABLE_A3: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "logic": {
        "batch_size": (128,), "num_layers": (2,), "width_factor": (1,), "emb_dim": (128,),
        "kqv_dim": (16,), "mlp_dim": (256,), "num_heads": (8,), "learning_rate": (0.001, 0.003),
        "weight_decay": (0.03, 0.1), "warmup_steps": (100,)},
    "sraven": {
        "batch_size": (128,), "num_layers": (4, 8, 16), "width_factor": (1, 2, 4),
        "emb_dim": (128,), "kqv_dim": (64,), "mlp_dim": (256,), "num_heads": (16,),
        "learning_rate": (0.0003, 0.001), "weight_decay": (0.1, 0.3),
        "warmup_steps": (1_000, 3_000)},
    "language": {
        "batch_size": (256,), "num_layers": (6,), "width_factor": (1,), "emb_dim": (512,),
        "kqv_dim": (64,), "mlp_dim": (2_048,), "num_heads": (8,), "learning_rate": (0.001, 0.003),
        "weight_decay": (0.1, 0.03), "warmup_steps": (1_000,)},
}
"""As printed."""
OF_THE_CLAIM = ("logic", "sraven")
"""What the claim was about before language models could be trained here."""
FIELDS = {"batch_size": "training.batch_size", "num_layers": "model.n_layers",
          "emb_dim": "model.d_model", "mlp_dim": "model.d_mlp", "num_heads": "model.n_heads",
          "learning_rate": "training.learning_rate", "weight_decay": "training.weight_decay",
          "warmup_steps": "training.warmup_steps"}
"""Parameter of the table -> field of ours; the others are computed in `compare`."""


def hyperparameters(work: Work) -> Findings:
    """Return every parameter of the tasks: printed, and of the preset."""
    rows = [row for task in TABLE_A3 for row in compare(task, preset("paper", task))]
    return Findings(
        summary=f"{sum(row['holds'] for row in rows)} of the {len(rows)} values of the presets are "
                "those of Table A3, or a point of its grid; the head dimensions are read as sums "
                "over heads, that of language per head.",
        tables={"parameters": pd.DataFrame(rows)},
        evidence={claim.id: evidence(
            {"member": f"{row['task']} {row['parameter']}", "value": float(row["holds"])}
            for row in rows if row["task"] in OF_THE_CLAIM) for claim in work.claims},
        notes=("The preset is one point of the grid, labelled \"one setting\" until the grid is "
               "run.",
               "The table does not name attention dropout, which the official code has at 0.1.",
               "The claim is about fuzzy logic and SRAVEN. The values of language stand beside "
               "them; no model was trained with these."))


def compare(task: str, config: RunConfig) -> list[dict[str, Any]]:
    """Return a row per parameter: printed values, ours, and whether ours is one of them.

    `kqv_dim` is the sum over heads, in language models that of one head.
    """
    fields, model = flatten(to_dict(config)), config.model
    ours = {name: float(fields[field]) for name, field in FIELDS.items()}
    ours["width_factor"] = model.d_model / TABLE_A3[task]["emb_dim"][0]
    ours["kqv_dim"] = (float("nan") if model.d_head != model.d_head_v else
                       model.d_head * (1 if task == "language" else model.n_heads))
    return [{"task": task, "parameter": name,
             "published": " / ".join(f"{value:g}" for value in values),
             "ours": f"{ours[name]:g}", "holds": ours[name] in values}
            for name, values in TABLE_A3[task].items()]


# Fig. A1: an attention layer as a hypernetwork

OF_A1 = by_preset("logic")
OF_A1["small"] = OF_A1["paper"]
LARGEST_ERROR = 1e-10
"""Of the identity in float64, as the claim fixes it."""


def hypernetwork(work: Work) -> Findings:
    """Return the error of Eq. 2 = Eq. 5 in every layer, and draw the last one of each kind."""
    runs = list(work.runs_of(OF_A1[work.preset]))
    layers = pd.DataFrame([
        {**about(member, run), "layer": layer, "difference": _both_ways(run, layer).difference}
        for member, run in runs for layer in range(run.config.model.n_layers)],
        columns=[*RUN, "layer", "difference"])
    layers["holds"] = layers["difference"] <= LARGEST_ERROR
    sizes = pd.DataFrame([
        {"task": task, "kind": kind,
         "parameters": HookedTransformer(preset("paper", task, kind).model).n_parameters}
        for task in ("logic", "sraven") for kind in KIND_TITLES])
    written = "; ".join(
        f"{'fuzzy logic' if task == 'logic' else 'SRAVEN'} " + ", ".join(
            f"{KIND_TITLES[row['kind']]} {row['parameters']:,}" for row in rows.to_dict("records"))
        for task, rows in sizes.groupby("task"))
    checked = (f"In {int(layers['holds'].sum())} of {len(layers)} layers of trained models the "
               f"output and the sum of the generated networks' outputs differ by at most "
               f"{LARGEST_ERROR:g} (largest difference {layers['difference'].max():.1e})."
               if len(layers) else "No trained model was there to draw.")
    judged = {}
    for claim in work.claims:
        if claim.id == "figA1-no-additional-parameters":
            of_task = where(sizes, task=claim.setting.task)
            judged[claim.id] = evidence([{"member": "the same number of parameters",
                                          "value": float(of_task["parameters"].nunique() == 1)}])
        else:
            judged[claim.id] = evidence(
                row | {"member": f"{row['kind']}, layer {row['layer']}",
                       "value": float(row["holds"])} for row in layers.to_dict("records"))
    drawn = {kind_of(run.config.model): run for _, run in reversed(runs)}
    return Findings(
        summary=f"{checked} Parameters: {written}.",
        tables={"identity": layers, "parameters": sizes},
        figures={"figA1": _hypernetwork_figure(list(reversed(drawn.values())))} if drawn else {},
        evidence=judged,
        notes=("The text's Fig. A1 is pseudocode; ours draws the networks of trained models, for "
               "one held-out function, where the query attends to itself.",))


def _both_ways(run: Run, layer: int) -> TwoWays:
    """Return a layer's output at the query of one held-out function: as it is computed, and as the
    sum of the generated networks' outputs, in float64."""
    batch = make_task(run.config.task).sample("ood", 1, torch.Generator().manual_seed(0))
    return two_ways(run.load_model(), batch.inputs[0], layer, batch.inputs.shape[1] - 1)


def _hypernetwork_figure(runs: Sequence[Run]) -> Figure:
    """Return a row per model: the code, the network that it generates, and the layer's output."""
    with panels(len(runs), 3, 8.6, 2.3 * len(runs) + 0.3) as (figure, grid):
        for (code, network, output), run in zip(grid, runs, strict=True):
            layer = run.config.model.n_layers - 1
            both = _both_ways(run, layer)
            scores = both.codes[-1].numpy()
            code.bar(range(len(scores)), scores, color=PALETTE[0])
            code.axhline(0.0, color="black", linewidth=0.6)
            kind = KIND_TITLES.get(kind_of(run.config.model), kind_of(run.config.model))
            code.set(xticks=range(len(scores)), xlabel="head h", ylabel="score a_h",
                     title=f"{kind}: code of the query, layer {layer}")
            # The weights of the last key's network: one matrix, or layer above layer.
            first, *others = (weight[-1].numpy() for weight in both.network.weights)
            if others:
                half = len(first.T)
                weights = np.concatenate([first.T, others[-1]])
                network.set_yticks(range(2 * half), [*(f"in {i + 1}" for i in range(half)),
                                                     *(f"out {i + 1}" for i in range(half))])
                network.set(title=f"generates an MLP ({both.network.nonlinearity_name})",
                            xlabel="residual stream")
            else:
                weights = first
                network.set(title="generates the value network W_qk", xlabel="output",
                            ylabel="input")
            network.grid(False)
            network.imshow(weights, cmap=DIVERGING, norm=signed_norm(weights), aspect="auto",
                           interpolation="nearest")
            output.axline((0.0, 0.0), slope=1.0, color="#999999", linewidth=0.8)
            output.plot(both.usual.numpy(), both.generated.numpy(), ".", color=PALETTE[2],
                        markersize=4)
            output.set(title=f"all keys (error {both.difference:.0e})", xlabel="layer's output",
                       ylabel="sum of networks")
    return figure


REPRODUCTIONS = (
    Reproduction("figA1", "An attention layer as a hypernetwork, drawn from a trained model",
                 OF_A1, hypernetwork),
    Reproduction("tabA2", "Ambiguous instances of SRAVEN and the Bayes-optimal solver",
                 NO_RUNS, ambiguity),
    Reproduction("figA9", "The number of SRAVEN tasks and problem instances", NO_RUNS, counts),
    Reproduction("tabA3", "The hyperparameters of Table A3 and of ours", NO_RUNS,
                 hyperparameters))
