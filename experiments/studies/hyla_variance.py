"""Does HYLA keep variances and gradients in check? The generated weights, and training.

    python -m latentcode.experiments.studies.hyla_variance --out experiments/results/hyla_variance

1. At initialisation: the variance of the weights that codes generate, with and without RMSHead,
   compared with the 1 / fan_in that the initialiser aims at for the weights of a network.
2. Over training on fuzzy logic: gradient norms of all kinds of Table A1, per layer and in all;
   the reviews asked whether HYLA with softmax has vanishing gradients.

Seven minutes of one CPU core. Writes `variance.csv`, `gradients.csv`, `figure.png` and
`hyla_variance.json`, which says what the numbers say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
import tyro
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from latentcode.config import RunConfig
from latentcode.config.presets import preset
from latentcode.errors import check, check_choice
from latentcode.figures.style import GREY, MARKERS, PALETTE, Figure, category_styles, style
from latentcode.files.storage import check_free
from latentcode.models.config import TABLE_A1
from latentcode.models.hypernetwork import value_network
from latentcode.models.modes import evaluating
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.results import TableResult
from latentcode.progress import bar
from latentcode.seeds import make_generator
from latentcode.tasks import make_task
from latentcode.training.state import TrainingState

Preset = Literal["small", "smoke"]
TASKS: tuple[str, ...] = ("logic", "sraven")
ATTENTIONS: tuple[str, ...] = tuple(k for k in TABLE_A1 if not k.endswith("_moe"))
"""The kinds that differ in their attention; experts change nothing before the feed-forward."""
INSTANCES, PAIRS = 32, 512
"""Instances that initial models see, and (instance, query, key) whose weights are generated."""
WINDOW = 20
"""Updates whose gradient norms make one row."""
PART_NAMES = {"block": "all weights", "code": "queries and keys", "value": "values and outputs"}
CODE_WEIGHTS = re.compile(r"attn\.(W|b)_(Q|K)|attn\.rel_pos_bias")
"""Parameters that determine the codes; the others of a layer's attention make the values."""


@dataclass(frozen=True, repr=False)
class HylaVarianceResult(TableResult):
    """Variances at initialisation, and gradient norms over training.

    variance   one row per task, kind, seed, layer and quantity: `measured`, a mean over pairs,
               `target`, `ratio`, and `spread`, the standard deviation over pairs over the mean.
               `weights_i` is layer i of the generated value network (W_qk itself where it is
               one matrix) with target 1 / fan_in, `squared_code` is sum_h a_h^2 with target H,
               `output` is what the attention adds to the residual stream, with target 1, the
               variance of its input
    gradients  one row per kind, seed, layer, part and window of updates that ends at `step`:
               `mean`, `smallest` and `largest` norm of the gradients, and the mean loss.
               Parts of a layer: `block`, all of it; `code`, the weights that the codes come from
               (queries, keys, position bias); `value`, those of values and outputs. Layer and
               part `all`: the whole model
    """

    FORMAT = "latentcode.hyla_variance"
    SHOWS = "variance over its target at initialisation, gradient norms"
    COLUMNS: ClassVar = {
        "variance": ("task", "kind", "seed", "layer", "quantity", "measured", "target", "ratio",
                     "spread"),
        "gradients": ("kind", "seed", "layer", "part", "step", "mean", "smallest", "largest",
                      "loss")}
    TEXT: ClassVar = ("kind", "part", "quantity")

    variance: pd.DataFrame
    gradients: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the numbers say."""
        return findings(self.variance, self.gradients)

    def summary(self) -> pd.DataFrame:
        """Return, per kind, the variances over their targets (geometric means over tasks, layers
        and seeds) and the gradient norm of the whole model: median and largest."""
        ratios = self.variance.pivot_table(index="kind", columns="quantity", values="ratio",
                                           aggfunc=_geometric, sort=False)
        whole = self.gradients[self.gradients["part"] == "all"].groupby("kind", sort=False)
        norms = pd.DataFrame({"median_norm": whole["mean"].median(),
                              "largest_norm": whole["largest"].max()})
        table = ratios.join(norms, how="right")
        return table.rename_axis("kind").reset_index()

    def figure(self) -> Figure:
        """Return variances over their targets, then gradient norms: whole model, and the weights
        of the codes in each layer."""
        layers = [layer for layer in self.gradients["layer"].unique() if layer != "all"]
        curves = [("all", "all", "whole model"), *(
            (layer, "code", f"{PART_NAMES['code']}, layer {layer}") for layer in layers)]
        with style():
            figure = Figure(figsize=(9.6, 6.4), layout="constrained")
            halves: Any = figure.subfigures(2, 1, height_ratios=[1.0, 1.05])
            top, bottom = halves
            _draw_variances(top.subplots(1, 2, sharey=True), self.variance)
            kinds = category_styles(list(self.gradients["kind"].unique()))
            for axes, (layer, part, name) in zip(
                    bottom.subplots(1, len(curves), sharey=True), curves, strict=True):
                rows = self.gradients[(self.gradients["layer"] == layer)
                                      & (self.gradients["part"] == part)]
                for kind, (color, marker) in kinds.items():
                    mean = rows[rows["kind"] == kind].groupby("step")["mean"].apply(_geometric)
                    axes.plot(mean.index, mean, color=color, marker=marker, markersize=3.0,
                              markevery=2, linewidth=1.0)
                axes.set(yscale="log", xlabel="update", title=name)
            bottom.axes[0].set_ylabel("gradient norm")
            bottom.legend(handles=[
                Line2D([], [], color=color, marker=marker, markersize=3.5, label=str(kind))
                for kind, (color, marker) in kinds.items()], loc="outside right center",
                fontsize=7.5)
        return figure


def _draw_variances(panels: Sequence[Axes], variance: pd.DataFrame) -> None:
    tasks = list(variance["task"].unique())
    for axes, (title, wanted) in zip(panels, (
            ("generated weights at initialisation", lambda q: q.startswith("weights")),
            ("output of the attention at initialisation", lambda q: q == "output")), strict=True):
        rows = variance[variance["quantity"].map(wanted)]
        quantities = sorted(rows["quantity"].unique())
        for i, kind in enumerate(variance["kind"].unique()):
            for j, quantity in enumerate(quantities):
                for k, task in enumerate(tasks):
                    mine = rows[(rows["kind"] == kind) & (rows["quantity"] == quantity)
                                & (rows["task"] == task)]
                    shift = 0.22 * (j - (len(quantities) - 1) / 2) + 0.08 * (k - 0.5)
                    axes.scatter(np.full(len(mine), i + shift), mine["ratio"], s=9.0,
                                 color=PALETTE[k], marker=MARKERS[j], linewidths=0)
        axes.axhline(1.0, color=GREY, linestyle="--", linewidth=1.0)
        names = list(variance["kind"].unique())
        axes.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7.5)
        axes.set(yscale="log", title=title)
        handles = [Line2D([], [], color=PALETTE[k], marker="o", linestyle="", markersize=4,
                          label=task) for k, task in enumerate(tasks)]
        if len(quantities) > 1:
            handles += [Line2D([], [], color="black", marker=MARKERS[j], linestyle="",
                               markersize=4, label=quantity.replace("_", " "))
                        for j, quantity in enumerate(quantities)]
        axes.legend(handles=handles, fontsize=7, ncols=2)
    panels[0].set_ylabel("variance / target")


def _geometric(values: pd.Series) -> float:
    return float(np.exp(np.log(values).mean()))


def initial_variances(config: RunConfig, seed: int) -> Iterator[tuple[int, str, Tensor, float]]:
    """Yield (layer, quantity, value of each pair, target) of the initial model of a seed.

    For a network without biases whose weights have variance 1 / fan_in, inputs of variance 1 give
    outputs of variance 1: the target of each generated layer. Measured on `PAIRS` codes that the
    model has for random instances, the output on all its queries.
    """
    generator = make_generator(seed, "initial variances")
    model = HookedTransformer(config.model, seed=seed)
    batch = make_task(config.task).sample("train", INSTANCES, generator)
    with evaluating(model):
        _, cache = model.run_with_cache(batch.inputs)
        for layer in range(config.model.n_layers):
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"]  # [B, H, Q, K]
            code = pattern.permute(0, 2, 3, 1).flatten(0, 2)
            code = code[torch.randint(len(code), (PAIRS,), generator=generator)]
            yield layer, "squared_code", code.square().sum(-1), float(config.model.n_heads)
            network = value_network(model, layer, code)
            # With the nonlinearity on each head's values no code enters the first layer.
            first = 1 if config.model.value_network == "linear" and len(network.weights) > 1 else 0
            for i, weight in enumerate(network.weights[first:], first):
                # The initialiser draws with mean 0.
                yield layer, f"weights_{i + 1}", weight.square().mean((-2, -1)), (
                    1.0 / weight.shape[-2])
            yield layer, "output", cache[f"blocks.{layer}.hook_attn_out"].var(-1).flatten(), 1.0


def gradient_norms(config: RunConfig, windows: int) -> Iterator[dict[str, Any]]:
    """Train for `windows` times `WINDOW` updates; yield rows of `gradients` without the kind.

    The norms are those of the gradients that the updates of ordinary training used, before any
    clipping, which `config` must not have.
    """
    check(config.training.grad_clip is None, f"training.grad_clip is {config.training.grad_clip}; "
          "expected None, since clipping would change the norms")
    state = TrainingState.start(config)
    parameters = dict(state.model.named_parameters())
    parts = _parts(list(parameters), config.model.n_layers)
    belongs = torch.tensor([[float(name in names) for name in parameters]
                            for names in parts.values()])  # [part, parameter]
    for _ in range(windows):
        norms = []
        state.losses.clear()
        for _ in range(WINDOW):
            state.update()
            gradients = [p.grad for p in parameters.values() if p.grad is not None]
            norms.append(belongs @ torch.stack(torch._foreach_norm(gradients)).square())
        table = torch.stack(norms).double().sqrt()  # [window, part]
        loss = float(np.mean(state.recent_losses()[0]))
        for (layer, part), column in zip(parts, table.T, strict=True):
            yield {"seed": config.training.seed, "layer": layer, "part": part,
                   "step": state.step, "mean": float(column.mean()),
                   "smallest": float(column.min()), "largest": float(column.max()), "loss": loss}


def _parts(names: Sequence[str], n_layers: int) -> dict[tuple[str, str], list[str]]:
    """Return (layer, part) -> the names of its parameters."""
    parts = {("all", "all"): list(names)}
    for layer in range(n_layers):
        block = [name for name in names if name.startswith(f"blocks.{layer}.")]
        code = [name for name in block if CODE_WEIGHTS.search(name)]
        parts[str(layer), "block"], parts[str(layer), "code"] = block, code
        parts[str(layer), "value"] = [name for name in block
                                      if ".attn." in name and name not in code]
    return parts


def findings(variance: pd.DataFrame, gradients: pd.DataFrame) -> tuple[str, ...]:
    """Return what the tables say, a sentence each."""
    sentences = []
    for without, with_it, quantity, what in (
            ("hyla_no_rms_head", "hyla", "weights_1", "the first layer of HYLA's value networks"),
            ("hyla_no_rms_head", "hyla", "weights_2", "their second layer"),
            ("linear", "linear_rms_head", "weights_1", "the matrices of linear attention")):
        sentences.append(
            f"At initialisation the variance of {what} is {_span(variance, with_it, quantity)} "
            f"with RMSHead, {_span(variance, without, quantity)} without it.")
    sentences.append(
        f"That of softmax attention's matrices is {_span(variance, 'softmax', 'weights_1')}; the "
        "layer adds up as many of them as there are keys.")
    norms = gradients.pivot_table(index=["layer", "part", "step"], columns="kind", values="mean",
                                  aggfunc=_geometric)
    parts = norms.groupby(level=["layer", "part"]).median()
    updates = int(gradients["step"].max())
    for kind in ("hyla_softmax", "hyla_softmax_rms_head"):
        ratio = parts[kind] / parts["hyla"]
        furthest: Any = ratio.drop(("all", "all")).idxmin()
        layer, part = furthest
        weakest = parts.loc[(layer, part)]
        sentences.append(
            f"The median gradient norm of {kind} over {updates} updates is "
            f"{ratio.loc[('all', 'all')]:.2g} of hyla's. It falls furthest behind in "
            f"{PART_NAMES[part]} of layer {layer}, with {ratio.min():.2g} of hyla's, or "
            f"{weakest[kind] / weakest['softmax']:.2g} of softmax attention's.")
    peak = gradients[gradients["part"] == "all"].groupby("kind", sort=False)["largest"].max()
    sentences.append(f"The largest gradient of all updates is that of {peak.idxmax()}, with norm "
                     f"{peak.max():.2g}; hyla's is {peak['hyla']:.2g}, softmax's "
                     f"{peak['softmax']:.2g}.")
    return tuple(sentences)


def _span(variance: pd.DataFrame, kind: str, quantity: str) -> str:
    rows = variance[(variance["kind"] == kind) & (variance["quantity"] == quantity)]
    return (f"{rows['ratio'].min():.2g} to {rows['ratio'].max():.2g} times 1 / fan_in (relative "
            f"deviation between pairs {rows['spread'].median():.2g})")


def _variance(values: Tensor, target: float) -> dict[str, float]:
    mean = float(values.mean())
    return {"measured": mean, "target": target, "ratio": mean / target,
            "spread": float(values.std()) / mean}


def measure(
    *, kinds: Sequence[str] = tuple(TABLE_A1), preset_name: Preset = "small",
    variance_seeds: int = 5, seeds: int = 3, steps: int = 160,
    progress: Callable[[int, int], None] | None = None,
) -> HylaVarianceResult:
    """Return variances of initial models, and gradient norms of models trained for `steps`.

    The schedule of the learning rate is that of a training of this length, with a tenth of it for
    the warm-up. `ConfigError` for less than one seed, `steps` that are no multiple of `WINDOW`,
    and kinds without softmax's, linear's and HYLA's, which the findings compare.
    """
    for name, value in (("variance_seeds", variance_seeds), ("seeds", seeds)):
        check(value >= 1, f"{name} is {value}; expected at least 1")
    check(steps >= WINDOW and steps % WINDOW == 0,
          f"steps is {steps}; expected a multiple of {WINDOW}")
    for kind in kinds:
        check_choice("attention kind", kind, TABLE_A1)
    needed = {"softmax", "linear", "linear_rms_head", "hyla", "hyla_no_rms_head", "hyla_softmax",
              "hyla_softmax_rms_head"}
    check(needed <= set(kinds), f"kinds lack {sorted(needed - set(kinds))}, which are compared; "
          "expected them, too")
    variances = [
        {"task": task, "kind": kind, "seed": seed, "layer": layer, "quantity": quantity,
         **_variance(values.double(), target)}
        for task in TASKS for kind in kinds if kind in ATTENTIONS for seed in range(variance_seeds)
        for layer, quantity, values, target
        in initial_variances(preset(preset_name, task, kind), seed)]
    gradients = []
    for i, kind in enumerate(kinds):
        for seed in range(seeds):
            config = preset(preset_name, "logic", kind)
            training = replace(config.training, steps=steps, warmup_steps=steps // 10, seed=seed)
            gradients += [{"kind": kind, **row} for row in gradient_norms(
                replace(config, training=training), steps // WINDOW)]
            if progress is not None:
                progress(i * seeds + seed + 1, len(kinds) * seeds)
    tables = {"variance": pd.DataFrame(variances), "gradients": pd.DataFrame(gradients)}
    return HylaVarianceResult(**tables, settings={
        "preset": preset_name, "kinds": list(kinds), "variance_seeds": variance_seeds,
        "seeds": seeds, "steps": steps, "window": WINDOW, "instances": INSTANCES, "pairs": PAIRS,
        "findings": list(findings(**tables))})


def main(
    out: Path = Path("experiments/results/hyla_variance"),
    preset_name: Preset = "small",
    variance_seeds: int = 5,
    seeds: int = 3,
    steps: int = 160,
    overwrite: bool = False,
) -> None:
    """Measure, draw, say what the numbers say.

    Args:
        out: Folder of the result.
        preset_name: Size of the models.
        variance_seeds: Number of seeds of the initial models.
        seeds: Number of seeds per kind that are trained.
        steps: Number of updates.
        overwrite: Replace a result that the folder already holds.
    """
    torch.set_num_threads(1)  # two threads are slower at this size, and would vary the last bits
    check_free(out, overwrite=overwrite, marker="hyla_variance.json")
    result = measure(preset_name=preset_name, variance_seeds=variance_seeds, seeds=seeds,
                     steps=steps, progress=bar("training"))
    result.save(out, overwrite=overwrite)
    print(result)
    print(f"wrote result {out}")


if __name__ == "__main__":
    tyro.cli(main)
