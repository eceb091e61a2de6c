"""Checkpoints: what must be kept for training to resume as if it had never stopped.

One checkpoint is a folder: `model.safetensors`, `optimizer.safetensors` (AdamW's moments under
the parameters' names), `rng.safetensors` (the states of the random generators) and `state.json`.
`state.json` holds the SHA-256 of the other three. A published checkpoint holds the model alone:
it can be used, but training cannot resume from it. One that was published without weights only
says that the run came so far. Reading what there is needs no torch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentcode.config.reading import from_dict
from latentcode.errors import ArtifactError, ConfigError, RunError, check
from latentcode.files.formats import check_format, header
from latentcode.files.provenance import software
from latentcode.files.storage import (
    TEMPORARY,
    check_checksum,
    checksums,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

FORMAT = "latentcode.checkpoint"
CHECKPOINTS = "checkpoints"
"""The folder of a run that holds them."""
STATE = "state.json"
MODEL, OPTIMIZER, RNG = "model.safetensors", "optimizer.safetensors", "rng.safetensors"
MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""What AdamW remembers of each parameter."""


def write_checkpoint(
    folder: Path,
    *,
    step: int,
    config_hash: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generators: Mapping[str, torch.Generator],
    extra: Mapping[str, Any],
) -> None:
    """Write the files of a checkpoint into an empty folder."""
    moments = {f"{name}.{moment}": _to_numpy(optimizer.state[parameter][moment])
               for name, parameter in model.named_parameters() if parameter in optimizer.state
               for moment in MOMENTS}
    untouched = [n for n, p in model.named_parameters() if p not in optimizer.state]
    write_tensors(folder / MODEL,
                  {name: _to_numpy(tensor) for name, tensor in model.state_dict().items()})
    write_tensors(folder / OPTIMIZER, moments)
    write_tensors(folder / RNG,
                  {name: _to_numpy(g.get_state()) for name, g in generators.items()})
    write_json(folder / STATE, {
        **header(FORMAT), "provenance": software(), "step": step, "config_hash": config_hash,
        "without_moments": untouched, "extra": dict(extra),
        "sha256": checksums(folder, (MODEL, OPTIMIZER, RNG))})


def publish_checkpoint(source: Path, folder: Path) -> None:
    """Copy the model of a checkpoint into an empty folder, without what training needs to go on.

    `ArtifactError` when the model is not the one that was written.
    """
    known = Checkpoint.open(source).sha256
    check(MODEL in known, f"{source} was published without {MODEL}", ArtifactError)
    shutil.copyfile(source / MODEL, folder / MODEL)
    check_checksum(folder / MODEL, known[MODEL])
    state = check_format(read_json(source / STATE), FORMAT, source / STATE)
    write_json(folder / STATE, {**state, "sha256": checksums(folder, (MODEL,))})


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `step` updates; tensors are read when they are restored.

    extra   whatever the training loop kept beside the tensors (plain JSON)
    sha256  checksum of each file with tensors. A published checkpoint has that of the model alone,
            or none without weights
    """

    path: Path
    step: int
    config_hash: str
    without_moments: tuple[str, ...]
    extra: Mapping[str, Any]
    sha256: Mapping[str, str]

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Read `state.json`; `ArtifactError` names what is missing or of another version."""
        file = path / STATE
        state = check_format(read_json(file), FORMAT, file)
        told = {key: value for key, value in state.items() if key not in (
            *header(FORMAT), "provenance")}
        try:
            return from_dict(cls, {"path": path, **told}, what="checkpoint")
        except ConfigError as error:
            raise ArtifactError(f"{file}: {error}") from None

    def __post_init__(self) -> None:
        check(self.step >= 0, f"step is {self.step}; expected a whole number of at least 0")
        check(set(self.sha256) in ({MODEL, OPTIMIZER, RNG}, {MODEL}, set()), f"sha256 is "
              f"{self.sha256!r}; expected the checksums of {MODEL}, {OPTIMIZER} and {RNG}, of "
              f"{MODEL} alone, or none")

    @property
    def is_published(self) -> bool:
        """Whether the model is here alone, without what training needs to go on."""
        return OPTIMIZER not in self.sha256

    def check_model(self) -> None:
        """Raise `ArtifactError` unless the weights are there, and those that were written."""
        self._read(MODEL)

    def check_files(self) -> None:
        """Raise `ArtifactError` unless all that training needs is there, as it was written."""
        for name in (MODEL, OPTIMIZER, RNG):
            self._read(name)

    def restore_model(self, model: nn.Module) -> None:
        """Copy the weights into `model`; their names, shapes and types must be the model's."""
        file, arrays = self._read(MODEL)
        check_tensors(file, arrays, model.state_dict())
        model.load_state_dict(_to_torch(arrays))

    def restore_optimizer(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Restore AdamW's moments of the parameters of `model`."""
        import torch

        file, arrays = self._read(OPTIMIZER)
        named = {name: parameter for name, parameter in model.named_parameters()
                 if name not in self.without_moments}
        count = torch.zeros((), dtype=torch.float32)
        check_tensors(file, arrays, {
            f"{name}.{moment}": count if moment == "step" else parameter
            for name, parameter in named.items() for moment in MOMENTS})
        tensors = _to_torch(arrays)
        state = optimizer.state_dict()
        name_of = {id(parameter): name for name, parameter in named.items()}
        ordered = [p for group in optimizer.param_groups for p in group["params"]]
        state["state"] = {
            index: {moment: tensors[f"{name_of[id(p)]}.{moment}"] for moment in MOMENTS}
            for index, p in enumerate(ordered) if id(p) in name_of}
        optimizer.load_state_dict(state)

    def restore_generators(self, generators: Mapping[str, torch.Generator]) -> None:
        """Put every generator where it was; they must be on the same kind of device."""
        file, arrays = self._read(RNG)
        check_tensors(file, arrays, {n: g.get_state() for n, g in generators.items()})
        for name, tensor in _to_torch(arrays).items():
            try:
                generators[name].set_state(tensor)
            except RuntimeError as error:
                raise ArtifactError(f"{file} holds no state of a random generator as {name}: "
                                    f"{error}") from None

    def _read(self, name: str) -> tuple[Path, dict[str, np.ndarray]]:
        """Return a file with tensors, and the tensors, if they are those that were written."""
        file = self.path / name
        lost = "it cannot be used" if name == MODEL else "training cannot go on from it"
        check(name in self.sha256, f"{self.path} was published without {name}: {lost}",
              ArtifactError)
        check_checksum(file, self.sha256[name])
        return file, read_tensors(file)


def check_tensors(
    path: Path, arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Tensor]
) -> None:
    """Raise `ArtifactError` unless names, shapes and types are those of `wanted`."""
    missing, unexpected = sorted(set(wanted) - set(arrays)), sorted(set(arrays) - set(wanted))
    check(not missing, f"{path} does not match the configuration: it lacks {_listed(missing)}",
          ArtifactError)
    check(not unexpected, f"{path} does not match the configuration: it also holds "
          f"{_listed(unexpected)}", ArtifactError)
    for name, tensor in wanted.items():
        found, expected = arrays[name], _described(tensor)
        mine = f"{found.dtype} {list(found.shape)}"
        check(mine == expected, f"{path} does not match the configuration: {name} is {mine}; "
              f"expected {expected}", ArtifactError)


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _to_numpy(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().contiguous().numpy()
    return array


def _to_torch(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}


# The checkpoints of a run: their folders found, opened, deleted.

DAMAGED = "damaged_"
"""What the name of a checkpoint begins with that was found damaged."""


def step_folders(run: Path) -> dict[int, Path]:
    """Return the folders of the checkpoints in a run's folder by step, rising, whole or not."""
    folder = run / CHECKPOINTS
    named = [(re.fullmatch(r"step_(\d{7,})", entry.name), entry)
             for entry in (folder.iterdir() if folder.is_dir() else ())]
    return dict(sorted((int(match[1]), entry) for match, entry in named if match))


def kept_steps(run: Path) -> list[int]:
    """Return the steps of the complete checkpoints in a run's folder, rising."""
    return [step for step, folder in step_folders(run).items() if (folder / STATE).is_file()]


def folder_of_step(run: Path, step: int) -> Path:
    """Return the folder of a step's checkpoint."""
    return run / CHECKPOINTS / f"step_{step:07d}"


def open_step(run: Path, step: int | None, config_hash: str) -> Checkpoint:
    """Return the checkpoint of a step, or the newest; see `Run.load_checkpoint`."""
    steps = kept_steps(run)
    check(bool(steps), f"{run} holds no complete checkpoint yet", RunError)
    step = steps[-1] if step is None else step
    check(step in steps, f"{run} has no checkpoint of step {step}; expected one of: "
          f"{', '.join(map(str, steps))}", RunError)
    return _open_folder(run, step, config_hash)


def problem_of(run: Path, step: int, config_hash: str) -> str | None:
    """What keeps training from going on from the checkpoint of a step? None: it is whole."""
    try:
        _open_folder(run, step, config_hash).check_files()
    except ArtifactError as error:
        return str(error)
    return None


def _open_folder(run: Path, step: int, config_hash: str) -> Checkpoint:
    checkpoint = Checkpoint.open(folder_of_step(run, step))
    check(checkpoint.config_hash == config_hash, f"{checkpoint.path} belongs to a run with "
          f"configuration hash {checkpoint.config_hash}; expected {config_hash}", ArtifactError)
    check(checkpoint.step == step, f"{checkpoint.path} says that it is of step "
          f"{checkpoint.step}; expected {step}", ArtifactError)
    return checkpoint


def delete_step(run: Path, step: int) -> None:
    """Delete the checkpoint of a step."""
    # Renamed first: a kill half-way must not leave something that looks like a checkpoint.
    path = folder_of_step(run, step)
    doomed = path.with_name(f"{TEMPORARY}{path.name}")
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def set_aside(run: Path, step: int) -> Path:
    """Rename a damaged checkpoint, so that it is neither used nor ever deleted; return where."""
    path = folder_of_step(run, step)
    aside = path.with_name(f"{DAMAGED}{path.name}")
    while aside.exists():  # from an earlier time
        aside = aside.with_name(f"{aside.name}_again")
    os.rename(path, aside)
    return aside


def delete_old_steps(run: Path, keep: int | None, milestones: Collection[int]) -> None:
    """Delete all but the newest `keep` checkpoints (None: none) and those of milestones."""
    for old in kept_steps(run)[:-keep] if keep is not None else []:
        if old not in milestones:
            delete_step(run, old)
