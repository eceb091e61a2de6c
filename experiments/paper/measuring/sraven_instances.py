"""What can be known of fresh SRAVEN instances? No model is asked."""

from __future__ import annotations

import pandas as pd
import torch

from latentcode.config import SravenConfig
from latentcode.experiments.paper.measuring.sraven_answers import (
    ambiguous,
    bayes_scores,
    official_ambiguous,
)
from latentcode.experiments.paper.reproduction import Work
from latentcode.metrics import Metric, mean_metric
from latentcode.progress import Bar, reported
from latentcode.tasks.sraven.task import Sraven

CHUNK = 2_000
"""Instances that are drawn and kept at once."""
FOR_CEILING = 8_000
"""Instances from which a ceiling is estimated: a standard error of 0.003 for M = 4, K = 8."""


def fresh_instances(
    n_features: int, n_values: int, permuted: bool, n: int, seed: int
) -> pd.DataFrame:
    """Return, for n instances of all combinations of rules, what determines their answers.

    official   the official checker counts it as ambiguous (Table A2)
    ambiguous  other rules and permutations fit the context and give another answer (B.2)
    solved     the Bayes-optimal solver, which knows the rules, gets all features right
    """
    task = Sraven(SravenConfig(n_features=n_features, n_values=n_values, permuted=permuted,
                               ood_fraction=0.0))
    batch = task.sample("test", n, torch.Generator().manual_seed(seed))
    return pd.DataFrame({
        "official": official_ambiguous(batch.info["grid"], n_values).numpy(),
        "ambiguous": ambiguous(task, batch).numpy(),
        "solved": bayes_scores(task, batch)["accuracy"].numpy() > 0.5})


def instances(
    work: Work, n: int, n_features: int, n_values: int, permuted: bool = True
) -> pd.DataFrame:
    """Return `fresh_instances`, in chunks that are kept."""
    sizes = [min(CHUNK, n - start) for start in range(0, n, CHUNK)]
    progress = None if work.is_smoke else Bar(f"SRAVEN, M = {n_features}, K = {n_values}")
    return pd.concat([
        work.task_table(fresh_instances, n_features=n_features, n_values=n_values,
                        permuted=permuted, n=size, seed=seed)
        for seed, size in reported(list(enumerate(sizes)), len(sizes), progress)],
        ignore_index=True)


def ceiling(work: Work, n_features: int, n_values: int, permuted: bool) -> Metric:
    """How often is the Bayes-optimal solver right, over all combinations of rules?"""
    found = instances(work, work.size(FOR_CEILING, 200), n_features, n_values, permuted)
    return mean_metric(found["solved"].to_numpy())
