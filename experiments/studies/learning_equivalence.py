"""Do our models learn like the official ones? Learning curves on fuzzy logic, side by side.

    python -m latentcode.experiments.studies.learning_equivalence

trains HYLA and softmax at the official setting from our own initial weights and data, on the
official split, with several seeds, and compares R2 on held-out combinations with the official
curve (one seed): it agrees where it lies within our mean +- 3 standard deviations over seeds.
If interrupted, it resumes. Writes `learning_equivalence.json` and `.svg`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tyro
from matplotlib.axes import Axes

from latentcode.config import LogicConfig, RunConfig, TrainingConfig
from latentcode.config.presets import model_for
from latentcode.experiments.evidence.rules import everywhere
from latentcode.experiments.evidence.writing import write_study
from latentcode.experiments.studies.curves import curve, curves_by_kind
from latentcode.figures.style import PALETTE, Figure
from latentcode.models.config import with_kind
from latentcode.runs import Run
from latentcode.training import train_side_by_side

KINDS: tuple[str, ...] = ("hyla", "softmax")
FROM_STEP = 1_000
"""The first step that is judged: before, the curves depend mostly on the initial weights."""
STEPS = 4_000
DEVIATIONS = 3.0
"""Standard deviations over seeds within which the official value should lie."""


def official_curves() -> dict[str, Any]:
    """Return the curves of the official implementation, and the split that they belong to."""
    file = files("latentcode.experiments.studies") / "official_curves.json"
    text = file.read_text("utf-8")
    curves: dict[str, Any] = json.loads(text)
    return curves


def configuration(kind: str, seed: int, steps: int = STEPS) -> RunConfig:
    """Return the official setting for an attention kind and a seed of weights and data."""
    held_out = tuple(tuple(c) for c in official_curves()["held_out"])
    task = LogicConfig(n_examples=32, ood_fraction=0.7, held_out=held_out)
    training = TrainingConfig(steps=steps, warmup_steps=min(100, (steps - 1) // 2),
                              eval_every=500, eval_instances=5_120, checkpoint_every=1_000,
                              keep_checkpoints=1, seed=seed)
    return RunConfig(task, with_kind(model_for(task), kind), training)


def compare(runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Return, per kind and step, our seeds' R2 on held-out combinations and the official one."""
    official = official_curves()
    result: dict[str, Any] = {}
    for kind, seeds in runs.items():
        curves = np.stack([curve(run, "ood", "r2").loc[official["steps"], "mean"] for run in seeds])
        mean, sd = curves.mean(axis=0), curves.std(axis=0, ddof=1)
        theirs = np.array(official[kind]["ood_r2"])
        judged = [i for i, step in enumerate(official["steps"]) if step >= FROM_STEP]
        distance = (theirs - mean) / sd
        result[kind] = {
            "steps": official["steps"], "ours": curves.tolist(), "mean": mean.tolist(),
            "sd": sd.tolist(), "official": theirs.tolist(),
            "deviations": distance.tolist(),
            "agrees": {official["steps"][i]: everywhere(
                "deviations", pd.Series([abs(distance[i])]), "below", DEVIATIONS,
                fewest=1).verdict == "agrees" for i in judged}}
    return result


def figure(result: Mapping[str, Any]) -> Figure:
    """Return one panel per kind: our seeds, their mean +- 3 sd, and the official curve."""
    def draw(axes: Axes, kind: str) -> None:
        data = result[kind]
        steps, mean, sd = (np.array(data[k]) for k in ("steps", "mean", "sd"))
        axes.fill_between(steps, mean - DEVIATIONS * sd, mean + DEVIATIONS * sd, color=PALETTE[0],
                          alpha=0.15, linewidth=0, label=f"mean +- {DEVIATIONS:g} sd over seeds")
        axes.plot(steps, np.transpose(data["ours"]), color=PALETTE[0], alpha=0.5, linewidth=0.8)
        axes.plot(steps, mean, color=PALETTE[0], label=f"ours, {len(data['ours'])} seeds")
        axes.plot(steps, data["official"], color=PALETTE[3], marker="o", markersize=3,
                  label="official, 1 seed")

    return curves_by_kind(result, draw)


def main(
    runs: Path = Path("runs/learning_equivalence"),
    out: Path = Path("experiments/results/learning_equivalence"),
    seeds: int = 5,
    steps: int | None = None,
) -> None:
    """Train, compare, draw.

    Args:
        runs: Folder of the run folders.
        out: Folder of the result.
        seeds: Number of seeds per kind.
        steps: Train for this many steps only and compare nothing, to see that it works.
    """
    suffix = "" if steps is None else f"-{steps}-steps"
    trained = train_side_by_side({
        runs / f"{kind}-seed{seed}{suffix}":
            configuration(kind, seed, STEPS if steps is None else steps)
        for seed in range(seeds) for kind in KINDS})
    if steps is not None:
        print(f"trained {len(trained)} runs in {runs}; nothing is compared")
        return
    result = compare({kind: [trained[runs / f"{kind}-seed{seed}"] for seed in range(seeds)]
                      for kind in KINDS})
    command = "python -m latentcode.experiments.studies.learning_equivalence" + (
        f" --seeds {seeds}" if seeds != 5 else "")
    write_study(out, "learning_equivalence", {"command": command, **result},
                {"learning_equivalence.svg": figure(result)})
    for kind, data in result.items():
        apart = [step for step, agrees in data["agrees"].items() if not agrees]
        print(f"{kind}: " + (f"agrees at every step from {FROM_STEP:,} on" if not apart
                             else f"differs at steps {apart}"))
    print(f"wrote result {out}")


if __name__ == "__main__":
    tyro.cli(main)
