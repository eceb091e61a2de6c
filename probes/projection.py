"""What do the codes look like in two dimensions? Projections, with how far to trust them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentcode.errors import ProbeError, check, check_choice

Progress = Callable[[int, int], None]
"""Called with (iterations done, iterations in all)."""

EXAGGERATION_ITERATIONS = 250
"""Iterations of early exaggeration that t-SNE begins with."""
QUALITY_POINTS = 2000
"""Most points that the trustworthiness is measured on; its cost grows with their square."""
QUALITY_NEIGHBORS = 15
"""Neighbours that the trustworthiness looks at."""


@dataclass(frozen=True)
class Projection:
    """Points in two dimensions and what is needed to make and to judge them again.

    coordinates  float64 [N, 2]
    method       name of the method
    settings     everything that determines the coordinates, given the points
    quality      `trustworthiness` in [0, 1]: 1 when the nearest neighbours in the plane are
                 neighbours among the codes too; and on how many points and neighbours
    """

    coordinates: np.ndarray
    method: str
    settings: Mapping[str, Any]
    quality: Mapping[str, float]

    def __len__(self) -> int:
        return len(self.coordinates)


def tsne(
    x: np.ndarray,
    *,
    seed: int = 0,
    perplexity: float = 30.0,
    n_iter: int = 500,
    metric: str = "euclidean",
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> Projection:
    """Return argmin_y KL(P(x) || Q(y)), y [N, 2]: t-SNE of codes x [N, d] (Fig. 2D, 5A, 5B).

    metric  `euclidean` or `cosine`, of the codes
    n_iter  iterations after the 250 of early exaggeration
    n_jobs  threads; only with 1 are the coordinates the same bit for bit each time

    `ProbeError` for fewer than 3 * perplexity + 1 points, for points that are not finite, and
    for points that are all the same.
    """
    x = _points(x)
    check_choice("metric", metric, ("euclidean", "cosine"))
    check(perplexity >= 1.0, f"perplexity is {perplexity!r}; expected at least 1", ProbeError)
    check(n_iter >= 1, f"n_iter is {n_iter!r}; expected at least 1", ProbeError)
    least = int(np.ceil(3.0 * perplexity)) + 1
    check(len(x) >= least, f"perplexity is {perplexity:g} for {len(x)} points; expected at least "
          f"{least} points, or a perplexity of at most {max((len(x) - 1) / 3.0, 0.0):.3g}",
          ProbeError)
    check(bool((x != x[0]).any()), "all points are the same; there is nothing to project",
          ProbeError)
    # openTSNE takes half a second to import, and only this function needs it.
    from openTSNE import TSNE

    done = 0
    total = EXAGGERATION_ITERATIONS + n_iter

    def report(iteration: int, error: float, embedding: np.ndarray) -> None:
        nonlocal done
        done += 1
        assert progress is not None
        progress(done, total)

    embedding = TSNE(
        perplexity=perplexity, early_exaggeration_iter=EXAGGERATION_ITERATIONS, n_iter=n_iter,
        initialization="pca", metric=metric, random_state=seed, n_jobs=n_jobs,
        callbacks=None if progress is None else report, callbacks_every_iters=1,
    ).fit(x)
    coordinates = np.array(embedding, dtype=np.float64)
    settings = {"seed": seed, "perplexity": perplexity, "n_iter": n_iter,
                "early_exaggeration_iter": EXAGGERATION_ITERATIONS, "metric": metric,
                "initialization": "pca", "n_jobs": n_jobs}
    return Projection(coordinates, "tsne", settings, quality(x, coordinates, metric, seed))


def umap(
    x: np.ndarray,
    *,
    seed: int = 0,
    n_neighbors: int = 15,
    min_dist: float = 0.1,
    metric: str = "euclidean",
    progress: Progress | None = None,
) -> Projection:
    """Return UMAP's layout of codes x [N, d] in the plane (McInnes et al. 2018).

    One thread and one seed, so that the coordinates are the same bit for bit each time. The
    first call of a process compiles for half a minute. `ProbeError` for fewer points than
    n_neighbors + 1, and for points that are not finite.
    """
    x = _points(x)
    check_choice("metric", metric, ("euclidean", "cosine"))
    check(len(x) > n_neighbors, f"n_neighbors is {n_neighbors} for {len(x)} points; expected fewer "
          "neighbours than points", ProbeError)
    from umap import UMAP

    layout = UMAP(n_neighbors=n_neighbors, min_dist=min_dist, metric=metric, random_state=seed,
                  n_jobs=1)
    coordinates = np.asarray(layout.fit_transform(x), dtype=np.float64)
    if progress is not None:
        progress(1, 1)
    settings = {"seed": seed, "n_neighbors": n_neighbors, "min_dist": min_dist, "metric": metric}
    return Projection(coordinates, "umap", settings, quality(x, coordinates, metric, seed))


def pca(x: np.ndarray, *, seed: int = 0, progress: Progress | None = None) -> Projection:
    """Return the two principal components of codes x [N, d]; nothing here is random.

    `settings` holds the share of the variance that each explains. `ProbeError` for fewer than
    three points, and for points that are not finite.
    """
    x = _points(x)
    check(len(x) >= 3 and x.shape[1] >= 2, f"points have shape {x.shape}; expected at least 3 "
          "points of 2 dimensions", ProbeError)
    from sklearn.decomposition import PCA

    fitted = PCA(n_components=2, svd_solver="full")
    coordinates = fitted.fit_transform(x)
    if progress is not None:
        progress(1, 1)
    share = [float(v) for v in fitted.explained_variance_ratio_]
    return Projection(coordinates, "pca", {"explained_variance_ratio": share},
                      quality(x, coordinates, "euclidean", seed))


def _points(x: np.ndarray) -> np.ndarray:
    """Return x as float64 [N, d]; `ProbeError` for another shape or values that are not finite."""
    x = np.ascontiguousarray(x, dtype=np.float64)
    check(x.ndim == 2, f"points have shape {x.shape}; expected (points, dimensions)", ProbeError)
    check(bool(np.isfinite(x).all()), "the points hold values that are not finite", ProbeError)
    return x


METHODS: dict[str, Callable[..., Projection]] = {"tsne": tsne, "umap": umap, "pca": pca}
"""Ways to project, each `method(x, *, seed, progress, **settings) -> Projection`."""


def project(
    x: np.ndarray, method: str = "tsne", *, seed: int = 0, progress: Progress | None = None,
    **settings: Any,
) -> Projection:
    """Return x [N, d] in two dimensions, by one of `METHODS` with its own settings."""
    check_choice("projection", method, METHODS)
    return METHODS[method](x, seed=seed, progress=progress, **settings)


def quality(
    x: np.ndarray, coordinates: np.ndarray, metric: str = "euclidean", seed: int = 0
) -> dict[str, float]:
    """Return T = 1 - 2 / (n k (2n - 3k - 1)) sum_i sum_(j in U_i) (r(i, j) - k).

    U_i are the k nearest neighbours of i in the plane that are not among its k nearest in x,
    r(i, j) their rank in x (Venna and Kaski 2001, by scikit-learn), on at most 2,000 points.
    """
    from sklearn.manifold import trustworthiness

    if len(x) > QUALITY_POINTS:
        rows = np.random.default_rng(seed).choice(len(x), QUALITY_POINTS, replace=False)
        x, coordinates = x[rows], coordinates[rows]
    # The measure is defined for k < n / 2 only.
    k = min(QUALITY_NEIGHBORS, (len(x) - 1) // 2)
    value = trustworthiness(x, coordinates, n_neighbors=k, metric=metric)
    return {"trustworthiness": float(value), "points": len(x), "neighbors": k}
