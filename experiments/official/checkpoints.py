"""Checkpoints of the official implementation become runs, and runs official checkpoints.

    python -m latentcode.experiments.official.checkpoints import official.npz --out runs/official
    python -m latentcode.experiments.official.checkpoints export runs/hyla --out official.npz
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from latentcode.config import (
    LanguageConfig,
    LogicConfig,
    RunConfig,
    SravenConfig,
    TaskConfig,
    TrainingConfig,
    preset,
)
from latentcode.errors import RunError, check
from latentcode.experiments.official.weights import (
    OPTIMIZER,
    TRAINING_FIELDS,
    below,
    config_to_flax,
    model_from_flax,
    params_to_flax,
    read_npz,
)
from latentcode.files.storage import read_json, replace_file
from latentcode.models.config import ModelConfig
from latentcode.runs import Run
from latentcode.runs.run import load_run
from latentcode.training.state import make_optimizer

Problem = Literal["logic", "sraven"]


def import_checkpoint(
    file: tyro.conf.Positional[Path], out: Path, *, problem: Problem | None = None,
    n_terms: int | None = None, unpermuted: bool = False, held_out: Path | None = None,
    step: int | None = None, overwrite: bool = False,
) -> Run:
    """Make a run folder of official weights; its model can be loaded, read and probed.

    Training settings come from the file where it has them and are the paper's otherwise;
    `provenance.json` says which. Training cannot go on: the state of the optimiser is not there.

    Args:
        file: Official weights, an `.npz` (docs/official.md says how to make one).
        out: Folder of the run.
        problem: What the model was trained on; default: what its dimensions tell.
        n_terms: Fuzzy logic: number of terms; default: 2.
        unpermuted: SRAVEN: the features were not permuted.
        held_out: JSON list of the combinations (lists of indices) that were held out of training;
            default: a new draw, on which scores on `ood` are not what they claim.
        step: Number of updates done; default: as in the file, or 0.
        overwrite: Replace a run that the folder already holds.
    """
    official, arrays = read_npz(file)
    model = model_from_flax(official, below("param/", arrays))
    task: Any = infer_task(model.cfg, problem)
    if n_terms is not None:
        task = replace(task, n_terms=n_terms)
    if unpermuted:
        task = replace(task, permuted=False)
    if held_out is not None:
        task = replace(task, held_out=tuple(map(tuple, read_json(held_out))))
    training, training_known = training_settings(official, task)
    if step is None and "step" in arrays:
        step = int(arrays["step"])
    run = Run.create(out, RunConfig(task, model.cfg, training), overwrite=overwrite, imported={
        "file": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "step": step,
        "training_known": training_known, "held_out_known": held_out is not None})
    with run.writing():
        # As before a first update: an optimiser without moments, and no random stream.
        run.save_checkpoint(step or 0, model, make_optimizer(model, training), {},
                            extra={"losses": []})
    if not training_known:
        print("training settings are not in the file: config.yaml holds the paper's")
    if held_out is None and hasattr(task, "held_out"):
        print("held-out combinations are not in the file: `ood` is a new draw, and the model may "
              "have been trained on it; pass the original ones with --held-out")
    print(f"wrote run {run.path}")
    return run


def infer_task(model: ModelConfig, problem: Problem | None = None) -> TaskConfig:
    """Return the task that a model was trained on, as far as its dimensions tell.

    One output is fuzzy logic, several are SRAVEN, and token ids are language. The length of the
    sequences is that of the T5 bias, as in all official configurations. What dimensions do not
    tell (number of terms, permutation, held-out combinations) has the paper's value.

    Raises:
        ConfigError: The dimensions do not fit the problem.
    """
    tokens = model.max_distance
    if model.embedding == "token":
        check(problem is None, f"problem is {problem!r}, but the model takes token ids; expected "
              "none, for language is its only task")
        return LanguageConfig(n_vocabulary=model.d_input, n_tokens=tokens)
    if (problem or ("logic" if model.d_output == 1 else "sraven")) == "logic":
        return LogicConfig(n_variables=model.d_input - 1, n_examples=tokens)
    panels = SravenConfig().grid_size ** 2
    check(tokens % panels == 0, f"relative_position_max_dist is {tokens}; expected a multiple of "
          f"{panels}, the number of panels, so that it tells the number of SRAVEN features")
    return SravenConfig(n_values=model.d_input, n_features=tokens // panels)


def training_settings(
    official: Mapping[str, Any], task: TaskConfig
) -> tuple[TrainingConfig, bool]:
    """Return the training settings, and whether they are the file's own."""
    paper = (TrainingConfig() if isinstance(task, LanguageConfig)
             else preset("paper", task.name).training)
    if not all(name in official for name in TRAINING_FIELDS):
        return paper, False
    return replace(paper, **{ours: official[name] for name, ours in TRAINING_FIELDS.items()}), True


def export_checkpoint(
    run: tyro.conf.Positional[str], out: Path, *, step: int | None = None, overwrite: bool = False
) -> Path:
    """Write the weights of a run in the official layout, all or nothing.

    Args:
        run: A run's folder, or a model of the zoo.
        out: File to write, in `.npz` format.
        step: Checkpoint; default: the newest.
        overwrite: Replace an existing file.
    """
    source = load_run(run)
    check(out.suffix == ".npz", f"out is {out}; expected a name that ends in .npz", RunError)
    check(overwrite or not out.exists(), f"{out} exists already; choose another name or "
          "overwrite it", RunError)
    official, imported = config_to_flax(source.config.model), source.imported
    if imported is None or imported["training_known"]:
        settings = source.config.training
        official |= {name: getattr(settings, ours) for name, ours in TRAINING_FIELDS.items()}
        official |= OPTIMIZER
    chosen = source.load_checkpoint(step).step
    arrays: dict[str, Any] = {f"param/{path}": value for path, value in
                              params_to_flax(source.load_model(chosen)).items()}
    arrays["config_json"] = np.array(json.dumps(official))
    if imported is None or imported["step"] is not None:
        arrays["step"] = np.array(chosen)
    with replace_file(out) as temporary:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
    print(f"wrote weights {out}")
    return out


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(
        {"import": import_checkpoint, "export": export_checkpoint})
