"""Distributed alignment search: which subspace carries the operation, or the operands, alone?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from latentcode.arguments import as_tuple
from latentcode.errors import ProbeError, check, check_choice, check_count
from latentcode.models.modes import locked
from latentcode.probes.common.contrasts import table_of
from latentcode.probes.das.places import checked_place
from latentcode.probes.das.result import DASResult
from latentcode.probes.das.search import WINDOW, Scored, Search, random_basis
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed, make_generator
from latentcode.subjects import subject
from latentcode.tasks.counterfactuals import Counterfactuals

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

OBJECTIVES = ("operation", "operands")
"""Classes of answers that a search can be trained towards: B(x), and A(x')."""
SEARCHES = ("trained", "shuffled", "untrained")


@watched("searches")
def das_model(
    model: Any,
    task: Counterfactuals,
    objective: str | Sequence[str] = "operation",
    *,
    site: str = "code",
    layer: int | None = None,
    rank: int | Sequence[int] = 4,
    searches: Sequence[str] = SEARCHES,
    untrained: Any = None,
    split: str = "ood",
    n_train: int = 2_048,
    n: int = 600,
    steps: int = 300,
    batch_size: int = 64,
    learning_rate: float = 0.01,
    seed: int = 0,
    n_bootstrap: int = 1_000,
    meta: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> DASResult:
    """h + R R^T (h' - h): for which R does the source's operation arrive, and its operands do not?

    h, h' [d] are an activation of the base's response and of its source's, which has another
    operation B and other operands x'. R [d, k] is trained on training combinations (distributed
    alignment search, Geiger et al. 2024), with the model as it is, and scored on held-out ones.

    model      anything with `cfg` and `run_with_hooks`: ours, computed from the layer on alone, or
               one of TransformerLens, which passes through as a whole
    task       its pairs, with a factorial of sources: `make_counterfactuals(make_task(...))`, or
               `PromptCounterfactuals` of every operation with every operands
    objective  `operation`, towards B(x), `operands`, towards A(x'), or both, each for itself
    site, layer  `code`, the row of the response in a layer (d = H K), `z`, what the heads put out
               for it before W_O (d = H d_head_v), or `residual`, the stream of the response's token
               entering the layer (d = D); layer: default the last
    rank       k, or several, each searched for itself
    searches   of `trained`, `shuffled` and `untrained` (controls; see `DASResult`)
    untrained  the model's initial weights, or the same architecture with fresh ones
               (`load_pretrained(..., untrained=True)`), for the control of that name
    n_train, n  pairs drawn for training and scoring, of which those count that the model answers
    steps, batch_size, learning_rate  of Adam; a search ends early where its loss is flat
    progress   called with (searches done, in all)

    Raises `ProbeError` for a model without hooks, a rank above d and where no pair counts,
    `ConfigError` and `UnknownNameError` for other arguments and for a place at which a model does
    not go on with what is written.
    """
    seed, searches, ranks = checked_seed(seed), as_tuple(searches), as_tuple(rank)
    objectives = as_tuple(objective)
    place = checked_place(model, site, layer)
    _check(task, objectives, ranks, searches, untrained, n_train=n_train, n=n, steps=steps,
           batch_size=batch_size)
    models = {"trained": model}
    if untrained is not None and "untrained" in searches:
        models["untrained"] = untrained
    with ExitStack() as reading:
        for of in models.values():
            reading.enter_context(locked(of))
            reading.enter_context(task.reading(of))
        prepared = {name: Search.prepared(of, task, place, n_train=n_train, n=n, split=split,
                                          known=name == "trained", seed=seed)
                    for name, of in models.items()}
        of_model = prepared["trained"]
        check(max(ranks) <= of_model.d, f"rank is {max(ranks)}; expected at most {of_model.d}, the "
              f"dimensions of {site} in layer {place[1]}", ProbeError)
        rows: list[dict[str, Any]] = []
        curves: list[dict[str, Any]] = []
        found: dict[tuple[str, str, int], Scored] = {}
        device = next(model.parameters()).device
        plan = list(product(objectives, searches, ranks))
        for number, (towards, name, k) in enumerate(plan):
            search = prepared.get(name, of_model)
            # "subspaces" names streams of random numbers, which another name would change.
            drawn = make_generator(seed, f"subspaces {towards} {name} {k}", device)
            fit = search.fit(towards, k, shuffled=name == "shuffled", generator=drawn, steps=steps,
                             batch_size=batch_size, learning_rate=learning_rate)
            of = {"objective": towards, "search": name}
            scored = found[towards, name, k] = search.scored(fit.basis, n_bootstrap, seed)
            rows += [{**of, **row} for row in scored.rows]
            curves += [{**of, "rank": k, "step": end, "loss": np.mean(fit.losses[end - WINDOW:end])}
                       for end in range(WINDOW, len(fit.losses) + 1, WINDOW)]
            if progress is not None:
                progress(number + 1, len(plan))
        fixed = [("random", random_basis(
            of_model.d, k, make_generator(seed, f"subspaces random {k}", device))) for k in ranks]
        for name, basis in (*fixed, ("whole", torch.eye(of_model.d, device=device))):
            scored = found["none", name, basis.shape[1]] = of_model.scored(basis, n_bootstrap, seed)
            rows += [{"objective": "none", "search": name, **row} for row in scored.rows]
    contrasts = [
        {"objective": towards, "rank": k, "search": "trained", "against": other, **row}
        for (towards, name, k), scored in found.items() if name == "trained"
        for other, key in (("shuffled", (towards, "shuffled", k)),
                           ("untrained", (towards, "untrained", k)),
                           ("random", ("none", "random", k)),
                           ("whole", ("none", "whole", of_model.d)))
        if key in found for row in scored.less(found[key], n_bootstrap, seed)]
    return DASResult(
        pd.DataFrame(rows, columns=list(DASResult.COLUMNS["table"])),
        pd.DataFrame(curves, columns=list(DASResult.COLUMNS["curves"])),
        {**(dict(meta) if meta else {}), "objectives": list(objectives), "site": site,
         "layer": place[1], "d": of_model.d, "ranks": list(ranks), "searches": list(searches),
         "split": split, "n_train": n_train, "n_train_known": len(of_model.train), "n": n,
         "n_known": len(of_model.heldout), "steps": steps, "batch_size": batch_size,
         "learning_rate": learning_rate, "seed": seed, "n_bootstrap": n_bootstrap, "level": 0.95},
        table_of(contrasts, DASResult.COLUMNS["contrasts"]))


def _check(
    task: Counterfactuals, objectives: Sequence[str], ranks: Sequence[int], searches: Sequence[str],
    untrained: Any, **numbers: int,
) -> None:
    """Raise an error for what cannot be searched, before anything is computed."""
    for objective in objectives:
        check_choice("objective", objective, OBJECTIVES)
    for name in searches:
        check_choice("search", name, SEARCHES)
    check(task.factorial, "these pairs have no factorial of sources; expected make_counterfactuals("
          "task) of a task that offers one, or prompts with the columns operation and operands")
    check(task.symbolic is not None, f"the pairs are {type(task).__name__}, which do not say what "
          "a model answers; expected symbolic and answer_token, as other Counterfactuals have them")
    lists: Mapping[str, Sequence[object]] = {
        "objective": objectives, "searches": searches, "rank": ranks}
    for name, values in lists.items():
        check(len(values) > 0, f"{name} is empty; expected at least one")
        for one in values:
            check(values.count(one) == 1, f"{name} has {one} more than once; expected it once")
    check(min(ranks) >= 1, f"rank is {', '.join(map(str, ranks))}; expected one or several numbers "
          "from 1 on")
    for name, value in numbers.items():
        check_count(name, value, 2 if name in ("n", "n_train") else 1)
    check("untrained" not in searches or untrained is not None, "'untrained' is among the searches "
          "without the model of that name; expected untrained=, the initial weights")


@watched("searches")
def das(
    model: Model,
    problems: Problems = None,
    objective: str | Sequence[str] = "operation",
    *,
    site: str = "code",
    layer: int | None = None,
    rank: int | Sequence[int] = 4,
    searches: Sequence[str] = SEARCHES,
    split: Split = "ood",
    n_train: int | None = None,
    n: int | None = None,
    heldout: float = 0.3,
    steps: int = 300,
    batch_size: int = 64,
    learning_rate: float = 0.01,
    step: int | None = None,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> DASResult:
    """Find a subspace whose interchange brings the source's operation alone.

    See `latentcode.probes.das.das_model` for the equation.

    Args:
        model: See `subject`.
        problems: See `subject`; of prompts a factorial, with the columns `operation` and
            `operands`; default: the run's own task.
        objective: `operation`, towards B(x), `operands`, towards A(x'), or both; of a source with
            another operation B and other operands x'.
        site: `code`, the row of the response in a layer, `z`, what the heads put out for it before
            W_O, or `residual`, the stream of the response's token that enters the layer.
        layer: The layer that is written; default: the last.
        rank: Dimensions of the subspace, or several numbers of them.
        searches: Some of `trained`, and of the controls `shuffled` and `untrained` (see
            `DASResult`).
        split: Combinations whose pairs the subspaces are scored on; they are trained on pairs of
            `train`.
        n_train: Pairs drawn for training; default: 2,048, of prompts all, each of which is a base
            at most once.
        n: Pairs drawn for scoring; default: 600, of prompts all, each of which is a base at most
            once.
        heldout: Share of the combinations of prompts to hold out, where they have no column
            `split`.
        steps: Updates by Adam; a search ends early where its loss is flat.
        batch_size: Pairs of one update.
        learning_rate: Learning rate of Adam.
        step: The checkpoint of a run; default: the newest.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of everything that is drawn.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (searches done, in all).

    Raises:
        LatentCodeError: What `subject` and `das_model` raise, and `ConfigError` for problems
            without minimal pairs.
    """
    seed = checked_seed(seed)
    of = subject(model, problems, step=step, device=device).divided(heldout, seed, "operation")
    untrained = of.model(untrained=True, seed=seed) if "untrained" in searches else None
    return das_model(
        of.model(), of.counterfactuals(), objective, site=site, layer=layer, rank=rank,
        searches=searches, untrained=untrained, split=of.split_name(split),
        n_train=of.n_of("n_train", n_train, 2_048, "train"), n=of.n_of("n", n, 600, split),
        steps=steps, batch_size=batch_size, learning_rate=learning_rate, seed=seed,
        n_bootstrap=n_bootstrap, meta=of.settings, progress=progress)
