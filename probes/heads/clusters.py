"""Which codes are alike? Clusters of codes over heads, and the codes nearest to one.

Into which clusters do codes across heads fall, and do they at all?

    argmin_c |a_i - mu_c|        k-means over codes a_i of pairs i, of one layer or of all

What is chosen is chosen on some texts and measured on others. The control is that of `together`:
the codes of each head permuted over the pairs of a text.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_choice, check_count
from latentcode.probes.common.bootstrap import (
    LabelSums,
    mean_and_interval,
    percentile_interval,
    resample,
)
from latentcode.probes.heads.sampling import flat_codes, heads_of
from latentcode.probes.heads.tables import (
    CLUSTER_HEADS,
    CLUSTERS,
    CONTEXT,
    EXAMPLES,
    QUALITY,
)
from latentcode.probes.heads.together import parted, permuted, texts_of
from latentcode.seeds import checked_seed

ALL = "all"
"""The place of clusters over the heads of all layers."""
CANDIDATES = (2, 3, 4, 6, 8, 12)
"""Numbers of clusters that are tried."""
RESTARTS = 4
"""Of k-means."""
METRICS = ("cosine", "euclidean")


@dataclass(frozen=True)
class Clusters:
    """Codes in clusters, layer by layer and over all layers (`layer` is text: `0`, ..., `all`).

    choices   one row per layer and number of clusters: the mean silhouette of texts that it was
              not fitted to, and that of the `permuted` codes; `chosen`
    quality   one row per layer: the number chosen, and on the texts that are left its
              `silhouette`, that of `permuted` codes with the number that is best for them, and the
              `difference`; `stability`, the adjusted Rand index of clusters that two sets of
              texts give
    clusters  one row per cluster: pairs `n`, their `share` with interval, the mean silhouette of
              those not fitted to, and which share has the `first` token or the query it`self` as
              its key, or an `attended` key; the median `distance`
    heads     the heads that are furthest above their mean in all other pairs, with interval
    examples  pairs `nearest` to the centre, each of another text, and `random` ones; `number` is
              their row in the sample
    assigned  layer -> the cluster of each pair, int [N]
    centres   layer -> the mean code of each cluster, [k, heads]
    """

    choices: pd.DataFrame
    quality: pd.DataFrame
    clusters: pd.DataFrame
    heads: pd.DataFrame
    examples: pd.DataFrame
    assigned: Mapping[str, np.ndarray]
    centres: Mapping[str, np.ndarray]


def cluster_codes(
    codes: LatentCodes, *, n_clusters: int | None = None,
    candidates: Sequence[int] = CANDIDATES, n_heads: int = 5, n_examples: int = 3,
    n_bootstrap: int = 1_000, seed: int = 0,
) -> Clusters:
    """Into which clusters do codes fall, and do they at all? k-means, layer by layer and over all.

    codes       of `sample_codes`
    n_clusters  default: that of the `candidates` with the largest mean silhouette on a quarter of
                the texts, where it was fitted to half; measured on the quarter that is left.
                Numbers that a part of the texts has too few pairs for are not tried
    n_heads     heads that are shown of a cluster
    n_examples  pairs nearest to its centre, and as many random ones

    The silhouette is that of euclidean distances (Rousseeuw 1987). `ProbeError` for fewer than
    four texts, and for fewer pairs in a part of them than clusters.
    """
    seed = checked_seed(seed)
    wanted = tuple(candidates) if n_clusters is None else (n_clusters,)
    for number in wanted:
        check_count("n_clusters", number, 2)
    text = texts_of(codes)
    parts = parted(text, (2, 1, 1), seed)
    fewest = min(int(part.sum()) for part in parts)
    tried = tuple(number for number in wanted if number < fewest)
    check(len(tried) > 0, f"there are {fewest} pairs in a part of the texts; expected more than "
          f"the {min(wanted)} clusters: draw more pairs", ProbeError)
    tables: dict[str, list[dict[str, object]]] = {
        name: [] for name in ("choices", "quality", "clusters", "heads", "examples")}
    assigned, centres = {}, {}
    places = [*(codes.layers if len(codes.layers) > 1 else ()), None]
    if len(codes.layers) == 1:
        places = [codes.layers[0]]
    for layer in places:
        place = ALL if layer is None else str(layer)
        x = flat_codes(codes, layer)
        control = np.empty_like(x)
        for i, part in enumerate(parts):
            control[part] = permuted(x[part], text[part], np.random.default_rng([seed, 2, i]))
        fitted, other = _Fitted(x, parts, tried, seed), _Fitted(control, parts, tried, seed)
        assigned[place] = cluster = fitted.predicted(x)
        centres[place] = np.stack([x[cluster == c].mean(axis=0)
                                   for c in range(int(cluster.max()) + 1)])
        tables["choices"] += [
            {"layer": place, "n_clusters": number, "silhouette": fitted.tried[number],
             "permuted": other.tried[number], "chosen": number == fitted.number}
            for number in tried]
        tables["quality"].append({"layer": place} | _quality(
            fitted, other, x, control, text, parts[2], n_bootstrap, seed))
        weights = resample(len(np.unique(text)), n_bootstrap, np.random.default_rng(seed))
        silhouette = np.full(len(x), np.nan)
        left = ~parts[0]
        silhouette[left] = _silhouettes(x[left], cluster[left])
        for table, rows in (
                ("clusters", _shares(codes, cluster, silhouette, text, weights)),
                ("heads", _used(x, cluster, text, weights, heads_of(codes, layer), n_heads)),
                ("examples", _examples(codes, x, cluster, centres[place], n_examples, seed))):
            tables[table] += [{"layer": place} | row for row in rows]
    columns = {"choices": ("layer", "n_clusters", "silhouette", "permuted", "chosen"),
               "quality": QUALITY, "clusters": CLUSTERS, "heads": CLUSTER_HEADS,
               "examples": EXAMPLES}
    return Clusters(**{name: pd.DataFrame(rows, columns=list(columns[name]))
                       for name, rows in tables.items()}, assigned=assigned, centres=centres)


class _Fitted:
    """k-means fitted to the first part of the texts, its number chosen on the second.

    tried   number of clusters -> the mean silhouette on the second part
    number  the one that has the largest
    """

    def __init__(
        self, x: np.ndarray, parts: Sequence[np.ndarray], numbers: Sequence[int], seed: int
    ) -> None:
        self.parts, self.seed = parts, seed
        fitted = {number: _k_means(x[parts[0]], number, seed) for number in numbers}
        chosen_on = x[parts[1]]
        self.tried = {number: _mean(_silhouettes(chosen_on, _nearest(chosen_on, centres)))
                      for number, centres in fitted.items()}
        self.number = max(numbers, key=lambda number: np.nan_to_num(self.tried[number], nan=-2.0))
        self.centres = fitted[self.number]
        largest = np.argsort(-np.bincount(_nearest(x, self.centres),
                                          minlength=len(self.centres)), kind="stable")
        kept = np.bincount(_nearest(x, self.centres), minlength=len(self.centres))[largest] > 0
        self.centres = self.centres[largest[kept]]  # the largest cluster is the first

    def predicted(self, x: np.ndarray) -> np.ndarray:
        return _nearest(x, self.centres)

    def stability(self, x: np.ndarray) -> float:
        """Return how alike the clusters of the third part are that the first and the second give.
        """
        from sklearn.metrics import adjusted_rand_score

        again = _k_means(x[self.parts[1]], self.number, self.seed)
        left = x[self.parts[2]]
        return float(adjusted_rand_score(self.predicted(left), _nearest(left, again)))


def _k_means(x: np.ndarray, number: int, seed: int) -> np.ndarray:
    """Return the centres of clusters, [at most number, heads]."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # Fewer distinct codes than clusters: the centres that coincide are dropped below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KMeans(number, n_init=RESTARTS, random_state=seed % 2**32).fit(x)
    return np.unique(fitted.cluster_centers_, axis=0)


def _nearest(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    from sklearn.metrics import pairwise_distances_argmin

    return np.asarray(pairwise_distances_argmin(x, centres), dtype=np.int64)


def _silhouettes(x: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Return the silhouette of each code [N]; NaN where all are in one cluster, or each in its own.
    """
    from sklearn.metrics import silhouette_samples

    if not 2 <= len(np.unique(cluster)) < len(x):
        return np.full(len(x), np.nan)
    return np.asarray(silhouette_samples(x, cluster), dtype=np.float64)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else np.nan


def _quality(
    fitted: _Fitted, other: _Fitted, x: np.ndarray, control: np.ndarray, text: np.ndarray,
    left: np.ndarray, n_bootstrap: int, seed: int,
) -> dict[str, object]:
    here = _silhouettes(x[left], fitted.predicted(x[left]))
    there = _silhouettes(control[left], other.predicted(control[left]))
    value, low, high, n_texts = mean_and_interval(
        np.stack([here, there, here - there], axis=1), text[left], n_bootstrap, seed)
    return {"n_clusters": len(fitted.centres), "silhouette": value[0], "low": low[0],
            "high": high[0], "permuted": value[1], "difference": value[2],
            "difference_low": low[2], "difference_high": high[2],
            "stability": fitted.stability(x), "stability_permuted": other.stability(control),
            "n": int(left.sum()), "n_texts": n_texts}


def _shares(
    codes: LatentCodes, cluster: np.ndarray, silhouette: np.ndarray, text: np.ndarray,
    weights: np.ndarray,
) -> list[dict[str, object]]:
    truth = cluster[:, None] == np.arange(int(cluster.max()) + 1)
    counts = np.zeros((int(text.max()) + 1, truth.shape[1]))
    np.add.at(counts, text, truth.astype(np.float64))
    low, high = percentile_interval(
        weights @ counts / (weights @ counts.sum(axis=1))[:, None], len(counts))
    labels = codes.labels
    rows: list[dict[str, object]] = []
    for c, mine in enumerate(truth.T):
        of = labels[mine]
        seen = silhouette[mine][np.isfinite(silhouette[mine])]
        rows.append({
            "cluster": c, "n": int(mine.sum()), "share": mine.mean(), "low": low[c],
            "high": high[c], "silhouette": _mean(seen), "first": (of["kind"] == "first").mean(),
            "self": (of["kind"] == "self").mean(), "attended": (of["drawn"] == "attended").mean(),
            "distance": of["distance"].median()})
    return rows


def _used(
    x: np.ndarray, cluster: np.ndarray, text: np.ndarray, weights: np.ndarray,
    of: Sequence[tuple[int, int]], n_heads: int,
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for c in range(int(cluster.max()) + 1):
        mine = cluster == c
        if mine.all():
            continue
        inside, outside = x[mine].mean(axis=0), x[~mine].mean(axis=0)
        best = np.argsort(outside - inside, kind="stable")[:n_heads]
        again = LabelSums.of(x[:, best], np.stack([mine, ~mine], axis=1), text).resampled(weights)
        low, high = percentile_interval(again[:, 0] - again[:, 1], weights.shape[1])
        rows += [{"cluster": c, "head_layer": of[h][0], "head": of[h][1], "mean": inside[h],
                  "elsewhere": outside[h], "difference": inside[h] - outside[h], "low": low[i],
                  "high": high[i]} for i, h in enumerate(best)]
    return rows


def _examples(
    codes: LatentCodes, x: np.ndarray, cluster: np.ndarray, centres: np.ndarray, n: int, seed: int
) -> list[dict[str, object]]:
    rng = np.random.default_rng([seed, 4])
    text, labels = codes.labels["text"].to_numpy(), codes.labels
    rows: list[dict[str, object]] = []
    for c, centre in enumerate(centres):
        mine = np.flatnonzero(cluster == c)
        distance = np.linalg.norm(x[mine] - centre, axis=1)
        order = np.argsort(distance, kind="stable")
        first = np.sort(np.unique(text[mine[order]], return_index=True)[1])[:n]
        random = rng.permutation(len(mine))[:n]
        for chosen, numbers in (("nearest", order[first]), ("random", random)):
            rows += [{"cluster": c, "chosen": chosen, "number": int(mine[i]),
                      "to_centre": distance[i],
                      **labels.loc[mine[i], list(CONTEXT)].to_dict()} for i in numbers]
    return rows


def nearest_codes(
    codes: LatentCodes, to: int | np.ndarray, *, layer: int | None = None,
    n: int = 10, metric: str = "cosine", other_texts: bool = True, seed: int = 0,
) -> pd.DataFrame:
    """Which n codes of a sample are nearest to a code?

    codes        of `sample_codes`
    to           the row of one of them; or a code [heads], of all layers [layers x heads]
    layer        which layer is compared; default: the codes of all layers as one
    metric       `cosine`, 1 - cos(a, b), or `euclidean`, |a - b|
    other_texts  of a row: leave out the codes of its own text, and not itself alone

    One row per code, the nearest first: its `number` in the sample, its `distance`, and that of the
    nearest code of this rank when each head is permuted over the pairs of a text (`permuted`):
    heads that act by themselves come as near as that.

    `ProbeError` for fewer than n codes to choose from and for a row that there is not;
    `ConfigError` for a code of another size or one that is not finite; `UnknownNameError` for
    another metric and for a layer.
    """
    from sklearn.neighbors import NearestNeighbors

    check_choice("metric", metric, METRICS)
    check_count("n", n)
    x, text = flat_codes(codes, layer), codes.labels["text"].to_numpy()
    left = np.ones(len(codes), bool)
    if np.ndim(to) == 0:
        number = int(to)
        check(0 <= number < len(codes), f"to is row {number}; expected 0 to {len(codes) - 1}",
              ProbeError)
        wanted = x[number]
        left = text != text[number] if other_texts else np.arange(len(codes)) != number
    else:
        wanted = np.asarray(to)
    check(wanted.shape == x.shape[1:] and bool(np.isfinite(wanted).all()),
          f"the code has shape {wanted.shape}; expected {x.shape[1:]}, a "
          "finite number per head")
    check(n <= int(left.sum()), f"n is {n}; expected at most {int(left.sum())}, the codes that "
          "there are to choose from", ProbeError)
    control = permuted(x, text, np.random.default_rng([checked_seed(seed), 5]))
    there, _ = NearestNeighbors(n_neighbors=n, metric=metric).fit(control[left]).kneighbors(
        wanted[None].astype(np.float64))
    distance, found = NearestNeighbors(n_neighbors=n, metric=metric).fit(x[left]).kneighbors(
        wanted[None].astype(np.float64))
    numbers = np.flatnonzero(left)[found[0]]
    table = codes.labels.loc[numbers, list(CONTEXT)].reset_index(drop=True)
    for i, (name, values) in enumerate((("rank", np.arange(1, n + 1)), ("number", numbers),
                                        ("distance", distance[0]), ("permuted", there[0]))):
        table.insert(i, name, values)
    return table


def nearest_to_centres(
    codes: LatentCodes, clusters: Clusters, *, n: int = 5, metric: str = "euclidean", seed: int = 0,
) -> pd.DataFrame:
    """Return the codes nearest to the mean code of each cluster, after `layer` and `cluster`."""
    tables = []
    for place, centres in clusters.centres.items():
        for cluster, centre in enumerate(centres):
            found = nearest_codes(codes, centre, layer=None if place == ALL else int(place), n=n,
                                  metric=metric, seed=seed)
            found.insert(0, "layer", place)
            found.insert(1, "cluster", cluster)
            tables.append(found)
    return pd.concat(tables, ignore_index=True)
