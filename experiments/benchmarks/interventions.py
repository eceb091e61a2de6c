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
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import tyro

from latentcode.errors import ProbeError, check
from latentcode.experiments.benchmarks.harness import (
    CPU,
    Benchmark,
    Contestant,
    sit,
    spread_text,
    timed,
    verdict,
)
from latentcode.figures.text import markdown_table
from latentcode.models.patched.sites import has_constraint
from latentcode.probes.interventions import first_interventions, standard_interventions
from latentcode.probes.interventions.intervention import outcomes_of_model
from latentcode.progress import Bar
from latentcode.subjects import subject

WHOLE, SHARED = "whole passes", "shared passes"
TARGET = 3.0
"""How many times as fast shared passes should be."""
EXACT = ("flip", "unchanged", "others", "base", "operation", "operands", "answer", "else")
"""Outcomes that say which answer is given: they have to be the same."""


@dataclass(frozen=True, kw_only=True)
class Interventions(Benchmark):
    """Time both, compare their answers; write JSON and a table."""

    QUESTION = "interventions"

    model: str = "sraven-hyla"
    """A run, or a model of the zoo."""
    whole: bool = False
    """Ask all interventions, also those that are not asked for by default."""
    n: int = 250
    """Bases that are drawn."""
    rounds: int = 5

    def measure(self) -> tuple[list[dict[str, Any]], str]:
        n, rounds = (20, 2) if self.smoke else (self.n, self.rounds)
        benchmarked = subject(self.model)
        task, shared = benchmarked.counterfactuals(), benchmarked.model()
        config = shared.config
        lists = {"default": first_interventions(range(config.n_layers), task.scopes, task.lacking)}
        if self.whole:
            lists["whole"] = standard_interventions(
                range(config.n_layers), config.n_heads, task.scopes,
                has_constraint(config.normalization), task.lacking, task.places)
        watched = copy.deepcopy(shared)
        watched.hook_embed.add_perma_hook(lambda activation, hook: None)
        models = {WHOLE: watched, SHARED: shared}

        def intervene(passes: str, patches: Any, outcomes: dict[str, pd.DataFrame]) -> None:
            outcomes[passes], _ = outcomes_of_model(models[passes], task, patches, n=n)

        cases: list[dict[str, Any]] = []
        for name, patches in lists.items():
            outcomes: dict[str, pd.DataFrame] = {}
            times = sit([Contestant(passes, timed(partial(intervene, passes, patches, outcomes),
                                                  CPU, time.process_time)) for passes in models],
                        rounds=rounds, units=1, warmup=0, progress=Bar(name))
            cases.append({"name": name, "n_interventions": len(patches), "times": times,
                          "largest_difference": difference(outcomes[WHOLE], outcomes[SHARED])})
        rows, verdicts = [], []
        for case in cases:
            times, faster = case["times"]["milliseconds"], case["times"]["speedup"][SHARED]
            rows.append([case["name"], case["n_interventions"],
                         *(spread_text(times[passes], 1e-3) for passes in models),
                         spread_text(faster), f"{max(case['largest_difference'].values()):.1e}"])
            verdicts.append(verdict(
                case["name"], faster["median"], TARGET, "times faster", at_least=True))
        head = ["interventions", "number", f"{WHOLE}, s", f"{SHARED}, s", "times faster",
                "largest difference"]
        return cases, "\n\n".join([markdown_table(head, rows), *verdicts])


def difference(whole: pd.DataFrame, shared: pd.DataFrame) -> dict[str, float]:
    """Return the largest difference of each outcome; `ProbeError` where an answer is another."""
    largest = {str(name): float((whole[name] - shared[name]).abs().max()) for name in whole}
    changed = [name for name, value in largest.items() if name in EXACT and value > 0.0]
    check(len(whole) == len(shared) and not changed, f"{', '.join(changed) or 'rows'} differ "
          "between whole and shared passes; expected the same answers", ProbeError)
    return largest


if __name__ == "__main__":
    tyro.cli(Interventions).run()
