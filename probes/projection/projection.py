"""What do the codes of a model look like in two dimensions? With its quality."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentcode.arguments import as_tuple, check_distinct, chosen
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check
from latentcode.figures.colours import category_styles
from latentcode.probes.common.features import check_pair_of_codes, varies
from latentcode.probes.common.labels import combination_clusters, label_names, single_labels
from latentcode.probes.common.own_labels import Labels, asked_labels, names_of, own_labels
from latentcode.probes.projection.cache import CachedProjection
from latentcode.probes.projection.methods import (
    Projection,
    label_quality,
    reduced_settings,
    settings_of,
)
from latentcode.probes.projection.result import OURS, ProjectionResult
from latentcode.progress import Progress, watched
from latentcode.seeds import checked_seed
from latentcode.subjects import subject
from latentcode.subjects.of_codes import CodesSubject

if TYPE_CHECKING:
    from latentcode.subjects import Model, Problems

MOST_POINTS = 100_000
"""Most points of a map, drawn at random from more of them; t-SNE of as many takes minutes."""


@watched("projecting")
def project_codes(
    codes: LatentCodes,
    labels: Sequence[str],
    *,
    method: str = "tsne",
    others: Sequence[LatentCodes] | LatentCodes = (),
    layers: Sequence[int] | int | None = None,
    pairs: Sequence[str] | None = None,
    seed: int = 0,
    cache: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> ProjectionResult:
    """How do the codes lie, and do those of one label lie together? (Fig. 2D, 5A, 5B)

    codes     what the planes are fitted to, one per layer and pair
    labels    names of labels; "rule" is that of each pair's response
    method    `tsne`, `umap` or `pca`, with its `settings`
    others    codes of other splits, placed in the planes of `codes`
    layers, pairs  default: all that the codes have
    cache     folder of the cache; default: `default_cache()`
    progress  called with (hundredths done, hundredths in all)

    Of more than 100,000 codes of a split so many are drawn, which the result says.
    Labels that are shuffled for comparison are shuffled among combinations where the codes have
    that label. Where all codes are the same, as in a layer that cannot know the instance yet,
    there is no plane, which the result says. Raises `UnknownNameError` for a layer, pair, label or
    setting that there is not, and `ProbeError` as `fit_projection` does, for a layer, pair or label
    that is repeated, and where no layer and pair has different codes.
    """
    labels, others = label_names(labels), as_tuple(others)
    check(len(labels) > 0, "no label is given; expected at least one", ProbeError)
    check_distinct("labels", labels)
    splits = _split_names([codes, *others])
    for other in others:
        check_pair_of_codes(codes, other, "codes to project")
    totals = {split: len(part) for split, part in zip(splits, (codes, *others), strict=True)}
    codes, *others = (_sample(part, seed) for part in (codes, *others))
    layers = chosen("layer", layers, codes.layers)
    asked = [(layer, pair) for pair in chosen("pair", pairs, [p.name for p in codes.pairs])
             for layer in layers]
    places = [(layer, pair) for layer, pair in asked
              if varies(codes.select(layer=layer, pair=pair))]
    check(len(places) > 0, "all codes are the same at every layer and pair; there is nothing to "
          "project", ProbeError)
    columns = {(split, pair): _columns(part, labels, pair)
               for part, split in zip([codes, *others], splits, strict=True)
               for pair in {pair for _, pair in places}}
    tables: dict[str, list[Any]] = {"coordinates": [], "quality": [], "labels": []}
    used: dict[str, Any] = {}
    for i, (layer, pair) in enumerate(places):
        def report(done: int, total: int, begun: int = i) -> None:
            if progress is not None:
                progress(100 * begun + 99 * done // total, 100 * len(places))

        plane = CachedProjection(codes.select(layer=layer, pair=pair), method, seed=seed,
                                 cache=cache, progress=report, **settings)
        for part, split in zip([codes, *others], splits, strict=True):
            points = part.select(layer=layer, pair=pair)
            found = plane.projection if part is codes else plane.transform(points)
            where = {"split": split, "layer": layer, "pair": pair}
            known = columns[split, pair]
            tables["coordinates"].append(_coordinates(
                part.instances() if totals[split] > MOST_POINTS else np.arange(len(part)),
                found, known, part is codes, where))
            tables["quality"].append({**where, "fitted": part is codes, "n": len(found),
                                      **found.quality})
            tables["labels"] += _label_rows(part, points, found, known[list(labels)], where, seed)
        used[f"layer {layer}, {pair}"] = dict(plane.projection.settings)
        if progress is not None:
            progress(100 * (i + 1), 100 * len(places))
    quality = pd.DataFrame(tables["quality"]).reindex(
        columns=list(ProjectionResult.COLUMNS["quality"]))
    return ProjectionResult(
        pd.concat(tables["coordinates"], ignore_index=True), quality,
        pd.DataFrame(tables["labels"], columns=list(ProjectionResult.COLUMNS["labels"])),
        {"method": _common(method, used), "of_plane": used, "labels": list(labels),
         "constant": [f"Layer {layer}, {pair}" for layer, pair in asked
                      if (layer, pair) not in places],
         "codes": [dict(part.meta) for part in (codes, *others)],
         "reduced": {name: value for name, value in reduced_settings(method, len(codes)).items()
                     if name not in settings},
         "drawn_from": {split: n for split, n in totals.items() if n > MOST_POINTS},
         "quality": tables["quality"]})


def _sample(codes: LatentCodes, seed: int) -> LatentCodes:
    """Return the codes, or a random sample of `MOST_POINTS` of them, in their order."""
    if len(codes) <= MOST_POINTS:
        return codes
    rng = np.random.default_rng(checked_seed(seed))
    return codes[np.sort(rng.choice(len(codes), MOST_POINTS, replace=False))]


def _split_names(parts: Sequence[LatentCodes]) -> list[str]:
    """Return what to call each set of codes; `ProbeError` where two have one name."""
    names = [str(part.meta.get("split", "codes")) for part in parts]
    check(len(set(names)) == len(names), f"codes are of splits {', '.join(names)}; expected "
          "different ones, by which their points are told apart", ProbeError)
    return names


def _columns(codes: LatentCodes, labels: Sequence[str], pair: str) -> pd.DataFrame:
    """Return all labels of the instances, and those that are asked for under their own names."""
    asked = {name: codes.label(name, pair) for name in labels}
    for name, values in asked.items():
        check(not values.isna().any(), f"label {name!r} has {int(values.isna().sum())} missing "
              "values; expected none", ProbeError)
        if not pd.api.types.is_float_dtype(values):
            category_styles(values.unique().tolist())  # now, and not after long work
    kept = codes.labels.drop(columns=[c for c in OURS if c in codes.labels and c not in asked])
    return kept.assign(**asked).reset_index(drop=True)


def _coordinates(
    instances: np.ndarray, found: Projection, labels: pd.DataFrame, fitted: bool,
    where: Mapping[str, object],
) -> pd.DataFrame:
    ours = pd.DataFrame({
        "instance": instances, "split": where["split"], "fitted": fitted,
        "layer": where["layer"], "pair": where["pair"],
        "projection_x": found.coordinates[:, 0], "projection_y": found.coordinates[:, 1]})
    return pd.concat([ours, labels.drop(columns=[c for c in OURS if c in labels])], axis=1)


def _label_rows(
    codes: LatentCodes, points: np.ndarray, found: Projection, labels: pd.DataFrame,
    where: Mapping[str, object], seed: int,
) -> list[dict[str, Any]]:
    groups = combination_clusters(codes) if "combination" in codes.labels else None
    metric = str(found.settings.get("metric", "euclidean"))
    return [
        {**where, "label": name, "space": space, **label_quality(
            place, labels[name].to_numpy(), groups=groups, metric=measured, seed=seed)}
        for name in labels if not pd.api.types.is_float_dtype(labels[name])
        for space, place, measured in (("plane", found.coordinates, "euclidean"),
                                       ("code", points, metric))]


def _common(method: str, used: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the method and the settings that all planes share."""
    first = next(iter(used.values()))
    return {"name": method, **{name: value for name, value in first.items()
                               if all(other.get(name) == value for other in used.values())}}


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
        LatentCodeError: What `subject`, `own_labels`, `extract` and `project_codes` raise.
    """
    seed, splits = checked_seed(seed), as_tuple(splits)
    check(len(splits) > 0, "splits is empty; expected at least one", ProbeError)
    given: dict[str, Any] = {name: value for name, value in (
        ("perplexity", perplexity), ("n_iter", n_iter), ("n_neighbors", n_neighbors),
        ("min_dist", min_dist), ("metric", metric)) if value is not None}
    settings_of(method, **given)  # a wrong name is told before anything is extracted
    of = subject(model, problems, device=device).probing
    asked = asked_labels(labels, of)
    if isinstance(of, CodesSubject):
        check(splits == ("ood",), f"splits is {splits}, but codes have their own split; expected "
              "none", ProbeError)
        splits = tuple(str(i) for i in range(len(of.parts)))
    parts = [(split, of.n_of("n", n, 2_000, split)) for split in splits]
    further = own_labels(asked if labels is not None else None, of, parts, seed=seed)
    codes = [of.codes(split, n=n, pairs=pairs, layers=layers, seed=seed).with_labels(**values)
             for (split, n), values in zip(parts, further, strict=True)]
    names = names_of(asked) if labels is not None else single_labels(codes[0], names_of(asked))
    return project_codes(codes[0], names, method=method, others=codes[1:], seed=seed, cache=cache,
                         progress=progress, **given)
