"""Which labels have similar codes, and how many heads does a code use? (Fig. 5E and A8)

Everything stands beside the same on the residual stream and on an untrained model's codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check
from latentcode.figures.style import Figure
from latentcode.probes.common.bootstrap import percentile_interval, resample
from latentcode.probes.common.controls import shuffle_labels
from latentcode.probes.common.labels import combination_clusters, make_target
from latentcode.probes.common.results import TableResult
from latentcode.probes.common.sources import ROUNDING, chosen, origin, sources_of
from latentcode.probes.similarity.figures import codes_figure, concentration_figure, cosine_figure

LEVEL = 0.95
"""Level of the intervals."""
ONE_HOT = 0.9
"""A code is one-hot when its largest head holds at least this share of sum_h |a_h|."""
MOST_CLASSES = 64
"""A matrix of more labels than this is neither readable nor quick to resample."""
ALL = "(all)"
"""The class that stands for all instances."""
CENTRINGS = ("raw", "centred")

Progress = Callable[[int, int], None]
"""Called with (layers and pairs done, in all)."""


@dataclass(frozen=True, repr=False)
class SimilarityResult(TableResult):
    """How the codes of a label's values compare, and how many heads they use.

    cosines        one row per layer, pair, source, centring (`raw`, `centred`) and two classes
                   `row`, `column`: the cosine `value` of their mean points with its interval
    means          the mean point of each class, one row per component (the head, of a code)
    samples        some instances, likewise
    concentration  one row per layer, pair, source, class ("(all)" for all instances) and measure,
                   see `concentration`
    settings       everything else that determines the numbers

    Sources: `code`, `residual`, `untrained`, and `shuffled`, the code with labels of other
    instances. Intervals are 95 % bootstrap intervals clustered by combination.
    """

    FORMAT = "latentcode.similarity"
    COLUMNS: ClassVar = {
        "cosines": ("layer", "pair", "label", "source", "centring", "row", "column", "value",
                    "low", "high"),
        "means": ("layer", "pair", "label", "source", "class", "component", "value", "n"),
        "samples": ("layer", "pair", "label", "source", "instance", "class", "component", "value"),
        "concentration": ("layer", "pair", "label", "source", "class", "measure", "value", "low",
                          "high", "n", "n_combinations")}
    TEXT: ClassVar = ("label", "class", "row", "column")

    cosines: pd.DataFrame
    means: pd.DataFrame
    samples: pd.DataFrame
    concentration: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def title(self) -> str:
        """One line that says what the summary shows."""
        return (f"SimilarityResult: heads that a code uses, and the most similar classes of label "
                f"{self.settings['label']!r}")

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader of these numbers must know, one sentence each."""
        n = len(self.settings["classes"])
        notes = [f"Centred cosines of {n} unrelated classes are {-1.0 / (n - 1):.2f} on average, "
                 "not 0, because centred means add up to zero."]
        if len(self.settings["controls"]) < 2:
            notes.append("Without controls: residual, untrained.")
        whole = self.concentration[self.concentration["class"] == ALL]
        total = whole["n"].max()  # of the code, of which none is zero
        zero = whole[whole["n"] < total].drop_duplicates(["source", "layer", "pair"])
        notes += [f"The {row.source} of layer {row.layer}, {row.pair} is zero in {total - row.n} "
                  f"of {total} instances, of which there is no concentration."
                  for row in zero.itertuples()]
        return tuple(notes)

    def matrix(
        self, *, layer: int, pair: str, source: str = "code", centring: str = "centred"
    ) -> pd.DataFrame:
        """Return the cosines [class, class] of one layer, pair and source, in clustering order."""
        block = self.cosines
        for column, value in (("layer", layer), ("pair", pair), ("source", source),
                              ("centring", centring)):
            block = block[block[column] == value]
        check(len(block) > 0, f"there are no {centring} cosines of source {source!r}, layer "
              f"{layer!r}, pair {pair!r}", ProbeError)
        frame = block.pivot(index="row", columns="column", values="value")
        names = frame.index[cluster_order(frame.to_numpy())]
        return frame.loc[names, names]

    def summary(self) -> pd.DataFrame:
        """Return, per layer, pair and source, the measures of all codes and the closest classes."""
        rows = []
        whole = self.concentration[self.concentration["class"] == ALL]
        for key, block in whole.groupby(["pair", "layer", "source"], sort=False):
            assert isinstance(key, tuple)
            row: dict[str, Any] = dict(zip(("pair", "layer", "source"), key, strict=True))
            for r in block.itertuples():
                row[str(r.measure)] = f"{r.value:.2f} [{r.low:.2f}, {r.high:.2f}]"
            matrix = self.matrix(pair=row["pair"], layer=row["layer"], source=row["source"])
            row["closest classes"] = _closest(matrix)
            rows.append(row)
        return pd.DataFrame(rows)

    def figure(self, *, pair: str | None = None, centring: str = "centred") -> Figure:
        """Return the cosine matrices, a row per source and a column per layer (Fig. 5E, A8C).

        All matrices have the order in which the code of the last layer clusters.
        """
        pair = self.settings["pairs"][0] if pair is None else pair
        last = max(self.settings["layers"])
        order = list(self.matrix(layer=last, pair=pair, centring=centring).index)
        block = self.cosines[(self.cosines["pair"] == pair)
                             & (self.cosines["centring"] == centring)]
        return cosine_figure(block, order, f"{centring} cosine of mean points per "
                             f"{self.settings['label']}, {pair}")

    def codes_figure(self, *, pair: str | None = None, source: str = "code") -> Figure:
        """Return sampled points above and mean points per class below, per layer (A8A, B)."""
        pair = self.settings["pairs"][0] if pair is None else pair
        samples, means = (table[(table["pair"] == pair) & (table["source"] == source)]
                          for table in (self.samples, self.means))
        check(len(means) > 0, f"there are no points of source {source!r}, pair {pair!r}",
              ProbeError)
        return codes_figure(samples, means, f"{source}, {pair}", self.settings["classes"])

    def concentration_figure(self, *, pair: str | None = None) -> Figure:
        """Return the measures of concentration per layer, sources side by side."""
        pair = self.settings["pairs"][0] if pair is None else pair
        table = self.concentration
        return concentration_figure(table[(table["pair"] == pair) & (table["class"] == ALL)], pair)

    def figures(self) -> dict[str, Figure]:
        """Return all pictures of the first pair, by file name."""
        named = {f"points_{source}.png": self.codes_figure(source=source)
                 for source in self.samples["source"].unique()}
        return super().figures() | named | {"concentration.png": self.concentration_figure()}


def similarity_codes(
    codes: LatentCodes,
    label: str,
    *,
    layers: Sequence[int] | None = None,
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
               (then m_a is the mean over all instances in which a occurs); see `probes.labels`
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
    check(n_samples >= 1 and n_bootstrap >= 100, f"n_samples is {n_samples}, n_bootstrap "
          f"{n_bootstrap}; expected at least 1 and 100", ProbeError)
    layers = chosen("layer", layers, codes.layers)
    pairs = chosen("pair", pairs, [p.name for p in codes.pairs])
    sources = sources_of(codes, untrained, controls)
    clusters = combination_clusters(codes)
    n_clusters = int(clusters.max()) + 1
    shuffling, drawing, resampling = map(
        np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    weights = resample(n_clusters, n_bootstrap, resampling)
    rows = np.sort(drawing.permutation(len(codes))[:n_samples])
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in SimilarityResult.COLUMNS}
    every: set[str] = set()
    for done, (pair, layer) in enumerate(product(pairs, layers)):
        target = make_target(codes, codes, label, pair)
        names, truth = [str(c) for c in target.classes], target.train
        check(len(names) <= MOST_CLASSES, f"label {label!r} has {len(names)} classes; expected at "
              f"most {MOST_CLASSES}", ProbeError)
        every.update(names)
        of_instance = [" + ".join(names[c] for c in np.flatnonzero(t)) for t in truth[rows]]
        for source in sources:
            x = source.points(layer, pair)
            place = {"layer": layer, "pair": pair, "label": label, "source": source.name}
            sums = LabelSums.of(x, truth, clusters)
            tables["cosines"].append(_cosines(sums, weights, names).assign(**place))
            if source.name == "code":
                dealt = shuffle_labels(truth, clusters, shuffling)
                tables["cosines"].append(_cosines(
                    LabelSums.of(x, dealt, clusters), weights, names
                ).assign(**place | {"source": "shuffled"}))
            means = pd.DataFrame(sums.means()).rename_axis("class")
            tables["means"].append(_long(means, names).assign(
                n=np.tile(truth.sum(axis=0), x.shape[1]), **place))
            samples = pd.DataFrame(x[rows]).rename_axis("class")
            tables["samples"].append(_long(samples, of_instance).assign(
                instance=np.tile(rows, x.shape[1]), **place))
            tables["concentration"].append(_concentration_table(
                x, truth, clusters, weights, names, place).assign(**place))
        if progress is not None:
            progress(done + 1, len(pairs) * len(layers))
    settings = {
        "label": label, "classes": sorted(every), "layers": list(layers), "pairs": list(pairs),
        "controls": [s.name for s in sources[1:]], "n_samples": n_samples,
        "n_bootstrap": n_bootstrap, "level": LEVEL, "one_hot": ONE_HOT, "seed": seed,
        "codes": origin(codes)}
    frames = {name: pd.concat(parts, ignore_index=True)[list(SimilarityResult.COLUMNS[name])]
              for name, parts in tables.items()}
    return SimilarityResult(**frames, settings=settings)


@dataclass(frozen=True)
class LabelSums:
    """Sums of points per combination and class: means of any resampling follow from them.

    sums    float64 [cluster, class, d]
    counts  float64 [cluster, class]
    """

    sums: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, truth: np.ndarray, clusters: np.ndarray) -> LabelSums:
        """Sum points x [N, d] with classes truth bool [N, class] in clusters int [N]."""
        n_clusters = int(clusters.max()) + 1
        sums = np.zeros((n_clusters, truth.shape[1], x.shape[1]))
        counts = np.zeros((n_clusters, truth.shape[1]))
        row, column = np.nonzero(truth)
        np.add.at(sums, (clusters[row], column), x[row])
        np.add.at(counts, (clusters[row], column), 1.0)
        return cls(sums, counts)

    def means(self) -> np.ndarray:
        """Return the mean of each class, [class, d]; NaN without instances."""
        return np.asarray(self.resampled(np.ones((1, len(self.counts))))[0])

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """Return the means [replicate, class, d] with clusters weighted [replicate, cluster].

        NaN where a replicate has no instance of a class.
        """
        total = np.tensordot(weights, self.sums, axes=1)
        counts = (weights @ self.counts)[..., None]
        return np.asarray(np.where(counts > 0, total / np.where(counts > 0, counts, 1.0), np.nan))


def cosine_matrix(means: np.ndarray, centring: str = "raw") -> np.ndarray:
    """Return m_a . m_b / (|m_a| |m_b|) of means [..., class, d], [..., class, class].

    `centred` first takes away the mean over the classes. NaN where a mean is zero, or differs
    from that of the classes by rounding only: the code does not vary then, such as that of a
    token to itself in the first layer.
    """
    least = ROUNDING * np.linalg.norm(means, axis=-1, keepdims=True)
    if centring == "centred":
        # nanmean would warn of a class that a replicate lacks in all components.
        present = np.isfinite(means)
        total = np.where(present, means, 0.0).sum(axis=-2, keepdims=True)
        means = means - total / present.sum(axis=-2, keepdims=True)
    length = np.linalg.norm(means, axis=-1, keepdims=True)
    unit = means / np.where((length > least) & (length > 0), length, np.nan)
    return np.asarray(unit @ np.swapaxes(unit, -1, -2))


def cluster_order(cosines: np.ndarray) -> np.ndarray:
    """Return the order of classes in which similar ones stand together, int [class].

    Average linkage on 1 - cosine, with the optimal ordering of leaves (Bar-Joseph et al. 2001).
    Undefined cosines count as 0.
    """
    distance = 1.0 - np.nan_to_num(cosines)
    np.fill_diagonal(distance, 0.0)
    condensed = squareform(np.clip((distance + distance.T) / 2.0, 0.0, None), checks=False)
    return np.asarray(leaves_list(optimal_leaf_ordering(linkage(condensed, "average"), condensed)))


def concentration(x: np.ndarray) -> dict[str, np.ndarray]:
    """How many heads does each code use? Measures per instance, each [N], of codes x [N, H].

    participation_ratio  (sum_h |a_h|)^2 / (H sum_h a_h^2): 1 / H when one head does it all, 1 when
                         all heads are equal in size, 2 / pi = 0.64 for independent Gaussian heads
                         (Treves and Rolls 1991)
    sparsity             (sqrt(H) - sum|a| / sqrt(sum a^2)) / (sqrt(H) - 1): from 0, all equal, to
                         1, one head (Hoyer 2004); 0 for a single head
    largest_share        max_h |a_h| / sum_h |a_h|
    one_hot              1 where the largest share is at least 0.9, else 0

    `ProbeError` for codes that are all zero.
    """
    size = np.abs(x)
    total, largest = size.sum(axis=1), size.max(axis=1)
    zero = int((total == 0).sum())
    check(zero == 0, f"{zero} of {len(x)} codes are zero in all heads; expected some score in "
          "each", ProbeError)
    n_heads = x.shape[1]
    # Scaled by the largest head, because the squares of tiny codes would vanish.
    ratio = (total / largest) ** 2 / np.square(size / largest[:, None]).sum(axis=1)
    spread = np.sqrt(n_heads) - 1.0
    return {"participation_ratio": ratio / n_heads,
            "sparsity": (np.sqrt(n_heads) - np.sqrt(ratio)) / (spread or 1.0),
            "largest_share": largest / total,
            "one_hot": (largest / total >= ONE_HOT).astype(np.float64)}


def _cosines(sums: LabelSums, weights: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    means, replicates = sums.means(), sums.resampled(weights)
    blocks = []
    row, column = (np.array(names, dtype=object)[i.ravel()]
                   for i in np.indices((len(names), len(names))))
    for centring in CENTRINGS:
        low, high = percentile_interval(
            cosine_matrix(replicates, centring), len(sums.counts), LEVEL)
        blocks.append(pd.DataFrame({
            "centring": centring, "row": row, "column": column,
            "value": cosine_matrix(means, centring).ravel(), "low": low.ravel(),
            "high": high.ravel()}))
    return pd.concat(blocks, ignore_index=True)


def _concentration_table(
    x: np.ndarray, truth: np.ndarray, clusters: np.ndarray, weights: np.ndarray,
    names: Sequence[str], place: Mapping[str, Any],
) -> pd.DataFrame:
    """Return the measures of all instances and of each class, with `same_head`: the share of
    instances whose largest head is the commonest largest one.

    Where a control is zero it does not count. `ProbeError` where the code is.
    """
    counted: np.ndarray = (x != 0.0).any(axis=1)
    check(place["source"] != "code" or bool(counted.all()), f"code of layer {place['layer']}, pair "
          f"{place['pair']!r}: {int((~counted).sum())} of {len(x)} codes are zero in all heads; "
          "expected some score in each", ProbeError)
    measures = concentration(np.where(counted[:, None], x, 1.0))
    truth = np.column_stack([np.ones(len(x), dtype=bool), truth]) & counted[:, None]
    n_clusters = weights.shape[1]
    values = LabelSums.of(np.column_stack(list(measures.values())), truth, clusters)
    winner = np.eye(x.shape[1])[np.abs(x).argmax(axis=1)]
    winners = LabelSums.of(winner, truth, clusters)
    whole = np.column_stack([values.means(), winners.means().max(axis=1)])  # [class, measure]
    replicates = np.concatenate(
        [values.resampled(weights), winners.resampled(weights).max(axis=2, keepdims=True)], axis=2)
    low, high = percentile_interval(replicates, n_clusters, LEVEL)
    kinds = [*measures, "same_head"]
    n, n_combinations = truth.sum(axis=0), (values.counts > 0).sum(axis=0)
    return pd.DataFrame([
        {"class": name, "measure": kind, "value": whole[c, m], "low": low[c, m],
         "high": high[c, m], "n": int(n[c]), "n_combinations": int(n_combinations[c])}
        for c, name in enumerate([ALL, *names]) for m, kind in enumerate(kinds)])


def _closest(matrix: pd.DataFrame) -> str:
    values = matrix.to_numpy(copy=True)
    values[np.tril_indices(len(values))] = np.nan
    if np.isnan(values).all():
        return "the mean does not vary"
    i, j = (int(k) for k in np.unravel_index(np.nanargmax(values), values.shape))
    return f"{matrix.index[i]} ~ {matrix.columns[j]} {values[i, j]:.2f}"


def _long(points: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return points [row, component] as one row per component, the rows named in order."""
    n_rows, n_components = points.shape
    return pd.DataFrame({
        "class": np.tile(np.array(names, dtype=object), n_components),
        "component": np.repeat(np.arange(n_components), n_rows),
        "value": points.to_numpy().T.ravel().astype(np.float32)})
