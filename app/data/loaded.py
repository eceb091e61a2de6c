"""What pages show, loaded once and kept: models, codes, and results of probes."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from latentcode.app.data.catalog import (
    Entry,
    allowed_folders,
    catalog,
    find_entry,
    is_given,
)
from latentcode.app.words import literal
from latentcode.config import SravenConfig, own_in
from latentcode.errors import ArtifactError, LatentCodeError, check
from latentcode.probes.common.results import TableResult, load_result, result_kind
from latentcode.progress import Progress
from latentcode.runs import Run

if TYPE_CHECKING:
    from latentcode.codes import LatentCodes
    from latentcode.models.transformer import HookedTransformer
    from latentcode.tasks import Task
    from latentcode.tasks.pairs import Pair

CODES = "latentcode.codes.latent_codes.LatentCodes"
"""The class by its name, for Streamlit's caches."""
POINTS = (2_000, 5_000, 20_000, 100_000, 1_000_000)
"""How many instances can be shown."""
WAITING = "where a bar stands"
"""Name in the session of the place above every page."""
AT_ONCE = 128
"""Problems that are read before the bar moves."""
MOST_READ = 100_000
"""How many are read out of a model for the explorer; more can be extracted by a script."""


def stamp(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return a value that changes when a file of a folder is replaced; empty without the folder."""
    if not folder.is_dir():
        return ()
    files = [(entry.name, entry.stat(follow_symlinks=False)) for entry in os.scandir(folder)]
    return tuple(sorted((name, s.st_mtime_ns, s.st_size, s.st_ino) for name, s in files))


def _weights(entry: Entry) -> tuple[object, ...]:
    run = open_run(entry.path)
    return str(entry.path), run.id, newest_step(run)


UNTIL_REPLACED: dict[Any, Callable[[Any], Any]] = {
    type(Path()): lambda folder: (str(folder), stamp(folder))}
"""`hash_funcs` of what Streamlit keeps of a folder until a file in it is replaced."""
UNTIL_TRAINED: dict[Any, Callable[[Any], Any]] = {Entry: _weights}
"""`hash_funcs` of what Streamlit keeps of a model until it has newer weights."""


def cache_folder(kind: str, run: Run, **described: Any) -> Path:
    """Return the folder of the cache for something made from the newest weights of a run."""
    from latentcode.files.storage import default_cache

    known = {"run": run.id, "config": run.provenance["config_hash"], "steps": run.checkpoints(),
             **described}
    # What a user registers means what its file says, which may change while the run stays.
    if own := own_in(run.config):
        known["own"] = {what: source.digest for what, (_, source) in own.items()}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    return default_cache() / kind / digest[:24]


@contextmanager
def progress_bar(text: str) -> Iterator[Progress]:
    """Show a bar with the remaining time, which is gone when the work is done.

    It stands above the page, which keeps what was drawn before.
    """
    place = st.session_state.get(WAITING)
    bar = (st.empty() if place is None else place).progress(0.0, text=text)
    begun = time.monotonic()

    def report(done: int, total: int) -> None:
        share = min(done / max(total, 1), 1.0)
        left = (time.monotonic() - begun) * (1.0 - share) / share if share > 0.02 else None
        remaining = "" if left is None else f" {left:.0f} s left"
        bar.progress(share, text=f"{text}{remaining}")

    try:
        yield report
    finally:
        bar.empty()


@st.cache_data(ttl=10, show_spinner=False)
def entries() -> list[Entry]:
    """Return all that can be chosen; folders are searched again every ten seconds."""
    return catalog(allowed_folders(), own_first=is_given())


def entry(key: str) -> Entry:
    """Return what a key of the URL stands for; `ArtifactError` for what may not be opened."""
    return find_entry(key, allowed_folders())


@st.cache_resource(max_entries=64, ttl=30, show_spinner=False)
def open_run(path: Path) -> Run:
    """Open the run of an entry of kind `zoo` or `run`."""
    return Run.open(path)


def newest_step(run: Run) -> int | None:
    """Return the step of the newest weights; None where there are none yet."""
    return max(run.checkpoints(), default=None)


def _files(entry: Entry) -> tuple[object, ...]:
    run, step = open_run(entry.path), newest_step(open_run(entry.path))
    return str(entry.path), step, () if step is None else stamp(run.checkpoint_path(step))


@st.cache_data(max_entries=64, show_spinner=False, hash_funcs={Entry: _files})
def damage(entry: Entry) -> str | None:
    """Return what is wrong with the newest weights of a run; None where nothing is."""
    run = open_run(entry.path)
    try:
        if newest_step(run) is not None:
            run.load_checkpoint(newest_step(run)).check_model()
    except ArtifactError as error:
        return str(error)
    return None


@st.cache_resource(max_entries=8, show_spinner="Loading the model …", hash_funcs=UNTIL_TRAINED)
def open_model(entry: Entry) -> HookedTransformer:
    """Load the newest weights of a run, which imports torch."""
    run = open_run(entry.path)
    return run.load_model(newest_step(run))


@st.cache_resource(max_entries=16, show_spinner="Preparing the task …", hash_funcs={
    CODES: lambda codes: json.dumps(codes.meta.get("task"), sort_keys=True)})
def task_of(codes: LatentCodes) -> Task:
    """Return the task that codes were drawn from, which imports torch; see `browser.task_of`."""
    from latentcode.codes import browser

    return browser.task_of(codes)


def task_shown(entry: Entry, split: str) -> Task:
    """Return the task whose codes the explorer shows of a model, which imports torch.

    A point there is then the same problem wherever it is shown.
    """
    from latentcode.tasks import make_task

    stored = stored_folder(entry, split)
    if stored.is_dir():
        return task_of(saved_codes(stored))
    return make_task(make_task(open_run(entry.path).config.task).probe_config)


def splits(entry: Entry) -> tuple[str, ...]:
    """Return the splits whose codes can be shown, the held-out ones first."""
    if entry.kind == "codes":
        return (str(saved_codes(entry.path).meta.get("split", "codes")),)
    stored = [path.name.removeprefix("codes-") for path in
              sorted((entry.path / "results").glob("codes-*"))]
    trained = [str(s) for s in open_run(entry.path).metrics()["split"].unique()]
    found = tuple(s for s in ("ood", "test", "train", "unknown") if s in {*stored, *trained})
    check(bool(found), f"{entry.key} has nothing to show yet: it was not evaluated on any split, "
          "and no codes lie in its results; expected a run that has trained for a while",
          ArtifactError)
    return found


@st.cache_resource(max_entries=12, show_spinner=False, hash_funcs=UNTIL_REPLACED)
def saved_codes(path: Path) -> LatentCodes:
    """Open a codes folder; its checksums are verified once, and again if it was replaced."""
    from latentcode.codes import LatentCodes

    codes = LatentCodes.load(path)
    check(codes.scores.size > 0, f"{path} holds no codes: scores have shape {codes.scores.shape}; "
          "expected at least one instance, layer, pair and head", ArtifactError)
    return codes


def stored_folder(entry: Entry, split: str) -> Path:
    """Return the folder of codes that are stored beside a model, if there are any."""
    return entry.path / "results" / f"codes-{split}"


def stored_codes(entry: Entry, split: str) -> LatentCodes | None:
    """Return the codes stored beside a model, or None; those of earlier weights do not count."""
    folder = stored_folder(entry, split)
    if not folder.is_dir():
        return None
    codes, run = saved_codes(folder), open_run(entry.path)
    now = {"run_id": run.id, "step": newest_step(run)}
    return codes if all(codes.meta.get(name, known) == known for name, known in now.items()) \
        else None


def further_pairs(entry: Entry) -> tuple[Pair, ...]:
    """Return pairs that are worth a look and are not stored with a model: those of the context.

    They can be read out of it.
    """
    if entry.kind == "codes":
        return ()
    from latentcode.tasks.sraven.task import context_pairs

    task = open_run(entry.path).config.task
    return context_pairs(task) if isinstance(task, SravenConfig) else ()


def codes(entry: Entry, split: str, n: int, further: Sequence[str] = ()) -> LatentCodes:
    """Return the first n codes of a split: stored or cached ones, or newly extracted ones.

    What is not there yet is extracted, with a bar on the page.

    further  names of pairs beside the stored ones
    """
    if entry.kind == "codes":
        return first(saved_codes(entry.path), n)
    stored = stored_codes(entry, split)
    held = () if stored is None else tuple(pair.name for pair in stored.pairs)
    further = [name for name in further if name not in held]
    if stored is not None and len(stored) >= n and not further:
        return first(stored, n)
    run = open_run(entry.path)
    if further and not held:
        held = tuple(pair.name for pair in codes(entry, split, n).pairs)
    pairs = [*held, *further] or None
    folder = cache_folder("codes", run, split=split, n=n, pairs=pairs)
    if not folder.is_dir():
        extract_to_cache(run, split, n, pairs, folder)
    try:
        return saved_codes(folder)
    except ArtifactError:  # what is kept may be damaged, and can be made again
        extract_to_cache(run, split, n, pairs, folder)
        return saved_codes(folder)


def extract_to_cache(
    run: Run, split: str, n: int, pairs: Sequence[str] | None, folder: Path
) -> None:
    """Read codes out of a model into a folder of the cache, with a bar on the page."""
    with progress_bar(literal(f"Reading {n:,} codes out of {run.name} …")) as report:
        from latentcode.subjects import extract
        from latentcode.tasks import make_task

        task = make_task(run.config.task).probe_config
        extract(run, split=split, n=n, pairs=pairs, problems=task, out=folder, overwrite=True,
                batch_size=AT_ONCE, progress=report)


def first(codes: LatentCodes, n: int) -> LatentCodes:
    """Return the first n instances; all of them where there are fewer."""
    return codes if len(codes) <= n else codes.subset(np.arange(n))


def saved_results(entry: Entry) -> dict[str, TableResult]:
    """Return the saved results of an entry by name; a damaged one is left out, with a message.

    They are those that the explorer has computed, and those in `results` of the entry itself, which
    win. Links are not followed.
    """
    places = [entry.path / "results"]
    if entry.kind != "codes":
        places.insert(0, computed_results(entry))
    found: dict[str, TableResult] = {}
    for folder in (inner for place in places if place.is_dir() for inner in sorted(
            place.iterdir()) if inner.is_dir() and not inner.is_symlink()):
        try:
            result = _load_saved(folder)
        except (LatentCodeError, OSError) as error:
            found.pop(folder.name, None)
            st.warning(literal(error), icon=":material/broken_image:")
            continue
        if result is not None:
            found[folder.name] = result
    return found


def computed_results(entry: Entry) -> Path:
    """Return the folder of the cache for results of the newest weights of a run."""
    return cache_folder("results", open_run(entry.path))


@st.cache_resource(max_entries=48, show_spinner=False, hash_funcs=UNTIL_REPLACED)
def _load_saved(folder: Path) -> TableResult | None:
    """Load a result, again when it was replaced; return None for a folder that holds none."""
    return None if result_kind(folder) is None else load_result(folder)
