"""Does a model know its rules, and which of them does it take for another?"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import torch

from latentcode.codes.instances import instances
from latentcode.config import SravenConfig
from latentcode.models.modes import evaluating
from latentcode.runs import Run
from latentcode.tasks.sraven.rules import DISTRIBUTE, RULES, complete
from latentcode.tasks.sraven.task import aligned, rules_shown

LEAST = 0.90
"""A model knows its rules where it is right about each in at least this share of held-out
instances (`claims.yaml`)."""
AT_ONCE = 250
"""Instances of a forward pass."""


def least_known(run: Run) -> tuple[str, float]:
    """Return the rule that a model is least often right about on `ood`, and how often it is."""
    metrics = run.newest_metrics()
    of_rules = metrics[(metrics["split"] == "ood")
                       & metrics["metric"].str.startswith("feature_accuracy[")]
    least = of_rules.sort_values("mean", kind="stable").iloc[0]
    return str(least["metric"]).removeprefix("feature_accuracy[")[:-1], float(least["mean"])


def knows_rules(run: Run) -> bool:
    """Whether a model is right about each rule in at least `LEAST` of held-out instances."""
    return least_known(run)[1] >= LEAST


def caveat(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the note that some models do not know their rules, where it is so."""
    worst = {run.name: least_known(run) for run in runs if not knows_rules(run)}
    if not worst:
        return ()
    name = min(worst, key=lambda name: worst[name][1])
    rule, share = worst[name]
    return (f"{len(worst)} model(s) do not know every rule (least: {rule} right in {share:.2f} of "
            f"held-out instances, {name}): this says nothing about kinds of attention.",)


def titled(runs: Iterable[Run]) -> str:
    """Return what the title of a figure says where some models do not know their rules."""
    return "not all models know their rules" if any(not knows_rules(run) for run in runs) else ""


def confusion(run: Run, *, n: int = 4_096, seed: int = 0, device: str = "cpu") -> pd.DataFrame:
    """Which rule's answers does a model give, under each rule, on held-out combinations?

    A row per rule and rule `as` whose answer it is: `value`, the share of response tokens under
    `rule` that get the answer that `as` would prescribe and that is not the right one (where `as`
    is the rule itself: that are right), of the `n` tokens. A wrong answer that several rules give
    counts for each. Distribute-three prescribes none to a row of another rule.
    """
    config = run.config.task
    assert isinstance(config, SravenConfig)
    batch = instances(config, "ood", n, seed=seed, device=device)
    model = run.load_model(device=device)
    features = aligned(batch.info["grid"], batch.info["permutations"]).movedim(-1, 1)
    possible = complete(features, config.n_values)[1]  # [B, M, rule]
    with evaluating(model):
        logits = torch.cat([model(part) for part in batch.inputs.split(AT_ONCE)])
    answers = logits[:, -config.n_features:].argmax(-1)
    right = answers == batch.targets
    rules = rules_shown(batch)
    rows = []
    for rule, name in enumerate(RULES):
        of_rule = rules == rule
        for other, given in enumerate(RULES):
            if other == DISTRIBUTE != rule:
                continue
            hit = right if other == rule else (answers == possible[..., other]) & ~right
            if bool(of_rule.any()):
                rows.append({"rule": name, "as": given, "n": int(of_rule.sum()),
                             "value": float(hit[of_rule].float().mean())})
    return pd.DataFrame(rows)
