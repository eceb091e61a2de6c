"""What the pages show, loaded once and kept: runs, codes, projections, results.

Codes and projections of the zoo are precomputed. Others are computed when they are asked for, with
progress, and kept in the cache folder (`probes.projection_cache.default_cache`). Nothing here
imports torch before it has to compute something.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import streamlit as st

from latentcode.app.data.sources import (
    Source,
    allowed_folders,
    catalog,
    check_links,
    find_source,
    is_below,
)
from latentcode.app.words import literal
from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, LatentCodeError, ProbeError, check
from latentcode.experiments.studies import result_kinds
from latentcode.probes.common.labels import label_groups
from latentcode.probes.common.results import TableResult
from latentcode.probes.projection.cache import CachedProjection, default_cache
from latentcode.probes.projection.methods import Projection, settings_of
from latentcode.probes.projection.result import ProjectionResult
from latentcode.probes.saved import RESULTS, load_result
from latentcode.runs import Run

if TYPE_CHECKING:
    from latentcode.models.transformer import HookedTransformer
    from latentcode.tasks import Task

METHODS = {"t-SNE": "tsne", "UMAP": "umap", "PCA": "pca"}
"""Names of the projections, for people and for the library."""
POINTS = (2_000, 5_000, 20_000, 100_000)
"""How many instances can be shown."""
MOST_CATEGORIES = 48
"""Labels with more values than this are not offered as colours."""

FEWEST = 4
"""Fewest codes that t-SNE and UMAP can lay out."""

Progress = Callable[[int, int], None]


@st.cache_data(ttl=10, show_spinner=False)
def sources() -> list[Source]:
    """Return all that can be chosen; folders are looked through again every ten seconds."""
    return catalog(allowed_folders())


def source(key: str) -> Source:
    """Return what a key of the URL stands for; `ArtifactError` for what may not be opened."""
    return find_source(key, allowed_folders())


@st.cache_resource(max_entries=64, ttl=30, show_spinner=False)
def open_run(path: Path) -> Run:
    """Open the run of a source of kind `zoo` or `run`."""
    return Run.open(path)


def open_model(path: Path) -> HookedTransformer:
    """Load the newest weights of a run, which imports torch."""
    run = open_run(path)
    return _model(path, run.id, run.checkpoints()[-1] if run.checkpoints() else None)


@st.cache_resource(max_entries=8, show_spinner="Loading the model …")
def _model(path: Path, run_id: str, step: int | None) -> HookedTransformer:
    return Run.open(path).load_model(step)


def task_of(codes: LatentCodes) -> Task:
    """Return the task that codes were drawn from, which imports torch.

    `ConfigError` for codes of prompts, which no task has made.
    """
    check("task" in codes.meta, "these codes do not say which task they come from; expected codes "
          "that `extract` has read out of a run")
    return _task(json.dumps(codes.meta["task"], sort_keys=True))


@st.cache_resource(max_entries=16, show_spinner="Preparing the task …")
def _task(config: str) -> Task:
    from latentcode.config import task_from_dict
    from latentcode.tasks import make_task

    return make_task(task_from_dict(json.loads(config)))


def splits(source: Source) -> tuple[str, ...]:
    """Return the splits whose codes can be shown, the held-out ones first."""
    if source.kind == "codes":
        return (str(saved_codes(source.path).meta.get("split", "codes")),)
    stored = [path.name.removeprefix("codes-") for path in
              sorted((source.path / "results").glob("codes-*"))]
    trained = [str(s) for s in open_run(source.path).metrics()["split"].unique()]
    found = tuple(s for s in ("ood", "test", "train", "unknown") if s in {*stored, *trained})
    check(bool(found), f"{source.key} has nothing to show yet: it was not evaluated on any split, "
          "and no codes lie in its results; expected a run that has trained for a while",
          ArtifactError)
    return found


def stamp(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return what is another when a file of a folder was replaced; nothing without the folder."""
    if not folder.is_dir():
        return ()
    files = [(entry.name, entry.stat(follow_symlinks=False)) for entry in os.scandir(folder)]
    return tuple(sorted((name, s.st_mtime_ns, s.st_size, s.st_ino) for name, s in files))


def saved_codes(path: Path) -> LatentCodes:
    """Open a codes folder; its checksums are verified once, and again when it was replaced."""
    codes = _saved_codes(path, stamp(path))
    check(codes.scores.size > 0, f"{path} holds no codes: scores have shape {codes.scores.shape}; "
          "expected at least one instance, layer, pair and head", ArtifactError)
    return codes


@st.cache_resource(max_entries=12, show_spinner=False)
def _saved_codes(path: Path, stamp: object) -> LatentCodes:
    return LatentCodes.load(path)


def stored_folder(source: Source, split: str) -> Path:
    """Return the folder of codes that lie beside a model, where there are some."""
    return source.path / "results" / f"codes-{split}"


def stored_codes(source: Source, split: str) -> LatentCodes | None:
    """Return the codes that lie beside a model, or None; those of earlier weights do not count."""
    folder = stored_folder(source, split)
    if not folder.is_dir():
        return None
    codes, run = saved_codes(folder), open_run(source.path)
    steps = run.checkpoints()
    now = {"run_id": run.id, "step": steps[-1] if steps else None}
    return codes if all(codes.meta.get(name, known) == known for name, known in now.items()) \
        else None


def codes(source: Source, split: str, n: int) -> LatentCodes:
    """Return the first n codes of a split: stored ones, cached ones, or read out of the model.

    What is not there yet is extracted with a bar on the page.
    """
    if source.kind == "codes":
        return first(saved_codes(source.path), n)
    stored = stored_codes(source, split)
    if stored is not None and len(stored) >= n:
        return first(stored, n)
    run = open_run(source.path)
    pairs = None if stored is None else [pair.name for pair in stored.pairs]
    folder = default_cache() / "codes" / _digest({
        "run": run.id, "config": run.provenance["config_hash"], "split": split, "n": n,
        "steps": run.checkpoints(), "pairs": pairs})
    if not folder.is_dir():
        extract_model(run, split, n, pairs, folder)
    try:
        return saved_codes(folder)
    except ArtifactError:  # what is kept may be damaged, and can be made again
        extract_model(run, split, n, pairs, folder)
        return saved_codes(folder)


def extract_model(
    run: Run, split: str, n: int, pairs: Sequence[str] | None, folder: Path
) -> None:
    """Read codes out of a model into a folder of the cache, with a bar on the page."""
    with progress_bar(literal(f"Reading {n:,} codes out of {run.name} …")) as report:
        from latentcode.codes.of_tasks import extract
        from latentcode.tasks import make_task

        task = make_task(run.config.task).probe_config
        extract(run, split, n=n, pairs=pairs, task=task, out=folder, overwrite=True,
                progress=report)


def first(codes: LatentCodes, n: int) -> LatentCodes:
    """Return the first n instances; all of them where there are fewer."""
    return codes if len(codes) <= n else codes.subset(np.arange(n))


@dataclass(frozen=True)
class Plane:
    """Points in the plane and what a reader must know of how they got there."""

    projection: Projection
    precomputed: bool


def plane(
    source: Source, codes: LatentCodes, split: str, layer: int, pair: str, method: str
) -> Plane:
    """Return the projection of the codes of a layer and pair: precomputed, cached or computed.

    method  a value of `METHODS`. Raises `ProbeError` where the codes cannot be projected.
    """
    folder = source.path / "results" / f"projection-{method}"
    if source.kind == "zoo" and folder.is_dir():
        stored = stored_planes(folder, stamp(folder)).get((split, layer, pair))
        if stored is not None and len(stored) == len(codes):
            return Plane(stored, True)
    check(method == "pca" or len(codes) >= FEWEST, f"{len(codes)} codes are too few for this "
          f"projection; expected at least {FEWEST}, or PCA", ProbeError)
    x = np.ascontiguousarray(codes.select(layer=layer, pair=pair), dtype=np.float64)
    return Plane(_computed_plane(_hash(x), x, method), False)


def reduced_settings(method: str, n: int) -> dict[str, Any]:
    """Return the settings of a projection that are not its defaults, as n codes are too few."""
    default = settings_of(method)
    most = {"tsne": ("perplexity", 10 * (n - 1) // 3 / 10), "umap": ("n_neighbors", n - 1)}
    if method not in most:
        return {}
    name, largest = most[method]
    return {name: largest} if largest < default[name] else {}


def _computed_plane(digest: str, x: np.ndarray, method: str) -> Projection:
    kept: dict[tuple[str, str], Projection] = st.session_state.setdefault("planes", {})
    if (digest, method) not in kept:
        with progress_bar(f"Laying out {len(x):,} codes …") as report:
            kept[digest, method] = CachedProjection(
                x, method, progress=report, **reduced_settings(method, len(x))).projection
    return kept[digest, method]


@st.cache_resource(max_entries=24, show_spinner=False)
def stored_planes(folder: Path, stamp: object) -> Mapping[tuple[str, int, str], Projection]:
    """Return the planes of a saved `ProjectionResult` by split, layer and pair."""
    result = ProjectionResult.load(folder)
    planes = {}
    for where, points in result.coordinates.groupby(["split", "layer", "pair"], sort=False):
        split, layer, pair = str(where[0]), int(str(where[1])), str(where[2])
        quality = result.quality.query("split == @split and layer == @layer and pair == @pair")
        settings = result.settings["of_plane"][f"layer {layer}, {pair}"]
        row = quality.iloc[0]
        planes[split, layer, pair] = Projection(
            points[["projection_x", "projection_y"]].to_numpy(),
            result.settings["method"]["name"], settings,
            {"trustworthiness": float(row["trustworthiness"]), "points": int(row["points"]),
             "neighbors": int(row["neighbors"])})
    return planes


def results(source: Source) -> dict[str, TableResult]:
    """Return the saved results of a source by name; a damaged one is said to be, and left out."""
    found = {}
    for name, folder in result_folders(source).items():
        try:
            if source.kind == "run" and folder.parent != computed_results(source):
                check_links(folder, allowed_folders())
            result = load_saved(folder)
        except (LatentCodeError, OSError) as error:
            st.warning(literal(error), icon=":material/broken_image:")
            continue
        if result is not None:
            found[name] = result
    return found


def result_folders(source: Source) -> dict[str, Path]:
    """Return where results of a source may lie, by name; later ones win.

    They are those of a study of several runs, in `results` beside the run (those that are about
    all runs, and those in `{run}-{key}`), the ones that the explorer has computed, and those in
    `results` of the source itself.
    """
    beside, inside = source.path.parent / "results", source.path / "results"
    studies = (_folders(beside) if source.kind == "run"
               and is_below(beside, allowed_folders()) else [])
    own = [folder for folder in studies
           if re.fullmatch(re.escape(source.path.name) + "-[0-9a-f]{8}", folder.name)]
    shared = [folder for folder in studies if any((folder / kind.marker()).is_file()
                                                  for kind in RESULTS)]
    computed = [] if source.kind == "codes" else _folders(computed_results(source))
    return {folder.name: folder for folder in (
        *shared, *(result for study in sorted(own, key=lambda f: f.stat().st_mtime)
                   for result in _folders(study)), *computed, *_folders(inside))}


def computed_results(source: Source) -> Path:
    """Return the folder of the cache for results of the newest weights of a run."""
    run = open_run(source.path)
    return default_cache() / "results" / _digest({
        "run": run.id, "config": run.provenance["config_hash"], "steps": run.checkpoints()})


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder by name; links are not followed."""
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]


def load_saved(folder: Path) -> TableResult | None:
    """Load a result, again when it was replaced; return None for a folder that holds none."""
    return _load_saved(folder, stamp(folder))


@st.cache_resource(max_entries=48, show_spinner=False)
def _load_saved(folder: Path, stamp: object) -> TableResult | None:
    return load_result(folder, result_kinds)


def colour_labels(codes: LatentCodes, pair: str) -> list[str]:
    """Return the labels that points can be coloured by, what the probes decode first.

    "rule" is the rule of the pair's response where there are rule_0, rule_1, ...
    """
    token = codes.pair(pair).token
    own = [group.removesuffix("s") for group, columns in label_groups(codes.labels.columns).items()
           if token is not None and f"{group.removesuffix('s')}_{token}" in columns]
    others = [str(name) for name in codes.labels.columns if offered(codes.labels[name])]
    return list(dict.fromkeys([*own, *others]))


def offered(values: pd.Series) -> bool:
    """Whether a label can colour points: measurements, and categories that can be told apart."""
    return is_measurement(values) or 1 < values.nunique() <= MOST_CATEGORIES


def is_measurement(values: pd.Series) -> bool:
    """Whether a label is a number on a scale, and not a name."""
    return bool(pd.api.types.is_float_dtype(values)) and values.nunique() > 2


class progress_bar:
    """A bar on the page with the remaining time, which is gone when the work is done."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> Progress:
        self._bar = st.progress(0.0, text=self.text)
        begun = time.monotonic()

        def report(done: int, total: int) -> None:
            share = min(done / max(total, 1), 1.0)
            left = (time.monotonic() - begun) * (1.0 - share) / share if share > 0.02 else None
            remaining = "" if left is None else f" {left:.0f} s left"
            self._bar.progress(share, text=f"{self.text}{remaining}")

        return report

    def __exit__(self, *_: object) -> None:
        self._bar.empty()


def _hash(x: np.ndarray) -> str:
    return hashlib.sha256(x.tobytes()).hexdigest()


def _digest(described: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:24]
