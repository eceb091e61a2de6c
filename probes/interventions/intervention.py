"""What do codes cause? Patches in many problems, beside controls."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.errors import ConfigError, ProbeError, TooFewCountError, check, check_count
from latentcode.models.layers import attention_layers
from latentcode.models.modes import locked
from latentcode.models.patched.passes import clean_pass, computed, unshared
from latentcode.models.pretrained import layout
from latentcode.probes.interventions.listed import as_patches, to_plain
from latentcode.probes.interventions.patch import Added, Patch, edits_of, in_turn
from latentcode.probes.interventions.patches import (
    PATCHES,
    PatchKind,
    possible,
    resample,
    thirds,
)
from latentcode.probes.interventions.problem import Clean, Problem
from latentcode.probes.interventions.references import References, label_to_erase, measure
from latentcode.probes.interventions.result import InterventionResult, name_of, tables
from latentcode.probes.interventions.sites import (
    Edit,
    Place,
    Put,
    check_written,
    has_constraint,
    normalization_of,
)
from latentcode.probes.interventions.standard import (
    first_interventions,
    prompt_interventions,
    standard_interventions,
)
from latentcode.progress import Progress, say_doing, watched
from latentcode.seeds import checked_seed, make_generator
from latentcode.subjects import subject
from latentcode.subjects.of_prompts import PromptSubject
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

CORE = ("operands", "operation+operands")
"""Sources of a factorial that the model has to answer rightly, beside that of the minimal pair, for
its base to count."""
UNANSWERED = ("unrelated", "permuted")
"""Sources whose own answer does not matter."""


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
    n_reference  training instances for means and erasers, where one of the patches needs them
    batch_size   instances at once; `resample` and `shuffled` take theirs from the same batch
    progress     called with (instances passed through the model, those in all)

    Every outcome is compared with the hooked, unpatched pass over the same batch. Intervals are
    95 %, clustered by combination. Raises `ConfigError` (with the choices) for an intervention
    that does not fit the task or the model, `ProbeError` when no pair counts.
    """
    seed = checked_seed(seed)
    interventions = as_patches(interventions)
    check_count("n_bootstrap", n_bootstrap, 100)
    shared = not unshared(model, heads=False)
    with locked(model), task.reading(model):
        instances, counts = outcomes_of_model(
            model, task, interventions, split=split, n=n, n_reference=n_reference, seed=seed,
            batch_size=batch_size, shared=shared, progress=progress)
    settings = {
        **(dict(meta) if meta else {}), "split": split, "n": n, **counts, "seed": seed,
        "batch_size": batch_size, "n_bootstrap": n_bootstrap, "level": 0.95,
        "chance": None if np.isnan(task.chance) else task.chance,
        "factorial": task.factorial, "normalization": normalization_of(model),
        "constituents": list(task.constituents),
        "notes": list(task.notes),
        "interventions": [to_plain(i) for i in interventions]}
    return InterventionResult(
        **tables(instances, interventions, task.constituents, n_bootstrap, seed),
        settings=settings)


def _check(
    model: Any, task: Counterfactuals, interventions: Sequence[Added],
    n: int, batch_size: int, n_reference: int,
) -> None:
    """Raise `ConfigError` for what cannot be asked, before anything is computed."""
    check(len(interventions) > 0, "there are no interventions; expected at least one", ConfigError)
    for i in interventions:
        check(isinstance(i, Added), f"interventions has {i!r}; expected lc.Patch, which says what "
              f"is put where, such as lc.Patch({_named(i)}, layers=0)")
        check(interventions.count(i) == 1, f"{i} is given {interventions.count(i)} times; expected "
              "each intervention once", ConfigError)
    rows = [tuple(map(str, i.row().values())) for i in interventions]
    for i, row in zip(interventions, rows, strict=True):
        check(rows.count(row) == 1, f"{rows.count(row)} interventions go by {' '.join(row)!r} in "
              f"tables, {i} among them; expected functions of different names, or patches that are "
              "registered with lc.register_patch")
    for name, value, least in (("n", n, 2), ("batch_size", batch_size, 2)):
        check_count(name, value, least)
    for intervention in interventions:
        intervention.check(task, model)
    if any(part.renormalize for part in _parts(interventions)):
        layout(model).check_normalized()
    if _need_references(interventions):
        check_count("n_reference", n_reference, 2)


def _named(given: object) -> str:
    """Return the patch that somebody meant who gave its name alone."""
    return repr(given) if isinstance(given, str) and given in PATCHES else "'interchange'"


def _need_references(interventions: Sequence[Added]) -> bool:
    return any(part.kind.needs in ("means", "erasers") for part in _parts(interventions))


def _parts(interventions: Sequence[Added]) -> list[Patch]:
    return [part for i in interventions for part in i.parts]


def outcomes_of_model(
    model: Any, task: Counterfactuals, interventions: Sequence[Added], *,
    split: str = "ood", n: int = 2_000, n_reference: int = 4_096, seed: int = 0,
    batch_size: int = 250, shared: bool = True, progress: Progress | None = None,
) -> tuple[pd.DataFrame, dict[str, int]]:
    """What became of each answer? What `intervene_model` puts into tables, instance by instance.

    The arguments are those of `intervene_model`. Returns a row per intervention and instance that
    counts: `intervention` (its place in the list), `number` of the instance, `combination`,
    `base_label` and `source_label` (numbers of constituents) and what `Counterfactuals.outcomes`
    says; and how many instances have different answers (`n_counted`), how many of these the model
    answers (`n_known`), and over how many means are taken. Raises what `intervene_model` raises.
    """
    _check(model, task, interventions, n, batch_size, n_reference)
    n_reference = n_reference if _need_references(interventions) else 0
    device = next(model.parameters()).device
    frozen = any(part.kind.frozen for part in _parts(interventions))
    held = tuple(("code", layer) for layer in attention_layers(model)) if frozen else ()
    places = sorted({*held, *(place for i in interventions for place in i.places)})
    sources = {part.kind.source for part in _parts(interventions)} - {""}
    answered = {"sources", "control", *(CORE if task.factorial else ())}
    n_passes = len(interventions) + 1 + len(answered | sources)
    total = n_reference + n * n_passes

    def advance(done: int, doing: str = "") -> None:
        if progress is not None:
            say_doing(progress, doing)
            progress(done, total)

    references = References({}, {}, {}, torch.zeros(0, device=device), {})
    if n_reference:
        references = measure(
            model, task, places, n=n_reference, seed=seed, batch_size=batch_size,
            erase={_eraser(part) for part in _parts(interventions)
                   if part.kind.needs == "erasers"},
            progress=lambda done, _: advance(done, "means and erasers"))
    names = [name_of(SimpleNamespace(**i.row())) for i in interventions]
    few = _means_of_few(references, task)
    generator = make_generator(seed, f"interventions {split}", device)
    frames: list[pd.DataFrame] = []
    n_drawn = n_counted = n_known = 0
    for index, pairs in enumerate(task.batches(split, n, batch_size, generator)):
        if index == 0:
            check_written(model, pairs.bases.inputs[:2], places)
        advance(n_reference + n_drawn * n_passes, "unpatched")
        clean = _clean(model, task, pairs, places, sources, held)
        known = clean.pairs
        done = n_reference + n_drawn * n_passes
        before = n_passes - len(interventions)
        n_drawn += len(pairs)
        n_counted, n_known = n_counted + int(pairs.counts.sum()), n_known + len(known)
        if len(known) == 0:
            continue
        # Once more, because the last digits depend on which instances are computed together.
        unpatched = clean_pass(model, known.bases.inputs, places, task.n_read, shared=shared)
        third = torch.full_like(known.slot, -1)
        if n_reference:
            third = thirds(known, references.count,
                           make_generator(seed, f"thirds batch {index}", device))
        for number, intervention in enumerate(interventions):
            noise = make_generator(seed, f"intervention {number} batch {index}", device)
            advance(done + (before + number) * len(pairs), names[number])
            resampled = resample(clean.membership, known, noise)
            problems = []
            for part in intervention.parts:
                scope = part.cells(task, known)
                problems.append(Problem(
                    known, clean.sources, scope, noise, references=references,
                    erasers=_erasers(part, references, scope, known, task), pool=clean.pool,
                    resampled=resampled, third=third))
            if few:
                for part, problem in zip(intervention.parts, problems, strict=True):
                    _check_means(part.kind, problem, task)
            edits = edits_of(intervention, model, problems)
            if any(part.kind.frozen for part in intervention.parts):
                # What other parts put is put after that.
                edits = edits | {place: in_turn(Put(clean.own[place]), edits.get(place))
                                 for place in held}
            patched = unpatched.patched(edits)
            check(bool(patched.isfinite().all()), f"{intervention} gives logits that are not "
                  "finite", ProbeError)
            # A control flips where the answer becomes that of the minimal pair, all the same.
            written = (known.with_sources(intervention.source)
                       if intervention.source and not intervention.control else known)
            outcomes = task.outcomes(written, unpatched.logits, clean.answered, patched)
            counted = torch.stack([
                possible(part.kind, problem, clean)
                for part, problem in zip(intervention.parts, problems, strict=True)]).all(0)
            frames.append(_frame(number, n_known - len(known), outcomes, known, counted))
    advance(total)
    asked = "four different answers" if task.factorial else "two different answers"
    check(n_known >= 2, f"of {n} instances of {split}, {n_counted} have {asked}, and the model "
          f"gives all of them in {n_known}; expected at least two. Is it trained, and n large "
          "enough?"
          + (" Minimal pairs need two right answers alone (factorial=False, --no-factorial)"
             if task.factorial else "") + task.doubt,
          TooFewCountError)
    return (pd.concat(frames, ignore_index=True),
            {"n_counted": n_counted, "n_known": n_known, "n_reference": n_reference})


def _clean(
    model: Any, task: Counterfactuals, pairs: MinimalPairs, places: Collection[Place],
    sources: Collection[str], held: Collection[Place] = (),
) -> Clean:
    """Pass a batch through the model before anything is written, and keep the pairs that count.

    sources  the batches whose activations are wanted
    held    the places whose own activations are wanted
    """
    own, pool = computed(model, pairs.bases.inputs, places, task.n_read)
    core = CORE if task.factorial else ()
    kept = pairs.counts & task.right(pairs, own, "bases")
    logits, activations, right = {}, {}, {}
    for name in dict.fromkeys(("sources", "control", *core, *sources)):
        logits[name], activations[name] = computed(
            model, pairs.batch(name).inputs, places if name in sources else (), task.n_read)
        if name not in UNANSWERED:
            right[name] = task.right(pairs, logits[name], name)
    for name in ("sources", *core):
        kept = kept & right[name]
    # Found once: with a mask a GPU would be waited for at every use.
    known = kept.nonzero()[:, 0]
    return Clean(
        pairs[known], logits["sources"][known],
        {name: {place: x[known] for place, x in found.items()}
         for name, found in activations.items()},
        {name: mask[known] for name, mask in right.items()}, pool,
        {place: pool[place][known] for place in held}, task.membership(pairs.bases))


def _means_of_few(references: References, task: Counterfactuals) -> bool:
    """Say whether some mean is over fewer instances than wanted: asked once, not of every batch."""
    count = references.count.cpu().numpy()
    return bool(((count > 0) & (count < task.least_problems)).any())


def _check_means(how: PatchKind, problem: Problem, task: Counterfactuals) -> None:
    """Raise `TooFewCountError` for a mean of fewer than `Counterfactuals.least_problems`."""
    count, pairs = problem.measured.count, problem.pairs
    for name in how.measured if how.needs == "means" else ():
        constituent = problem.third if name == "third" else getattr(pairs, name)
        assert constituent is not None
        n = count[pairs.slot, constituent.clamp_min(0)]
        few = ((n > 0) & (n < task.least_problems) & (constituent >= 0)).nonzero()[:, 0]
        if len(few):
            label = task.constituents[int(constituent[few[0]])]
            raise TooFewCountError(
                f"the mean of {label!r} is over {int(n[few[0]])} training instances; expected at "
                f"least {task.least_problems}, which a larger n_reference gives")


def _eraser(patch: Patch) -> tuple[str, bool]:
    """Return which eraser a patch needs: of a scope, and whether its labels are shuffled."""
    return str(patch.where), patch.value == "erase_shuffled"


def _erasers(
    patch: Patch, references: References, scope: Tensor, pairs: MinimalPairs,
    task: Counterfactuals,
) -> dict[Place, Edit]:
    """Return what erases the label of each instance in each layer, where that is wanted."""
    if patch.kind.needs != "erasers":
        return {}
    fitted = references.erasers[_eraser(patch)]
    label = label_to_erase(task, pairs)
    return {place: fitted[place].edit(scope, pairs.slot, label) for place in patch.places}


def _frame(
    number: int, first: int, outcomes: Mapping[str, Tensor], pairs: MinimalPairs, counted: Tensor,
) -> pd.DataFrame:
    """Return one row per instance that counts.

    first  how many instances of earlier batches count; the numbers of these go on from there
    """
    frame = pd.DataFrame({
        "intervention": number, "number": first + np.arange(len(pairs)),
        "combination": pairs.bases.combination.cpu().numpy(),
        "base_label": pairs.base_label.cpu().numpy(),
        "source_label": pairs.source_label.cpu().numpy(),
        **{name: values.double().cpu().numpy() for name, values in outcomes.items()}})
    rows = counted.cpu().numpy()
    return frame if rows.all() else frame[rows]


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
    of = subject(model, problems, step=step, device=device, batch_size=batch_size)
    task = of.counterfactuals(factorial=factorial, among=among)
    patched = of.model()
    prompts = isinstance(of, PromptSubject)
    check(not whole or interventions is None, "whole is True, and interventions are given; "
          "expected one or the other", ConfigError)
    if interventions is None:
        config = patched.cfg
        normalized = has_constraint(normalization_of(patched)) and layout(patched).normalized
        if whole:
            interventions = standard_interventions(
                of.layers, config.n_heads, task.scopes, normalized, task.lacking,
                task.places)
        elif prompts:
            interventions = prompt_interventions(task, of.layers, normalized)
        else:
            interventions = first_interventions(of.layers, task.scopes, task.lacking)
    return intervene_model(
        patched, task, interventions, split=of.split_name(split),
        n=of.n_of("n", n, 2_000, split),
        n_reference=(0 if "means" in task.lacks
                     else of.n_of("n_reference", n_reference, 4_096, "train")),
        seed=seed, batch_size=of.patched_at_once(batch_size), n_bootstrap=n_bootstrap,
        progress=progress, meta={
            **of.settings, **({} if among == "vocabulary" and not prompts else {"among": among})})
