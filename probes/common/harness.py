"""One harness for all probes: features and their controls, scores, and differences from controls.

A probe is asked of *readings*, the features of some problems at one layer and pair, by a *scorer*,
which fits and scores one label of one reading. The harness reads the features, those of the
controls beside them, asks the scorer about each, and subtracts each control over the same problems:

    contrast = s(features) - s(control)

untrained  the features of the same architecture with its initial weights
shuffled   the trained model's, with labels that belong to other instances
residual   the residual stream that enters the layer at the query, which a code is read from
bag        of whole texts, how often each token occurs

Every probe, of the library or registered, goes through `read` and `evaluate`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.parallel import Parallel, delayed

from latentcode.codes import LatentCodes
from latentcode.codes.features import MEAN_RESIDUAL, read_features
from latentcode.codes.reader import Place, Rows, is_code
from latentcode.errors import (
    ProbeError,
    as_tuple,
    check,
    check_distinct,
    check_whole,
    chosen,
)
from latentcode.probes.common.labels import (
    Labels,
    Target,
    asked_labels,
    custom_labels,
    make_target,
    names_of,
    stated,
)
from latentcode.probes.common.results import BAG, named
from latentcode.probes.common.statistics import (
    LEVEL,
    ROUNDING,
    Resampled,
    check_bootstrap,
    has_null,
    varies,
)
from latentcode.progress import Progress, reported
from latentcode.runs import Run
from latentcode.subjects import Subject, subject
from latentcode.subjects.base import CodesSubject, pair_names
from latentcode.subjects.prompts import TextSubject
from latentcode.subjects.tasks import ModelSubject
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems


def check_pair_of_codes(train: LatentCodes, heldout: LatentCodes, what: str) -> None:
    """Raise `ProbeError` unless both hold the same layers, pairs and number of heads."""
    for name, ours, theirs in (
            ("layers", train.layers, heldout.layers),
            ("pairs", *(tuple(pair.name for pair in codes.pairs) for codes in (train, heldout))),
            ("number of heads", train.n_heads, heldout.n_heads)):
        check(ours == theirs, f"the {name} of the {what} differ: {ours} in training, {theirs} in "
              "the held-out codes", ProbeError)
    for split, codes in (("training", train), ("held-out", heldout)):
        check(len(codes) > 0, f"the {split} part of the {what} holds no instances", ProbeError)


def check_controls(
    trained: Sequence[LatentCodes], untrained: Sequence[LatentCodes], controls: bool
) -> None:
    """Raise `ProbeError` unless the controls of codes that are asked for can be computed.

    The message says how to obtain what is missing. With controls=False nothing may be given.
    """
    if not controls:
        check(len(untrained) == 0, "codes of an untrained model are given, but controls=False; "
              "leave one of the two out", ProbeError)
        return
    missing = []
    if not untrained:
        missing.append("the codes of an untrained model (extract the same instances once more with "
                       "untrained=True, and pass them as lc.subject(..., untrained=...))")
    if any(codes.residuals is None for codes in trained):
        missing.append("the residual streams (extract with residuals=True)")
    check(not missing, "a probe is not reported without its controls; missing are "
          f"{' and '.join(missing)}; controls=False leaves them out and marks the result so",
          ProbeError)
    for codes, initial in zip(trained, untrained, strict=True):
        check(not np.array_equal(codes.scores, initial.scores),
              "the untrained codes equal the trained ones; they are no control", ProbeError)
        check_same_instances(codes, initial, "untrained codes")


def check_same_instances(
    codes: LatentCodes | Rows, other: LatentCodes | Rows, what: str
) -> None:
    """Raise `ProbeError` unless two sets of codes show the same instances in the same order.

    What is compared are the task, split and seed, where both say them, the prompts, and of others
    all labels that both have but what the model itself says: `next_token`, and numbers with
    decimals, its scores.
    """
    for name in ("task", "split", "seed"):
        mine, theirs = stated(codes, name), stated(other, name)
        check(mine == theirs or None in (mine, theirs), f"the {what} are of other instances: their "
              f"{name} is {theirs}; expected {mine}", ProbeError)
    prompts = codes.meta.get("prompts")
    check(prompts == other.meta.get("prompts"), f"the {what} are of other instances: their prompts "
          "differ; expected the same ones", ProbeError)
    check(len(codes) == len(other), f"the {what} hold {len(other)} instances; expected "
          f"{len(codes)}, the same ones", ProbeError)
    both = codes.labels.columns.intersection(other.labels.columns).difference(["next_token"])
    # Tokens of prompts are numbered by each model's own tokenizer.
    for name in both if prompts is None else ():
        ours, others = codes.labels[name].to_numpy(), other.labels[name].to_numpy()
        check("f" in (ours.dtype.kind, others.dtype.kind) or bool((ours == others).all()),
              f"the {what} are of other instances: label {name!r} differs; extract both with the "
              "same task, split and seed", ProbeError)


def origin(codes: LatentCodes | Rows) -> dict[str, Any]:
    """Return how many instances codes are of, and where they come from as far as they say."""
    known = ("run", "run_id", "kind", "config_hash", "split", "seed", "step", "task", "prepend_bos",
             "revision", "commit")
    return {"n": len(codes)} | {key: codes.meta[key] for key in known if key in codes.meta}


MOST_TOKENS = 2_048
"""Tokens of the training texts that the bag counts, the most frequent ones."""
Part = tuple[str, int]
"""A split, and how many of its problems."""


@dataclass(frozen=True)
class Reading:
    """Features of the problems at one layer and pair.

    features  what is read, such as `code`
    model     one of `MODELS`
    points    [N, d] of each part: of problems that a probe is fitted on, then of those that it is
              scored on. d is 0 for features that were reduced and do not vary
    same      key that readings have in common whose points are the same
    control   whether it is the residual stream or the bag beside other features: it is not
              shuffled, and nothing is subtracted from it
    size      numbers that the features have, before any reduction
    width     to which they were reduced at most; None for all dimensions
    common_scale  whether all numbers share one unit, as counts do
    """

    features: str
    model: str
    layer: int | str
    pair: str
    points: Sequence[np.ndarray]
    same: Hashable
    control: bool = False
    size: int = 0
    width: int | None = None
    common_scale: bool = False

    @property
    def name(self) -> str:
        """The name in tables."""
        return named(self.features, self.model)

    @property
    def shuffled(self) -> str | None:
        """The name with shuffled labels; None where labels are not shuffled."""
        if self.control or self.model != "trained":
            return None
        return named(self.features, "shuffled")

    def x(self, part: int = 0) -> np.ndarray:
        """Return the points of a part, float64 [N, d]."""
        return np.asarray(self.points[part], dtype=np.float64)


@dataclass(frozen=True)
class Read:
    """Readings of all pairs and layers.

    rows   the first pair's features of each part, whose `meta` says where they come from
    labels  pair -> the labels of each part's problems
    """

    readings: list[Reading]
    rows: Sequence[Rows]
    labels: Mapping[str, list[pd.DataFrame]]

    @property
    def layers(self) -> list[Any]:
        """The layers that were read, in order."""
        return list(dict.fromkeys(reading.layer for reading in self.readings))

    def places(self) -> list[tuple[str, Any, dict[str, Reading]]]:
        """Return each pair and layer with its readings by name, the features before controls."""
        return [(pair, layer, {reading.name: reading for reading in self.readings
                               if (reading.pair, reading.layer) == (pair, layer)})
                for pair in self.labels for layer in self.layers]

    def at(self, pair: str, layer: Any, name: str) -> Reading:
        """Return the reading of a pair, layer and name."""
        return next(reading for reading in self.readings
                    if (reading.pair, reading.layer, reading.name) == (pair, layer, name))

    def targets(self, name: str, pairs: Mapping[str, Pair]) -> dict[str, Target]:
        """Return a label of the first and last part's problems at each pair (`make_target`)."""
        return {pair: make_target(frames[0], frames[-1], name, pairs[pair])
                for pair, frames in self.labels.items()}


def probed_with_labels(
    subject: Subject, labels: Labels | None, *, heldout: float | None = None, seed: int = 0
) -> tuple[Subject, Labels]:
    """Return a model on the problems that probes draw, and the labels that are asked about.

    heldout  share of the combinations of prompts without splits that are held out; None: nothing
             is fitted
    """
    probed = subject.probing
    wanted = asked_labels(labels, probed)
    if labels is not None:
        probed = probed.about(names_of(wanted)) if isinstance(probed, TextSubject) else probed
    if heldout is not None:
        probed = probed.divided(heldout, seed, next(iter(names_of(wanted)), "label"))
    return probed, wanted


def read(
    subject: Subject, parts: Sequence[Part], features: Sequence[str], *,
    pairs: Sequence[str] | str | None, layers: Sequence[int] | int | None,
    widths: Sequence[int] | None = None, controls: bool = True, seed: int,
    labels: Labels | None = None,
) -> Read:
    """Read features of each part, with their controls.

    features  `code` and others of `latentcode.codes.features`
    pairs     default: those of the subject
    widths    dimensions that all features are brought to, principal axes of the first part
    controls  also read the residual stream, the untrained model and, of whole texts, the bag
    labels    of which those that are functions are computed for each part's problems

    Raises what `custom_labels` and `Subject.reader` raise, and `ProbeError` for features that are
    repeated, none or not finite, and for codes in hand without the controls.
    """
    custom = custom_labels(labels, subject, parts, seed=seed)
    check(len(features) > 0, "features is empty; expected at least one", ProbeError)
    check_distinct("features", features)
    if isinstance(subject, CodesSubject):
        trained = [subject.part(split) for split, _ in parts]
        for heldout in trained[1:] or trained:
            check_pair_of_codes(trained[0], heldout, "codes")
        check_controls(trained, [subject.part(split, untrained=True) for split, _ in parts]
                       if subject.initial else [], controls)
    names = chosen("pair", subject.default_pairs if pairs is None
                   else pair_names(pairs, subject.pairs), tuple(subject.pairs))
    layers = subject.layers if layers is None else as_tuple(layers)
    check_distinct("widths", widths or ())
    stream = ("residual",) if controls and "residual" not in features else ()
    wanted = {"trained": (*features, *stream)}
    if controls:
        wanted["untrained"] = tuple(features)
    bags: list[Reading] = []
    if controls and subject.whole_texts:  # as if they were features of a layer
        place: Place = BAG, "0"
        counts = bags_of_tokens(
            [subject.reader(split, n=n).source.tokens.ids for split, n in parts])
        bags += _readings([Rows({place: x}, {place: x.shape[1]}, pd.DataFrame(index=range(len(x))),
                                {}) for x in counts], "", "trained", widths, (BAG,))
    codes = {model: [subject.reader(
        split, n=n, pairs=names, layers=layers, residuals="residual" in kept, seed=seed,
        untrained=model == "untrained").read() for split, n in parts]
        for model, kept in wanted.items()} if is_code(features) else {}
    readings: list[Reading] = []
    of_pairs: dict[str, list[pd.DataFrame]] = {}
    first: list[Rows] = []
    for pair in names:
        rows = {model: [Rows.of_codes(each, pair, kept) for each in codes[model]] if codes else [
            read_features(subject.reader(
                split, n=n, pairs=pair, layers=layers, features=kept, seed=seed,
                untrained=model == "untrained"), kept) for split, n in parts]
            for model, kept in wanted.items()}
        first = first or rows["trained"]
        of_pairs[pair] = [each.labels.assign(**values)
                          for each, values in zip(rows["trained"], custom, strict=True)]
        of_pair = list(_readings(rows["trained"], pair, "trained", widths, stream))
        readings += of_pair
        # The same at all pairs and in all layers.
        readings += [
            replace(bag, layer=layer, pair=pair, same=(BAG, bag.width), common_scale=True)
            for bag in bags for layer in dict.fromkeys(reading.layer for reading in of_pair)]
        if controls:
            readings += _readings(rows["untrained"], pair, "untrained", widths, ())
    if isinstance(subject, CodesSubject):
        # All layers and pairs tell instances apart that few do not.
        first = [replace(rows, codes=subject.reader(split, n=n).read())
                 for rows, (split, n) in zip(first, parts, strict=True)]
    return Read(readings, first, of_pairs)


def _readings(
    parts: Sequence[Rows], pair: str, model: str, widths: Sequence[int] | None,
    control: Sequence[str],
) -> Iterator[Reading]:
    """Yield all features of a model at a pair, reduced; what was read is given up on the way."""
    for features, of_layer in list(parts[0].values):
        points = [rows.values.pop((features, of_layer)) for rows in parts]
        layer = int(of_layer) if of_layer.isdigit() else of_layer
        for x in points:
            check(bool(np.isfinite(x).all()), f"{named(features, model)} of layer {layer}, pair "
                  f"{pair!r}: the values are not all finite", ProbeError)
        if widths is not None:
            points = principal_axes(points, max(widths))
        for width in (None,) if widths is None else widths:
            d = min(width or points[0].shape[1], points[0].shape[1])
            query = parts[0].query
            place = query if features == "residual" and query is not None else pair
            yield Reading(
                features, model, layer, pair, [x[:, :d] for x in points],
                (features, model, layer, place, d), features in control,
                parts[0].sizes[features, of_layer], width)


def principal_axes(parts: Sequence[np.ndarray], most: int) -> list[np.ndarray]:
    """Return z = (x - mean) V of each part, float32 [N, w]: the first vary most.

    V are the first `most` principal axes of the first part, or as many as vary there: an axis along
    which points differ by less than `ROUNDING` of their norm holds the rounding of float32, and w
    is 0 for features that do not vary.
    """
    points = np.asarray(parts[0], dtype=np.float64)
    mean = points.mean(axis=0)
    norm = np.sqrt(np.square(points).sum(axis=1).mean())
    points = points - mean
    variance, axes = np.linalg.eigh(points.T @ points / len(points))
    deviation = np.sqrt(np.maximum(variance[::-1], 0.0))
    n_kept = min(int((deviation > ROUNDING * norm).sum()), most)
    axes = axes[:, ::-1][:, :n_kept]
    return [np.asarray((x - mean) @ axes, dtype=np.float32) for x in parts]


def bags_of_tokens(parts: Sequence[Sequence[Sequence[int]]]) -> list[np.ndarray]:
    """Return the bag of tokens of texts, float32 [N, V + 1] for each part.

        x_v = ln(1 + n_v),    and  ln T

    with n_v how often token v is in the text, for the v of the first part's texts, and T the number
    of tokens: the order of the tokens is left out, and every model. A label that this tells as well
    is no finding about attention; entropy and eigenvalues of a pattern, for one, depend on T.
    """
    counter = CountVectorizer(analyzer=list, max_features=MOST_TOKENS, dtype=np.float32)
    counter.fit(parts[0])
    bags = []
    for texts in parts:
        counts = np.log1p(counter.transform(texts).toarray())
        lengths = np.log([[len(ids)] for ids in texts])
        bags.append(np.concatenate([counts, lengths], axis=1, dtype=np.float32))
    return bags


@dataclass(frozen=True)
class Question:
    """Labels that are asked about, and how.

    targets  (label, pair) -> its classes in the problems that are fitted on and scored
    groups   the combination of each problem that is fitted on, int [N]
    heldout  those of the scored problems, one array per split
    """

    targets: Mapping[tuple[str, str], Target]
    groups: np.ndarray
    heldout: Sequence[np.ndarray]
    n_shuffles: int
    n_bootstrap: int
    seed: int

    def __post_init__(self) -> None:
        check_bootstrap(self.n_bootstrap)
        check_whole("n_shuffles", self.n_shuffles, 1, ProbeError)

    def splits(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield which scored problems are of each split, and their combinations."""
        first = 0
        for groups in self.heldout:
            yield slice(first, first + len(groups)), groups
            first += len(groups)

    def streams(self) -> tuple[np.random.Generator, np.random.Generator]:
        """Return generators of shuffles and of the bootstrap, which no number of shuffles moves."""
        shuffles, bootstrap = np.random.SeedSequence(self.seed).spawn(2)
        return np.random.default_rng(shuffles), np.random.default_rng(bootstrap)

    @property
    def settings(self) -> dict[str, Any]:
        """What results say of it; `no_null` are labels of which too few arrangements differ for
        shuffled ones to be a control."""
        no_null = dict.fromkeys(label for (label, _), target in self.targets.items()
                                if not has_null(target.train, self.groups))
        return {"no_null": list(no_null), "n_shuffles": self.n_shuffles,
                "n_bootstrap": self.n_bootstrap, "level": LEVEL, "seed": self.seed}


@dataclass(frozen=True)
class Problem:
    """One label asked of one reading; `str` names both in errors."""

    reading: Reading
    label: str
    target: Target
    question: Question

    def __str__(self) -> str:
        return (f"{self.reading.name} of layer {self.reading.layer}, {self.reading.pair}, label "
                f"{self.label!r}")


@dataclass(frozen=True)
class Outcome:
    """Scores of one label and reading on one split.

    scores    quantity -> the score
    constant  quantity -> that of the best constant answer
    tables    table -> rows without their place
    """

    scores: Mapping[str, Resampled] = field(default_factory=dict)
    constant: Mapping[str, Resampled] = field(default_factory=dict)
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


Scorer = Callable[[Problem], list[list[Outcome]]]
"""Returns the outcomes on each split, with the true labels and, for readings whose labels are
shuffled, with shuffled ones."""
At = tuple[tuple[str, str], int | str, int | None, str]
"""((label, pair), layer, width, name of the features)."""


def evaluate(
    readings: Sequence[Reading], question: Question, scorer: Scorer, names: Sequence[str], *,
    n_jobs: int = 1, progress: Progress | None = None,
) -> list[dict[At, Outcome]]:
    """Ask a scorer about all labels and readings, and return the outcomes of each split, in order.

    names  of the features, in the order in which tables show them

    Readings whose points are the same are asked once.
    """
    jobs: dict[Hashable, Any] = {}
    asked: list[tuple[tuple[str, str], Reading, Hashable]] = []
    for ((label, pair), target), reading in product(question.targets.items(), readings):
        if reading.pair == pair:
            # Labels of pairs with one query can still be different columns.
            key: Hashable = (reading.same, label, target.columns)
            jobs.setdefault(key, delayed(scorer)(Problem(reading, label, target, question)))
            asked.append(((label, pair), reading, key))
    done = Parallel(n_jobs, return_as="generator")(jobs.values())
    by_key = dict(zip(jobs, reported(done, len(jobs), progress), strict=True))
    layers = list(dict.fromkeys(reading.layer for reading in readings))
    order = list(question.targets)
    outcomes: dict[At, list[Outcome]] = {}
    for about, reading, key in asked:
        for name, splits in zip(filter(None, (reading.name, reading.shuffled)), by_key[key],
                                strict=False):
            outcomes[about, reading.layer, reading.width, name] = splits
    places = sorted(outcomes, key=lambda at: (order.index(at[0]), layers.index(at[1]),
                                              names.index(at[3])))
    return [{at: outcomes[at][i] for at in places} for i in range(len(question.heldout))]


def contrasts(
    outcomes: Mapping[At, Outcome], readings: Sequence[Reading], *, first_layer: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the scores of the trained model's features less those of their controls.

    Controls are the same layer, pair, label and width with shuffled labels, of the untrained model,
    the residual stream, the bag of tokens, and the best constant answer; and, if `first_layer`, the
    same features of the first layer in which they vary.
    """
    measured = {(reading.pair, reading.layer, reading.width, reading.name): reading
                for reading in readings if reading.shuffled is not None}
    first: dict[tuple[str, int | None, str], int | str] = {}
    # Layers may have been asked in any order; of all together there is one.
    for (pair, layer, width, name), reading in sorted(
            measured.items(), key=lambda item: item[0][1] if isinstance(item[0][1], int) else 0):
        x = reading.points[-1]
        if x.size and varies(x):
            first.setdefault((pair, width, name), layer)
    for ((label, pair), layer, width, name), outcome in outcomes.items():
        if (pair, layer, width, name) not in measured:
            continue
        reading = measured[pair, layer, width, name]
        controls = {"shuffled": str(reading.shuffled),
                    "untrained": named(reading.features, "untrained"),
                    **{control: control for control in ("residual", MEAN_RESIDUAL, BAG)}}
        others = {other: outcomes[(label, pair), layer, width, control].scores
                  for other, control in controls.items()
                  if control != name and ((label, pair), layer, width, control) in outcomes}
        others["chance"] = outcome.constant
        reference = first.get((pair, width, name), layer)
        if first_layer and reference != layer:
            others[f"layer {reference}"] = outcomes[(label, pair), reference, width, name].scores
        for quantity, other in product(outcome.scores, others):
            if quantity in others[other]:
                difference = outcome.scores[quantity] - others[other][quantity]
                yield {"layer": layer, "pair": pair, "label": label, "width": width,
                       "features": name, "quantity": quantity, "against": other,
                       **difference.row()}


def subjects_of(
    models: Sequence[Model] | Model, problems: Problems, *, least: int = 1, step: Any = None,
    device: str | None = None,
) -> list[Subject]:
    """Open one model or several, at least so many, of which each has a name of its own.

    step  the checkpoint of each; several of one run make a subject each

    Raises what `subject` raises, and `ProbeError` for too few and for a name that is repeated.
    """
    given = (models,) if isinstance(models, Run) else as_tuple(models)
    steps = (None,) if step is None else as_tuple(step)
    check(len(steps) == 1 or len(given) == 1, f"{len(steps)} steps of {len(given)} models are "
          "given; expected one step, or one model", ProbeError)
    subjects = [subject(model, problems, step=checkpoint, device=device)
                for model, checkpoint in product(given, steps)]
    n, names = len(subjects), ", ".join(each.name for each in subjects) or "none"
    check(n >= least, f"{n} {'model is' if n == 1 else 'models are'} given: {names}; expected at "
          f"least {least}", ProbeError)
    in_hand = [each for each in subjects if isinstance(each, ModelSubject)]
    for number, each in enumerate(in_hand if len(in_hand) > 1 else [], 1):
        each.called(f"{each.name} {number}")
    counts = Counter(each.name for each in subjects)
    repeated = [name for name in counts if counts[name] > 1]
    check(not repeated, f"several models are called {', '.join(repeated)}; expected different "
          "names, by which results tell them apart", ProbeError)
    return subjects
