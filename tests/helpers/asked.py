"""What tests ask of the bench."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

import latentcode as lc
from latentcode.codes.reader import instances
from latentcode.models.patched.sites import Edit, Place
from latentcode.probes.interventions import Bench, Patch
from latentcode.probes.interventions.outcomes import Ask
from latentcode.probes.interventions.patches import Problem


def asked(
    instance: int, target: str, which: int = 0, value: Any = "interchange", where: str = "row",
    layers: tuple[int, ...] = (0,), *, other: int | None = None, **settings: Any,
) -> Ask:
    return Ask(Patch(value, where, layers, **settings), instance, target, which, other)


def untrained_bench(name: str, kind: str = "hyla", *, n: int = 12, n_reference: int = 40,
                    seed: int = 1, factorial: bool = True, right: bool = False) -> Bench:
    """Return the bench of a smoke preset's model that has learned nothing.

    right  let all its answers pass for right
    """
    config = lc.preset("smoke", name, kind)
    task = lc.make_task(config.task)
    model = lc.HookedTransformer(config.model, seed=seed).eval()
    pairs = lc.make_counterfactuals(task, factorial=factorial)
    if right:
        pairs.right = lambda pairs, logits, of: torch.ones(len(logits), dtype=torch.bool)
    return Bench(model, pairs, instances(task, "ood", range(n)), n_reference=n_reference)


def changed(ask: Ask, **settings: Any) -> Ask:
    """Return the same with other fields, of the patch or of what it is put into."""
    own = {f.name for f in fields(Ask)}
    of_patch = {name: value for name, value in settings.items() if name not in own}
    of_ask = {name: value for name, value in settings.items() if name in own}
    return replace(ask, patch=replace(ask.patch, **of_patch), **of_ask)


def put(value: Any, model: Any, scope: Tensor, *, pairs: Any = None, **where: Any
        ) -> dict[Place, Edit]:
    """Return what puts a function of what is computed into a scope of some layers."""
    patch = Patch(lambda base, source, problem: value(base), **where)
    problem = Problem(pairs, {"sources": dict.fromkeys(patch.places)}, scope, torch.Generator())
    return patch.edits(model, problem)
