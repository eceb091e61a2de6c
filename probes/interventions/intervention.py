"""Measure what codes cause: patches in many problems, beside controls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.devices import checked_seed, make_generator
from latentcode.errors import ProbeError, TooFewCountError, check, check_count
from latentcode.models.hooks import attention_layers, locked
from latentcode.models.patched.passes import clean_pass, computed, unshared
from latentcode.models.patched.sites import (
    Place,
    Put,
    check_written,
    has_constraint,
    normalization_of,
)
from latentcode.models.pretrained import layout
from latentcode.probes.common.statistics import check_bootstrap
from latentcode.probes.interventions.patch import Added, Patch, as_patches, edits_of, to_plain
from latentcode.probes.interventions.patches import (
    ERASABLE,
    PATCHES,
    Erased,
    Frozen,
    Kind,
    Mean,
    Problem,
    References,
    Sources,
    lacked,
    measure,
)
from latentcode.probes.interventions.result import InterventionResult, name_of, tables
from latentcode.progress import Progress, say_doing, watched
from latentcode.subjects import subject as resolve
from latentcode.subjects.prompts import PromptSubject
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

CORE = ("operands", "operation+operands")
"""Sources of a factorial that the model has to answer rightly, beside that of the minimal pair, for
its base to count."""
UNANSWERED = ("unrelated", "permuted")
"""Sources whose own answer does not matter."""
MEASURED = ("means", "erasers")
"""What is measured on training instances, of what patches need."""


@watched("forward passes")
def intervene(
    model: Model,
    problems: Problems = None,
    interventions: Sequence[Added] | Added | None = None,
    *,
    whole: bool = False,
    split: Split = "ood",
    n: int | None = None,
    n_reference: int | None = None,
    factorial: bool = True,
    among: str = "vocabulary",
    step: int | None = None,
    batch_size: int | None = None,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> InterventionResult:
    """Measure what the codes of a model cause, on held-out combinations.

    Every outcome is compared with the hooked, unpatched pass over the same batch.

    Args:
        model: See `subject`.
        problems: See `subject`; of prompts minimal pairs, or a factorial, with the columns that
            `PromptCounterfactuals` lists; default: the run's own task.
        interventions: Default: `first_interventions`, which tell whether codes cause the answer,
            and whether they carry the operation or the answer alone; of prompts
            `prompt_interventions`.
        whole: In place of the default: `standard_interventions`, all patches with their controls,
            over layers and scopes.
        split: Combinations whose codes are overwritten; means and erasers come from `train`.
            Prompts without a column `split` serve for both.
        n: Problems drawn; those count which the model answers rightly, source included; default:
            2,000, of prompts all, each of which is a base at most once.
        n_reference: Training problems for means and erasers; default: 4,096, of prompts all.
        factorial: Draw natural sources, which differ in operation, operands and the rest
            (`latentcode.tasks.counterfactuals`), where the problems offer them; without it, minimal
            pairs of any two operations.
        among: Of text without a factorial, and of prompts: whether the model's answer is the
            likeliest token of the `vocabulary` or, for models that rarely say either, the likelier
            of the two `answers`.
        step: The checkpoint of a run; default: the newest.
        batch_size: Problems at once; default: 250, of prompts 32.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of everything that is drawn.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (problems passed through the model, those in all).

    Raises:
        LatentCodeError: What `subject` and `intervene_model` raise, and `ConfigError` for a task
            without minimal pairs, for prompts that are none, and for an architecture that does not
            go on with what is written.
    """
    seed = checked_seed(seed)
    subject = resolve(model, problems, step=step, device=device, batch_size=batch_size)
    task = subject.counterfactuals(factorial=factorial, among=among)
    patched = subject.model()
    prompts = isinstance(subject, PromptSubject)
    check(not whole or interventions is None, "whole is True, and interventions are given; "
          "expected one or the other")
    if interventions is None:
        normalized = has_constraint(normalization_of(patched)) and layout(patched).normalized
        if whole:
            interventions = standard_interventions(
                subject.layers, patched.cfg.n_heads, task.scopes, normalized, task.lacking,
                task.places)
        elif prompts:
            interventions = prompt_interventions(task, subject.layers, normalized)
        else:
            interventions = first_interventions(subject.layers, task.scopes, task.lacking)
    return intervene_model(
        patched, task, interventions, split=split if subject.has_splits else "prompts",
        n=subject.n_of("n", n, 2_000, split),
        n_reference=(0 if "means" in task.lacks
                     else subject.n_of("n_reference", n_reference, 4_096, "train")),
        seed=seed, batch_size=subject.patched_at_once, n_bootstrap=n_bootstrap,
        progress=progress, meta={
            **subject.settings,
            **({} if among == "vocabulary" and not prompts else {"among": among})})


@watched("forward passes")
def intervene_model(
    model: Any,
    task: Counterfactuals,
    interventions: Sequence[Added] | Added,
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
    n       bases drawn; those count whose answers differ and which the model answers
            rightly: the base and the source, of a factorial the sources with other operands
            and the same rest, too. A patch counts where the model answers the source that it
            comes from rightly (`unrelated` always)
    batch_size   instances at once; `resample` and `shuffled` take theirs from the same batch

    The others are those of `intervene`. Raises `ConfigError` (with the choices) for an intervention
    that does not fit the task or the model, `ProbeError` when no pair counts.
    """
    seed = checked_seed(seed)
    interventions = as_patches(interventions)
    check_bootstrap(n_bootstrap)
    with locked(model), task.reading(model):
        instances, counts = outcomes_of_model(
            model, task, interventions, split=split, n=n, n_reference=n_reference, seed=seed,
            batch_size=batch_size, shared=not unshared(model), progress=progress)
    settings = {
        **(meta or {}), "split": split, "n": n, **counts, "seed": seed, "batch_size": batch_size,
        "n_bootstrap": n_bootstrap, "level": 0.95,
        "chance": None if np.isnan(task.chance) else task.chance, "factorial": task.factorial,
        "normalization": normalization_of(model), "constituents": list(task.constituents),
        "notes": list(task.notes), "interventions": [to_plain(i) for i in interventions]}
    return InterventionResult(
        **tables(instances, interventions, task.constituents, n_bootstrap, seed),
        settings=settings)


def _check(
    model: Any, task: Counterfactuals, interventions: Sequence[Added],
    n: int, batch_size: int, n_reference: int,
) -> None:
    """Raise `ConfigError` for what cannot be asked, before anything is computed."""
    check(len(interventions) > 0, "there are no interventions; expected at least one")
    for i in interventions:
        value = repr(i) if isinstance(i, str) and i in PATCHES else "'interchange'"
        check(isinstance(i, Added), f"interventions has {i!r}; expected lc.Patch, which says what "
              f"is put where, such as lc.Patch({value}, layers=0)")
        check(interventions.count(i) == 1, f"{i} is given {interventions.count(i)} times; expected "
              "each intervention once")
    rows = [tuple(map(str, i.row().values())) for i in interventions]
    for i, row in zip(interventions, rows, strict=True):
        check(rows.count(row) == 1, f"{rows.count(row)} interventions go by {' '.join(row)!r} in "
              f"tables, {i} among them; expected functions of different names, or patches that are "
              "registered with lc.register_patch")
    check_count("n", n, 2)
    check_count("batch_size", batch_size, 2)
    for i in interventions:
        i.check(task, model)
        if any(part.renormalize for part in i.parts):
            layout(model).check_normalized()
        if any(part.kind.needs in MEASURED for part in i.parts):
            check_count("n_reference", n_reference, 2)


def outcomes_of_model(
    model: Any, task: Counterfactuals, interventions: Sequence[Added], *,
    split: str = "ood", n: int = 2_000, n_reference: int = 4_096, seed: int = 0,
    batch_size: int = 250, shared: bool = True, progress: Progress | None = None,
) -> tuple[pd.DataFrame, dict[str, int]]:
    """What became of each answer? What `intervene_model` puts into tables, instance by instance.

    shared  whether passes share the layers below what is written (`unshared`)

    Other arguments are those of `intervene_model`. Returns a row per intervention and instance that
    counts: `intervention` (its place in the list), `number` of the instance, `combination`,
    `base_label` and `source_label` (numbers of constituents) and what `Counterfactuals.outcomes`
    says; and how many instances have different answers (`n_counted`), how many of these the model
    answers (`n_known`), and over how many means are taken. Raises what `intervene_model` raises.
    """
    _check(model, task, interventions, n, batch_size, n_reference)
    device = next(model.parameters()).device
    parts = [part for i in interventions for part in i.parts]
    if not any(part.kind.needs in MEASURED for part in parts):
        n_reference = 0
    # While a residual stream is written, `frozen` holds all codes.
    held: list[Place] = ([("code", layer) for layer in attention_layers(model)]
                         if any(isinstance(part.kind, Frozen) for part in parts) else [])
    places = sorted({*held, *(place for i in interventions for place in i.places)})
    sources = {part.kind.source for part in parts} - {""}
    n_clean = 1 + len({"sources", *(CORE if task.factorial else ()), *sources})
    n_passes = len(interventions) + n_clean
    total = n_reference + n * n_passes

    def advance(done: int, doing: str = "") -> None:
        if progress is not None:
            say_doing(progress, doing)
            progress(done, total)

    references = References(torch.zeros(0, device=device))
    if n_reference:
        references = measure(
            model, task, places, n=n_reference, seed=seed, batch_size=batch_size,
            erase={(str(part.where), part.kind.shuffled) for part in parts
                   if isinstance(part.kind, Erased)},
            progress=lambda done, _: advance(done, "means and erasers"))
    counts = references.count.cpu().numpy()
    few = bool(((counts > 0) & (counts < task.least_problems)).any())
    generator = make_generator(seed, f"interventions {split}", device)
    frames: list[pd.DataFrame] = []
    n_drawn = n_counted = n_known = 0
    for index, pairs in enumerate(task.batches(split, n, batch_size, generator)):
        if index == 0:
            check_written(model, pairs.bases.inputs[:2], places)
        done = n_reference + n_drawn * n_passes
        advance(done, "unpatched")
        clean = clean_batch(model, task, pairs, places, sources)
        known, first = clean.pairs, n_known
        n_drawn, n_known = n_drawn + len(pairs), n_known + len(known)
        n_counted += int(pairs.counts.sum())
        if len(known) == 0:
            continue
        own = {place: Put(clean.pool[place][clean.rows]) for place in held}
        membership = task.membership(pairs.bases)
        # Once more, because the last digits depend on which instances are computed together.
        unpatched = clean_pass(model, known.bases.inputs, places, task.n_read, shared=shared)
        third = torch.full_like(known.slot, -1)
        if n_reference:
            labels = torch.stack([known.base_label, known.source_label], 1)
            measured = (references.count[known.slot] > 0).scatter(1, labels, False)  # [B, C]
            third = draw(measured, make_generator(seed, f"thirds batch {index}", device))
        for number, intervention in enumerate(interventions):
            noise = make_generator(seed, f"intervention {number} batch {index}", device)
            advance(done + (n_clean + number) * len(pairs), name_of(intervention.row()))
            # An instance is never its own, because it lacks the source's constituent.
            resampled = draw(membership[:, known.slot, known.source_label].T, noise)
            problems = [Problem(
                known, clean.sources, part.cells(task, known), noise, references=references,
                right=clean.right, pool=clean.pool, resampled=resampled, third=third)
                for part in intervention.parts]
            kinds = [part.kind for part in intervention.parts]
            for kind, problem in zip(kinds, problems, strict=True) if few else ():
                _check_means(kind, problem, task)
            frozen = any(isinstance(kind, Frozen) for kind in kinds)
            patched = unpatched.patched(edits_of(
                intervention, model, problems, own if frozen else {}))
            check(bool(patched.isfinite().all()), f"{intervention} gives logits that are not "
                  "finite", ProbeError)
            # A control flips where the answer becomes that of the minimal pair, all the same.
            written = (known.with_sources(intervention.source)
                       if intervention.source and not intervention.control else known)
            outcomes = task.outcomes(written, unpatched.logits, clean.logits["sources"], patched)
            frame = pd.DataFrame({
                "intervention": number, "number": first + np.arange(len(known)),
                "combination": known.bases.combination.cpu().numpy(),
                "base_label": known.base_label.cpu().numpy(),
                "source_label": known.source_label.cpu().numpy(),
                **{name: x.double().cpu().numpy() for name, x in outcomes.items()}})
            frames.append(frame[torch.stack([
                kind.possible(problem) for kind, problem in zip(kinds, problems, strict=True)
            ]).all(0).cpu().numpy()])
    advance(total)
    answers = "four different answers" if task.factorial else "two different answers"
    check(n_known >= 2, f"of {n} instances of {split}, {n_counted} have {answers}, and the model "
          f"gives all of them in {n_known}; expected at least two. Is it trained, and n large "
          "enough?"
          + (" Minimal pairs need two right answers alone (factorial=False, --no-factorial)"
             if task.factorial else "") + task.doubt,
          TooFewCountError)
    return (pd.concat(frames, ignore_index=True),
            {"n_counted": n_counted, "n_known": n_known, "n_reference": n_reference})


@dataclass(frozen=True)
class Clean:
    """What the model computes for a batch before anything is written.

    rows     int64 [B], which pairs of the batch count: the model gives all their answers
    pairs    these pairs
    logits   name of a batch of `MinimalPairs` -> the logits of its sources
    right    name of a batch -> bool [B], whether the model answers it rightly
    sources  name of a batch -> place -> its activations [B, ...]
    pool     place -> activations of the bases of the whole batch
    """

    rows: Tensor
    pairs: MinimalPairs
    logits: Mapping[str, Tensor]
    right: Mapping[str, Tensor]
    sources: Sources
    pool: Mapping[Place, Tensor]


def clean_batch(
    model: Any, task: Counterfactuals, pairs: MinimalPairs, places: Collection[Place],
    sources: Collection[str],
) -> Clean:
    """Pass a batch through the model before anything is written, and keep the pairs that count.

    sources  the batches whose activations are wanted
    """
    bases, pool = computed(model, pairs.bases.inputs, places, task.n_read)
    needed = ("sources", *(CORE if task.factorial else ()))
    kept = pairs.counts & task.right(pairs, bases, "bases")
    logits, activations, right = {}, {}, {}
    for name in dict.fromkeys((*needed, *sources)):
        logits[name], activations[name] = computed(
            model, pairs.batch(name).inputs, places if name in sources else (), task.n_read)
        if name not in UNANSWERED:
            right[name] = task.right(pairs, logits[name], name)
    for name in needed:
        kept = kept & right[name]
    # Found once: with a mask a GPU would be waited for at every use.
    rows = kept.nonzero()[:, 0]
    return Clean(
        rows, pairs[rows], {name: x[rows] for name, x in logits.items()},
        {name: mask[rows] for name, mask in right.items()},
        {name: {place: x[rows] for place, x in of_batch.items()}
         for name, of_batch in activations.items()}, pool)


def draw(possible: Tensor, generator: torch.Generator) -> Tensor:
    """Return for each row one of the possible columns [B, N], each as likely: int64 [B], -1 none.
    """
    keys = torch.rand(possible.shape, generator=generator, device=possible.device)
    best = torch.where(possible, keys, -1.0).max(1)
    return torch.where(best.values >= 0.0, best.indices, -1)


def _check_means(kind: Kind, problem: Problem, task: Counterfactuals) -> None:
    """Raise `TooFewCountError` for a mean of fewer than `Counterfactuals.least_problems`."""
    for name in kind.measured if kind.needs == "means" else ():
        constituent = problem.constituent(name)
        n = problem.references.count[problem.pairs.slot, constituent.clamp_min(0)]
        few = ((n > 0) & (n < task.least_problems) & (constituent >= 0)).nonzero()[:, 0]
        if len(few):
            label = task.constituents[int(constituent[few[0]])]
            raise TooFewCountError(
                f"the mean of {label!r} is over {int(n[few[0]])} training instances; expected at "
                f"least {task.least_problems}, which a larger n_reference gives")


SOURCES: tuple[str, ...] = ("interchange", "control", "operands", "operation+operands", "unrelated")
"""Patches that tell operation, operands and answer apart; without a factorial there are two."""
MAPPED: tuple[str, ...] = ("row", "everything")
"""Scopes at which the sources of a factorial are written into every set of layers."""
CONTROLS = ("elsewhere", "shuffled", "random", "zero_ablation", "identity")
"""Patches that stand beside the sources where only what tells most is asked for."""


def first_interventions(
    layers: Sequence[int], scopes: Sequence[str], lacks: Collection[str] = (),
) -> tuple[Patch, ...]:
    """Return what tells whether codes cause the answer, and the operation or the answer alone.

    Of `standard_interventions`: the sources at the response's row, in each layer, in the upper half
    and in all, and in all codes in the upper half and in all layers; of a factorial codes and
    values together, too, which are the source's whole computation; and another position, another
    instance's source, noise, zero and the identity at the row in the upper half.

    layers  those with attention
    """
    every = tuple(layers)
    upper = every[len(every) // 2:]
    chosen = {"row": (*((layer,) for layer in every), upper, every), "everything": (upper, every)}
    return tuple(
        i for i in standard_interventions(layers, 0, scopes, False, lacks)
        if (i.value in CONTROLS and (i.site, i.where, i.layers) == ("code", "row", upper))
        or (i.value in SOURCES and (i.site == "code+value" or (
            i.site == "code" and i.layers in chosen.get(str(i.where), ())))))


def prompt_interventions(
    task: Counterfactuals, layers: Sequence[int], normalized: bool = True
) -> tuple[Patch, ...]:
    """Return what is written by default: the source's codes, and codes that change nothing.

    Of `standard_interventions`: the source's and the control's codes at pairs and rows, in each
    layer, in the upper half and in all, and all codes in all layers, those of a factorial's other
    sources, too; another position, another instance's source, noise and the identity at rows of
    the upper half. The patch `control` only where there are prompts for it, and renormalised codes
    only where `normalized` says that the model's codes of a query sum to 1. Means, erasure, single
    heads, values, z and residual streams have to be asked for.
    """
    every = tuple(layers)
    standard = standard_interventions(every, 0, task.scopes, normalized, task.lacking)
    return (*(i for i in standard
              if i.value in (*SOURCES, *CONTROLS) and i.value != "zero_ablation"
              and i.site == "code" and (i.where != "everything" or i.layers == every)
              and (not i.renormalize or i.kind.real)),
            Patch("identity", "everything", every))


def standard_interventions(
    layers: Sequence[int], n_heads: int, scopes: Sequence[str], normalized: bool = True,
    lacks: Collection[str] = (), places: Sequence[str] = (),
) -> tuple[Patch, ...]:
    """Return every way to patch, with its controls, once over.

    - the sources that tell operation, operands and answer apart (the minimal pair, other operands,
      both) beside the same constituents and an unrelated problem: rows and all codes in each
      layer, in each with those below it, in the upper half and in all; codes of other scopes in
      the upper half, those of the queries of the task's places (`PLACES`) in the lower half.
      Values, residual streams, and codes and values together, at some places;
    - without a factorial: the minimal pair's codes and the same constituents' (control), at every
      scope and layer, in the upper half of the layers and in all;
    - every other way to patch, with its controls, at the response's row in the upper half of the
      layers; steering by 1, 2 and 4 times the difference; what is no real code both raw and
      (where `normalized` says that the model's codes obey a constraint) renormalised;
    - the source's codes of one head alone, for every head: is one of them doing it all?
    - labels erased at every scope that allows it;
    - values (of all keys: a row sees them all; of the examples alone) and residual streams in
      place of codes.

    layers  those with attention
    lacks   what the task does not offer (`Counterfactuals.lacking`) is left out
    places  the task's places; of a factorial alone

    Means of a third constituent or pooled over positions, and held codes, are left out.
    """
    every = tuple(layers)
    upper, lower = every[len(every) // 2:], every[:max(1, len(every) // 2)]
    factorial = "factorial" not in lacks
    sources = SOURCES if factorial else SOURCES[:2]
    below = [every[:n] for n in range(2, len(every))] if factorial else []
    sets = (*((layer,) for layer in every), *below, upper, every)
    chosen = [Patch(patch, scope, some) for scope in scopes
              for some in ((upper,) if factorial and scope not in MAPPED else sets)
              for patch in sources]
    for name, kind in PATCHES.items():
        pooled = isinstance(kind, Mean) and kind.pooled
        if pooled or isinstance(kind, Frozen) or kind.own or "third" in kind.measured:
            continue
        if isinstance(kind, Erased):
            chosen += [Patch(name, scope, upper) for scope in scopes if scope in ERASABLE]
            continue
        for alpha in (1.0, 2.0, 4.0) if name.startswith("steer") else (1.0,):
            chosen.append(Patch(name, "row", upper, alpha=alpha))
            if normalized and not kind.real and name != "zero_ablation":
                chosen.append(Patch(name, "row", upper, alpha=alpha, renormalize=True))
    chosen += [Patch("interchange", "row", upper, heads=(head,)) for head in range(n_heads)]
    # Sources of another rest: at the row above, and in all codes here.
    chosen += [Patch(name, "everything", every) for name in PATCHES
               if name in ("shuffled", "resample", "random", "permuted") or name.endswith("rest")]
    if normalized:  # a pair alone breaks the sum over keys of a softmax
        chosen += [Patch(patch, scope, upper, renormalize=True)
                   for scope in scopes if scope.startswith("pair") for patch in SOURCES[:2]]
    for some in (every[:1], upper, every):
        chosen += [Patch(patch, "everything", some, "value") for patch in sources]
    for scope, some in (("row", upper), ("row", every), ("everything", every[:1]),
                        ("everything", upper)):
        chosen += [Patch(patch, scope, some, "residual") for patch in SOURCES[:2]]
    if factorial:
        chosen += [Patch(patch, place, lower) for place in places for patch in sources]
        chosen += [Patch(patch, "everything", every, "code+value") for patch in sources]
        if "examples" in scopes:
            chosen += [Patch(patch, "examples", every, "value")
                       for patch in (*sources, "permuted")]
    return tuple(i for i in dict.fromkeys(chosen) if not lacked(i.kind, lacks))
