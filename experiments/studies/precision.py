"""Does bfloat16 change what a model computes, or what it learns?

    python -m latentcode.experiments.studies.precision

1. Logits of untrained models at the paper's size: the root mean square of (low - float32)
   divided by that of float32, which should be at most 1e-2; for bfloat16 in the feed-forward
   layers (`bf16_mlp`) and everywhere (`bf16`).
2. Learning curves of what passes, `bf16_mlp`: fuzzy logic at the official setting of
   `learning_equivalence`, with the same seeds in both precisions. The means over seeds of R2 on
   held-out combinations should differ by at most two standard errors of their difference, at
   every step from 1,000 on.

If interrupted, it resumes. Writes `precision.json` and `precision.svg`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import tyro
from matplotlib.axes import Axes

from latentcode.config.presets import preset
from latentcode.experiments.evidence.rules import everywhere
from latentcode.experiments.evidence.writing import write_study
from latentcode.experiments.studies.curves import curve, curves_by_kind
from latentcode.experiments.studies.learning_equivalence import FROM_STEP, KINDS, configuration
from latentcode.figures.style import PALETTE, Figure
from latentcode.models.config import kind_of
from latentcode.models.modes import evaluating
from latentcode.models.transformer import HookedTransformer
from latentcode.seeds import make_generator
from latentcode.tasks import make_task
from latentcode.training import train_side_by_side
from latentcode.training.evaluation import forward

PRECISIONS: tuple[Literal["float32", "bf16_mlp"], ...] = ("float32", "bf16_mlp")
LARGEST_RATIO = 1e-2
"""Root mean square of the difference of logits over that of the logits."""
STANDARD_ERRORS = 2.0
"""Standard errors of the difference of two means by which learning curves may differ."""


def logit_ratio(task: str, kind: str, precision: str, n: int = 512) -> float:
    """Return rms(logits in `precision` - logits in float32) / rms(logits in float32)."""
    config = preset("paper", task, kind)
    model = HookedTransformer(config.model)
    problems = make_task(config.task)
    inputs = problems.sample("train", n, make_generator(0, "precision")).inputs
    with evaluating(model):
        exact, rough = (forward(model, problems, inputs, name) for name in ("float32", precision))
    return float((rough - exact).square().mean().sqrt() / exact.square().mean().sqrt())


def compare(curves: Mapping[str, Mapping[str, np.ndarray]], steps: Sequence[int]) -> dict[str, Any]:
    """Return, per kind, how far the mean curves [seed, step] of the precisions are apart."""
    result: dict[str, Any] = {}
    for kind, of_precision in curves.items():
        exact, rough = (of_precision[precision] for precision in PRECISIONS)
        difference = rough.mean(axis=0) - exact.mean(axis=0)
        error = np.sqrt(sum(x.var(axis=0, ddof=1) / len(x) for x in (exact, rough)))
        judged = np.asarray(steps) >= FROM_STEP
        result[kind] = {
            "steps": list(steps), **{name: of_precision[name].tolist() for name in PRECISIONS},
            "difference": difference.tolist(), "standard_error": error.tolist(),
            "agrees": everywhere(
                "distance beyond the standard errors",
                pd.Series((np.abs(difference) - STANDARD_ERRORS * error)[judged]), "below", 0.0,
                fewest=1).verdict == "agrees"}
    return result


def figure(result: Mapping[str, Any]) -> Figure:
    """Return one panel per kind: the seeds and the mean of each precision."""
    def draw(axes: Axes, kind: str) -> None:
        steps = result[kind]["steps"]
        for color, precision in zip(PALETTE, PRECISIONS, strict=False):
            curves = np.array(result[kind][precision])
            axes.plot(steps, curves.T, color=color, alpha=0.4, linewidth=0.8)
            axes.plot(steps, curves.mean(axis=0), color=color,
                      label=f"{precision}, {len(curves)} seeds")

    return curves_by_kind(result, draw)


def main(
    runs: Path = Path("runs/precision"),
    out: Path = Path("experiments/results/precision"),
    seeds: int = 3,
    steps: int = 4_000,
) -> None:
    """Compare logits, train, compare curves, draw.

    Args:
        runs: Folder of the run folders.
        out: Folder of the result.
        seeds: Number of seeds per kind and precision.
        steps: Number of updates.
    """
    ratios = {low: {f"{task} {kind}": logit_ratio(task, kind, low)
                    for task in ("sraven", "logic") for kind in (*KINDS, "linear")}
              for low in ("bf16_mlp", "bf16")}
    configs: dict[Path, Any] = {}
    for seed in range(seeds):
        for kind in KINDS:
            for precision in PRECISIONS:
                config = configuration(kind, seed, steps)
                configs[runs / f"{kind}-{precision}-seed{seed}-{steps}-steps"] = replace(
                    config, training=replace(config.training, precision=precision))
    trained = train_side_by_side(configs)
    found: dict[str, dict[str, list[np.ndarray]]] = {}
    for run in trained.values():
        learned = curve(run, "ood", "r2")["mean"]
        found.setdefault(kind_of(run.config.model), {}).setdefault(
            run.config.training.precision, []).append(learned.to_numpy())
    result = compare({kind: {name: np.stack(curves) for name, curves in of.items()}
                      for kind, of in found.items()}, learned.index.tolist())
    write_study(out, "precision", {
        "command": "python -m latentcode.experiments.studies.precision "
                   f"--seeds {seeds} --steps {steps}",
        "logit_ratio": ratios,
        "logits_agree": {low: max(of_model.values()) <= LARGEST_RATIO
                         for low, of_model in ratios.items()},
        "curves": result}, {"precision.svg": figure(result)})
    for low, of_model in ratios.items():
        for name, ratio in of_model.items():
            print(f"logits, {low}, {name}: rms ratio {ratio:.2g}"
                  + ("" if ratio <= LARGEST_RATIO else f", more than {LARGEST_RATIO:g}"))
    for kind, data in result.items():
        print(f"curves, {kind}: " + ("agree" if data["agrees"] else "differ"))
    print(f"wrote result {out}")


if __name__ == "__main__":
    tyro.cli(main)
