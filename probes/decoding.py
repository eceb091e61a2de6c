"""Logistic probes: labels decoded from features, on combinations that were never trained on.

    p(c | x) = softmax_c(W z + b),    z = (x - mean) / scale

A probe per layer, pair and label is fitted on features of training combinations and scored on
held-out ones (paper, Fig. 2B and 5F), beside the same probe on its controls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from latentcode.codes.features import WIDEST
from latentcode.codes.latent_codes import label_groups
from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, as_tuple, check, check_count, check_jobs, chosen
from latentcode.figures.colours import FEATURE_STYLES
from latentcode.figures.style import Figure
from latentcode.probes.common.figures import scores_figure
from latentcode.probes.common.harness import (
    At,
    Outcome,
    Problem,
    Question,
    Read,
    Reading,
    contrasts,
    evaluate,
    origin,
    probed_with_labels,
    read,
)
from latentcode.probes.common.labels import (
    Labels,
    Target,
    groups_of,
    make_target,
    names_of,
    shared_caveat,
    shared_combinations,
)
from latentcode.probes.common.logistic import (
    N_BINS,
    N_FOLDS,
    PENALTIES,
    SELECTION_INSTANCES,
    TABLE_INSTANCES,
    Known,
    LogisticProbe,
    counted_labels,
    fit_probe,
    gains,
    known_beside,
    operation_labels,
    row_labels,
)
from latentcode.probes.common.results import (
    BAG,
    FIGURE,
    MODELS,
    TableResult,
    blocks,
    distinct,
    named,
    parted,
    with_interval,
)
from latentcode.probes.common.statistics import (
    GROUP,
    N_SHUFFLES,
    NONE,
    SINGLE,
    Contrasts,
    Metric,
    Resampled,
    chance,
    class_f1,
    contrast_columns,
    count_by_cluster,
    resample,
    shuffled_labels,
)
from latentcode.progress import Progress, watched
from latentcode.subjects import Subject
from latentcode.subjects import subject as opened
from latentcode.subjects.base import CodesSubject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems

METRICS = ("accuracy", "macro_f1")
"""Metrics of labels with one class for each problem, unless others are asked for."""
HEADLINE: tuple[str, ...] = ("accuracy", "f1")
"""The metric that is quoted first: accuracy of single-label, F1 of multi-label problems."""
METRIC_NAMES = {"accuracy": "accuracy", "macro_f1": "macro F1", "f1": "F1",
                "balanced_accuracy": "balanced accuracy"}
"""Metrics in words."""


@watched("fitting probes")
def decode(
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    features: Sequence[str] | str = ("code",),
    widths: Sequence[int] | int | None = None,
    beyond_answer: bool = False,
    metrics: Sequence[str] | str = METRICS,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    n_train: int | None = None,
    n_heldout: int | None = None,
    heldout: float = 0.3,
    step: int | None = None,
    controls: bool = True,
    allow_overlap: str = "nothing",
    n_shuffles: int = N_SHUFFLES,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> DecodingResult:
    """Decode labels from the codes of a model, on held-out combinations.

    Logistic probes are fitted on features of `train` combinations and scored on `ood` ones, beside
    those of an untrained model, shuffled labels and, of codes, the residual stream (paper, Fig. 2B
    and 5F). Labels that are columns of texts are asked of whole texts, on held-out documents
    (`latentcode.prompts.text_prompts`), beside the bag of their tokens, too.

    By how much features are above each control, over the same problems, is in
    `DecodingResult.contrasts`. Every probe chooses its regularisation by cross-validation over
    training combinations (`fit_probe`). Classes that only held-out problems have count as errors,
    in `n_unseen`; `chance` is the best score of any constant answer. In a group, such as `terms`,
    the yes and no of each class weigh the same; the best constant answer there is every class.

    Args:
        model: See `subject`; or codes of training combinations, and those of held-out ones as the
            problems.
        problems: See `subject`; default: what the run's task chooses for probing, for fuzzy logic
            one shared context with varying query (paper 3.2).
        labels: What is decoded; default: what the task names, such as term_1, term_2 and terms, or
            rule, of prompts the column label, and of features beside the code operation, operands
            and answer (`Task.row_labels`), measurements in bins of equal share. Or functions of a
            batch, `{"even": lambda batch: batch.targets[:, 0] % 2 == 0}`.
        features: What is decoded from: `code`, `row` (the codes of the pair's query over all keys),
            `codes`, `values`, `residual`, `tokens`, numbers of whole patterns such as `entropy` and
            `lap_eigvals`, and more (`latentcode.codes.features`). Those of more than 512 numbers
            are read as x R / sqrt(512), R [d, 512] standard normal.
        widths: Dimensions that all features are brought to, so that wide ones are not favoured: the
            first principal axes of the training problems. Features that vary in fewer are read in
            these alone. Default: all dimensions.
        beyond_answer: Also ask for the held-out log loss that features gain over the answer, and
            over answer and operands, in nats, of the labels of the operation
            (`DecodingResult.given`).
        metrics: Scores of labels with a single class: `accuracy`, `macro_f1`, `balanced_accuracy`;
            groups have `f1`.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's; of prompts
            and codes all.
        layers: Layer numbers; default: all.
        n_train: Problems that probes are fitted on; default: 4,096, of prompts and codes all.
        n_heldout: Problems that probes are scored on; default: 4,096, of prompts and codes all.
        heldout: Share of the combinations of prompts to hold out, where they have no column
            `split`.
        step: The checkpoint of a run; default: the newest.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        allow_overlap: What training and held-out ones may have in common, `nothing`,
            `combinations` or `instances`; the result says so.
        n_shuffles: Shuffles of the training labels.
        n_bootstrap: Replicates of the 95 % intervals, which resample the held-out combinations.
        seed: Seed of the problems, shuffling and bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        n_jobs: Processes that fit probes side by side, -1 for one a core.
        progress: Called with (probes done, probes in all).

    Raises:
        LatentCodeError: What `subject`, `custom_labels` and `extract` raise, `UnknownNameError` for
            a label, layer, pair or feature that does not exist, `ProbeError` for missing controls,
            a label with one class in training, fewer than two combinations, no widths, and codes
            that share more than they may.
    """
    seed, features = checked_seed(seed), as_tuple(features)
    subject, _ = probed_with_labels(
        opened(model, problems, step=step, device=device), labels, heldout=heldout, seed=seed)
    parts = (("train", subject.n_of("n_train", n_train, 4_096, "train")),
             ("ood", subject.n_of("n_heldout", n_heldout, 4_096, "ood")))
    metrics = chosen("metric", metrics, tuple(SINGLE))
    if widths is not None:
        widths = as_tuple(widths)
        check(len(widths) > 0, "widths is empty; expected at least one", ProbeError)
        check_count("widths", min(widths), 1, ProbeError)
    check_jobs(n_jobs, ProbeError)
    # Of codes alone the labels are looked up before anything is read.
    only_codes = features == ("code",) and widths is None and not beyond_answer
    looked_up = only_codes or isinstance(labels, Mapping)
    reads = read(subject, parts, features, pairs=pairs, layers=layers, widths=widths,
                 controls=controls, seed=seed, labels=labels if looked_up else None)
    return decode_readings(
        subject, reads, labels, features=features, widths=widths, beyond_answer=beyond_answer,
        metrics=metrics, controls=controls, allow_overlap=allow_overlap, n_shuffles=n_shuffles,
        n_bootstrap=n_bootstrap, seed=seed, n_jobs=n_jobs, progress=progress)[0]


def decode_readings(
    subject: Subject, reads: Read, labels: Labels | None = None, *,
    features: Sequence[str] = ("code",), widths: Sequence[int] | None = None,
    beyond_answer: bool = False, metrics: Sequence[str] = METRICS, controls: bool = True,
    allow_overlap: str = "nothing", n_shuffles: int = N_SHUFFLES, n_bootstrap: int = 1_000,
    seed: int = 0, n_jobs: int = 1, progress: Progress | None = None,
) -> list[DecodingResult]:
    """Return what `decode` does, of each of several held-out splits, by the same probes.

    reads  features of the split that probes are fitted on, then of those that they are scored on.
           Classes are those of all together
    """
    only_codes = features == ("code",) and widths is None and not beyond_answer
    shared = [shared_combinations(reads.rows[0], rows, allow_overlap) for rows in reads.rows[1:]]
    groups = [groups_of(rows.labels) for rows in reads.rows]
    by_pair: dict[str, dict[str, Target]] = {}
    known: dict[tuple[str, str], Sequence[Known]] = {}
    for pair, frames in reads.labels.items():
        if labels is not None:
            asked = names_of(labels)
        elif features == ("code",):
            asked = subject.probe_labels
        else:  # operation, operands and answer, and groups that the task names, such as `terms`
            asked = tuple(map(str, row_labels(subject, frames[0], pair)))
            numbered = label_groups(asked)
            asked += tuple(name for name in subject.probe_labels if name in numbered)
        check(len(asked) > 0, "labels is empty; expected at least one label to decode", ProbeError)
        if not only_codes and not isinstance(subject, CodesSubject):
            counted = [counted_labels(subject, TABLE_INSTANCES, seed)] if beyond_answer else []
            frames = operation_labels(subject, pair, frames, counted)
        scored = pd.concat(frames[1:len(reads.rows)], ignore_index=True)
        # What was asked for has to vary; what is asked by default is left without a score.
        by_pair[pair] = {name: make_target(
            frames[0], scored, name, subject.pairs[pair],
            constant=labels is None and not only_codes) for name in asked}
        if beyond_answer:
            known |= {(name, pair): given for name, given in known_beside(
                by_pair[pair], frames, groups[0], seed).items()}
    every = dict.fromkeys(name for of_pair in by_pair.values() for name in of_pair)
    targets = {(name, pair): by_pair[pair][name] for name, pair in product(every, by_pair)}
    question = Question(targets, groups[0], groups[1:], n_shuffles, n_bootstrap, seed)
    others = ["residual", *((BAG,) if subject.whole_texts else ())] if controls else []
    controlled = "code" if "code" in features else features[0]
    names = [name for each in features for name in (
        each, *(other for other in others if each == controlled and other not in features),
        *(named(each, model) for model in MODELS[1:]))]
    outcomes = evaluate(reads.readings, question, partial(score, metrics=metrics, known=known),
                        names, n_jobs=n_jobs, progress=progress)
    settings = {
        "features": list(features), "widths": None if widths is None else list(widths),
        "beyond_answer": beyond_answer, "whole_texts": subject.whole_texts,
        "controls": [*others, *(MODELS[1:] if controls else MODELS[2:])],
        "pairs": list(reads.labels), "widest": WIDEST, "n_bins": N_BINS,
        "table_instances": TABLE_INSTANCES, "allow_overlap": allow_overlap,
        "metrics": list(metrics), **question.settings, "penalties": list(PENALTIES),
        "n_folds": N_FOLDS, "selection_instances": SELECTION_INSTANCES,
        "scikit_learn": version("scikit-learn"), "train": origin(reads.rows[0])}
    return [DecodingResult(**tables_of(split, reads.readings), settings={
        **settings, "shared_combinations": n_shared, "heldout": origin(rows)})
        for rows, n_shared, split in zip(reads.rows[1:], shared, outcomes, strict=True)]


def tables_of(outcomes: Mapping[At, Outcome], readings: Sequence[Reading]) -> dict[str, Any]:
    """Return the tables of `DecodingResult` of one split, from what each reading gave."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in DecodingResult.COLUMNS}
    for ((label, pair), layer, width, name), outcome in outcomes.items():
        place = {"layer": layer, "pair": pair, "label": label, "features": name, "width": width}
        for table, of_place in outcome.tables.items():
            rows[table] += [{**place, **row} for row in of_place]
    rows["contrasts"] = list(contrasts(outcomes, readings))
    whole = all(reading.width is None for reading in readings)
    tables = {name: pd.DataFrame(each, columns=list(DecodingResult.COLUMNS[name])).astype(
        {"width": float if whole else int}) for name, each in rows.items()}
    return tables | {"contrasts": Contrasts(tables["contrasts"])}


def score(
    problem: Problem, metrics: Sequence[str], known: Mapping[tuple[str, str], Sequence[Known]]
) -> list[list[Outcome]]:
    """Fit the probe of a label, and those of shuffled labels, and score them on every split."""
    reading, target, question = problem.reading, problem.target, problem.question
    train, *scored = reading.points
    heldout = scored[0] if len(scored) == 1 else np.concatenate(scored)
    shuffles, _ = question.streams()
    fit = partial(fit_probe, train, groups=question.groups, multilabel=target.multilabel,
                  seed=question.seed, common_scale=reading.common_scale)
    probes: list[list[LogisticProbe]] = [[], []]
    if train.shape[1] and target.varies:
        try:
            true = fit(y=target.train)
            # The same probe on other labels, so with the regularisation that the real ones chose.
            others = () if reading.shuffled is None else shuffled_labels(
                target.train, question.groups, shuffles, question.n_shuffles)
            probes = [[true], [fit(y=y, penalties=[true.penalty]) for y in others]]
        except ProbeError as error:
            raise ProbeError(f"{problem}: {error}") from None
    outcomes = []
    together = [lambda scores, rng: scores[0], Resampled.of_shuffles]
    for fitted, combined in zip(probes, together[:1 if reading.shuffled is None else 2],
                                strict=False):
        answers = [probe.predict(heldout) for probe in fitted]
        outcomes.append([_scored(problem, rows, groups, fitted, answers, metrics, combined)
                         for rows, groups in question.splits()])
    for given in known.get((problem.label, reading.pair), ()):
        _, bootstrap = question.streams()
        weights = resample(int(question.heldout[0].max()) + 1, question.n_bootstrap, bootstrap)
        added = gains(given, train, heldout, target, question.groups, question.heldout[0], weights,
                      shuffled=reading.shuffled is not None, seed=question.seed)
        for of_labels, (row, gain) in zip(outcomes, added, strict=True):
            first, = of_labels
            of_labels[0] = replace(
                first, tables={**first.tables, "given": [*first.tables.get("given", ()), row]},
                scores={**first.scores, **({} if gain is None else {
                    f"gain given {row['given']}": gain})})
    return outcomes


def _scored(
    problem: Problem, rows: slice, groups: np.ndarray, probes: Sequence[LogisticProbe],
    answers: Sequence[np.ndarray], metrics: Sequence[str], together: Callable[..., Resampled],
) -> Outcome:
    """Return the scores of some probes on one split, taken `together`; NaN without any.

    rows, groups  of all scored problems those of the split, and their combinations
    answers       of each probe to all scored problems, bool [N, class]
    """
    question, reading = problem.question, problem.reading
    target = replace(problem.target, heldout=problem.target.heldout[rows])
    _, rng = question.streams()
    n, n_clusters = len(groups), int(groups.max()) + 1
    weights = resample(n_clusters, question.n_bootstrap, rng)
    counts = [count_by_cluster(target.heldout, answer[rows], groups) for answer in answers]
    best = count_by_cluster(target.heldout, target.constant, groups)

    def scored(metric: Metric) -> Resampled:
        return together([Resampled(metric(count.sum(1)), metric(weights @ count), n, n_clusters)
                         for count in counts], rng)

    described = {
        "size": reading.size, "dimensions": reading.points[0].shape[1],
        "n_train": len(question.groups), "n_heldout": n,
        "n_train_combinations": len(np.unique(question.groups)),
        "n_heldout_combinations": n_clusters, "n_classes": int(target.train.any(axis=0).sum()),
        "n_unseen": target.n_unseen,
        "C": float(np.median([probe.C for probe in probes])) if probes else np.nan,
        "converged": all(probe.converged for probe in probes)}
    scores, constant, table, per_class = {}, {}, [], []
    kinds = GROUP if target.multilabel else {name: SINGLE[name] for name in metrics}
    for name, metric in kinds.items():
        level = chance(target.heldout, name)
        value, low, high = np.nan, np.nan, np.nan
        if answers:
            scores[name] = scored(metric)
            constant[name] = Resampled(level, metric(weights @ best), n, n_clusters)
            value, (low, high) = float(scores[name].value), map(float, scores[name].interval())
        table.append({"metric": name, "value": value, "low": low, "high": high, "chance": level,
                      **described})
    if answers:
        f1 = scored(class_f1)
        lows, highs = f1.interval()
        support = target.heldout.sum(axis=0)
        per_class = [
            {"class": str(name), "f1": f1.value[i], "low": lows[i], "high": highs[i],
             "n_heldout": int(support[i]), "n_train": int(target.train[:, i].sum())}
            for i, name in enumerate(target.classes) if support[i] > 0]
    return Outcome(scores, constant, {"table": table, "per_class": per_class})


@dataclass(frozen=True, repr=False)
class DecodingResult(TableResult):
    """Scores of probes beside their controls.

    table      one row per layer (a number, or `all` together), pair, label, features, width and
               metric: `width` to which features were reduced (empty: all dimensions), `size`, the
               numbers they have, and `dimensions`, those that the probe read; `value`, its 95 %
               interval `low`, `high` clustered by held-out combination (NaN for a single one),
               `chance`, the best constant answer's score, the numbers of instances, combinations
               and classes, held-out instances of classes that training lacks (`n_unseen`), `C`, and
               whether the optimiser `converged`. Features that do not vary have no dimension, and
               no value, where they were reduced
    per_class  one row per layer, pair, label, features, width and class: `f1`, `low`, `high`,
               instances
    given      one row per layer, pair, label, features, width and what is `given` beside them:
               the log loss of the probe that knows this alone (`known`), that of the one that has
               the features, too (`with_features`), and `gain`, the difference, with its interval,
               in nats. Shuffled are features of another instance: what is lost by reading nothing.
               Empty unless it was asked for
    contrasts  one row per layer, pair, label, width, features of the trained model, metric
               (`quantity`) and what they are measured `against`: shuffled labels, the untrained
               model, the residual stream, of whole texts the `bag` of their tokens
               (`bags_of_tokens`), the best constant answer (`chance`), and the same
               features of the first layer in which they vary (`layer 0`); see `Contrasts`
    settings   everything else that determines the numbers
    """

    FORMAT = "latentcode.decoding"
    CAPTION = "score on held-out combinations, 95 % interval"
    COLUMNS: ClassVar = {
        "table": ("layer", "pair", "label", "features", "width", "size", "dimensions", "metric",
                  "value", "low", "high", "chance", "n_train", "n_heldout",
                  "n_train_combinations", "n_heldout_combinations", "n_classes", "n_unseen", "C",
                  "converged"),
        "per_class": ("layer", "pair", "label", "features", "width", "class", "f1", "low", "high",
                      "n_heldout", "n_train"),
        "given": ("layer", "pair", "label", "features", "width", "given", "gain", "low", "high",
                  "known", "with_features", "converged"),
        "contrasts": contrast_columns("layer", "pair", "label", "width", "features")}
    HEADLINE_ROWS: ClassVar = {"quantity": HEADLINE}

    table: pd.DataFrame
    per_class: pd.DataFrame
    given: pd.DataFrame
    settings: Mapping[str, Any]
    contrasts: Contrasts = NONE

    @property
    def is_of_codes(self) -> bool:
        """Whether it tells of codes and their controls alone, in all dimensions."""
        return bool(set(self.table["features"]) <= set(FEATURE_STYLES)
                    and self.table["width"].isna().all())

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = self.controls_caveat() + shared_caveat(self.settings)
        unseen = self.table.groupby("label", sort=False)["n_unseen"].max()
        notes += [f"Label {label}: {n} held-out instances have a class that training lacks; "
                  "they count as errors." for label, n in unseen.items() if n > 0]
        unread = self.table[self.table["value"].isna()]
        still = unread["dimensions"] == 0
        notes += [f"No score for {features}, layer {layer}, {pair}: the features do not vary."
                  for features, layer, pair in distinct(unread[still], "features", "layer", "pair")]
        notes += [f"No score for {label}: it has a single outcome in training."
                  for (label,) in distinct(unread[~still], "label")]
        failed = pd.concat([table[~table["converged"].astype(bool)]
                            for table in (self.table, self.given)])
        notes += [f"The optimiser did not converge: {features}, label {label}, layer {layer}, "
                  f"{pair}." for layer, pair, label, features
                  in distinct(failed, "layer", "pair", "label", "features")]
        if self.settings["beyond_answer"] and not len(self.given):
            notes.append("No gain beyond the answer: no label of the operation stands beside one.")
        if len(self.given):
            notes.append("What features add to the answer stands in the table given (given.csv).")
        if (self.table["n_heldout_combinations"] < 2).any():
            notes.append("A single held-out combination gives no interval.")
        return tuple(notes)

    def summary(self, metrics: Sequence[str] = HEADLINE) -> pd.DataFrame:
        """Return one row per layer, pair, label and metric, and `value [low, high]` by features.

        Of features other than codes, or reduced ones, a row per width and features, too, and a
        column per model: trained, untrained, and trained with shuffled labels.
        """
        table = self.table[self.table["metric"].isin(list(metrics))]
        place, column, digits = ("label", "metric", "pair", "layer"), "features", 3
        if not self.is_of_codes:
            widths = ("width",) if table["width"].notna().all() else ()
            table = parted(table)
            place, column, digits = ("pair", *widths, *place[:2], "features", "layer"), "model", 2
        return pd.DataFrame([
            values | {str(row[column]): with_interval(row, digits=digits)
                      for _, row in block.iterrows()}
            | {"chance": f"{block['chance'].iloc[0]:.{digits}f}"}
            for values, block in blocks(table, place)])

    def figure(self, metrics: Sequence[str] = HEADLINE) -> Figure:
        """Return the score per layer, a panel per label, metric, pair and width."""
        missing = self.missing_controls
        return scores_figure(
            self.table[self.table["metric"].isin(list(metrics))].replace(
                {"metric": METRIC_NAMES}), ("label", "metric"), ("chance", "best constant answer"),
            title=f"without controls: {', '.join(missing)}" if missing else "")

    def figures(self) -> dict[str, Figure]:
        """Return the scores and, where there are some, the gains over what is given."""
        every = {FIGURE: self.figure()}
        if len(self.given):
            given = self.given.assign(none=0.0, given="given " + self.given["given"])
            every["given.png"] = scores_figure(
                given, ("label", "given"), ("none", "no gain"), value="gain",
                title="held-out log loss gained (nats)")
        return every
