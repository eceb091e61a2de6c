"""What do the codes of a model look like in two dimensions, and how far is that to be trusted?

Planes by t-SNE, UMAP or PCA, one per layer and pair, with their trustworthiness, and how far
neighbours agree on labels, in the plane and among the codes themselves (Fig. 2D, 5A, 5B).

Planes are kept on disk, each under a hash of all that determines it (`CachedProjection`).
"""

from __future__ import annotations

import hashlib
import json
import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from latentcode import subjects
from latentcode.codes import LatentCodes
from latentcode.devices import BELOW_OF_NUMPY, checked_seed
from latentcode.errors import ArtifactError, ProbeError, as_tuple, check, check_choice
from latentcode.figures.colours import category_styles
from latentcode.figures.panels import ScatterCell, scatter_figure
from latentcode.files.provenance import header, package_version, read_checked, software
from latentcode.files.storage import (
    checksum,
    default_cache,
    read_tensors,
    write_json,
    write_tensors,
)
from latentcode.probes.common.labels import (
    Labels,
    asked_labels,
    custom_labels,
    groups_of,
    names_of,
    single_labels,
)
from latentcode.probes.common.results import TableResult, blocks, where
from latentcode.probes.common.statistics import shuffled_classes, varies
from latentcode.probes.knn_purity import nearest
from latentcode.progress import Progress, watched

if TYPE_CHECKING:
    from latentcode.figures.style import Figure
    from latentcode.subjects import Model, Problems

MOST_POINTS = 100_000
"""Most points of a map, drawn at random from more of them; t-SNE of as many takes minutes."""
EXAGGERATION_ITERATIONS = 250
"""Iterations of early exaggeration that t-SNE begins with."""
QUALITY_POINTS = 2000
"""Most points that qualities are measured on; their cost grows with the square."""
MOST_NEIGHBORS = 15
"""Neighbours that the trustworthiness of a plane and the agreement of its labels look at."""
AGREEMENT_SHUFFLES = 20
"""Times that labels are shuffled to see how far neighbours agree on them by chance."""
TRANSFORM_PERPLEXITY = 5.0
"""Perplexity with which t-SNE places a new point among the fitted ones: few, near neighbours."""
PLACED = ["instance", "split", "fitted", "layer", "pair", "projection_x", "projection_y"]
"""Columns of the coordinates; a label of such a name is left out."""
PER_INCH = 15.0
"""Letters of a footnote that an inch holds."""
CACHED = "latentcode.cached_projection"
"""Format of an entry of the cache."""
CACHED_KEYS = {"format", "format_version", "sha256", "method", "settings", "quality"}
PACKAGES: tuple[str, ...] = ("scikit-learn", "scipy", "openTSNE", "umap-learn", "numba",
                             "pynndescent")
"""Packages whose version may change coordinates, beside those of `software`."""
Place = Callable[[np.ndarray], np.ndarray]
"""[M, d] -> [M, 2]: where other points lie among the fitted ones."""
Fitted = tuple[np.ndarray, dict[str, Any], Place]
"""What a method returns: coordinates [N, 2], settings, and how to place other points."""


@watched("projecting")
def project(
    model: Model,
    problems: Problems = None,
    labels: Labels | None = None,
    *,
    method: str = "tsne",
    splits: Sequence[str] | str = ("ood",),
    n: int | None = None,
    pairs: Sequence[str] | str | None = None,
    layers: Sequence[int] | int | None = None,
    perplexity: float | None = None,
    n_iter: int | None = None,
    n_neighbors: int | None = None,
    min_dist: float | None = None,
    metric: str | None = None,
    cache: str | Path | None = None,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> ProjectionResult:
    """Map codes to two dimensions, and measure whether those of one label lie together.

    Where all codes are the same, as in a layer that cannot know the instance yet, there is no
    plane, which the result says. Of more than 100,000 codes of a split so many are drawn. Labels
    are shuffled for comparison among combinations where the problems have these.

    Args:
        model: See `subject`; or codes, with those of other splits as the problems.
        problems: See `subject`; default: what the run's task chooses for probing.
        labels: What colours the points; default: those single columns that the task names for
            probing, such as rule or term_1; or functions of a batch, as in `decode`.
        method: `tsne`, `umap` or `pca`.
        splits: The one that the planes are fitted to, then others, which are placed in them; codes
            have their own.
        n: Problems of each split; default: 2,000, of prompts and codes all.
        pairs: Names of pairs, or `all`; default: the paper's, the first of the task's.
        layers: Layer numbers; default: all.
        perplexity: Effective number of neighbours of t-SNE; default: 30, of few codes what they
            allow.
        n_iter: Iterations of t-SNE after the 250 of early exaggeration; default: 500.
        n_neighbors: Number of neighbours of UMAP; default: 15, of few codes what they allow.
        min_dist: Smallest distance between points of UMAP; default: 0.1.
        metric: Distance between codes for t-SNE and UMAP, `euclidean` or `cosine`; default:
            euclidean.
        cache: Folder of the cache; default: LATENTCODE_CACHE, or the user's cache folder.
        seed: Seed of the problems and the projection.
        device: `cpu` or `cuda`; default: cpu.
        progress: Called with (hundredths done, hundredths in all).

    Raises:
        LatentCodeError: What `subject`, `custom_labels`, `extract` and `fit_projection` raise.
        ProbeError: A label is repeated, two splits have one name, or no layer and pair has
            different codes.
    """
    # It imports torch, and the explorer draws planes that are in the cache before that is there.
    from latentcode.probes.common.harness import check_pair_of_codes
    from latentcode.subjects.base import CodesSubject

    seed, splits = checked_seed(seed), as_tuple(splits)
    check(len(splits) > 0, "splits is empty; expected at least one", ProbeError)
    given = {"perplexity": perplexity, "n_iter": n_iter, "n_neighbors": n_neighbors,
             "min_dist": min_dist, "metric": metric}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings_of(method, **settings)  # a wrong name is told before anything is extracted
    subject = subjects.subject(model, problems, device=device).probing
    wanted = asked_labels(labels, subject)
    if isinstance(subject, CodesSubject):
        check(splits == ("ood",), f"splits is {splits}, but codes have their own split; expected "
              "none", ProbeError)
        splits = tuple(str(i) for i in range(len(subject.parts)))
    sizes = [(split, subject.n_of("n", n, 2_000, split)) for split in splits]
    custom = custom_labels(labels, subject, sizes, seed=seed)
    parts = [subject.reader(split, n=n, pairs=pairs, layers=layers, seed=seed).read().with_labels(
        **values) for (split, n), values in zip(sizes, custom, strict=True)]
    names = names_of(wanted) if labels is not None else single_labels(
        parts[0].labels, names_of(wanted), parts[0].pairs[0])
    check(len(names) > 0, "no label is given; expected at least one", ProbeError)
    for other in parts[1:]:
        check_pair_of_codes(parts[0], other, "codes to project")
    by_split = {str(part.meta.get("split", "codes")): part for part in parts}
    check(len(by_split) == len(parts), f"codes are of {len(parts)} splits that are called "
          f"{', '.join(by_split)}; expected different names, by which points are told apart",
          ProbeError)
    totals = {split: len(part) for split, part in by_split.items() if len(part) > MOST_POINTS}
    for split, total in totals.items():
        drawn = np.random.default_rng(seed).choice(total, MOST_POINTS, replace=False)
        by_split[split] = by_split[split][np.sort(drawn)]
    codes = next(iter(by_split.values()))
    every = [(layer, pair.name) for pair in codes.pairs for layer in codes.layers]
    places = [(layer, pair) for layer, pair in every
              if varies(codes.select(layer=layer, pair=pair))]
    check(len(places) > 0, "all codes are the same at every layer and pair; there is nothing to "
          "project", ProbeError)
    coloured = {(split, pair): _coloured(part, names, pair) for split, part in by_split.items()
                for pair in {pair for _, pair in places}}  # refused now, and not after long work
    tables: dict[str, list[Any]] = {name: [] for name in ProjectionResult.COLUMNS}
    used: dict[str, dict[str, Any]] = {}
    for i, (layer, pair) in enumerate(places):
        def report(done: int, total: int, begun: int = i) -> None:
            if progress is not None:
                progress(100 * begun + 99 * done // total, 100 * len(places))

        plane = CachedProjection(codes.select(layer=layer, pair=pair), method, seed=seed,
                                 cache=cache, progress=report, **settings)
        used[f"layer {layer}, {pair}"] = dict(plane.projection.settings)
        for split, part in by_split.items():
            points, known = part.select(layer=layer, pair=pair), coloured[split, pair]
            fitted = part is codes
            projection = plane.projection if fitted else plane.transform(points)
            place: dict[str, Any] = {"split": split, "layer": layer, "pair": pair}
            tables["coordinates"].append(known.drop(columns=PLACED, errors="ignore").assign(
                instance=part.instances() if split in totals else np.arange(len(part)),
                **place, fitted=fitted, projection_x=projection.coordinates[:, 0],
                projection_y=projection.coordinates[:, 1]))
            tables["quality"].append({**place, "fitted": fitted, "n": len(projection),
                                      **projection.quality})
            groups = groups_of(part.labels) if "combination" in part.labels else None
            measured = str(projection.settings.get("metric", "euclidean"))
            tables["labels"] += [
                {**place, "label": name, "space": space, **label_quality(
                    x, known[name].to_numpy(), groups=groups, metric=distance, seed=seed)}
                for name in names if not pd.api.types.is_float_dtype(known[name])
                for space, x, distance in (("plane", projection.coordinates, "euclidean"),
                                           ("code", points, measured))]
        if progress is not None:
            progress(100 * (i + 1), 100 * len(places))
    first, *others = used.values()
    return ProjectionResult.from_rows(tables, {
        "method": {"name": method, **{name: value for name, value in first.items()
                                      if all(other.get(name) == value for other in others)}},
        "of_plane": used, "labels": list(names),
        "constant": [f"Layer {layer}, {pair}" for layer, pair in every
                     if (layer, pair) not in places],
        "codes": [dict(part.meta) for part in by_split.values()],
        "reduced": {name: value for name, value in reduced_settings(method, len(codes)).items()
                    if name not in settings},
        "drawn_from": totals, "quality": tables["quality"]})


def _coloured(codes: LatentCodes, names: Sequence[str], pair: str) -> pd.DataFrame:
    """Return all labels of the instances, and those that are asked for under their own names."""
    coloured = {name: codes.label(name, pair) for name in names}
    for name, values in coloured.items():
        check(not values.isna().any(), f"label {name!r} has {int(values.isna().sum())} missing "
              "values; expected none", ProbeError)
        if not pd.api.types.is_float_dtype(values):
            category_styles(values.unique().tolist())
    kept = codes.labels.drop(columns=[c for c in PLACED if c in codes.labels and c not in coloured])
    return kept.assign(**coloured).reset_index(drop=True)


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


class FittedProjection(NamedTuple):
    """A projection of fitted points, and `transform`, which places others [M, d] in its plane.

    The settings of other points say how many the plane was `fitted_on`; their quality is that among
    themselves.
    """

    projection: Projection
    transform: Callable[[np.ndarray], Projection]


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
    number of BLAS threads. Raises what these functions raise, and `ProbeError` for points of
    another shape or that are not finite.
    """
    x = np.ascontiguousarray(x, dtype=np.float64)
    check(x.ndim == 2, f"points have shape {x.shape}; expected (points, dimensions)", ProbeError)
    check(bool(np.isfinite(x).all()), "the points hold values that are not finite", ProbeError)
    settings = settings_of(method, seed=seed, **{**reduced_settings(method, len(x)), **settings})
    metric = settings.get("metric", "euclidean")
    with threadpool_limits(1, user_api="blas"):
        projected, used, place = METHODS[method](x, progress=progress, **settings)
        coordinates = np.array(projected, dtype=np.float64)
        fitted = Projection(coordinates, method, used, quality(x, coordinates, metric, seed))

    def transform(new: np.ndarray) -> Projection:
        new = np.ascontiguousarray(new, dtype=np.float64)
        check(len(new) > 0 and new.shape[1:] == x.shape[1:], f"points have shape {new.shape}; "
              f"expected (points, {x.shape[1]}), at least one, as those that the projection was "
              "fitted on", ProbeError)
        with threadpool_limits(1, user_api="blas"):
            placed = np.asarray(place(new), dtype=np.float64)
        return Projection(placed, method, {**used, "fitted_on": len(x)},
                          quality(new, placed, metric, seed))

    return FittedProjection(fitted, transform)


def tsne(
    x: np.ndarray, *, seed: int = 0, perplexity: float = 30.0, n_iter: int = 500,
    metric: str = "euclidean", progress: Progress | None = None,
) -> Fitted:
    """argmin_y KL(P(x) || Q(y)), y [N, 2]: t-SNE of codes x [N, d] (Fig. 2D, 5A, 5B).

    metric  `euclidean` or `cosine`, of the codes
    n_iter  iterations after the 250 of early exaggeration

    `ProbeError` for fewer than 3 * perplexity + 1 points, and for points that are all the same.
    """
    check(1.0 <= perplexity <= (len(x) - 1) / 3.0, f"perplexity is {perplexity:g} for {len(x)} "
          f"points; expected 1 to {(len(x) - 1) / 3.0:.3g}, a third of the other points",
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
        initialization="pca", metric=metric, random_state=seed, n_jobs=1,
        callbacks=None if progress is None else report, callbacks_every_iters=1,
    ).fit(x)
    settings = {"seed": seed, "perplexity": perplexity, "n_iter": n_iter,
                "early_exaggeration_iter": EXAGGERATION_ITERATIONS, "metric": metric,
                "initialization": "pca"}

    def place(new: np.ndarray) -> np.ndarray:
        return np.array(embedding.transform(new, perplexity=min(TRANSFORM_PERPLEXITY, perplexity)))

    return embedding, settings, place


def umap(
    x: np.ndarray, *, seed: int = 0, n_neighbors: int = 15, min_dist: float = 0.1,
    metric: str = "euclidean", progress: Progress | None = None,
) -> Fitted:
    """UMAP's layout of codes x [N, d] in the plane (McInnes et al. 2018).

    One thread and one seed, so that the coordinates are the same bit for bit each time. The
    first call of a process compiles for half a minute. `ProbeError` for fewer points than
    n_neighbors + 1.
    """
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
    coordinates = fitted.transform(x)
    if progress is not None:
        progress(1, 1)
    share = [float(v) for v in fitted.explained_variance_ratio_]
    return coordinates, {"seed": seed, "explained_variance_ratio": share}, fitted.transform


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
    check_choice("metric", settings.get("metric", "euclidean"), ("euclidean", "cosine"))
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
    `classes`. On at most 2,000 points.
    """
    from sklearn.metrics import silhouette_score

    points = np.asarray(points, dtype=np.float64)
    rng = np.random.default_rng(seed)
    cluster = np.arange(len(points)) if groups is None else groups
    if len(points) > QUALITY_POINTS:
        rows = rng.choice(len(points), QUALITY_POINTS, replace=False)
        points, values, cluster = points[rows], values[rows], cluster[rows]
    kinds, kind = np.unique(values.astype(str), return_inverse=True)
    neighbors = nearest(points, min(MOST_NEIGHBORS, (len(points) - 1) // 2), metric=metric)
    shuffles = shuffled_classes(kind, cluster, rng, AGREEMENT_SHUFFLES)
    agrees = shuffles[:, neighbors] == shuffles[..., None]
    return {
        "knn_agreement": float((kind[neighbors] == kind[:, None]).mean()),
        "knn_shuffled": float(agrees.mean()) if len(shuffles) else np.nan,
        "silhouette": float(silhouette_score(points, kind, metric=metric))
        if 2 <= len(kinds) < len(points) else np.nan, "classes": len(kinds)}


class CachedProjection:
    """`fit_projection`, whose result and whose transforms are looked up before they are computed.

    An entry is `{key}.safetensors`, the coordinates, and `{key}.json`, their settings, quality and
    checksum. The key is the SHA-256 of the points, the method, its settings and the versions of
    what computes it, so that nothing is ever out of date. An entry that is damaged is computed
    again, and one that cannot be written is not kept; both with a warning. Nothing is computed
    before it is asked for.

    cache     folder; default: `default_cache()`. It is made when there is something to keep
    progress  of the fit; not called when nothing has to be fitted
    """

    def __init__(
        self, x: np.ndarray, method: str = "tsne", *, seed: int = 0,
        cache: str | Path | None = None, progress: Progress | None = None, **settings: Any,
    ) -> None:
        self.x, self.method = np.ascontiguousarray(x, dtype=np.float64), method
        self.settings = settings_of(
            method, seed=seed, **{**reduced_settings(method, len(self.x)), **settings})
        self.folder = default_cache() if cache is None else Path(cache)
        self.progress = progress

    @cached_property
    def projection(self) -> Projection:
        """The points that it is fitted on, in two dimensions."""
        return self._looked_up((self.x,), lambda: self._fitted.projection)

    def transform(self, x: np.ndarray) -> Projection:
        """Return other points among the fitted ones; see `FittedProjection`."""
        x = np.ascontiguousarray(x, dtype=np.float64)
        return self._looked_up((self.x, x), lambda: self._fitted.transform(x))

    @cached_property
    def _fitted(self) -> FittedProjection:
        return fit_projection(self.x, self.method, progress=self.progress, **self.settings)

    def _key(self, *arrays: np.ndarray) -> str:
        described = {
            "method": self.method, "settings": self.settings, "format": header(CACHED),
            "shapes": [array.shape for array in arrays], "software": software(),
            "packages": {name: package_version(name) for name in PACKAGES},
            "machine": [platform.system(), platform.machine()]}
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        for array in arrays:
            digest.update(array.tobytes())
        return digest.hexdigest()

    def _looked_up(
        self, arrays: Sequence[np.ndarray], compute: Callable[[], Projection]
    ) -> Projection:
        """Return the entry of the cache for some arrays, computed and written where it lacks."""
        key = self._key(*arrays)
        meta, tensors = (self.folder / f"{key}.{kind}" for kind in ("json", "safetensors"))
        if meta.exists():  # it is written last
            try:
                entry = read_checked(meta, CACHED, CACHED_KEYS, "settings", (tensors.name,))
                return Projection(read_tensors(tensors)["coordinates"], self.method,
                                  entry["settings"], entry["quality"])
            except ArtifactError as error:
                warnings.warn(f"a cached projection is computed again: {error}", stacklevel=3)
        projection = compute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_tensors(tensors, {"coordinates": projection.coordinates})
            write_json(meta, {
                **header(CACHED), "sha256": {tensors.name: checksum(tensors)},
                "method": self.method, "settings": dict(projection.settings),
                "quality": dict(projection.quality)})
        except (ArtifactError, OSError) as error:
            warnings.warn(f"a projection is not kept: {error}", stacklevel=3)
        return projection


@dataclass(frozen=True, repr=False)
class ProjectionResult(TableResult):
    """Codes in two dimensions, and how far to trust the picture.

    coordinates  one row per split, layer, pair and instance: `projection_x`, `projection_y`,
                 whether the plane was `fitted` to the split, and all labels of the instance
    quality      one row per split, layer and pair: `trustworthiness`, on how many points and
                 neighbours
    labels       one row per split, layer, pair, label and space, the `plane` or the `code` itself:
                 `knn_agreement` beside `knn_shuffled`, `silhouette` (see `label_quality`)
    settings     the method with its settings, per layer and pair where they differ
    """

    FORMAT = "latentcode.projection"
    CAPTION = "quality of the plane, agreement of neighbours on labels"
    COLUMNS: ClassVar = {
        "coordinates": tuple(PLACED),
        "quality": ("split", "layer", "pair", "fitted", "n", "trustworthiness", "points",
                    "neighbors"),
        "labels": ("split", "layer", "pair", "label", "space", "classes", "knn_agreement",
                   "knn_shuffled", "silhouette")}
    OPEN: ClassVar = ("coordinates",)

    coordinates: pd.DataFrame
    quality: pd.DataFrame
    labels: pd.DataFrame
    settings: Mapping[str, Any]

    @property
    def caveats(self) -> tuple[str, ...]:
        notes = [f"{place}: the codes of all instances are the same, and there is no plane."
                 for place in self.settings["constant"]]
        notes += [f"{split}: a sample of {where(self.quality, split=split)['n'].iloc[0]:,} codes, "
                  f"drawn from {n:,}." for split, n in self.settings.get("drawn_from", {}).items()]
        notes += [f"{name} is {value:g}, the largest that the codes, which are few, allow."
                  for name, value in self.settings.get("reduced", {}).items()]
        judged = set(self.labels["label"])
        if colours := [name for name in self.settings["labels"] if name not in judged]:
            notes.append(f"Measurements colour the points, and have no agreement of neighbours: "
                         f"{', '.join(colours)}.")
        if not self.quality["fitted"].all():
            notes.append("Points of splits that the plane was not fitted to are placed among "
                         "those that it was; they cannot move them.")
        return tuple(notes)

    def summary(self) -> pd.DataFrame:
        """Return, per split, layer and pair, the trustworthiness, and per label the agreement
        of neighbours in the plane and in the codes."""
        keys = ["split", "layer", "pair"]
        table = self.quality[[*keys, "trustworthiness"]]
        if len(self.labels) == 0:
            return table.round(3)
        plane, code = (self.labels[self.labels["space"] == space][
            [*keys, "label", "knn_agreement", "knn_shuffled", "silhouette"]]
            for space in ("plane", "code"))
        code = code[[*keys, "label", "knn_agreement"]].rename(
            columns={"knn_agreement": "knn_agreement_in_code"})
        return table.merge(plane, on=keys, how="left").merge(
            code, on=[*keys, "label"], how="left").round(3)

    def figure(self) -> Figure:
        """Return a panel per layer (across), label, pair and split (down), with its quality."""
        cells = []
        several = [name for name in ("pair", "split") if self.coordinates[name].nunique() > 1]
        for label in self.settings["labels"]:
            for place, points in blocks(self.coordinates, ("pair", "split", "layer")):
                note = f"T {where(self.quality, **place)['trustworthiness'].iloc[0]:.2f}"
                for row in where(self.labels, **place, label=label, space="plane").itertuples():
                    note += (f", kNN {row.knn_agreement:.2f} ({row.knn_shuffled:.2f}), "
                             f"S {row.silhouette:.2f}")
                cells.append(ScatterCell(
                    "\n".join([label, *(str(place[name]) for name in several)]),
                    f"layer {place['layer']}", points[["projection_x", "projection_y"]].to_numpy(),
                    points[label], note))
        figure = scatter_figure(cells)
        method = ", ".join(f"{name} {value}" for name, value in self.settings["method"].items())
        pairs, fitted = self.quality["pair"].unique(), where(self.quality, fitted=True).iloc[0]
        footnotes = (
            f"{method}; {', '.join(pairs)}; fitted to {fitted['n']:,} points of {fitted['split']}",
            "T: trustworthiness. kNN: share of nearest neighbours with the same label (of shuffled "
            "labels). S: silhouette.")
        width = int(PER_INCH * figure.get_figwidth())
        figure.supxlabel("\n".join(fill(text, width) for text in footnotes), fontsize=7)
        return figure
