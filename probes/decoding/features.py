"""Decoding from more than a code: rows, all codes, values and residual streams (`read_rows`).

What do the tokens of a text alone tell? A control of what is read of whole texts.

    x_v = ln(1 + n_v),    and  ln T

with n_v how often token v is in the text, for the v of training texts, and T the number of tokens:
the order of the tokens is left out, and every model. A label that this tells as well is no finding
about attention; entropy and eigenvalues of a pattern, for one, depend on T. All columns have one
scale (`fit_probe`): with each brought to its own, frequent tokens would be lost among rare ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer

from latentcode.arguments import check_distinct, chosen
from latentcode.codes.rows import WIDEST, Rows
from latentcode.errors import ProbeError, check, check_count, check_jobs
from latentcode.probes.common.features import ROUNDING, origin
from latentcode.probes.common.labels import Target, varying
from latentcode.probes.common.own_labels import Labels, names_of
from latentcode.probes.common.results import BAG
from latentcode.probes.decoding.beyond import (
    N_BINS,
    TABLE_INSTANCES,
    Known,
    asked,
    default_labels,
    known_beside,
    targets_of,
)
from latentcode.probes.decoding.fitting import Asked, Reading, decoded
from latentcode.probes.decoding.result import MODELS, DecodingResult, named
from latentcode.progress import Progress
from latentcode.subjects import Subject
from latentcode.subjects.base import pair_names

MOST = 2_048
"""Tokens of the training texts that are counted, the most frequent ones."""
Tokens = Sequence[Sequence[int]]
"""Token ids of each text."""
Own = Mapping[str, np.ndarray]
"""Label -> one value per instance."""


@dataclass(frozen=True)
class Reduction:
    """z = (x - mean) V, with V the first principal axes of the training points.

    mean  float64 [d]
    axes  V, float64 [d, w]; w is 0 for features that do not vary
    """

    mean: np.ndarray
    axes: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the coordinates of points [N, d], float32 [N, w]; the first vary most."""
        return np.asarray((x - self.mean) @ self.axes, dtype=np.float32)


def fit_reduction(x: np.ndarray, most: int) -> Reduction:
    """Return the first `most` principal axes of points x [N, d], or as many as vary.

    An axis along which points differ by less than `ROUNDING` of their norm holds the rounding of
    float32. `ProbeError` for values that are not finite.
    """
    check(bool(np.isfinite(x).all()), "the values are not all finite", ProbeError)
    points = np.asarray(x, dtype=np.float64)
    mean = points.mean(axis=0)
    norm = np.sqrt(np.square(points).sum(axis=1).mean())
    points = points - mean
    variance, axes = np.linalg.eigh(points.T @ points / len(points))
    deviation = np.sqrt(np.maximum(variance[::-1], 0.0))
    n_kept = min(int((deviation > ROUNDING * norm).sum()), most)
    return Reduction(mean, axes[:, ::-1][:, :n_kept])


def bag_of_tokens(train: Tokens, heldout: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """Return x of training and of held-out texts, float32 [N, V + 1] each."""
    counter = CountVectorizer(analyzer=list, max_features=MOST, dtype=np.float32)
    counts = counter.fit_transform(train), counter.transform(heldout)
    lengths = ([[len(ids)] for ids in texts] for texts in (train, heldout))
    x, x_heldout = (np.concatenate([np.log1p(each.toarray()), np.log(n)], axis=1, dtype=np.float32)
                    for each, n in zip(counts, lengths, strict=True))
    return x, x_heldout


def bag_rows(both: Sequence[Rows], tokens: Sequence[Tokens]) -> list[Rows]:
    """Return the bags of training and of held-out texts as features of a layer, which they are none
    of, beside what was read of the same texts."""
    place = BAG, "0"
    return [Rows({place: x}, {place: x.shape[1]}, rows.labels, rows.meta)
            for rows, x in zip(both, bag_of_tokens(*tokens), strict=True)]


def decode_features(
    of: Subject, labels: Labels | None, own: Sequence[Own], parts: Sequence[tuple[str, int]], *,
    features: Sequence[str], widths: Sequence[int] | None, beyond_answer: bool,
    metrics: Sequence[str], pairs: Sequence[str] | str | None,
    layers: Sequence[int] | int | None, controls: bool, n_shuffles: int, n_bootstrap: int,
    seed: int, n_jobs: int, progress: Progress | None,
) -> DecodingResult:
    """Return what `decode` says of any features, reduced or not, and beyond the answer.

    of      the model and its problems
    labels  default: operation, operands and answer (`Task.row_labels`); of codes alone those of
            the task for probing
    own     the values of labels that are functions, of both parts
    parts   (split, number of instances) of training, then of held-out combinations

    Raises what `Subject.rows` raises, `UnknownNameError` for a label,
    `ProbeError` for a label that is
    named and does not vary, no widths, and features that are repeated.
    """
    check(len(features) > 0, "features is empty; expected at least one to decode from", ProbeError)
    check_distinct("features", features)
    if widths is not None:
        check_count("widths", min(widths, default=0), 1, ProbeError)
    check_jobs(n_jobs, ProbeError)
    for name, value, least in (("n_bootstrap", n_bootstrap, 100), ("n_shuffles", n_shuffles, 1)):
        check_count(name, value, least, ProbeError)
    pairs = chosen("pair", tuple(of.pairs)[:1] if pairs is None else pair_names(pairs, of.pairs),
                   tuple(of.pairs))
    read = partial(of.rows, layers=layers, seed=seed)
    control = ("residual",) if controls and ("code" in features or of.whole_texts) else ()
    extra = tuple(name for name in control if name not in features)
    bag = (BAG,) if controls and of.whole_texts else ()
    tokens = [of.tokens_of(split, n=n) for split, n in parts] if bag else []
    bags: list[Reading] = []
    readings: list[Reading] = []
    targets: dict[tuple[str, str], Target] = {}
    known: dict[tuple[str, str], Sequence[Known]] = {}
    for pair in pairs:
        trained = [read(split, n=n, pair=pair, features=(*features, *extra)) for split, n in parts]
        if bag and not bags:  # the same at all pairs and in all layers
            bags = list(_readings(bag_rows(trained, tokens), pair, "trained", widths, bag))
        of_pair = list(_readings(trained, pair, "trained", widths, extra))
        readings += of_pair
        readings += [
            replace(one, layer=layer, pair=pair, same=(BAG, one.width), common_scale=True)
            for one in bags for layer in dict.fromkeys(reading.layer for reading in of_pair)]
        if controls:
            readings += _readings([
                read(split, n=n, pair=pair, features=features, untrained=True)
                for split, n in parts], pair, "untrained", widths, ())
        frames = _asked(of, pair, [rows.labels for rows in trained], own, beyond_answer, seed)
        names = (names_of(labels) if labels is not None else of.probe_labels
                 if features == ("code",) else default_labels(
                     of, of.row_labels(trained[0].labels, pair)))
        combinations = [frame["combination"].astype(str) for frame in frames[:2]]
        shared = {*combinations[0]} & {*combinations[1]}
        check(not shared, f"training and held-out problems share {len(shared)} combinations, such "
              f"as {next(iter(shared), '')!r}; expected none", ProbeError)
        groups, clusters = (np.asarray(pd.factorize(of_part)[0]) for of_part in combinations)
        found_targets = targets_of(names, frames[0], frames[1])
        # What was asked for has to vary; what is asked by default is left without a score.
        targets |= {(name, pair): target if labels is None else varying(target, name, pair)
                    for name, target in found_targets.items()}
        if beyond_answer:
            known |= {(name, pair): beside
                      for name, beside in known_beside(found_targets, frames, groups, seed).items()}
    every = Asked({(name, pair): targets[name, pair] for name, pair in product(names, pairs)},
                  groups, [clusters], metrics, n_shuffles, n_bootstrap, seed, known)
    beside = "code" if "code" in features else features[0]
    found, = decoded(readings, every, [
        name for one in features for name in (
            one, *((*extra, *bag) if one == beside else ()),
            *(named(one, model) for model in MODELS[1:]))], n_jobs=n_jobs, progress=progress)
    return DecodingResult(**found, settings={
        "features": list(features), "widths": None if widths is None else list(widths),
        "beyond_answer": beyond_answer, "whole_texts": of.whole_texts,
        "controls": [*control, *bag, *(MODELS[1:] if controls else MODELS[2:])],
        "pairs": list(pairs),
        "widest": WIDEST, "n_bins": N_BINS, "table_instances": TABLE_INSTANCES,
        "allow_overlap": "nothing", "shared_combinations": 0,
        **every.settings, "train": origin(trained[0]), "heldout": origin(trained[1])})


def _asked(
    of: Subject, pair: str, labels: Sequence[pd.DataFrame], own: Sequence[Own],
    beyond_answer: bool, seed: int,
) -> list[pd.DataFrame]:
    """Return what training and held-out instances are asked at a pair, beside their further labels
    and the caller's own; if `beyond_answer`, also what instances are asked that are counted."""
    counted = [of.counted(TABLE_INSTANCES, seed)] if beyond_answer else []
    frames = asked(of, pair, labels[0], (labels[1], *counted))
    for i, (frame, known, values) in enumerate(zip(frames, labels, own, strict=False)):
        others = known[[name for name in known if name not in frame]]
        frames[i] = pd.concat([frame, others], axis=1).assign(**values)
    return frames


def _readings(
    both: Sequence[Rows], pair: str, model: str, widths: Sequence[int] | None,
    extra: Sequence[str],
) -> Iterator[Reading]:
    """Yield all features of a model, reduced; what was read is given up on the way.

    both   of training and of held-out instances
    extra  features that are controls alone, without shuffled labels
    """
    for features, of_layer in list(both[0].values):
        x, x_heldout = (rows.values.pop((features, of_layer)) for rows in both)
        layer = int(of_layer) if of_layer.isdigit() else of_layer
        if widths is not None:
            try:
                reduction = fit_reduction(x, max(widths))
                x_heldout = reduction(x_heldout)
            except ProbeError as error:
                raise ProbeError(f"{named(features, model)} of layer {layer}: {error}") from None
            x = reduction(x)
        for width in (None,) if widths is None else widths:
            d = min(width or x.shape[1], x.shape[1])
            yield Reading(
                named(features, model), layer, pair, x[:, :d], x_heldout[:, :d],
                (features, model, layer, pair, d),
                named(features, "shuffled") if model == "trained" and features not in extra
                else None, both[0].sizes[features, of_layer], width)
