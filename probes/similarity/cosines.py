"""Which labels have similar codes, and how many heads does a code use? (Fig. 5E and A8)

Everything stands beside the same on the residual stream and on an untrained model's codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentcode.arguments import chosen
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count
from latentcode.probes.common.bootstrap import LEVEL, LabelSums, percentile_interval, resample
from latentcode.probes.common.contrasts import Resampled, table_of
from latentcode.probes.common.features import features_of, origin
from latentcode.probes.common.labels import Target, combination_clusters, make_target
from latentcode.probes.common.own_labels import (
    LabelFunction,
    asked_labels,
    names_of,
    own_labels,
)
from latentcode.probes.common.shuffling import has_null, shuffled_labels
from latentcode.probes.similarity.measures import ONE_HOT, concentration, cosine_matrix
from latentcode.probes.similarity.result import ALL, SimilarityResult
from latentcode.progress import Progress, reported, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems, Split

MOST_CLASSES = 64
"""A matrix of more labels than this is neither readable nor quick to resample."""
CENTRINGS = ("raw", "centred")
N_SHUFFLES = 20
"""Times that labels are shuffled."""
LARGEST_OTHER = "largest other"
"""The largest cosine of either of two classes with a third."""


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

    Other arguments are those of `similarity`; the samples are those of Fig. A8A. `centred` cosines
    are those of m_a minus the mean over the *classes*, all of which count the same: the mean over
    instances would depend on how often each class was drawn. Raw cosines of codes without negative
    entries are large whatever the labels are; compare with `shuffled`. By how much two classes are
    more alike than either is with a third, and than in a control, is in
    `SimilarityResult.contrasts`.

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
    # The first stream was that of shuffles: others draw what they drew before.
    drawing, resampling = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3)[1:])
    weights = resample(int(clusters.max()) + 1, n_bootstrap, resampling)
    rows = np.sort(drawing.permutation(len(codes))[:n_samples])
    targets = {pair: _target(codes, label, pair) for pair in pairs}
    tables: dict[str, list[pd.DataFrame]] = {
        name: [] for name in SimilarityResult.COLUMNS if name != "contrasts"}
    contrasts: list[dict[str, Any]] = []
    for pair, layer in reported(product(pairs, layers), len(pairs) * len(layers), progress):
        names, truth = [str(c) for c in targets[pair].classes], targets[pair].train
        alike: dict[str, Mapping[str, Resampled]] = {}
        for features in feature_sets:
            x = features.points(layer, pair)
            place = {"layer": layer, "pair": pair, "label": label, "features": features.name}
            sums = LabelSums.of(x, truth, clusters)
            alike[features.name] = _cosines(sums, weights)
            found = [("cosines", _as_table(alike[features.name], names), place)]
            if features.name == "code" and (
                    shuffled := _of_shuffled(x, truth, clusters, weights, seed)):
                alike["shuffled"] = shuffled
                found.append(("cosines", _as_table(shuffled, names),
                              place | {"features": "shuffled"}))
            found += [
                ("means", _means(sums, truth, names), place),
                ("samples", _samples(x, truth, names, rows), place),
                ("concentration", _concentrations(x, truth, clusters, weights, names, place),
                 place)]
            for name, table, where in found:
                tables[name].append(table.assign(**where))
        contrasts += [{"layer": layer, "pair": pair, "label": label, **row}
                      for row in _contrasts(alike, names, truth)]
    frames = {name: pd.concat(parts, ignore_index=True)[list(SimilarityResult.COLUMNS[name])]
              for name, parts in tables.items()}
    of_all = table_of(contrasts, SimilarityResult.COLUMNS["contrasts"])
    return SimilarityResult(**frames, contrasts=of_all, settings={
        "label": label, "layers": list(layers), "pairs": list(pairs),
        "classes": sorted({str(c) for target in targets.values() for c in target.classes}),
        "controls": [s.name for s in feature_sets[1:]],
        "no_null": [label] if not all(has_null(target.train, clusters)
                                      for target in targets.values()) else [],
        "n_samples": n_samples,
        "n_bootstrap": n_bootstrap, "level": LEVEL, "one_hot": ONE_HOT, "seed": seed,
        "codes": origin(codes)})


def _target(codes: LatentCodes, label: str, pair: str) -> Target:
    target = make_target(codes, codes, label, pair)
    check(len(target.classes) <= MOST_CLASSES, f"label {label!r} has {len(target.classes)} "
          f"classes; expected at most {MOST_CLASSES}", ProbeError)
    return target


def _cosines(sums: LabelSums, weights: np.ndarray) -> dict[str, Resampled]:
    """Return cosines [class, class] by centring."""
    means, replicates = sums.means(), sums.resampled(weights)
    n, n_clusters = int(sums.counts.sum()), weights.shape[1]
    return {centring: Resampled(cosine_matrix(means, centring),
                                cosine_matrix(replicates, centring), n, n_clusters)
            for centring in CENTRINGS}


def _of_shuffled(
    x: np.ndarray, truth: np.ndarray, clusters: np.ndarray, weights: np.ndarray, seed: int
) -> dict[str, Resampled]:
    """Return the mean cosines of `N_SHUFFLES` shuffles by centring; nothing without a null."""
    rng = np.random.default_rng(seed)
    shuffles = [_cosines(LabelSums.of(x, shuffled, clusters), weights)
                for shuffled in shuffled_labels(truth, clusters, rng, N_SHUFFLES)]
    return {centring: Resampled.of_shuffles([cosines[centring] for cosines in shuffles], rng)
            for centring in CENTRINGS if shuffles}


def _as_table(cosines: Mapping[str, Resampled], names: Sequence[str]) -> pd.DataFrame:
    row, column = (np.array(names, dtype=object)[i.ravel()]
                   for i in np.indices((len(names), len(names))))
    blocks = []
    for centring, found in cosines.items():
        low, high = found.interval()
        blocks.append(pd.DataFrame({
            "centring": centring, "row": row, "column": column, "value": found.value.ravel(),
            "low": low.ravel(), "high": high.ravel()}))
    return pd.concat(blocks, ignore_index=True)


def _contrasts(
    alike: Mapping[str, Mapping[str, Resampled]], names: Sequence[str], truth: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Yield cos(a, b) less the largest cosine of a or b with a third class, and that of the code
    less those of the controls, for each two classes; whole combinations of all problems are
    resampled, `n` in all."""
    couples = list(combinations(range(len(names)), 2))
    i, j = np.array(couples).T
    for centring in CENTRINGS:
        of = {name: replace(found[centring], value=found[centring].value[i, j],
                            replicates=found[centring].replicates[:, i, j])
              for name, found in alike.items()}
        others = [("code", name, of[name]) for name in of if name != "code"]
        if len(names) > 2:
            others += [(name, LARGEST_OTHER, _largest_others(alike[name][centring], couples))
                       for name in of if name != "shuffled"]
        for features, against, other in others:
            difference = of[features] - other
            low, high = difference.interval()
            yield from ({"centring": centring, "row": names[a], "column": names[b],
                         "features": features, "quantity": "cosine", "against": against,
                         "value": difference.value[k], "low": low[k], "high": high[k],
                         "n": len(truth),
                         "n_clusters": difference.n_clusters}
                        for k, (a, b) in enumerate(couples) if np.isfinite(difference.value[k]))


def _largest_others(cosines: Resampled, couples: Sequence[tuple[int, int]]) -> Resampled:
    """Return, for each two classes, the largest cosine of either with a third."""
    def largest(matrix: np.ndarray) -> np.ndarray:
        return np.stack([np.delete(matrix[..., couple, :], couple, axis=-1).max(axis=(-2, -1))
                         for couple in map(list, couples)], axis=-1)

    return replace(cosines, value=largest(cosines.value), replicates=largest(cosines.replicates))


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


@watched("comparing codes")
def similarity(
    model: Model,
    problems: Problems = None,
    label: str | Mapping[str, LabelFunction] | None = None,
    *,
    split: Split = "ood",
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    controls: bool = True,
    n_samples: int = 16,
    n_bootstrap: int = 1_000,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> SimilarityResult:
    """Compare the mean codes of a label's values, and count the heads that a code uses.

    See `latentcode.probes.similarity.similarity_codes` for the equation; what is above its controls
    is in `SimilarityResult.contrasts`.

    Args:
        model: See `subject`; or codes.
        problems: See `subject`; default: what the run's task chooses for probing.
        label: Default: the last that the task names for probing, `rule` or `terms`; or a function
            of a batch, `{name: function}`, as in `decode`.
        split: Which combinations; the held-out ones, as in the paper's Fig. 5E and A8.
        n: Number of problems; default: 4,096, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        controls: Also ask the residual stream and an untrained model; a result without them is
            marked.
        n_samples: Problems whose codes are kept one by one.
        n_bootstrap: Replicates of the 95 % intervals, which resample the combinations.
        seed: Seed of the problems and the bootstrap.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (layers and pairs done, in all).

    Raises:
        LatentCodeError: What `subject`, `own_labels`, `extract` and `similarity_codes` raise.
    """
    seed = checked_seed(seed)
    check_count("n_samples", n_samples, 1, ProbeError)  # before any code is read
    of = subject(model, problems, device=device).probing
    asked = names_of(asked_labels(None, of))[-1] if label is None else label
    names = names_of(asked)
    check(len(names) == 1, f"label is {', '.join(map(str, names)) or 'empty'}; expected a single "
          "one", ProbeError)
    n = of.n_of("n", n, 4_096, split)
    further, = own_labels(asked, of, [(split, n)], seed=seed)
    codes, untrained = of.with_untrained(split, further, n=n, pairs=pairs, layers=layers, seed=seed,
                                         controls=controls)
    return similarity_codes(
        codes, names[0], untrained=untrained, controls=controls, n_samples=n_samples,
        n_bootstrap=n_bootstrap, seed=seed, progress=progress)
