"""Fig. A1: an attention layer as a hypernetwork, drawn from a trained model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes

from latentcode.config import preset
from latentcode.experiments.paper.claims import Claim
from latentcode.experiments.paper.reproduction import (
    KIND_TITLES,
    Findings,
    Reproduction,
    Work,
    about,
    by_preset,
)
from latentcode.experiments.paper.verdicts import evidence
from latentcode.figures.panels import signed_norm
from latentcode.figures.style import DIVERGING, PALETTE, Figure
from latentcode.models import HookedTransformer
from latentcode.models.config import kind_of
from latentcode.models.hypernetwork import TwoWays, ValueNetwork, two_ways
from latentcode.probes.common.figures import panels
from latentcode.runs import Run
from latentcode.tasks import make_task

SHOWS = by_preset("logic")
SHOWS["small"] = SHOWS["paper"]
COLUMNS = ("member", "kind", "run", "seed", "split_seed", "layer", "difference", "holds")
LARGEST_ERROR = 1e-10
"""Of the identity in float64, as the claim fixes it."""


def measure(work: Work) -> Findings:
    """Return the error of Eq. 2 = Eq. 5 in every layer, and draw the last one of each kind."""
    runs = list(work.runs_of(SHOWS[work.preset]))
    layers = pd.DataFrame([row for member, run in runs for row in identity(member, run)],
                          columns=list(COLUMNS))
    sizes = parameters()
    drawn = {kind_of(run.config.model): run for _, run in reversed(runs)}
    return Findings(
        summary=_summary(layers, sizes),
        tables={"identity": layers, "parameters": sizes},
        figures={"figA1": _figure(list(reversed(drawn.values())))} if drawn else {},
        evidence={claim.id: _evidence(claim, layers, sizes) for claim in work.claims},
        notes=("The text's Fig. A1 is pseudocode; ours draws the networks of trained models, for "
               "one held-out function, where the query attends to itself.",))


def identity(member: str, run: Run) -> Iterator[dict[str, Any]]:
    """Yield, for every layer, max |output - sum of the generated networks' outputs| in float64."""
    for layer in range(run.config.model.n_layers):
        difference = _layer(run, layer).difference
        yield {**about(member, run), "layer": layer, "difference": difference,
               "holds": difference <= LARGEST_ERROR}


def parameters() -> pd.DataFrame:
    """Return the number of parameters of the published models, a row per task and kind."""
    return pd.DataFrame([
        {"task": task, "kind": kind,
         "parameters": HookedTransformer(preset("paper", task, kind).model).n_parameters}
        for task in ("logic", "sraven") for kind in KIND_TITLES])


def _layer(run: Run, layer: int) -> TwoWays:
    """Return a layer's output at the query of one held-out function, computed twice."""
    task = make_task(run.config.task)
    batch = task.sample("ood", 1, torch.Generator().manual_seed(0))
    return two_ways(run.load_model(), batch.inputs[0], layer, batch.inputs.shape[1] - 1)


def _summary(layers: pd.DataFrame, sizes: pd.DataFrame) -> str:
    written = "; ".join(
        f"{'fuzzy logic' if task == 'logic' else 'SRAVEN'} " + ", ".join(
            f"{KIND_TITLES[row['kind']]} {row['parameters']:,}"
            for row in rows.to_dict("records"))
        for task, rows in sizes.groupby("task"))
    checked = (f"In {int(layers['holds'].sum())} of {len(layers)} layers of trained models the "
               f"output and the sum of the generated networks' outputs differ by at most "
               f"{LARGEST_ERROR:g} (largest difference {layers['difference'].max():.1e}). "
               if len(layers) else "No trained model was there to draw. ")
    return f"{checked}Parameters: {written}."


def _evidence(claim: Claim, layers: pd.DataFrame, sizes: pd.DataFrame) -> pd.DataFrame:
    if claim.id == "figA1-no-additional-parameters":
        own = sizes[sizes["task"] == claim.setting.task]
        return evidence([{"member": "the same number of parameters",
                          "value": float(own["parameters"].nunique() == 1)}])
    return evidence([{"member": f"{row['kind']}, layer {row['layer']}", "run": row["run"],
                      "seed": row["seed"], "split_seed": row["split_seed"],
                      "value": float(row["holds"])} for row in layers.to_dict("records")])


def _figure(runs: Sequence[Run]) -> Figure:
    """Return a row per model: the code, the network that it generates, and the layer's output."""
    with panels(len(runs), 3, 8.6, 2.3 * len(runs) + 0.3) as (figure, grid):
        for (code, network, output), run in zip(grid, runs, strict=True):
            layer = run.config.model.n_layers - 1
            both = _layer(run, layer)
            _code(code, both)
            _network(network, both.network)
            _output(output, both)
            kind = KIND_TITLES.get(kind_of(run.config.model), kind_of(run.config.model))
            code.set_title(f"{kind}: code of the query, layer {layer}")
    return figure


def _code(axes: Axes, both: TwoWays) -> None:
    scores = both.codes[-1].numpy()
    axes.bar(range(len(scores)), scores, color=PALETTE[0])
    axes.axhline(0.0, color="black", linewidth=0.6)
    axes.set_xticks(range(len(scores)))
    axes.set_xlabel("head h")
    axes.set_ylabel("score a_h")


def _network(axes: Axes, networks: ValueNetwork) -> None:
    """Draw the weights of the last key's network: one matrix, or layer above layer."""
    if len(networks.weights) == 1:
        weights = networks.weights[0][-1].numpy()
        axes.set_title("generates the value network W_qk")
        axes.set_ylabel("input")
        axes.set_xlabel("output")
    else:
        first, *others = (weight[-1].numpy() for weight in networks.weights)
        weights = np.concatenate([first.T, others[-1]])
        axes.set_title(f"generates an MLP ({networks.nonlinearity_name})")
        half = len(first.T)
        axes.set_yticks(range(2 * half), [*(f"in {i + 1}" for i in range(half)),
                                          *(f"out {i + 1}" for i in range(half))])
        axes.set_xlabel("residual stream")
    axes.grid(False)
    axes.imshow(weights, cmap=DIVERGING, norm=signed_norm(weights), aspect="auto",
                interpolation="nearest")


def _output(axes: Axes, both: TwoWays) -> None:
    usual, generated = both.usual.numpy(), both.generated.numpy()
    axes.axline((0.0, 0.0), slope=1.0, color="#999999", linewidth=0.8)
    axes.plot(usual, generated, ".", color=PALETTE[2], markersize=4)
    axes.set_title(f"all keys (error {both.difference:.0e})")
    axes.set_xlabel("layer's output")
    axes.set_ylabel("sum of networks")


REPRODUCTIONS = (Reproduction(
    "figA1", "An attention layer as a hypernetwork, drawn from a trained model", SHOWS, measure),)
