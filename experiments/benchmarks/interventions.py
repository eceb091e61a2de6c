"""How long do interventions take: passes that share what no patch changes, and whole passes?

    python -m latentcode.experiments.benchmarks.interventions [--model MODEL] [--whole]

asks the same interventions of two copies of one model. On one of them sits a hook that does
nothing, so that each of its passes is computed as a whole, as for models of other
libraries. The answers have to be the same, every one. Times are of the processor: the passes, what
is written and what becomes of the answers, without the tables.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import tyro

from latentcode.errors import ProbeError, check
from latentcode.experiments.benchmarks.harness import (
    RESULTS,
    Local,
    Report,
    Spread,
    sit,
    spreads,
    torch_threads,
    verdict,
)
from latentcode.figures.text import markdown_table
from latentcode.models.patched.sites import has_constraint
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.interventions import first_interventions, standard_interventions
from latentcode.probes.interventions.intervention import outcomes_of_model
from latentcode.progress import Bar
from latentcode.subjects import subject

QUESTION = "interventions"
WHOLE, SHARED = "whole passes", "shared passes"
TARGET = 3.0
"""How many times as fast shared passes should be."""
EXACT = ("flip", "unchanged", "others", "base", "operation", "operands", "answer", "else")
"""Outcomes that say which answer is given: they have to be the same."""


def whole_passes(model: HookedTransformer) -> HookedTransformer:
    """Return a copy of a model whose passes are all computed as a whole."""
    watched = copy.deepcopy(model)
    watched.hook_embed.add_perma_hook(lambda activation, hook: None)
    return watched


def main(
    model: str = "sraven-hyla",
    whole: bool = False,
    n: int = 250,
    rounds: int = 5,
    out: Path = RESULTS / QUESTION,
    smoke: bool = False,
) -> None:
    """Time both, compare their answers; write JSON and a table.

    Args:
        model: A run, or a model of the zoo.
        whole: Ask all interventions, also those that are not asked for by default.
        n: Bases that are drawn.
        rounds: Turns of each.
        out: Folder of the result.
        smoke: Few problems and two rounds, to see that it works.
    """
    if smoke:
        n, rounds = 20, 2
    benchmarked = subject(model)
    task, shared = benchmarked.counterfactuals(), benchmarked.model()
    config = shared.config
    lists = {"default": first_interventions(range(config.n_layers), task.scopes, task.lacking)}
    if whole:
        lists["whole"] = standard_interventions(
            range(config.n_layers), config.n_heads, task.scopes,
            has_constraint(config.normalization), task.lacking, task.places)
    models = {WHOLE: whole_passes(shared), SHARED: shared}
    cases: list[dict[str, Any]] = []
    with torch_threads(1):
        report = Report(QUESTION, torch.device("cpu"), {
            "model": model, "n": n, "rounds": rounds, "smoke": smoke, "target": TARGET}, out)
        for name, interventions in lists.items():
            outcomes: dict[str, pd.DataFrame] = {}

            def intervene(
                passes: str, patches: Any, kept: dict[str, pd.DataFrame]
            ) -> None:
                kept[passes], _ = outcomes_of_model(models[passes], task, patches, n=n)

            sitting = sit(
                [Local(passes, partial(intervene, passes, interventions, outcomes),
                       clock=time.process_time) for passes in models],
                rounds=rounds, units=1, warmup=0, progress=Bar(name))
            cases.append({"name": name, "n_interventions": len(interventions),
                          "times": sitting.record(WHOLE),
                          "largest_difference": difference(outcomes[WHOLE], outcomes[SHARED])})
        report.finish(cases, table(cases))


def difference(whole: pd.DataFrame, shared: pd.DataFrame) -> dict[str, float]:
    """Return the largest difference of each outcome; `ProbeError` where an answer is another."""
    largest = {str(name): float((whole[name] - shared[name]).abs().max()) for name in whole}
    changed = [name for name, value in largest.items() if name in EXACT and value > 0.0]
    check(len(whole) == len(shared) and not changed, f"{', '.join(changed) or 'rows'} differ "
          "between whole and shared passes; expected the same answers", ProbeError)
    return largest


def table(cases: Sequence[dict[str, Any]]) -> str:
    """Return the markdown table: a row per list of interventions."""
    rows, lines = [], []
    for case in cases:
        times, faster = spreads(case["times"]["milliseconds"]), Spread(
            **case["times"]["speedup"][SHARED])
        rows.append([case["name"], str(case["n_interventions"]),
                     *(times[who].scaled(1e-3).text() for who in (WHOLE, SHARED)), faster.text(),
                     f"{max(case['largest_difference'].values()):.1e}"])
        lines.append(verdict(case["name"], faster.median, TARGET, "times faster", at_least=True))
    head = ["interventions", "number", f"{WHOLE}, s", f"{SHARED}, s", "times faster",
            "largest difference"]
    return "\n\n".join([markdown_table(head, rows), *lines])


if __name__ == "__main__":
    tyro.cli(main)
