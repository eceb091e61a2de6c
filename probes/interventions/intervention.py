"""Measure what codes cause: patches in many problems, beside controls."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.devices import checked_seed, make_generator
from latentcode.errors import ProbeError, TooFewCountError, check, check_count
from latentcode.figures.style import PALETTE, Figure
from latentcode.metrics import CLASSES
from latentcode.models.hooks import locked
from latentcode.models.patched.passes import clean_pass, computed, unshared
from latentcode.models.patched.sites import Place, check_written, has_constraint, normalization_of
from latentcode.models.pretrained import layout
from latentcode.probes.common.figures import panels
from latentcode.probes.common.results import TableResult, where, with_interval
from latentcode.probes.common.statistics import (
    NONE,
    Contrasts,
    check_bootstrap,
    contrast_columns,
    mean_and_interval,
    paired_rates,
)
from latentcode.probes.interventions.patch import (
    Added,
    as_patches,
    edits_of,
    first_interventions,
    from_plain,
    prompt_interventions,
    standard_interventions,
    to_plain,
)
from latentcode.probes.interventions.patches import PATCHES, Problem, References, measure
from latentcode.progress import Progress, say_doing, watched
from latentcode.subjects import subject as resolve
from latentcode.subjects.prompts import PromptSubject
from latentcode.tasks.base import one_of
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
PLACE: tuple[str, ...] = ("patch", "scope", "layers", "site", "alpha", "heads", "renormalized")
"""Columns that name an intervention."""
COLOURS: dict[str, str] = dict(zip(
    CLASSES, (PALETTE[4], PALETTE[0], PALETTE[1], PALETTE[3], "#DDDDDD"), strict=True))
"""The colour of each class of answers."""
RATES: dict[str, str] = {"unchanged": COLOURS["base"], "flip": COLOURS["answer"]}
"""The colours of what is drawn without a factorial."""


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
    """Measure what codes cause, of a model in hand; arguments as those of `intervene`, and

    model   anything with `cfg` and `run_with_hooks`: ours, or one of TransformerLens
    task    the minimal pairs and their answers: `make_counterfactuals(make_task(...))`
    n       bases drawn; those count whose answers differ and which the model answers
            rightly: the base and the source, of a factorial the sources with other operands
            and the same rest, too. A patch counts where the model answers the source that it
            comes from rightly (`unrelated` always)
    batch_size   instances at once; `resample` and `shuffled` take theirs from the same batch

    Raises `ConfigError` (with the choices) for an intervention that does not fit the task or the
    model, `ProbeError` when no pair counts.
    """
    seed = checked_seed(seed)
    interventions = as_patches(interventions)
    check_bootstrap(n_bootstrap)
    with locked(model), task.reading(model):
        instances, counts = outcomes_of_model(
            model, task, interventions, split=split, n=n, n_reference=n_reference, seed=seed,
            batch_size=batch_size, progress=progress)
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
    rows = [" ".join(map(str, i.row().values())) for i in interventions]
    for row in rows:
        check(rows.count(row) == 1, f"{rows.count(row)} interventions go by {row!r} in tables; "
              "expected functions of different names, or patches that are registered with "
              "lc.register_patch")
    check_count("n", n, 2)
    check_count("batch_size", batch_size, 2)
    for i in interventions:
        i.check(task, model)
        if any(part.renormalize for part in i.parts):
            layout(model).check_normalized()
        if any(part.kind.needs in MEASURED for part in i.parts):
            check_count("n_reference", n_reference, 2)


def outcomes_of_model(
    model: Any, task: Counterfactuals, interventions: Sequence[Added], *, n: int,
    split: str = "ood", n_reference: int = 4_096, seed: int = 0, batch_size: int = 250,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return what became of each answer; arguments as those of `intervene_model`.

    Returns a row per intervention and instance that counts: `intervention` (its place in the list),
    `number` of the instance, `combination`, `base_label` and `source_label` (numbers of
    constituents) and what `Counterfactuals.outcomes` says; and how many instances have different
    answers (`n_counted`), how many of these the model answers (`n_known`), and over how many means
    are taken.
    """
    _check(model, task, interventions, n, batch_size, n_reference)
    device = next(model.parameters()).device
    parts = [part for i in interventions for part in i.parts]
    if not any(part.kind.needs in MEASURED for part in parts):
        n_reference = 0
    places = sorted({place for i in interventions for place in i.places})
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
            erase={(str(part.where), part.kind.control) for part in parts
                   if part.kind.needs == "erasers"},
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
        logits, clean = clean_batch(model, task, pairs, places, sources)
        known, first = clean.pairs, n_known
        n_drawn, n_known = n_drawn + len(pairs), n_known + len(known)
        n_counted += int(pairs.counts.sum())
        if len(known) == 0:
            continue
        membership = task.membership(pairs.bases)
        # Once more, because the last digits depend on which instances are computed together.
        unpatched = clean_pass(model, known.bases.inputs, places, task.n_read,
                               shared=not unshared(model))
        third = torch.full_like(known.slot, -1)
        if n_reference:
            labels = torch.stack([known.base_label, known.source_label], 1)
            measured = (references.count[known.slot] > 0).scatter(1, labels, False)  # [B, C]
            third = one_of(measured, make_generator(seed, f"thirds batch {index}", device))
            third = torch.where(measured.any(1), third, -1)
        for number, intervention in enumerate(interventions):
            noise = make_generator(seed, f"intervention {number} batch {index}", device)
            advance(done + (n_clean + number) * len(pairs), name_of(intervention.row()))
            # An instance is never its own, because it lacks the source's constituent.
            alike = membership[:, known.slot, known.source_label].T
            resampled = torch.where(alike.any(1), one_of(alike, noise), -1)
            kinds = [part.kind for part in intervention.parts]
            problems = [replace(
                clean, scope=part.cells(task, known), generator=noise, references=references,
                resampled=resampled, third=third) for part in intervention.parts]
            for kind, problem in zip(kinds, problems, strict=True) if few else ():
                check_means(problem, kind.measured if kind.needs == "means" else (), task)
            patched = unpatched.patched(edits_of(intervention, model, problems))
            check(bool(patched.isfinite().all()), f"{intervention} gives logits that are not "
                  "finite", ProbeError)
            # A control flips where the answer becomes that of the minimal pair, all the same.
            written = (known.with_sources(intervention.source)
                       if intervention.source and not intervention.control else known)
            outcomes = task.outcomes(written, unpatched.logits, logits["sources"], patched)
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
    check(n_known >= 2, f"of {n} instances of {split}, {n_counted} have "
          f"{'four' if task.factorial else 'two'} different answers, and the model gives all of "
          f"them in {n_known}; expected at least two. Is it trained, and n large enough?"
          + (" Minimal pairs need two right answers alone (factorial=False, --no-factorial)"
             if task.factorial else "") + task.doubt, TooFewCountError)
    return (pd.concat(frames, ignore_index=True),
            {"n_counted": n_counted, "n_known": n_known, "n_reference": n_reference})


def clean_batch(
    model: Any, task: Counterfactuals, pairs: MinimalPairs, places: Collection[Place],
    sources: Collection[str],
) -> tuple[dict[str, Tensor], Problem]:
    """Pass a batch through the model before anything is written, and keep the pairs that count.

    sources  the batches whose activations are wanted

    The model gives all answers of pairs that count. Returns name of a batch of `MinimalPairs` ->
    its logits, and the problem of the pairs, whose scope is still missing.
    """
    bases, pool = computed(model, pairs.bases.inputs, places, task.n_read)
    needed = ("sources", *(CORE if task.factorial else ()))
    kept = pairs.counts & task.right(pairs, bases, "bases")
    logits, activations, right = {"bases": bases}, {}, {}
    for name in dict.fromkeys((*needed, *sources)):
        logits[name], activations[name] = computed(
            model, pairs.batch(name).inputs, places if name in sources else (), task.n_read)
        if name not in UNANSWERED:
            right[name] = task.right(pairs, logits[name], name)
    for name in needed:
        kept = kept & right[name]
    # Found once: with a mask a GPU would be waited for at every use.
    rows = kept.nonzero()[:, 0]
    return {name: x[rows] for name, x in logits.items()}, Problem(
        pairs[rows], {name: {place: x[rows] for place, x in of_batch.items()}
                      for name, of_batch in activations.items()},
        right={name: mask[rows] for name, mask in right.items()}, pool=pool)


def check_means(problem: Problem, constituents: Collection[str], task: Counterfactuals) -> None:
    """Raise `TooFewCountError` for a mean of fewer than `Counterfactuals.least_problems`."""
    for name in constituents:
        n = problem.n_measured(name)
        few = ((n > 0) & (n < task.least_problems)).nonzero()[:, 0]
        if len(few):
            label = task.constituents[int(problem.constituent(name)[few[0]])]
            raise TooFewCountError(
                f"the mean of {label!r} is over {int(n[few[0]])} training instances; expected at "
                f"least {task.least_problems}, which a larger n_reference gives")


@dataclass(frozen=True, repr=False)
class InterventionResult(TableResult):
    """What became of the answers.

    table    one row per intervention and metric (`flip`, `unchanged`, ...): `value`, the mean over
             instances, its 95 % interval `low`, `high` clustered by combination (NaN for a single
             one), and the numbers of instances and combinations. An answer flips where it
             becomes the source's, which in a minimal pair does not tell operation from answer
    by_constituent  one row per intervention, constituent of the base (`base_label`) and of the
             source (`source_label`): instances, `flip` and `unchanged`
    classes  one row per intervention, constituents and class of answers (`CLASSES`): instances and
             `rate`; empty without a factorial of sources. For patches that put a source's
             activations in the rates of `operation`, `operands` and `answer` are the interchange
             intervention accuracies of these variables; those of ablations, noise and steering are
             not
    contrasts  one row per patch, class of answers, and other source's patch at the same place
             (`against`): the difference of the two rates over the instances that both count;
             without a factorial, of `flip`, against the controls alone
    settings everything else that determines the numbers
    """

    FORMAT = "latentcode.interventions"
    CAPTION = "whose answer comes out, by what was patched and where"
    COLUMNS: ClassVar = {
        "table": (*PLACE, "metric", "value", "low", "high", "n", "n_combinations"),
        "by_constituent": (*PLACE, "base_label", "source_label", "n", "flip", "unchanged"),
        "classes": (*PLACE, "base_label", "source_label", "class", "n", "rate"),
        "contrasts": contrast_columns(*PLACE, "class")}
    BEST_PER: ClassVar = ("scope", "layers", "site", "alpha", "heads", "renormalized")
    HEADLINE_ROWS: ClassVar = {"patch": ("operation+operands",),
                               "class": ("operation", "operands", "answer")}

    table: pd.DataFrame
    by_constituent: pd.DataFrame
    classes: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    def patches(self) -> list[Added]:
        """Return what was patched, to be run again; `ConfigError` for a function that is not
        registered."""
        return [from_plain(plain) for plain in self.settings["interventions"]]

    @property
    def title(self) -> str:
        return super().title if len(self.classes) else (
            f"{type(self).__name__}: how often answers flip to the source's, or are unchanged")

    @property
    def caveats(self) -> tuple[str, ...]:
        s = self.settings
        answers, right, flips = (("four", "all four", "is any given one of the four")
                                 if s.get("factorial") else ("two", "both", "flips"))
        notes = [f"{s['n_known']} of {s['n']} instances count: {s['n_counted']} have {answers} "
                 f"different answers, and in {s['n_known']} of these the unpatched model gives "
                 f"{right}. Rates are over these alone."]
        if s["chance"] is not None:
            notes.append(f"An answer drawn at random {flips} in {s['chance']:.3f}.")
        return (*notes, *s.get("notes", ()))

    def summary(self) -> pd.DataFrame:
        """Return one row per intervention, and `value [low, high]` by metric: the classes of a
        factorial; without one, `flip`, `unchanged`, `others` and `moved`."""
        shown = CLASSES if len(self.classes) else ("flip", "unchanged", "others", "moved")
        rows: list[dict[str, Any]] = []
        for _, block in self.table.groupby(list(PLACE), sort=False, dropna=False):
            place = block.iloc[0]
            rates = {row.metric: with_interval(row, digits=3) for row in block.itertuples()}
            rows.append({"patch": written(place), **place[["scope", "layers", "site"]],
                         **{name: rates[name] for name in shown if name in rates},
                         "n": int(place["n"])})
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """Return the rates of the classes of answers, or of flipped and unchanged ones, as bars."""
        return class_figure(self.table)

    def matrix(self, metric: str = "flip", **place: object) -> pd.DataFrame:
        """Return a metric as a table: constituents of bases down, of sources across.

        metric  `flip`, `unchanged` or one of the classes of a factorial
        place   columns that choose one intervention, such as patch="interchange", scope="row",
                layers="2,3"; instances of all that fit are pooled
        """
        rows = self.by_constituent
        if metric in CLASSES:
            rows = self.classes[self.classes["class"] == metric].rename(columns={"rate": metric})
        rows = where(rows, **place)
        rows = rows.assign(hits=rows[metric] * rows["n"])
        sums = rows.groupby(["base_label", "source_label"])[["hits", "n"]].sum()
        matrix = (sums["hits"] / sums["n"]).unstack()
        names = self.settings["constituents"]
        return matrix.reindex(index=[name for name in names if name in matrix.index],
                              columns=[name for name in names if name in matrix.columns])


def tables(
    instances: pd.DataFrame, patches: Sequence[Added], constituents: Sequence[str],
    n_bootstrap: int, seed: int,
) -> dict[str, Any]:
    """Return the tables and contrasts of the outcomes of single instances.

    instances  `intervention` (the number of one of the patches), `number`, which is that of the
               instance, `combination`, `base_label`, `source_label`, and one column per metric
    """
    labels = ["base_label", "source_label"]
    metrics = [name for name in instances
               if name not in ("intervention", "number", "combination", *labels)]
    classes = [name for name in CLASSES if name in metrics]
    rows = [patch.row() for patch in patches]
    places = [[replace(part, value="", alpha=1.0) for part in patch.parts] for patch in patches]
    blocks = [instances[instances["intervention"] == number] for number in range(len(patches))]
    rates: list[dict[str, Any]] = []
    contrasts: list[dict[str, Any]] = []
    for number, (patch, row, block) in enumerate(zip(patches, rows, blocks, strict=True)):
        means, low, high, n_clusters = mean_and_interval(
            block[metrics].to_numpy(), block["combination"].to_numpy(), n_bootstrap, seed)
        rates += [{**row, "metric": metric, "value": means[i], "low": low[i], "high": high[i],
                   "n": len(block), "n_combinations": n_clusters}
                  for i, metric in enumerate(metrics)]
        # Other sources at the same place; of a minimal pair, those that are controls alone.
        for other, beside in enumerate(patches):
            if (other != number and patch.source and beside.source
                    and places[other] == places[number]
                    and (classes or (beside.control and not patch.control))):
                compared = classes or ["flip"]
                contrasts += [
                    {**row, "class": name if classes else "",
                     "quantity": "rate" if classes else name, "against": rows[other]["patch"],
                     **difference}
                    for name, difference in zip(compared, paired_rates(
                        block, blocks[other], compared, n_bootstrap, seed), strict=True)]
    grouped = instances.groupby(["intervention", *labels])
    cells = grouped[metrics].mean().assign(n=grouped.size()).reset_index()
    for label in labels:
        cells[label] = np.array(constituents, dtype=object)[cells[label]]
    cells = pd.DataFrame(rows).loc[cells["intervention"]].reset_index(drop=True).join(cells)
    columns = {name: list(some) for name, some in InterventionResult.COLUMNS.items()}
    by_class = pd.DataFrame(columns=columns["classes"])
    if classes:  # cell by cell, each with all its classes
        by_class = cells.melt([*PLACE, *labels, "n"], classes, "class", "rate", ignore_index=False)
        by_class = by_class.sort_index(kind="stable", ignore_index=True)
    return {"table": pd.DataFrame(rates, columns=columns["table"]),
            "by_constituent": cells[columns["by_constituent"]],
            "classes": by_class[columns["classes"]],
            "contrasts": Contrasts(pd.DataFrame(contrasts, columns=columns["contrasts"]))}


def class_figure(table: pd.DataFrame) -> Figure:
    """Return the rates of `CLASSES`, without a factorial of `RATES`, as stacked bars.

    table  `InterventionResult.table`

    Left the sources' patches, one block per place, so that sources can be compared where they were
    written; right all the others. The numbers of instances stand at the right ends.
    """
    colours = COLOURS if table["metric"].isin(COLOURS).any() else RATES
    table = table[table["metric"].isin(colours)]
    check(len(table) > 0, "the table holds no classes of answers to draw", ProbeError)
    source = table["heads"].eq("all") & table["patch"].map(
        lambda name: name in PATCHES and bool(PATCHES[name].source))
    bars = [_bars(part) for part in (table[source], table[~source]) if len(part)]
    height = max(block["y"].iloc[-1] + 1.1 for block in bars)
    with panels(1, len(bars), 6.4 * len(bars), 0.16 * height + 1.0) as (figure, grid):
        for axes, block in zip(grid[0], bars, strict=True):
            rates = block[list(colours)].fillna(0.0)
            left = rates.cumsum(axis=1) - rates
            for name, colour in colours.items():
                axes.barh(block["y"], rates[name], 0.85, left=left[name], color=colour, label=name)
            for y, n in zip(block["y"], block["n"], strict=True):
                axes.annotate(f"{n}", (1.01, y), va="center", fontsize=6)
            axes.set_yticks(block["y"], block["name"], fontsize=6.5)
            axes.set(xlim=(0.0, 1.08), ylim=(height, 0.0), xlabel="rate; at the end: instances")
            axes.set_xticks(np.linspace(0.0, 1.0, 6))
            axes.grid(axis="y", visible=False)
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center",
                      ncols=len(colours))
    return figure


def _bars(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per bar, place by place: `name`, `n`, `y` in bars, and the rates."""
    rows: list[dict[str, object]] = []
    keys = ["patch", "alpha", "heads", "renormalized"]
    for first, (_, block) in enumerate(table.groupby(["site", "scope", "layers"], sort=False), 1):
        for number, (_, rates) in enumerate(block.groupby(keys, sort=False, dropna=False)):
            row = rates.iloc[0]
            # A gap above every place.
            rows.append({"name": written(row) if number else f"{_place_of(row)}: {written(row)}",
                         "n": int(row["n"]), "y": len(rows) + 0.6 * first + 0.5,
                         **dict(zip(rates["metric"], rates["value"], strict=True))})
    return pd.DataFrame(rows).reindex(columns=["name", "n", "y", *COLOURS, *RATES])


def name_of(row: Mapping[str, Any] | pd.Series) -> str:
    """Return the patch, then its place."""
    return f"{written(row)}: {_place_of(row)}"


def written(row: Mapping[str, Any] | pd.Series) -> str:
    """Return an intervention's patch with whatever is not the ordinary: `steer 2`."""
    alpha = "" if np.isnan(row["alpha"]) else f" {row['alpha']:g}"
    heads = "" if row["heads"] == "all" else f", heads {row['heads']}"
    return f"{row['patch']}{alpha}{heads}{', renormalized' if row['renormalized'] else ''}"


def _place_of(row: Mapping[str, Any] | pd.Series) -> str:
    """Return `row, layers 3-6, value`, 3-6 standing for 3,4,5,6."""
    layers, site = row["layers"], "" if row["site"] == "code" else f", {row['site']}"
    numbers = [int(number) for number in re.findall(r"\d+", layers)]
    if len(numbers) > 2 and "+" not in layers and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        layers = f"{numbers[0]}-{numbers[-1]}"
    return f"{row['scope']}, layers {layers}{site}"
