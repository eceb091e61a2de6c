"""Do codes cause the answer? Write other codes back, and see what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.errors import ConfigError, ProbeError, UnknownNameError, check, check_choice
from latentcode.probes.interventions.references import (
    ERASABLE,
    References,
    label_to_erase,
    measure,
)
from latentcode.probes.interventions.result import InterventionResult, tables
from latentcode.probes.interventions.sites import (
    SITES,
    Edit,
    Place,
    capture,
    check_written,
    in_scope,
    normalization_of,
    write,
)
from latentcode.probes.interventions.writes import WRITES, Material, possible, transplants
from latentcode.seeds import make_generator
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

Progress = Callable[[int, int], None]
"""Called with (instances passed through the model, those in all)."""


@dataclass(frozen=True)
class Intervention:
    """What is written where.

    write        a key of `WRITES`: what
    scope        a key of `SCOPES` that the task offers: at which queries and keys
    layers       in which layers, all in one run
    site         `code`, `value` or `residual`: the activation that is written
    alpha        how far `steer` goes
    heads        of which heads alone; None: all
    renormalize  bring what was written back to the constraint of the model's codes
    """

    write: str = "donor"
    scope: str = "row"
    layers: tuple[int, ...] = (0,)
    site: str = "code"
    alpha: float = 1.0
    heads: tuple[int, ...] | None = None
    renormalize: bool = False

    def check(self, task: Counterfactuals, model: Any) -> None:
        """Raise a `ConfigError` that names what does not fit the task or the model."""
        check_choice("write", self.write, WRITES)
        check_choice("site", self.site, SITES)
        task.check_scope(self.scope)
        check(len(self.layers) > 0, "layers is empty; expected at least one")
        check(self.heads is None or len(self.heads) > 0, "heads is empty; expected None for all, "
              "or at least one")
        check(math.isfinite(self.alpha), f"alpha is {self.alpha!r}; expected a finite number")
        for layer in self.layers:
            if layer not in range(model.cfg.n_layers):
                raise UnknownNameError("layer", layer, range(model.cfg.n_layers))
        needs = WRITES[self.write].needs
        if needs in task.lacks:
            raise ConfigError(f"{self.write!r} cannot be written: {task.lacks[needs]}")
        if self.site != "code":
            check(needs != "erasers" and not self.renormalize, f"{self.write!r} with renormalize="
                  f"{self.renormalize} at site {self.site!r}; labels are erased from codes, and "
                  "codes are renormalised")
        check(needs != "elsewhere" or self.scope != "everything", f"{self.write!r} at scope "
              "'everything', which leaves no other position; expected another scope")
        check(self.site != "value" or self.scope not in ("row", "feature"), f"scope is "
              f"{self.scope!r} at site 'value', where it covers every key, for all queries; "
              "expected 'everything', or single keys with 'pair' or 'pairs'")
        check(needs != "erasers" or self.scope in ERASABLE, f"scope is {self.scope!r}; expected "
              f"one of {', '.join(ERASABLE)} to erase a label")
        check(not self.renormalize or normalization_of(model) != "none", "the codes of this model "
              "are not normalised; expected renormalize=False")
        groups = getattr(model.cfg, "n_key_value_heads", None) or model.cfg.n_heads
        check(self.heads is None or self.site != "value" or groups == model.cfg.n_heads,
              f"heads is {self.heads} at site 'value'; expected None, as the {model.cfg.n_heads} "
              f"heads of this model share the values of {groups}")
        for head in self.heads or ():
            check(self.site != "residual" and head in range(model.cfg.n_heads),
                  f"head {head} at site {self.site!r}; expected one of {model.cfg.n_heads} heads "
                  "of codes or values")

    def row(self) -> dict[str, Any]:
        """Return the columns that name this intervention in tables."""
        return {"write": self.write, "scope": self.scope,
                "layers": ",".join(map(str, self.layers)), "site": self.site,
                "alpha": self.alpha if self.write.startswith("steer") else float("nan"),
                "heads": "all" if self.heads is None else ",".join(map(str, self.heads)),
                "renormalized": self.renormalize}


def intervene_model(
    model: Any,
    task: Counterfactuals,
    interventions: Sequence[Intervention],
    *,
    split: str = "ood",
    n: int = 2_000,
    n_reference: int = 4_096,
    seed: int = 0,
    batch_size: int = 250,
    n_bootstrap: int = 1_000,
    meta: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> InterventionResult:
    """What becomes of the answers when codes a[:, q, k] are replaced in the forward pass?

    model   anything with `cfg` and `run_with_hooks`: ours, or one of TransformerLens
    task    the minimal pairs and their answers: `make_counterfactuals(make_task(...))`
    n       instances drawn; those count whose two answers differ and which the model answers
            rightly, the instance and the donor (for `same` the control's donor, too)
    n_reference  training instances for means and erasers, where one of the writes needs them
    batch_size   instances at once; transplants and shuffled donors come from the same batch

    Every outcome is compared with the hooked, unpatched pass over the same batch. Intervals are
    95 %, clustered by combination. Raises `ConfigError` (with the choices) for an intervention
    that does not fit the task or the model, `ProbeError` when no pair counts.
    """
    check(len(interventions) > 0, "there are no interventions; expected at least one", ConfigError)
    for i in interventions:
        check(interventions.count(i) == 1, f"{i} is given {interventions.count(i)} times; expected "
              "each intervention once", ConfigError)
    for name, value, least in (("n", n, 2), ("batch_size", batch_size, 2),
                               ("n_bootstrap", n_bootstrap, 100)):
        check(value >= least, f"{name} is {value!r}; expected at least {least}", ConfigError)
    for intervention in interventions:
        intervention.check(task, model)
    check(n_reference >= 2 or not _needs(interventions), f"n_reference is {n_reference!r}; "
          "expected at least 2 for means and erasers", ConfigError)
    device = next(model.parameters()).device
    places = sorted({(i.site, layer) for i in interventions for layer in i.layers})
    n_reference = n_reference if _needs(interventions) else 0
    total = n_reference + n * (len(interventions) + 3)

    def advance(done: int, _: int = 0) -> None:
        if progress is not None:
            progress(done, total)

    references = References({}, {}, torch.zeros(0, device=device), {})
    if _needs(interventions):
        references = measure(
            model, task, places, n=n_reference, seed=seed, batch_size=batch_size,
            erase={(i.scope, i.write == "erase_shuffled") for i in interventions
                   if WRITES[i.write].needs == "erasers"}, progress=advance)
    generator = make_generator(seed, f"interventions {split}", device)
    frames: list[pd.DataFrame] = []
    n_drawn = n_counted = n_known = 0
    for index, pairs in enumerate(task.batches(split, n, batch_size, generator)):
        if index == 0:
            check_written(model, pairs.instances.inputs[:2], places)
        done = n_reference + n_drawn * (len(interventions) + 3)
        n_drawn += len(pairs)
        passes = [capture(model, batch.inputs, places)
                  for batch in (pairs.instances, pairs.donors, pairs.same)]
        advance(done + 3 * len(pairs))
        (clean, own), (answered, donors), (controlled, same) = passes
        kept = (pairs.counts & task.right(pairs, clean, "instances")
                & task.right(pairs, answered, "donors"))
        same_right = task.right(pairs, controlled, "same")
        # Found once: with a mask a GPU would be waited for at every use.
        known = kept.nonzero()[:, 0]
        n_counted, n_known = n_counted + int(pairs.counts.sum()), n_known + len(known)
        if len(known) == 0:
            continue
        chosen = pairs[known]
        donors, same = ({place: x[known] for place, x in of.items()} for of in (donors, same))
        pool = task.membership(pairs.instances)
        # Once more, because the last digits depend on which instances are computed together.
        unpatched, _ = capture(model, chosen.instances.inputs, ())
        for number, intervention in enumerate(interventions):
            noise = make_generator(seed, f"intervention {number} batch {index}", device)
            scope = task.scope(intervention.scope, chosen,
                               elsewhere=WRITES[intervention.write].elsewhere)
            material = Material(
                chosen, donors, same, same_right[known], own,
                transplants(pool, chosen, noise), references,
                _erasers(intervention, references, scope, chosen, task), noise)
            patched = _patched(model, intervention, material, scope)
            check(bool(patched.isfinite().all()), f"{intervention} gives logits that are not "
                  "finite", ProbeError)
            outcomes = task.outcomes(chosen, unpatched, answered[known], patched)
            frames.append(_frame(number, chosen, outcomes, material, intervention))
            advance(done + (number + 4) * len(pairs))
    advance(total)
    check(n_known >= 2, f"of {n} instances of {split}, {n_counted} have two different answers, and "
          f"the model gives both in {n_known}; expected at least two. Is it trained?",
          ProbeError)
    settings = {
        **(dict(meta) if meta else {}), "split": split, "n": n, "n_counted": n_counted,
        "n_known": n_known, "n_reference": n_reference,
        "seed": seed, "batch_size": batch_size, "n_bootstrap": n_bootstrap, "level": 0.95,
        "chance": None if np.isnan(task.chance) else task.chance,
        "normalization": normalization_of(model), "constituents": list(task.constituents),
        "notes": list(task.notes),
        "interventions": [
            {**asdict(i), "layers": list(i.layers),
             "heads": None if i.heads is None else list(i.heads)} for i in interventions]}
    rows = [i.row() for i in interventions]
    return InterventionResult(
        *tables(pd.concat(frames, ignore_index=True), rows, task.constituents, n_bootstrap, seed),
        settings=settings)


def _erasers(
    intervention: Intervention, references: References, scope: Tensor, pairs: MinimalPairs,
    task: Counterfactuals,
) -> dict[Place, Edit]:
    """Return what erases the label of each instance in each layer, where that is wanted."""
    if WRITES[intervention.write].needs != "erasers":
        return {}
    fitted = references.erasers[intervention.scope, intervention.write == "erase_shuffled"]
    label = label_to_erase(task, pairs)
    return {(intervention.site, layer):
            fitted[intervention.site, layer].edit(scope, pairs.slot, label)
            for layer in intervention.layers}


def _patched(
    model: Any, intervention: Intervention, material: Material, scope: Tensor
) -> Tensor:
    """Return the logits of the instances with one intervention in a scope [B, Q, K]."""
    kind, site = WRITES[intervention.write], SITES[intervention.site]
    mask = site.mask(scope, intervention.heads, model.cfg.n_heads)
    normalization = normalization_of(model) if intervention.renormalize else None

    def edit_of(place: Place) -> Edit:
        return in_scope(lambda live: kind.values(material, place, live, intervention.alpha),
                        mask, scope, normalization)

    return write(model, material.pairs.instances.inputs, {
        (intervention.site, layer): edit_of((intervention.site, layer))
        for layer in intervention.layers})


def _needs(interventions: Sequence[Intervention]) -> bool:
    return any(WRITES[i.write].needs in ("means", "erasers") for i in interventions)


def _frame(
    number: int, pairs: MinimalPairs, outcomes: Mapping[str, Tensor], material: Material,
    intervention: Intervention,
) -> pd.DataFrame:
    """Return one row per instance that counts."""
    frame = pd.DataFrame({
        "intervention": number, "combination": pairs.instances.combination.cpu().numpy(),
        "source": pairs.source.cpu().numpy(), "target": pairs.target.cpu().numpy(),
        **{name: values.double().cpu().numpy() for name, values in outcomes.items()}})
    return frame[possible(WRITES[intervention.write], material).cpu().numpy()]
