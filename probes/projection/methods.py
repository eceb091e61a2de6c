"""What do the codes look like in two dimensions? Projections, with how far to trust them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from latentcode.errors import ProbeError, check, check_choice, check_count, check_jobs
from latentcode.probes.knn_purity import MOST_NEIGHBORS, agreeing_neighbors
from latentcode.progress import Progress, watched
from latentcode.seeds import BELOW_OF_NUMPY, checked_seed

EXAGGERATION_ITERATIONS = 250
"""Iterations of early exaggeration that t-SNE begins with."""
QUALITY_POINTS = 2000
"""Most points that qualities are measured on; their cost grows with the square."""
TRANSFORM_PERPLEXITY = 5.0
"""Perplexity with which t-SNE places a new point among the fitted ones: few, near neighbours."""
Place = Callable[[np.ndarray], np.ndarray]
"""[M, d] -> [M, 2]: where other points lie among the fitted ones."""
Fitted = tuple[np.ndarray, dict[str, Any], Place]
"""What a method returns: coordinates [N, 2], settings, and how to place other points."""


@dataclass(frozen=True)
class Projection:
    """Points in two dimensions and what is needed to make and to judge them again.

    coordinates  float64 [N, 2]
    method       name of the method
    settings     everything that determines the coordinates, given the points
    quality      `trustworthiness` in [0, 1]: 1 when the nearest neighbours in the plane are
                 neighbours among the codes too, absent for fewer than 3 points; and on how many
                 points and neighbours
    """

    coordinates: np.ndarray
    method: str
    settings: Mapping[str, Any]
    quality: Mapping[str, float]

    def __len__(self) -> int:
        return len(self.coordinates)


@dataclass(frozen=True)
class FittedProjection:
    """A projection that can place other points in the same plane.

    projection  the points that it was fitted on
    place       [M, d] -> [M, 2], for points that were checked
    d           dimensions of the points
    """

    projection: Projection
    place: Place
    d: int

    def transform(self, x: np.ndarray) -> Projection:
        """Return other points [M, d] among the fitted ones, which stay where they are.

        Its settings say how many points the plane was fitted on, its quality is that of the new
        points among themselves. `ProbeError` for no points, and for points of other dimensions, or
        not finite.
        """
        x = _points(x)
        check(len(x) > 0, "there are no points to place; expected at least one", ProbeError)
        check(x.shape[1] == self.d, f"points have shape {x.shape}; expected (points, {self.d}), "
              "as those that the projection was fitted on", ProbeError)
        fitted = self.projection
        with threadpool_limits(1, user_api="blas"):
            coordinates = np.asarray(self.place(x), dtype=np.float64)
        settings = {**fitted.settings, "fitted_on": len(fitted)}
        return Projection(coordinates, fitted.method, settings, quality(
            x, coordinates, settings.get("metric", "euclidean"), settings["seed"]))


def tsne(
    x: np.ndarray,
    *,
    seed: int = 0,
    perplexity: float = 30.0,
    n_iter: int = 500,
    metric: str = "euclidean",
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> Fitted:
    """argmin_y KL(P(x) || Q(y)), y [N, 2]: t-SNE of codes x [N, d] (Fig. 2D, 5A, 5B).

    metric  `euclidean` or `cosine`, of the codes
    n_iter  iterations after the 250 of early exaggeration
    n_jobs  threads; only with 1 are the coordinates the same bit for bit each time

    `ProbeError` for fewer than 3 * perplexity + 1 points, and for points that are all the same.
    """
    check_choice("metric", metric, ("euclidean", "cosine"))
    check(perplexity >= 1.0, f"perplexity is {perplexity!r}; expected at least 1", ProbeError)
    check_count("n_iter", n_iter, 1, ProbeError)
    check_jobs(n_jobs, ProbeError)
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
        if progress is not None and done <= total:  # the callback stays for later transforms
            progress(done, total)

    embedding = TSNE(
        perplexity=perplexity, early_exaggeration_iter=EXAGGERATION_ITERATIONS, n_iter=n_iter,
        initialization="pca", metric=metric, random_state=seed, n_jobs=n_jobs,
        callbacks=None if progress is None else report, callbacks_every_iters=1,
    ).fit(x)
    settings = {"seed": seed, "perplexity": perplexity, "n_iter": n_iter,
                "early_exaggeration_iter": EXAGGERATION_ITERATIONS, "metric": metric,
                "initialization": "pca", "n_jobs": n_jobs}

    def place(new: np.ndarray) -> np.ndarray:
        return np.array(embedding.transform(new, perplexity=min(TRANSFORM_PERPLEXITY, perplexity)))

    return embedding, settings, place


def umap(
    x: np.ndarray,
    *,
    seed: int = 0,
    n_neighbors: int = 15,
    min_dist: float = 0.1,
    metric: str = "euclidean",
    progress: Progress | None = None,
) -> Fitted:
    """UMAP's layout of codes x [N, d] in the plane (McInnes et al. 2018).

    One thread and one seed, so that the coordinates are the same bit for bit each time. The
    first call of a process compiles for half a minute. `ProbeError` for fewer points than
    n_neighbors + 1.
    """
    check_choice("metric", metric, ("euclidean", "cosine"))
    check(len(x) > n_neighbors, f"n_neighbors is {n_neighbors} for {len(x)} points; expected fewer "
          "neighbours than points", ProbeError)
    from umap import UMAP

    layout = UMAP(n_neighbors=n_neighbors, min_dist=min_dist, metric=metric, random_state=seed,
                  n_jobs=1)
    coordinates = layout.fit_transform(x)
    if progress is not None:
        progress(1, 1)
    settings = {"seed": seed, "n_neighbors": n_neighbors, "min_dist": min_dist, "metric": metric}
    return coordinates, settings, layout.transform


def pca(x: np.ndarray, *, seed: int = 0, progress: Progress | None = None) -> Fitted:
    """The two principal components of codes x [N, d]; nothing here is random.

    `settings` holds the share of the variance that each explains, and the seed, which draws the
    points that the quality is measured on. `ProbeError` for fewer than three points.
    """
    check(len(x) >= 3 and x.shape[1] >= 2, f"points have shape {x.shape}; expected at least 3 "
          "points of 2 dimensions", ProbeError)
    from sklearn.decomposition import PCA

    fitted = PCA(n_components=2, svd_solver="full").fit(x)
    # Axes have no sign of their own: here the largest component is positive, as scikit-learn has
    # it from 1.5 on.
    largest = np.abs(fitted.components_).argmax(axis=1)[:, None]
    fitted.components_ *= np.sign(np.take_along_axis(fitted.components_, largest, axis=1))
    coordinates = fitted.transform(x)
    if progress is not None:
        progress(1, 1)
    share = [float(v) for v in fitted.explained_variance_ratio_]
    return coordinates, {"seed": seed, "explained_variance_ratio": share}, fitted.transform


def _points(x: np.ndarray) -> np.ndarray:
    """Return x as float64 [N, d]; `ProbeError` for another shape or values that are not finite."""
    x = np.ascontiguousarray(x, dtype=np.float64)
    check(x.ndim == 2, f"points have shape {x.shape}; expected (points, dimensions)", ProbeError)
    check(bool(np.isfinite(x).all()), "the points hold values that are not finite", ProbeError)
    return x


METHODS: dict[str, Callable[..., Fitted]] = {"tsne": tsne, "umap": umap, "pca": pca}
"""Ways to project, whose settings are the keywords of the functions; called by `fit_projection`."""


def settings_of(method: str, **settings: Any) -> dict[str, Any]:
    """Return all settings of a method, those that are not given with their defaults.

    `UnknownNameError` for a method that there is not, and for a setting that it does not have.
    """
    check_choice("projection", method, METHODS)
    known = {name: parameter.default for name, parameter
             in signature(METHODS[method]).parameters.items() if name not in ("x", "progress")}
    for name in settings:
        check_choice(f"setting of {method}", name, known)
    return {**known, **settings,
            "seed": checked_seed(settings.get("seed", 0), below=BELOW_OF_NUMPY)}


def reduced_settings(method: str, n: int) -> dict[str, Any]:
    """Return the settings whose defaults n points are too few for, as large as n allows."""
    default = settings_of(method)
    most = {"tsne": ("perplexity", max(1.0, 10 * (n - 1) // 3 / 10)),
            "umap": ("n_neighbors", max(1, n - 1))}
    if method not in most:
        return {}
    name, largest = most[method]
    return {name: largest} if largest < default[name] else {}


@watched("projecting")
def fit_projection(
    x: np.ndarray, method: str = "tsne", *, seed: int = 0, progress: Progress | None = None,
    **settings: Any,
) -> FittedProjection:
    """Return x [N, d] in two dimensions, with a `transform` that places other points there.

    method    `tsne`, `umap` or `pca`
    settings  those of the method; see the functions of these names. A perplexity or a number of
              neighbours that is not given is what few points allow

    The same points, seed and settings give the same bits, of the transform too, whatever the
    number of BLAS threads. Raises what these functions raise.
    """
    x = _points(x)
    settings = settings_of(method, seed=seed, **{**reduced_settings(method, len(x)), **settings})
    with threadpool_limits(1, user_api="blas"):
        found, used, place = METHODS[method](x, progress=progress, **settings)
        coordinates = np.array(found, dtype=np.float64)
        judged = quality(x, coordinates, used.get("metric", "euclidean"), seed)
    return FittedProjection(Projection(coordinates, method, used, judged), place, x.shape[1])


def quality(
    x: np.ndarray, coordinates: np.ndarray, metric: str = "euclidean", seed: int = 0
) -> dict[str, float]:
    """Return T = 1 - 2 / (n k (2n - 3k - 1)) sum_i sum_(j in U_i) (r(i, j) - k).

    U_i are the k nearest neighbours of i in the plane that are not among its k nearest in x,
    r(i, j) their rank in x (Venna and Kaski 2001, by scikit-learn), on at most 2,000 points.
    Fewer than 3 points have none, and only their number is returned.
    """
    from sklearn.manifold import trustworthiness

    if len(x) > QUALITY_POINTS:
        rows = np.random.default_rng(seed).choice(len(x), QUALITY_POINTS, replace=False)
        x, coordinates = x[rows], coordinates[rows]
    # The measure is defined for k < n / 2 only.
    k = min(MOST_NEIGHBORS, (len(x) - 1) // 2)
    if k < 1:
        return {"points": len(x), "neighbors": 0}
    value = trustworthiness(x, coordinates, n_neighbors=k, metric=metric)
    return {"trustworthiness": float(value), "points": len(x), "neighbors": k}


def label_quality(
    points: np.ndarray, values: np.ndarray, *, groups: np.ndarray | None = None,
    metric: str = "euclidean", seed: int = 0,
) -> dict[str, float]:
    """How far do points of one class lie together?

    points  [N, d]: coordinates in the plane, or the codes themselves
    values  [N] classes
    groups  [N] int, the combination of each instance; labels are shuffled as the control of the
            probes shuffles them, among combinations. Without groups among instances.

    Returns `knn_agreement`, the mean share of the 15 nearest neighbours that have a point's class;
    `knn_shuffled`, what shuffled labels give, a mean over 20 shuffles; `silhouette`, the mean of
    (b - a) / max(a, b) with the mean distances a to the own and b to the nearest other class
    (Rousseeuw 1987; NaN where every point has one class, or its own); and the number of
    `classes`. On at most 2,000 points. `ProbeError` for values that are measurements, and for
    fewer than 4 points.
    """
    from sklearn.metrics import silhouette_score

    points, values = _points(points), np.asarray(values)
    check(values.shape == (len(points),), f"values have shape {values.shape}; expected "
          f"({len(points)},), one per point", ProbeError)
    check(values.dtype.kind != "f", "values are measurements; neighbours agree on classes only",
          ProbeError)
    rng = np.random.default_rng(seed)
    cluster = np.arange(len(points)) if groups is None else np.asarray(groups)
    if len(points) > QUALITY_POINTS:
        rows = rng.choice(len(points), QUALITY_POINTS, replace=False)
        points, values, cluster = points[rows], values[rows], cluster[rows]
    kinds, kind = np.unique(values.astype(str), return_inverse=True)
    own, shuffled = agreeing_neighbors(points, kind, cluster, metric, rng)
    defined = 2 <= len(kinds) < len(points)
    return {
        "knn_agreement": float(own.mean()),
        "knn_shuffled": float(shuffled.mean()) if len(shuffled) else float("nan"),
        "silhouette": float(silhouette_score(points, kind, metric=metric)) if defined
        else float("nan"), "classes": len(kinds)}
