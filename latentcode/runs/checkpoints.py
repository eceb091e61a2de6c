"""What grows while a run is trained: its checkpoints, and its metrics.

One checkpoint is a folder: `model.safetensors`, `optimizer.safetensors` (AdamW's moments under
the parameters' names), `rng.safetensors` (the states of the random generators) and `state.json`.
`state.json` holds the SHA-256 of the other three. A published checkpoint holds the model alone:
it can be used, but training cannot resume from it. One that was published without weights only
says that the run came so far. Reading what there is needs no torch.

`metrics.jsonl` has one line per step, split and metric, appended as they come. A line that a killed
process left half-written, always the last, is not an error; a damaged line anywhere else is.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latentcode.config import from_dict
from latentcode.errors import ArtifactError, ConfigError, check
from latentcode.files.provenance import check_format, header, software
from latentcode.files.storage import (
    check_checksum,
    checksums,
    parse_json,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
    write_text,
)
from latentcode.metrics import Metric

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import Tensor, nn

METRICS = "metrics.jsonl"
COLUMNS = ("step", "split", "metric", "mean", "se", "n")
TAIL = 1_000
"""Bytes at the end of the file that hold its last whole line."""
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
    def open(cls, path: Path, step: int, config_hash: str) -> Checkpoint:
        """Read `state.json`; `ArtifactError` names what is missing or of another version, step or
        run."""
        file = path / STATE
        state = check_format(read_json(file), FORMAT, file)
        fields = {key: value for key, value in state.items()
                  if key not in (*header(FORMAT), "provenance")}
        try:
            checkpoint = from_dict(cls, {"path": path, **fields}, what="checkpoint")
        except ConfigError as error:
            raise ArtifactError(f"{file}: {error}") from None
        check(checkpoint.config_hash == config_hash, f"{path} belongs to a run with configuration "
              f"hash {checkpoint.config_hash}; expected {config_hash}", ArtifactError)
        check(checkpoint.step == step, f"{path} says that it is of step {checkpoint.step}; "
              f"expected {step}", ArtifactError)
        return checkpoint

    def __post_init__(self) -> None:
        check(self.step >= 0, f"step is {self.step}; expected a whole number of at least 0")
        check(set(self.sha256) in ({MODEL, OPTIMIZER, RNG}, {MODEL}, set()), f"sha256 is "
              f"{self.sha256!r}; expected the checksums of {MODEL}, {OPTIMIZER} and {RNG}, of "
              f"{MODEL} alone, or none")

    @property
    def is_published(self) -> bool:
        """Whether the model is here alone, without what training needs to go on."""
        return OPTIMIZER not in self.sha256

    def publish(self, folder: Path) -> None:
        """Copy the model into an empty folder, without what training needs to go on.

        `ArtifactError` when the model is not the one that was written.
        """
        check(MODEL in self.sha256, f"{self.path} was published without {MODEL}", ArtifactError)
        shutil.copyfile(self.path / MODEL, folder / MODEL)
        check_checksum(folder / MODEL, self.sha256[MODEL])
        state = read_json(self.path / STATE)
        write_json(folder / STATE, {**state, "sha256": checksums(folder, (MODEL,))})

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
    for names, verb in ((set(wanted) - set(arrays), "lacks"),
                        (set(arrays) - set(wanted), "also holds")):
        shown = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more"
                                                if len(names) > 5 else "")
        check(not names, f"{path} does not match the configuration: it {verb} {shown}",
              ArtifactError)
    for name, tensor in wanted.items():
        mine = f"{arrays[name].dtype} {list(arrays[name].shape)}"
        expected = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
        check(mine == expected, f"{path} does not match the configuration: {name} is {mine}; "
              f"expected {expected}", ArtifactError)


def _to_numpy(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().contiguous().numpy()
    return array


def _to_torch(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def step_folders(run: Path) -> dict[int, Path]:
    """Return the folders of the checkpoints in a run's folder by step, rising, whole or not."""
    folder = run / CHECKPOINTS
    named = [(re.fullmatch(r"step_(\d{7,})", entry.name), entry)
             for entry in (folder.iterdir() if folder.is_dir() else ())]
    return dict(sorted((int(match[1]), entry) for match, entry in named if match))


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines, all or none; they are on disk when this returns."""
    size = path.stat().st_size if path.exists() else None
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # Half a line would spoil what is appended after this error.
        if size is not None:
            with suppress(OSError):
                os.truncate(path, size)
        raise ArtifactError(f"cannot write {path}: {error}") from error


def append_metrics(path: Path, step: int, split: str, metrics: Mapping[str, Metric]) -> None:
    """Append the metrics of one split at one step; a number that is not finite becomes null."""
    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    append_lines(path, [
        json.dumps({"step": step, "split": split, "metric": name, "mean": finite(metric.mean),
                    "se": finite(metric.se), "n": metric.n})
        for name, metric in metrics.items()])


def read_metrics(path: Path) -> pd.DataFrame:
    """Return the columns step, split, metric, mean, se, n; null becomes NaN.

    `ArtifactError` names the file and the line that is damaged.
    """
    import pandas as pd  # not before: who opens a run need not wait for it

    table = pd.DataFrame([record for record, _ in _records(path)], columns=list(COLUMNS))
    return table.astype({"step": "int64", "mean": "float64", "se": "float64", "n": "int64"})


def recorded_step(folder: Path) -> int:
    """Return the step of the newest metrics of a run folder, 0 before there are some.

    It reads a few bytes, for those who look often.
    """
    try:
        with (folder / METRICS).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")
        return int(parse_json(lines[-2].decode())["step"])
    except (OSError, ValueError, LookupError, TypeError):
        return 0


def cut_metrics(path: Path, step: int) -> None:
    """Keep the lines up to and including `step`, all or nothing."""
    kept = "".join(f"{line}\n" for record, line in _records(path) if record["step"] <= step)
    if kept != _text(path):
        write_text(path, kept)


def cut_torn_line(path: Path) -> None:
    """Remove what follows the last newline of a file, if there is a file."""
    if path.exists():
        text = _text(path)
        whole = text[:text.rfind("\n") + 1]
        if whole != text:
            write_text(path, whole)


def _records(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    *lines, _ = _text(path).split("\n")  # what follows the last newline is empty or torn
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_json(line)
        except ValueError:
            record = None
        check(_is_record(record), f"{path}, line {number}, is damaged: {line[:80]!r}; expected "
              f"an object with {', '.join(COLUMNS)}", ArtifactError)
        yield record, line


def _is_record(record: object) -> bool:
    def is_integer(value: object) -> bool:
        return type(value) is int and abs(value) < 2**63  # what a column of the table holds

    return (isinstance(record, dict) and tuple(record) == COLUMNS
            and is_integer(record["step"]) and is_integer(record["n"])
            and isinstance(record["split"], str) and isinstance(record["metric"], str)
            and all(record[key] is None or isinstance(record[key], float)
                    or is_integer(record[key]) for key in ("mean", "se")))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from None
