"""Runs of the paper's settings that were never trained: configurations with made-up scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from latentcode.config import RunConfig
from latentcode.experiments.paper.claims import Claim, Setting
from latentcode.experiments.paper.reproduction import Work
from latentcode.experiments.paper.runs import KnownRuns, seeded, signature
from latentcode.models import HookedTransformer

Scores = Mapping[tuple[str, str], float]
"""(split, metric) -> value."""


@dataclass(frozen=True)
class MadeUpRun:
    """What a measurement asks of a finished run; its model has random weights."""

    config: RunConfig
    name: str
    scores: Scores

    @property
    def id(self) -> str:
        return self.name

    def newest_metrics(self) -> pd.DataFrame:
        return pd.DataFrame([
            {"step": self.config.training.steps, "split": split, "metric": metric, "mean": value,
             "se": 0.0, "n": 100} for (split, metric), value in self.scores.items()],
            columns=["step", "split", "metric", "mean", "se", "n"])

    def load_model(self) -> HookedTransformer:
        return HookedTransformer(self.config.model, seed=self.config.training.seed).eval()


def made_up(
    settings: Iterable[Setting], scores: Callable[[str, RunConfig], Scores], seeds: int = 1
) -> KnownRuns:
    """Return runs of all members of settings; `scores` is called with (member, configuration)."""
    finished: dict[str, dict[str, Any]] = {}
    for setting in settings:
        for member, config in setting.grid.members().items():
            for seed in range(seeds):
                own = seeded(config, seed)
                name = f"{signature(own)}-{seed}"
                run = MadeUpRun(own, name, scores(member, own))
                finished.setdefault(signature(own), {}).setdefault(name, run)
    return KnownRuns({key: tuple(runs.values()) for key, runs in finished.items()})


def work(
    known: KnownRuns, folder: Path, preset: str = "smoke", claims: tuple[Claim, ...] = ()
) -> Work:
    """Return what a measurement works with."""
    return Work(preset, known, folder, claims=claims)
