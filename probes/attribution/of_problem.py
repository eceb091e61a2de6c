"""Where does the answer to one problem hang? Its map over the keys of the response, each patched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.errors import ProbeError, check, check_choice
from latentcode.models.layers import attention_layers
from latentcode.probes.attribution.instances import Setting
from latentcode.probes.attribution.steps import SOURCES, answers, step
from latentcode.probes.interventions.bench.cells import response
from latentcode.probes.interventions.sites import Place, Put, capture, in_scope, run_patched
from latentcode.tasks.counterfactuals import ChosenPairs, MinimalPairs

AT_ONCE = 32
"""Keys that are patched in one pass."""


@dataclass(frozen=True)
class ProblemMap:
    """What the source's codes of one problem do to its step towards the source's answer.

    All numbers are in the unit of the step (`latentcode.probes.attribution.steps`): nats where
    answers are symbols, the answer's own where they are numbers.

    query       the token that answers, whose codes the map shows
    estimates   float64 [L, K], by `path`: the part that the code of the query and each key has in
                what all codes of the problem do together
    effects     float64 [L, K], of writing that code alone, really
    estimated   the sum of the estimates of all codes, those of the other queries too
    everything  the effect of writing all codes, which `estimated` should be
    """

    query: int
    estimates: np.ndarray
    effects: np.ndarray
    estimated: float
    everything: float

    @property
    def correlation(self) -> float:
        """Pearson's r of estimates and effects over the codes of which one is not 0.

        NaN where there are fewer than three, or one of the two is constant.
        """
        some = (self.estimates != 0.0) | (self.effects != 0.0)
        x, y = self.estimates[some], self.effects[some]
        if len(x) < 3 or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
            return float("nan")
        return float(np.corrcoef(x, y)[0, 1])


def attribute_problem(
    model: Any, task: ChosenPairs, pairs: MinimalPairs, source: str = "interchange", *,
    n_points: int = 16,
) -> ProblemMap:
    """Which codes of its response does the answer to one problem hang on?

    model   anything with `cfg` and `run_with_hooks`
    pairs   one pair: `Bench.pairs(instance, which, target, 1)`
    source  whose codes would be written: `interchange`, the minimal pair's, or another that the
            pair has and that differs in its operation or operands
    n_points  on the way to the source's codes at which the gradient is taken

    Every code of the map is also written for real. `ConfigError` for another source; `ProbeError`
    where the two answers are not both defined, or are the same.
    """
    check_choice("source", source, [name for name in SOURCES
                                    if name == "interchange" or name in pairs.others])
    name, _ = SOURCES[source]
    if source == "interchange":  # its answer is also known where those of a factorial are not
        pairs = replace(pairs, candidates=None)
    known = bool(pairs.counts) if source == "interchange" else pairs.candidates is not None
    own, theirs = answers(task, pairs, source) if known else torch.full((2, 1), torch.nan)
    check(bool((own - theirs).abs() > task.least_difference), "the answers of the problem and of "
          f"its source ({source}) are not both defined, or hardly differ; expected two that differ",
          ProbeError)
    places: list[Place] = [("code", layer) for layer in attention_layers(model)]
    clean, _ = capture(model, pairs.bases.inputs, ())
    _, sources = capture(model, pairs.batch(name).inputs, places)
    found = Setting(model, task, source, places, n_points).estimates(pairs, own, theirs, sources)
    parts = torch.stack([found["path", place][0].sum(0) for place in places]).double()  # [L, Q, K]

    def effects(masks: dict[Place, Tensor], n: int) -> Tensor:
        """Return the effects of n writes; masks  place -> bool [n, 1, Q, K]."""
        several = pairs[torch.zeros(n, dtype=torch.int64, device=pairs.slot.device)]
        inputs = several.bases.inputs
        everywhere = torch.ones(1, 1, 1, dtype=torch.bool, device=inputs.device)
        logits = run_patched(model, inputs, {
            place: in_scope(Put(sources[place]), mask, everywhere)
            for place, mask in masks.items()})
        return step(task, several, own.expand(n), theirs.expand(n), logits) - step(
            task, pairs, own, theirs, clean)

    query, _ = response(task, pairs)
    n_keys = parts.shape[-1]
    alone = torch.zeros(n_keys, 1, n_keys, n_keys, dtype=torch.bool, device=parts.device)
    alone[range(n_keys), 0, query, range(n_keys)] = True
    each = [torch.cat([effects({place: some}, len(some)) for some in alone.split(AT_ONCE)])
            for place in places]
    whole = effects(dict.fromkeys(places, torch.ones_like(alone[:1])), 1)
    return ProblemMap(query, parts[:, query].cpu().numpy(), torch.stack(each).cpu().numpy(),
                      float(parts.sum()), float(whole))
