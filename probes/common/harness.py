"""One harness for all probes: features and their controls, scores, and differences from controls.

A probe is asked of *readings*, the features of some problems at one layer and pair, by a *scorer*,
which fits and scores one label of one reading. The harness reads the features, reads those of an
untrained model, the residual stream and the bag of tokens beside them, asks the scorer about each,
also with shuffled labels, and subtracts each control over the same problems:

    contrast = s(features) - s(control)

Every probe, of the library or registered, goes through `read` and `evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.parallel import Parallel, delayed

from latentcode.codes.aggregates import MEAN_RESIDUAL
from latentcode.codes.rows import Place, Rows
from latentcode.errors import (
    ProbeError,
    as_tuple,
    check,
    check_count,
    check_distinct,
    check_whole,
    chosen,
)
from latentcode.probes.common.contrasts import Resampled
from latentcode.probes.common.features import ROUNDING, check_codes_in_hand, varies
from latentcode.probes.common.labels import Target
from latentcode.probes.common.results import BAG, named
from latentcode.probes.common.shuffling import has_null
from latentcode.progress import Progress, reported
from latentcode.subjects import Subject
from latentcode.subjects.base import pair_names
from latentcode.subjects.codes import CodesSubject

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
    def layers(self) -> list[int | str]:
        """The layers that were read, in order."""
        return list(dict.fromkeys(reading.layer for reading in self.readings))


def read(
    subject: Subject, parts: Sequence[Part], features: Sequence[str], *,
    pairs: Sequence[str] | str | None, layers: Sequence[int] | int | None,
    widths: Sequence[int] | None = None, controls: bool = True, seed: int,
    custom: Sequence[Mapping[str, np.ndarray]],
) -> Read:
    """Read features of each part, with their controls.

    features  `code` and others of `latentcode.codes.rows`
    pairs     default: those of the subject
    widths    dimensions that all features are brought to, principal axes of the first part
    controls  also read the residual stream, the untrained model and, of whole texts, the bag
    custom    further labels of each part's problems

    Raises what `Subject.read` raises, and `ProbeError` for features that are repeated or none, and
    for codes in hand without the controls.
    """
    check(len(features) > 0, "features is empty; expected at least one", ProbeError)
    check_distinct("features", features)
    if isinstance(subject, CodesSubject):
        check_codes_in_hand(subject, [split for split, _ in parts], controls)
    names = chosen("pair", subject.default_pairs if pairs is None
                   else pair_names(pairs, subject.pairs), tuple(subject.pairs))
    layers = subject.layers if layers is None else as_tuple(layers)
    stream = ("residual",) if controls and "residual" not in features else ()
    bags = list(_readings(_bags(subject, parts), "", "trained", widths, (BAG,))
                ) if controls and subject.whole_texts else []
    trained = [subject.read(split, n=n, pairs=names, features=(*features, *stream), layers=layers,
                            seed=seed) for split, n in parts]
    untrained = [subject.read(split, n=n, pairs=names, features=features, layers=layers,
                              untrained=True, seed=seed)
                 for split, n in parts] if controls else []
    readings: list[Reading] = []
    labels: dict[str, list[pd.DataFrame]] = {}
    first: list[Rows] = []
    for pair, of_parts in zip(names, zip(*trained, strict=True), strict=True):
        first = first or list(of_parts)
        labels[pair] = [rows.labels.assign(**values)
                        for rows, values in zip(of_parts, custom, strict=True)]
        of_pair = list(_readings(of_parts, pair, "trained", widths, stream))
        readings += of_pair
        # The same at all pairs and in all layers.
        readings += [
            replace(bag, layer=layer, pair=pair, same=(BAG, bag.width), common_scale=True)
            for bag in bags for layer in dict.fromkeys(reading.layer for reading in of_pair)]
        if controls:
            readings += _readings([next(rows) for rows in untrained], pair, "untrained", widths, ())
    return Read(readings, first, labels)


def _readings(
    parts: Sequence[Rows], pair: str, model: str, widths: Sequence[int] | None,
    control: Sequence[str],
) -> Iterator[Reading]:
    """Yield all features of a model at a pair, reduced; what was read is given up on the way."""
    for features, of_layer in list(parts[0].values):
        points = [rows.values.pop((features, of_layer)) for rows in parts]
        layer = int(of_layer) if of_layer.isdigit() else of_layer
        if widths is not None:
            try:
                points = principal_axes(points, max(widths))
            except ProbeError as error:
                raise ProbeError(f"{named(features, model)} of layer {layer}: {error}") from None
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
    is 0 for features that do not vary. `ProbeError` for values that are not finite.
    """
    check(bool(np.isfinite(parts[0]).all()), "the values are not all finite", ProbeError)
    points = np.asarray(parts[0], dtype=np.float64)
    mean = points.mean(axis=0)
    norm = np.sqrt(np.square(points).sum(axis=1).mean())
    points = points - mean
    variance, axes = np.linalg.eigh(points.T @ points / len(points))
    deviation = np.sqrt(np.maximum(variance[::-1], 0.0))
    n_kept = min(int((deviation > ROUNDING * norm).sum()), most)
    axes = axes[:, ::-1][:, :n_kept]
    return [np.asarray((x - mean) @ axes, dtype=np.float32) for x in parts]


def _bags(subject: Subject, parts: Sequence[Part]) -> list[Rows]:
    """Return the bag of tokens of each part's texts, as if they were features of a layer."""
    place: Place = BAG, "0"
    tokens = [subject.tokens_of(split, n=n) for split, n in parts]
    return [Rows({place: x}, {place: x.shape[1]}, pd.DataFrame(index=range(len(x))), {})
            for x in bags_of_tokens(tokens)]


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
        check_count("n_bootstrap", self.n_bootstrap, 100, ProbeError)
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
    def no_null(self) -> list[str]:
        """Labels of which too few arrangements differ for shuffled ones to be a control."""
        return list(dict.fromkeys(label for (label, _), target in self.targets.items()
                                  if not has_null(target.train, self.groups)))


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

    def check_finite(self) -> None:
        """Raise `ProbeError` for points that are not finite."""
        for x in self.reading.points:
            check(bool(np.isfinite(x).all()), f"{self}: the values are not all finite", ProbeError)


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
    entries: list[tuple[tuple[str, str], Reading, Hashable]] = []
    for (label, pair), target in question.targets.items():
        for reading in readings:
            if reading.pair == pair:
                # Labels of pairs with one query can still be different columns.
                key: Hashable = (reading.same, label, target.columns)
                jobs.setdefault(key, delayed(scorer)(Problem(reading, label, target, question)))
                entries.append(((label, pair), reading, key))
    done = Parallel(n_jobs, return_as="generator")(jobs.values())
    by_key = dict(zip(jobs, reported(done, len(jobs), progress), strict=True))
    layers = list(dict.fromkeys(reading.layer for reading in readings))
    order = list(question.targets)
    at: list[tuple[At, list[Outcome]]] = []
    for about, reading, key in entries:
        for name, splits in zip(filter(None, (reading.name, reading.shuffled)), by_key[key],
                                strict=False):
            at.append(((about, reading.layer, reading.width, name), splits))
    at.sort(key=lambda entry: (order.index(entry[0][0]), layers.index(entry[0][1]),
                               names.index(entry[0][3])))
    return [{place: splits[i] for place, splits in at} for i in range(len(question.heldout))]


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
        if (pair, width, name) not in first and x.size and varies(x):
            first[pair, width, name] = layer
    for (about, layer, width, name), outcome in outcomes.items():
        reading_of_place = measured.get((about[1], layer, width, name))
        if reading_of_place is None or not outcome.scores:
            continue
        names = {"shuffled": str(reading_of_place.shuffled),
                 "untrained": named(reading_of_place.features, "untrained"),
                 **{control: control for control in ("residual", MEAN_RESIDUAL, BAG)}}
        others = {other: outcomes[about, layer, width, control].scores
                  for other, control in names.items()
                  if control != name and (about, layer, width, control) in outcomes}
        others["chance"] = outcome.constant
        reference = first.get((about[1], width, name), layer)
        if first_layer and reference != layer:
            others[f"layer {reference}"] = outcomes[about, reference, width, name].scores
        for quantity, score in outcome.scores.items():
            for other, scores in others.items():
                if quantity in scores:
                    yield {"layer": layer, "pair": about[1], "label": about[0], "width": width,
                           "features": name, "quantity": quantity, "against": other,
                           **(score - scores[quantity]).row()}
