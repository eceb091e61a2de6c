"""What must be kept for training to go on as if it had never stopped?

One checkpoint is a folder: `model.safetensors`, `optimizer.safetensors` (AdamW's moments under
the parameters' names), `rng.safetensors` (the states of the random generators) and `state.json`.
Reading what there is needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentcode.errors import ArtifactError, check
from latentcode.storage import read_json, read_tensors, write_json, write_tensors

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

FORMAT = "latentcode.checkpoint"
FORMAT_VERSION = 1
"""Version of the checkpoint folder."""
STATE = "state.json"
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
    write_tensors(folder / "model.safetensors",
                  {name: _to_numpy(tensor) for name, tensor in model.state_dict().items()})
    write_tensors(folder / "optimizer.safetensors", moments)
    write_tensors(folder / "rng.safetensors",
                  {name: _to_numpy(g.get_state()) for name, g in generators.items()})
    write_json(folder / STATE, {
        "format": FORMAT, "format_version": FORMAT_VERSION, "step": step,
        "config_hash": config_hash, "without_moments": untouched, "extra": dict(extra)})


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `step` updates; tensors are read when they are restored.

    extra  whatever the training loop kept beside the tensors (plain JSON)
    """

    path: Path
    step: int
    config_hash: str
    without_moments: tuple[str, ...]
    extra: Mapping[str, Any]

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Read `state.json`; `ArtifactError` names what is missing or of another version."""
        state = read_json(path / STATE)
        wanted = {"format", "format_version", "step", "config_hash", "without_moments", "extra"}
        _check_format(path, state)
        check(set(state) == wanted, f"{path / STATE} has keys {sorted(state)}; expected "
              f"{sorted(wanted)}", ArtifactError)
        return cls(path, state["step"], state["config_hash"], tuple(state["without_moments"]),
                   state["extra"])

    def restore_model(self, model: nn.Module) -> None:
        """Copy the weights into `model`; their names, shapes and types must be the model's."""
        file = self.path / "model.safetensors"
        arrays = read_tensors(file)
        check_tensors(file, arrays, model.state_dict())
        model.load_state_dict(_to_torch(arrays))

    def restore_optimizer(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Restore AdamW's moments of the parameters of `model`."""
        import torch

        file = self.path / "optimizer.safetensors"
        arrays = read_tensors(file)
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
        file = self.path / "rng.safetensors"
        arrays = read_tensors(file)
        check_tensors(file, arrays, {n: g.get_state() for n, g in generators.items()})
        for name, tensor in _to_torch(arrays).items():
            generators[name].set_state(tensor)


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


def _check_format(path: Path, state: object) -> None:
    found = (state.get("format"), state.get("format_version")) if isinstance(state, dict) else None
    check(found == (FORMAT, FORMAT_VERSION), f"{path / STATE} is of format and version {found}; "
          f"expected {(FORMAT, FORMAT_VERSION)}", ArtifactError)


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
