"""Which labels have similar codes, and how many heads does a code use? (Fig. 5E and A8)

Everything stands beside the same on the residual stream and on an untrained model's codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from latentcode.arguments import chosen
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.bootstrap import LEVEL, LabelSums, percentile_interval, resample
from latentcode.probes.common.features import features_of, origin, shuffle_labels
from latentcode.probes.common.labels import Target, combination_clusters, make_target
from latentcode.probes.similarity.measures import ONE_HOT, concentration, cosine_matrix
from latentcode.probes.similarity.result import ALL, SimilarityResult
from latentcode.progress import Progress, reported, watched
from latentcode.seeds import checked_seed

MOST_CLASSES = 64
"""A matrix of more labels than this is neither readable nor quick to resample."""
CENTRINGS = ("raw", "centred")


@watched("comparing codes")
def similarity_codes(
    codes: LatentCodes,
    label: str,
    *,
    layers: Sequence[int] | int | None = None,
    pairs: Sequence[str] | None = None,
    untrained: LatentCodes | None = None,
    controls: bool = True,
    n_samples: int = 16,
    n_bootstrap: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> SimilarityResult:
    """cos(m_a, m_b), m_a = mean of the codes whose label is a: which values have similar codes?

    label      a column, a name that a pair resolves such as `rule`, or a group such as `terms`
               (then m_a is the mean over all instances in which a occurs); see
               `probes.common.labels`
    layers, pairs  which to compare; all by default
    untrained  codes of the same instances under the model's initial weights
    controls   False leaves out the untrained model and the residual stream and marks the result
    n_samples  instances that are kept one by one (Fig. A8A)
    n_bootstrap  replicates of the 95 % intervals, which resample the combinations

    `centred` cosines are those of m_a minus the mean over the *classes*, all of which count the
    same: the mean over instances would depend on how often each class was drawn. Raw cosines of
    codes without negative entries are large whatever the labels are; compare with `shuffled`.

    Raises `UnknownNameError` for a label, layer or pair that does not exist, `ProbeError` for
    missing controls, for a label with one class, with missing values or with more than 64, and for
    `codes` that are zero. Instances in which a control is zero have no concentration.
    """
    seed = checked_seed(seed)
    check_count("n_samples", n_samples, 1, ProbeError)
    check_count("n_bootstrap", n_bootstrap, 100, ProbeError)
    layers = chosen("layer", layers, codes.layers)
    pairs = chosen("pair", pairs, [p.name for p in codes.pairs])
    feature_sets = features_of(codes, untrained, controls)
    clusters = combination_clusters(codes)
    shuffling, drawing, resampling = map(
        np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    weights = resample(int(clusters.max()) + 1, n_bootstrap, resampling)
    rows = np.sort(drawing.permutation(len(codes))[:n_samples])
    targets = {pair: _target(codes, label, pair) for pair in pairs}
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in SimilarityResult.COLUMNS}
    for pair, layer in reported(product(pairs, layers), len(pairs) * len(layers), progress):
        names, truth = [str(c) for c in targets[pair].classes], targets[pair].train
        for features in feature_sets:
            x = features.points(layer, pair)
            place = {"layer": layer, "pair": pair, "label": label, "features": features.name}
            sums = LabelSums.of(x, truth, clusters)
            found = [("cosines", _cosines(sums, weights, names), place)]
            if features.name == "code":
                dealt = LabelSums.of(x, shuffle_labels(truth, clusters, shuffling), clusters)
                found.append(("cosines", _cosines(dealt, weights, names),
                              place | {"features": "shuffled"}))
            found += [
                ("means", _means(sums, truth, names), place),
                ("samples", _samples(x, truth, names, rows), place),
                ("concentration", _concentrations(x, truth, clusters, weights, names, place),
                 place)]
            for name, table, where in found:
                tables[name].append(table.assign(**where))
    frames = {name: pd.concat(parts, ignore_index=True)[list(SimilarityResult.COLUMNS[name])]
              for name, parts in tables.items()}
    return SimilarityResult(**frames, settings={
        "label": label, "layers": list(layers), "pairs": list(pairs),
        "classes": sorted({str(c) for target in targets.values() for c in target.classes}),
        "controls": [s.name for s in feature_sets[1:]], "n_samples": n_samples,
        "n_bootstrap": n_bootstrap, "level": LEVEL, "one_hot": ONE_HOT, "seed": seed,
        "codes": origin(codes)})


def _target(codes: LatentCodes, label: str, pair: str) -> Target:
    target = make_target(codes, codes, label, pair)
    check(len(target.classes) <= MOST_CLASSES, f"label {label!r} has {len(target.classes)} "
          f"classes; expected at most {MOST_CLASSES}", ProbeError)
    return target


def _cosines(sums: LabelSums, weights: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    means, replicates = sums.means(), sums.resampled(weights)
    blocks = []
    row, column = (np.array(names, dtype=object)[i.ravel()]
                   for i in np.indices((len(names), len(names))))
    for centring in CENTRINGS:
        low, high = percentile_interval(
            cosine_matrix(replicates, centring), len(sums.counts))
        blocks.append(pd.DataFrame({
            "centring": centring, "row": row, "column": column,
            "value": cosine_matrix(means, centring).ravel(), "low": low.ravel(),
            "high": high.ravel()}))
    return pd.concat(blocks, ignore_index=True)


def _means(sums: LabelSums, truth: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    means = sums.means()
    return _by_component(means, names).assign(n=np.tile(truth.sum(axis=0), means.shape[1]))


def _samples(
    x: np.ndarray, truth: np.ndarray, names: Sequence[str], rows: np.ndarray
) -> pd.DataFrame:
    of_instance = [" + ".join(names[c] for c in np.flatnonzero(t).tolist()) for t in truth[rows]]
    return _by_component(x[rows], of_instance).assign(instance=np.tile(rows, x.shape[1]))


def _concentrations(
    x: np.ndarray, truth: np.ndarray, clusters: np.ndarray, weights: np.ndarray,
    names: Sequence[str], place: Mapping[str, Any],
) -> pd.DataFrame:
    """Return the measures of all instances and of each class, with `same_head`: the share of
    instances whose largest head is the commonest largest one.

    Where a control is zero it does not count. `ProbeError` where the code is.
    """
    counted: np.ndarray = (x != 0.0).any(axis=1)
    check(place["features"] != "code" or bool(counted.all()), f"code of layer {place['layer']}, "
          f"pair {place['pair']!r}: {int((~counted).sum())} of {len(x)} codes are zero in all "
          "heads; expected some score in each", ProbeError)
    measures = concentration(np.where(counted[:, None], x, 1.0))
    truth = np.column_stack([np.ones(len(x), dtype=bool), truth]) & counted[:, None]
    n_clusters = weights.shape[1]
    values = LabelSums.of(np.column_stack(list(measures.values())), truth, clusters)
    winner = np.eye(x.shape[1])[np.abs(x).argmax(axis=1)]
    winners = LabelSums.of(winner, truth, clusters)
    whole = np.column_stack([values.means(), winners.means().max(axis=1)])  # [class, measure]
    replicates = np.concatenate(
        [values.resampled(weights), winners.resampled(weights).max(axis=2, keepdims=True)], axis=2)
    low, high = percentile_interval(replicates, n_clusters)
    kinds = [*measures, "same_head"]
    n, n_combinations = truth.sum(axis=0), (values.counts > 0).sum(axis=0)
    return pd.DataFrame([
        {"class": name, "measure": kind, "value": whole[c, m], "low": low[c, m],
         "high": high[c, m], "n": int(n[c]), "n_combinations": int(n_combinations[c])}
        for c, name in enumerate([ALL, *names]) for m, kind in enumerate(kinds)])


def _by_component(points: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    """Return points [row, component] as one row per component, the rows named in order."""
    n_rows, n_components = points.shape
    return pd.DataFrame({
        "class": np.tile(np.array(names, dtype=object), n_components),
        "component": np.repeat(np.arange(n_components), n_rows),
        "value": points.T.ravel().astype(np.float32)})
