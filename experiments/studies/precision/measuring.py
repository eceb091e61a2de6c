"""What bfloat16 changes: logits of untrained models, and learning curves.

1. Logits at the paper's size: the root mean square of (low - float32) divided by that of float32,
   which should be at most `LARGEST_RATIO`; for bfloat16 in the feed-forward layers (`bf16_mlp`) and
   everywhere (`bf16`).
2. Learning curves of what passes, `bf16_mlp`: fuzzy logic at the official setting of the study of
   `learning_equivalence`, with the same seeds in both precisions. The means over seeds of R2 on
   held-out combinations should differ by at most `STANDARD_ERRORS` standard errors of their
   difference, at every step from `FROM_STEP` on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from latentcode.config import RunConfig
from latentcode.config.presets import preset
from latentcode.experiments.evidence.found import Found
from latentcode.experiments.evidence.rules import everywhere
from latentcode.experiments.studies.curves import curves_by_kind, learned
from latentcode.experiments.studies.learning_equivalence.measuring import (
    FROM_STEP,
    KINDS,
    configuration,
)
from latentcode.figures.style import PALETTE, Figure
from latentcode.models.modes import evaluating
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.results import where
from latentcode.seeds import make_generator
from latentcode.tasks import make_task
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


def logits(work: Path, *, n: int) -> dict[str, pd.DataFrame]:
    """Return `logit_ratio` of every task, kind and precision, over `n` instances."""
    return {"logits": pd.DataFrame([
        {"task": task, "kind": kind, "precision": low, "ratio": logit_ratio(task, kind, low, n)}
        for low in ("bf16_mlp", "bf16") for task in ("sraven", "logic")
        for kind in (*KINDS, "linear")])}


def trained(work: Path, *, seeds: int, steps: int) -> dict[str, pd.DataFrame]:
    """Train the seeds of both kinds in both precisions, and return their curves."""
    def configured(kind: str, seed: int, precision: Literal["float32", "bf16_mlp"]) -> RunConfig:
        config = configuration(kind, seed, steps)
        return replace(config, training=replace(config.training, precision=precision))

    return {"curves": learned(work, (configured(kind, seed, precision) for seed in range(seeds)
                                     for kind in KINDS for precision in PRECISIONS))}


def tables(found: Found) -> dict[str, pd.DataFrame]:
    """Return the ratios of logits, the curves, and how far these are apart."""
    curves = found.joined("curves", "curves")
    return {"logits": found.joined("logits", "logits"), "curves": curves,
            "compared": compare(curves)}


def compare(curves: pd.DataFrame) -> pd.DataFrame:
    """Return, per kind and step, how far the mean curves of the precisions are apart, and whether
    the curves of a kind agree.

    curves  a row per kind, precision, seed and step, R2 in `value`
    """
    of_precision = curves.groupby(["kind", "step", "precision"], sort=False)["value"]
    mean, error = of_precision.mean().unstack(), of_precision.sem().unstack()
    exact, rough = PRECISIONS
    result = mean[list(PRECISIONS)].assign(
        difference=mean[rough] - mean[exact],
        standard_error=np.hypot(error[exact], error[rough])).reset_index()
    beyond = result["difference"].abs() - STANDARD_ERRORS * result["standard_error"]
    judged = beyond[result["step"] >= FROM_STEP].groupby(result["kind"])
    agrees = {kind: everywhere("distance beyond the standard errors", of_kind, "below", 0.0,
                               fewest=1).verdict == "agrees" for kind, of_kind in judged}
    return result.assign(agrees=result["kind"].map(agrees))


def figures(tables: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Return one panel per kind: the seeds and the mean of each precision."""
    def draw(axes: Axes, kind: str) -> None:
        for color, precision in zip(PALETTE, PRECISIONS, strict=False):
            own = where(tables["curves"], kind=kind, precision=precision)
            curves = own.pivot(index="step", columns="seed", values="value")
            axes.plot(curves.index, curves, color=color, alpha=0.4, linewidth=0.8)
            axes.plot(curves.index, curves.mean(axis=1), color=color,
                      label=f"{precision}, {curves.shape[1]} seeds")

    return {"precision.svg": curves_by_kind(KINDS, draw)}


def shown(tables: Mapping[str, pd.DataFrame]) -> dict[str, object]:
    """Return the rules of the comparisons."""
    return {"largest_ratio": LARGEST_RATIO, "from_step": FROM_STEP,
            "standard_errors": STANDARD_ERRORS}
