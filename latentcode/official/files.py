"""Checkpoints of the official implementation, in and out.

A file is an `.npz` of plain arrays: `config_json`, the official model configuration as JSON, and
the parameters under Flax paths joined by `/`, bare or below `param/` or `params/`. It may also
hold `step`, the number of updates done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from latentcode.config import (
    LanguageConfig,
    LogicConfig,
    RunConfig,
    SravenConfig,
    TaskConfig,
    TrainingConfig,
)
from latentcode.config.presets import preset
from latentcode.errors import ArtifactError, ConfigError, RunError, check, check_choice
from latentcode.files.npz import PickleError, read_arrays
from latentcode.files.storage import check_writable, read_json, replace_file
from latentcode.models.config import ModelConfig
from latentcode.models.flax import (
    OPTIMIZER,
    TRAINING_FIELDS,
    config_to_flax,
    listed,
    model_from_flax,
    params_to_flax,
)
from latentcode.runs import Run
from latentcode.runs.named import load_run
from latentcode.training.optimizer import make_optimizer

PROBLEMS = ("logic", "sraven")
"""The tasks of the official code, beside language."""
CONVERSION = '''\
import json
import pickle

import numpy as np
from flax.traverse_util import flatten_dict

with open("config.pkl", "rb") as file:
    config = pickle.load(file)
with open("state.pkl", "rb") as file:
    state = pickle.load(file)
fields = {**config.model.to_dict(), "lr": config.lr, "warmup_steps": config.warmup_steps,
          "weight_decay": config.weight_decay, "batch": config.batch_size,
          "train_steps": int(state.step)}
params = flatten_dict(state.params["params"], sep="/")
np.savez("official.npz", config_json=json.dumps(fields), step=int(state.step),
         **{f"param/{path}": np.asarray(value) for path, value in params.items()})
'''
"""Turns a finished official run into an `.npz`: to be run in the environment that trained it, in
its log folder, with the official code on the path (unpickling needs its classes)."""

_HOW = ("and a pickle runs whatever code it contains, so it is never loaded here. Turn it into an "
        ".npz in the environment that wrote it: run the text of latentcode.official.CONVERSION, "
        "which flattens state.params['params'] and saves it with config_json by numpy.savez")


@dataclass
class OfficialFile:
    """An `.npz` of the official code; it remembers which of its arrays were asked for.

    Every method raises `ArtifactError` that names what is missing or wrong.
    """

    arrays: Mapping[str, np.ndarray]
    config: Mapping[str, Any]
    used: set[str] = field(default_factory=set)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> OfficialFile:
        """Take a flat mapping of arrays, `config_json` among them."""
        check("config_json" in arrays, "config_json, the official model configuration, is missing",
              ArtifactError)
        try:
            config = json.loads(str(arrays["config_json"]))
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"config_json is not JSON: {error}") from None
        if not isinstance(config, dict):
            raise ArtifactError(f"config_json is {config!r}; expected a mapping")
        return cls({str(k): np.asarray(v) for k, v in arrays.items()}, config, {"config_json"})

    def array(
        self, key: str, shape: tuple[int | None, ...] | None = None, kinds: str = "f"
    ) -> np.ndarray:
        """Return an array of numbers, all finite; None in `shape` stands for any size above 0.

        kinds  what is accepted: "f" floating point, "iu" whole numbers
        """
        check(key in self.arrays, f"{key} is missing", ArtifactError)
        value = self.arrays[key]
        self.used.add(key)
        check(value.dtype.kind in kinds, f"{key} has type {value.dtype}; expected "
              + " or ".join({"f": "floating point", "i": "whole numbers"}[k]
                            for k in kinds.replace("u", "")), ArtifactError)
        check(bool(np.isfinite(value).all()), f"{key} holds NaN or infinite values", ArtifactError)
        check(shape is None or (len(shape) == value.ndim and all(
            n == (wanted or max(n, 1)) for n, wanted in zip(value.shape, shape, strict=True))),
              f"{key} has shape {value.shape}; expected {_shape(shape)}", ArtifactError)
        return value

    def below(self, prefix: str) -> dict[str, np.ndarray]:
        """Return the arrays below a prefix, without it."""
        found = {key: value for key, value in self.arrays.items() if key.startswith(prefix)}
        self.used |= set(found)
        return {key.removeprefix(prefix): value for key, value in found.items()}

    def params(self) -> dict[str, np.ndarray]:
        """Return the parameters, which stand below `param/`, below `params/`, or bare."""
        for prefix in ("param/", "params/"):
            if found := self.below(prefix):
                return found
        bare = {k: v for k, v in self.arrays.items() if k not in ("config_json", "step")}
        check(any(k.startswith("embedding/") for k in bare), "no parameters are here: expected "
              "param/..., params/... or bare paths such as embedding/kernel; found "
              f"{listed(sorted(bare)) or 'nothing'}", ArtifactError)
        self.used |= set(bare)
        return bare

    @property
    def unread(self) -> list[str]:
        """What nobody asked for; whatever lies below one prefix is one entry."""
        left = sorted(set(self.arrays) - self.used)
        return list(dict.fromkeys(
            f"{key.partition('/')[0]}/..." if "/" in key else key for key in left))


def _shape(shape: tuple[int | None, ...] | None) -> str:
    return "(" + ", ".join("any" if n is None else str(n) for n in shape or ()) + ")"


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """Read an `.npz` of plain arrays; pickled content is refused, and what unpacks to too much.

    `ArtifactError` names the file and says how to convert a pickle.
    """
    path = Path(path)
    check(path.suffix not in (".pkl", ".pickle"), f"{path} is a pickle, {_HOW}", ArtifactError)
    check(path.is_file(), f"{path} does not exist, or is no file", ArtifactError)
    try:
        return read_arrays(path)
    except PickleError as error:
        raise ArtifactError(f"{error}, {_HOW}") from None


def read_official(path: str | Path) -> OfficialFile:
    """Read an `.npz` of the official code; `ArtifactError` names the file."""
    arrays = read_npz(path)
    try:
        return OfficialFile.from_arrays(arrays)
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from None


def infer_task(model: ModelConfig, problem: str | None = None) -> TaskConfig:
    """Which problem was this model trained on, as far as its dimensions tell?

    One output is fuzzy logic, several are SRAVEN, and token ids are language. The length of the
    sequences is that of the T5 bias, as in all official configurations. What dimensions do not
    tell (number of terms, permutation, held-out combinations) has the paper's value.

    `ConfigError` when the dimensions do not fit the problem.
    """
    tokens = model.max_distance
    if model.embedding == "token":
        check(problem is None, f"problem is {problem!r}, but the model takes token ids; expected "
              "none, for language is its only task")
        return LanguageConfig(n_vocabulary=model.d_input, n_tokens=tokens)
    problem = problem or ("logic" if model.d_output == 1 else "sraven")
    check_choice("problem", problem, PROBLEMS)
    if problem == "logic":
        check(model.d_input >= 2, f"the model's input width is {model.d_input}; expected at least "
              "2 for logic: the variables and the target")
        return LogicConfig(n_variables=model.d_input - 1, n_examples=tokens)
    panels = SravenConfig().grid_size ** 2
    check(tokens % panels == 0, f"relative_position_max_dist is {tokens}; expected a multiple of "
          f"{panels}, the number of panels, so that it tells the number of SRAVEN features")
    return SravenConfig(n_values=model.d_input, n_features=tokens // panels)


def read_held_out(path: str | Path) -> tuple[tuple[int, ...], ...]:
    """Read held-out combinations from JSON: a list of lists of term or rule indices."""
    data = read_json(Path(path))
    try:
        return tuple(tuple(int(c) for c in row) for row in data)
    except (TypeError, ValueError):
        raise ConfigError(f"{path} does not hold a list of lists of whole numbers") from None


def import_flax(
    source: str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    task: TaskConfig | Callable[[ModelConfig], TaskConfig] = infer_task,
    step: int | None = None,
    overwrite: bool = False,
) -> Run:
    """Make a run folder of official weights; its model can be loaded, read and probed.

    source  an `.npz`, or a flat mapping of arrays with `config_json`
    task    what the model was trained on, or a function of the model's configuration that says
            so; default: what its dimensions tell
    step    number of updates done; default: `step` of the file, or 0 where it does not say

    The combinations that the model was trained without are not in the file: give them as
    `task.held_out`, or scores on `ood` are not what they claim. Training settings come from the
    file where it has all `TRAINING_FIELDS` and are the paper's otherwise; `provenance.json` says
    which. Training cannot go on, for the state of the optimiser is not there.
    """
    if isinstance(source, Mapping):
        name, digest, file = None, None, OfficialFile.from_arrays(source)
    else:
        file = read_official(source)
        name, digest = Path(source).name, hashlib.sha256(Path(source).read_bytes()).hexdigest()
    try:
        model = model_from_flax(file.config, file.params())
        if step is None and "step" in file.arrays:
            step = int(file.array("step", (), "iu"))
        check(step is None or step >= 0, f"step is {step}; expected at least 0", ArtifactError)
        trained_on = task(model.config) if callable(task) else task
        training, known = _training(file.config, trained_on)
        config = RunConfig(trained_on, model.config, training)
    except (ArtifactError, ConfigError) as error:
        raise ArtifactError(f"{source}: {error}" if name else str(error)) from None
    held_out = getattr(trained_on, "held_out", None)
    run = Run.create(out, config, overwrite=overwrite, imported={
        "file": name, "sha256": digest, "step": step, "training_known": known,
        "held_out_known": held_out is not None})
    with run.writing():
        # As before a first update: an optimiser without moments, and no random stream.
        run.save_checkpoint(step or 0, model, make_optimizer(model, training), {},
                            extra={"losses": []})
    return run


def _training(official: Mapping[str, Any], task: TaskConfig) -> tuple[TrainingConfig, bool]:
    """Return the training settings, and whether they are the file's own."""
    paper = preset("paper", task.name).training if task.name in PROBLEMS else TrainingConfig()
    if not all(name in official for name in TRAINING_FIELDS):
        return paper, False
    return replace(paper, **{ours: official[name] for name, ours in TRAINING_FIELDS.items()}), True


def export_flax(
    run: Run | str | Path, out: str | Path, *, step: int | None = None, overwrite: bool = False
) -> Path:
    """Write the weights of a run in the official layout, all or nothing.

    run   a run, its folder, or a name of the zoo
    step  the checkpoint; default: the newest

    Raises what `load_run` raises, and `ConfigError` for a model without an official counterpart.
    """
    run, out = load_run(run), Path(out)
    check(out.suffix == ".npz", f"{out} is the output; expected a name that ends in .npz",
          RunError)
    check_writable(out)
    check(overwrite or not out.exists(), f"{out} exists already; choose another name or "
          "overwrite it", RunError)
    official = config_to_flax(run.config.model)
    imported = run.imported
    if imported is None or imported["training_known"]:
        settings = run.config.training
        official |= {name: getattr(settings, ours) for name, ours in TRAINING_FIELDS.items()}
        official |= OPTIMIZER
    chosen = run.load_checkpoint(step).step
    arrays: dict[str, Any] = {
        f"param/{path}": value
        for path, value in params_to_flax(run.load_model(chosen)).items()}
    arrays["config_json"] = np.array(json.dumps(official))
    if imported is None or imported["step"] is not None:
        arrays["step"] = np.array(chosen)
    with replace_file(out) as temporary:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
    return out


__all__ = ["CONVERSION", "OfficialFile", "export_flax", "import_flax", "infer_task",
           "read_held_out", "read_npz", "read_official"]
