"""Which trained models come with the library, and what is in their entries?

An entry of the zoo is a published run (`Run.publish`) with `card.json`, `README.md` and, below
`results/`, its codes and what probes and interventions found. Listing needs no torch, and nothing
here needs a network or writes anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.errors import ArtifactError, check
from latentcode.runs import Run
from latentcode.runs.folder import RESULTS
from latentcode.runs.named import folder_of, load_run, zoo_folders
from latentcode.zoo.card import Card

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


def load_codes(run: Run | str | Path, split: str = "ood") -> LatentCodes:
    """Return the codes that come with a model of the zoo, or that a run keeps in `results/`.

    Raises what `load_run` raises, and `ArtifactError` that names the splits that are there.
    """
    run = load_run(run)
    stored = {path.name.removeprefix("codes-"): path
              for path in sorted((run.path / RESULTS).glob("codes-*"))}
    check(split in stored, f"{run.path} holds no codes of split {split!r}, but of: "
          f"{', '.join(stored) or 'none'}; `latentcode.extract` reads others out of the model",
          ArtifactError)
    return LatentCodes.load(stored[split])


__all__ = ["list_models", "load_card", "load_codes", "load_model"]
