"""How far is an answer from the source's? The number that is differentiated, and where it leads.

Of answers that are

    symbols   log p(source's answer) - log p(base's answer), a difference of two logits
    numbers   sign(source's answer - base's answer) times the answer
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from latentcode.answers import CLASSES
from latentcode.errors import check_choice
from latentcode.models.kernels.fused import written_out
from latentcode.models.modes import evaluating
from latentcode.probes.interventions.sites import SITES, Place
from latentcode.tasks.counterfactuals import OTHERS, ChosenPairs, MinimalPairs

SOURCES: Mapping[str, tuple[str, int]] = {"interchange": ("sources", 1), **{
    name: (name, ("operation" in name) + 2 * ("operands" in name))
    for name in OTHERS if "operation" in name or "operands" in name}}
"""Sources whose answer differs from the base's: their batch of `MinimalPairs`, and which of the
candidates is their answer."""


def rate_of(task: ChosenPairs, source: str) -> str:
    """Return the outcome that says that an answer is the source's, one of `CLASSES` or `flip`."""
    check_choice("source", source, SOURCES if task.factorial else ("interchange",))
    return list(CLASSES)[SOURCES[source][1]] if task.factorial else "flip"


def answers(task: ChosenPairs, pairs: MinimalPairs, source: str) -> tuple[Tensor, Tensor]:
    """Return the answers of the bases and of their sources, float64 [B] each."""
    if pairs.candidates is not None:
        return pairs.candidates[:, 0], pairs.candidates[:, SOURCES[source][1]]
    of_all = task.answers(pairs)
    own, theirs = (of_all.gather(1, which[:, None])[:, 0]
                   for which in (pairs.base_label, pairs.source_label))
    return own, theirs


def step(
    task: ChosenPairs, pairs: MinimalPairs, own: Tensor, theirs: Tensor, logits: Tensor
) -> Tensor:
    """Return how far answers went from the bases' (own) to the sources' (theirs): float64 [B].

    In nats where answers are symbols, in the answer's own unit where they are numbers.
    """
    outputs = task.outputs(pairs.slot, logits)
    if not task.symbolic:
        return (theirs - own).sign() * outputs[:, 0]
    # No probability is so small that its logarithm would be infinite.
    logs = outputs.clamp_min(torch.finfo(outputs.dtype).tiny).log()
    to, since = (logs.gather(1, symbol.long()[:, None])[:, 0] for symbol in (theirs, own))
    return to - since


def gradients(
    model: Any, inputs: Tensor, places: Collection[Place], measure: Callable[[Tensor], Tensor],
    at: Mapping[Place, Tensor] | None = None,
) -> tuple[dict[Place, Tensor], dict[Place, Tensor]]:
    """Return what is computed at some places, and d sum_b measure_b / d of it: one pass each way.

    measure  logits -> [B], each from its own instance alone
    at       what is written at other places before
    """
    found: dict[Place, Tensor] = {}
    added: dict[Place, Tensor] = {}

    def add(place: Place, activation: Tensor, hook: object) -> Tensor:
        # Adding 0 changes nothing, and has a gradient whether or not weights have one.
        found[place] = activation.detach().clone()
        added[place] = torch.zeros_like(activation, requires_grad=True)
        return activation + added[place]

    def put(value: Tensor, activation: Tensor, hook: object) -> Tensor:
        return value

    with evaluating(model), written_out(), torch.enable_grad():
        logits = model.run_with_hooks(inputs, fwd_hooks=[
            *((SITES[site].hook.format(layer), partial(put, value))
              for (site, layer), value in (at or {}).items()),
            *((SITES[site].hook.format(layer), partial(add, (site, layer)))
              for site, layer in places)])
        slopes = torch.autograd.grad(measure(logits).sum(), list(added.values()))
    return found, dict(zip(added, slopes, strict=True))
