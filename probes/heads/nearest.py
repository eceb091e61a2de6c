"""Where else does a model compute such a code? The nearest codes among those that were sampled."""

from __future__ import annotations

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_choice, check_count
from latentcode.probes.heads.clusters import ALL, Clusters
from latentcode.probes.heads.sampling import flat_codes
from latentcode.probes.heads.tables import CONTEXT, NEAREST
from latentcode.probes.heads.together import permuted
from latentcode.seeds import checked_seed

METRICS = ("cosine", "euclidean")


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


__all__ = ["METRICS", "NEAREST", "nearest_codes", "nearest_to_centres"]
