"""Learning curves on fuzzy logic: ours, and those of the official implementation.

HYLA and softmax are trained at the official setting from our own initial weights and data, on the
official split, with several seeds. R2 on held-out combinations agrees with the official curve (one
seed) where this lies within our mean +- `DEVIATIONS` standard deviations over seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from latentcode.config import LogicConfig, RunConfig, TrainingConfig
from latentcode.config.presets import model_for
from latentcode.experiments.evidence.found import Found
from latentcode.experiments.evidence.rules import everywhere
from latentcode.experiments.studies.curves import curves_by_kind, learned
from latentcode.figures.style import PALETTE, Figure
from latentcode.models.config import with_kind
from latentcode.probes.common.results import blocks, where

KINDS: tuple[str, ...] = ("hyla", "softmax")
FROM_STEP = 1_000
"""The first step that is judged: before, the curves depend mostly on the initial weights."""
DEVIATIONS = 3.0
"""Standard deviations over seeds within which the official value should lie."""


@cache
def official_curves() -> Mapping[str, Any]:
    """Return the curves of the official implementation, and the split that they belong to."""
    file = files("latentcode.experiments.studies.learning_equivalence") / "official_curves.json"
    curves: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return curves


def configuration(kind: str, seed: int, steps: int) -> RunConfig:
    """Return the official setting for an attention kind and a seed of weights and data."""
    held_out = tuple(tuple(c) for c in official_curves()["held_out"])
    task = LogicConfig(n_examples=32, ood_fraction=0.7, held_out=held_out)
    training = TrainingConfig(steps=steps, warmup_steps=min(100, (steps - 1) // 2),
                              eval_every=500, eval_instances=5_120, checkpoint_every=1_000,
                              keep_checkpoints=1, seed=seed)
    return RunConfig(task, with_kind(model_for(task), kind), training)


def trained(work: Path, *, seeds: int, steps: int) -> dict[str, pd.DataFrame]:
    """Train the seeds of both kinds, and return their curves."""
    return {"ours": learned(work, (configuration(kind, seed, steps)
                                   for seed in range(seeds) for kind in KINDS))}


def tables(found: Found) -> dict[str, pd.DataFrame]:
    """Return the curves, and how they compare with the official ones."""
    ours = found.joined("ours", "ours")
    return {"ours": ours, "compared": compare(ours)}


def compare(ours: pd.DataFrame) -> pd.DataFrame:
    """Return, per kind and step, R2 of our seeds and the official one; whether it `agrees` where it
    is judged.

    ours  a row per kind, seed and step, R2 in `value`
    """
    official = official_curves()
    rows = []
    for named, block in blocks(ours, ("kind", "step")):
        kind, step, values = named["kind"], named["step"], block["value"]
        theirs = dict(zip(official["steps"], official[kind]["ood_r2"], strict=True))[step]
        distance = (theirs - values.mean()) / values.std()
        agrees = everywhere("deviations", pd.Series([abs(distance)]), "below", DEVIATIONS, fewest=1)
        rows.append({**named, "seeds": len(values), "mean": values.mean(),
                     "sd": values.std(), "official": theirs, "deviations": distance,
                     "agrees": agrees.verdict == "agrees" if step >= FROM_STEP else None})
    return pd.DataFrame(rows)


def figures(tables: Mapping[str, pd.DataFrame]) -> dict[str, Figure]:
    """Return one panel per kind: our seeds, their mean +- 3 sd, and the official curve."""
    def draw(axes: Axes, kind: str) -> None:
        data = where(tables["compared"], kind=kind)
        steps, mean, wide = data["step"], data["mean"], DEVIATIONS * data["sd"]
        axes.fill_between(steps, mean - wide, mean + wide, color=PALETTE[0], alpha=0.15,
                          linewidth=0, label=f"mean +- {DEVIATIONS:g} sd over seeds")
        for _, one in where(tables["ours"], kind=kind).groupby("seed"):
            axes.plot(one["step"], one["value"], color=PALETTE[0], alpha=0.5, linewidth=0.8)
        axes.plot(steps, mean, color=PALETTE[0], label=f"ours, {data['seeds'].iloc[0]} seeds")
        axes.plot(steps, data["official"], color=PALETTE[3], marker="o", markersize=3,
                  label="official, 1 seed")

    return {"learning_equivalence.svg": curves_by_kind(KINDS, draw)}


def shown(tables: Mapping[str, pd.DataFrame]) -> dict[str, object]:
    """Return the rule of the comparison."""
    return {"from_step": FROM_STEP, "deviations": DEVIATIONS}
