"""Trained models that come with the library, listed and loaded.

An entry of the zoo is a published run (`Run.publish`) with `card.json` and `README.md`. Its codes
are read out of it when they are first asked for, and kept in the user's cache. Listing needs no
torch, and nothing here needs a network.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, RunError, check, check_choice
from latentcode.files.cache import default_cache
from latentcode.files.formats import header
from latentcode.files.provenance import software
from latentcode.files.storage import check_writable
from latentcode.progress import Progress, watched
from latentcode.runs.named import folder_of, load_run, zoo_folders
from latentcode.runs.run import CARD, RESULTS, Run
from latentcode.zoo.card import Card, CodesOfCard

if TYPE_CHECKING:
    import torch

    from latentcode.models.transformer import HookedTransformer


def load_card(name_or_path: str | Path) -> Card:
    """Return the card of a model of the zoo; `ArtifactError` where a folder has none."""
    return Card.read(folder_of(name_or_path))


def list_models() -> pd.DataFrame:
    """Which trained models come with the library?

    One row per model: `task`, `kind`, `parameters`, the `metric` that is quoted first with its
    mean on every split, `megabytes` on disk, `summary`. Needs no torch.
    """
    rows = []
    for name, folder in zoo_folders().items():
        card = Card.read(folder)
        rows.append({
            "name": name, "task": card.task.partition(":")[0], "kind": card.kind,
            "parameters": card.parameters, "metric": card.headline,
            **{split: found[card.headline].mean for split, found in card.metrics.items()},
            "megabytes": sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6,
            "summary": card.summary})
    columns = ["name", "task", "kind", "parameters", "metric", "train", "test", "ood", "unknown",
               "megabytes", "summary"]
    return pd.DataFrame(rows, columns=columns).set_index("name")


def load_model(
    run: Run | str | Path, *, step: int | None = None, device: str | torch.device = "cpu"
) -> HookedTransformer:
    """Return a trained model of the zoo, such as `sraven-hyla`, or of a run, for evaluation.

    step  the checkpoint; default: the newest

    Raises what `load_run` and `Run.load_model` raise.
    """
    return load_run(run).load_model(step, device)


@watched("extracting")
def load_codes(
    run: Run | str | Path, split: str = "ood", *, progress: Progress | None = None
) -> LatentCodes:
    """Return the codes of a model of the zoo, or those that a run keeps in `results/codes-SPLIT`.

    Codes of a model with a card are read out of it the first time, those of the instances and pairs
    that the card names, and kept in the cache folder (`LATENTCODE_CACHE`, or the user's own).

    Args:
        run: A model of the zoo, a run, its folder or its address.
        split: The split of the task whose instances are shown to the model.
        progress: Called with the instances done, of all; not called when nothing is to be done.

    Raises:
        ArtifactError: A run has neither such codes nor a card. Also what `load_run` and `extract`
            raise.
    """
    run = load_run(run)
    stored = run.path / RESULTS / f"codes-{split}"
    if stored.is_dir():
        return LatentCodes.load(stored)
    check((run.path / CARD).is_file(), f"{run.path} holds no codes of split {split!r}, and no card "
          "that says which; `latentcode.extract` reads codes out of the model", ArtifactError)
    return _cached_codes(run, split, Card.read(run.path).codes, progress)


def _cached_codes(
    run: Run, split: str, wanted: CodesOfCard, progress: Progress | None
) -> LatentCodes:
    """Return codes from the cache, where they are put first if need be and possible."""
    step = run.checkpoints()[-1]
    described = {**header("latentcode.codes"), "software": software(), "run": run.id, "step": step,
                 "model": run.load_checkpoint(step).sha256, "split": split, **asdict(wanted)}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    folder = default_cache() / "zoo" / f"{run.path.name}-{split}-{digest[:12]}"
    with suppress(ArtifactError):  # what is kept may be damaged, and can be computed again
        return LatentCodes.load(folder)
    from latentcode.subjects import extract  # which needs torch
    from latentcode.tasks import make_task

    task = make_task(run.config.task)
    check_choice("split", split, task.splits)
    out: Path | None = folder
    try:
        check_writable(folder)
    except RunError as error:
        warnings.warn(f"codes are not kept: {error}", stacklevel=2)
        out = None
    # As probes draw them, and the explorer: fuzzy logic with one context for all.
    return extract(run, split=split, n=wanted.n, pairs=wanted.pairs, seed=wanted.seed,
                   problems=task.probe_config, out=out, overwrite=True, progress=progress)
