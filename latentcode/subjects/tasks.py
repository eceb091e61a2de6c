"""A trained run, or a model in hand, on the problems of a task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from latentcode.codes.reader import Reader, TaskSource, instances, is_code
from latentcode.config import to_dict
from latentcode.devices import checked_seed, resolve_device
from latentcode.errors import check, check_count
from latentcode.files.provenance import package_version
from latentcode.models.config import ModelConfig, kind_of
from latentcode.models.pretrained import untrained as with_fresh_weights
from latentcode.models.transformer import HookedTransformer
from latentcode.runs import Run
from latentcode.subjects.base import Subject, pair_names
from latentcode.tasks import Task, make_counterfactuals, make_task
from latentcode.tasks.base import Batch
from latentcode.tasks.counterfactuals import Counterfactuals

BATCH_SIZE, ROWS_AT_ONCE, PATCHED_AT_ONCE = 512, 256, 250
"""Problems of one forward pass, where codes are read, where more is, and where it is patched."""


class TaskSubject(Subject):
    """A model on the problems of a task, of which as many can be drawn as are asked for."""

    def __init__(self, task: Task, device: str, batch_size: int | None) -> None:
        self.task, self.device, self.batch_size = task, device, batch_size
        self.patched_at_once = PATCHED_AT_ONCE if batch_size is None else batch_size
        self.pairs = task.pairs
        self.default_pairs = tuple(task.pairs)[:1]
        self.probe_labels = task.probe_labels

    def n_of(self, name: str, n: int | None, default: int, split: str) -> int:
        n = default if n is None else n
        check_count(name, n)
        return int(n)

    def instances(self, split: str, n: int, *, seed: int) -> Batch:
        """Return the problems that a reader of n problems reads, on the CPU."""
        return instances(self.task, split, n, seed=seed, device=self.device).to("cpu")

    @abstractmethod
    def shown(self, untrained: bool, seed: int) -> tuple[Any, dict[str, Any]]:
        """Return the model, and what codes that are read of it say of it."""

    def model(self, *, untrained: bool = False, seed: int = 0) -> Any:
        return self.shown(untrained, seed)[0]

    def reader(
        self, split: str, *, n: int, pairs: Sequence[str] | str | None = None,
        layers: Sequence[int] | int | None = None, residuals: bool = False,
        features: Sequence[str] = ("code",), untrained: bool = False, seed: int = 0,
    ) -> Reader:
        seed = checked_seed(seed)
        model, meta = self.shown(untrained, seed)
        source = TaskSource(
            self.task, split, n=n, pairs=pair_names(pairs, self.pairs), seed=seed,
            device=next(model.parameters()).device)
        at_once = BATCH_SIZE if is_code(features) else ROWS_AT_ONCE
        return Reader(
            model, source, layers=layers, residuals=residuals,
            batch_size=at_once if self.batch_size is None else self.batch_size,
            meta=meta | {"split": split, "seed": seed})

    def counterfactuals(
        self, *, factorial: bool = True, among: str = "vocabulary"
    ) -> Counterfactuals:
        pairs = make_counterfactuals(self.task, factorial=factorial)
        pairs.answer_among(among)
        return pairs


class RunSubject(TaskSubject):
    """A trained run on its own task, or on another that fits it.

    task  None: its own, and for probes what that chooses for them
    step  the checkpoint; default: the newest
    """

    def __init__(
        self, run: Run, task: Task | None = None, *, step: int | None = None,
        device: str | None = None, batch_size: int | None = None,
    ) -> None:
        super().__init__(make_task(run.config.task) if task is None else task, device or "cpu",
                         batch_size)
        self.run, self.step, self.chosen = run, step, task
        self.name = run.name if step is None else f"{run.name}@{step}"

    @cached_property
    def probing(self) -> RunSubject:
        return self if self.chosen is not None else self.on(make_task(self.task.probe_config))

    def on(self, task: Task) -> RunSubject:
        """Return the same run on the problems of a task."""
        return RunSubject(self.run, task, step=self.step, device=self.device,
                          batch_size=self.batch_size)

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        run = self.run
        return {"run": run.name, "run_id": run.id, "kind": kind_of(run.config.model),
                "config_hash": run.provenance["config_hash"], "task": to_dict(self.task.config),
                # A run that was not trained has initial weights alone.
                "step": max(run.checkpoints(), default=0) if self.step is None else self.step,
                **({} if run.loaded_from is None else {"run_loaded_from": run.loaded_from})}

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(range(self.run.config.model.n_layers))

    def shown(self, untrained: bool, seed: int) -> tuple[Any, dict[str, Any]]:
        config = self.run.config
        check_fits(self.task, config.model)
        meta = {**self.settings, "run": self.name, "untrained": untrained,
                "model": to_dict(config.model),
                "latentcode_version": package_version("latentcode")}
        if not untrained:
            return self.run.load_model(self.step, device=self.device), meta
        initial = HookedTransformer(config.model, seed=config.training.seed)
        return initial.to(placed(self.device)).eval(), meta | {"step": 0}


class ModelSubject(TaskSubject):
    """A model in hand on a task: ours, or anything else with `cfg` and `run_with_hooks`."""

    def __init__(self, network: Any, task: Task, *, batch_size: int | None = None) -> None:
        super().__init__(task, str(next(network.parameters()).device), batch_size)
        self.network = network
        self.name = str(getattr(network.cfg, "model_name", None) or type(network).__name__)
        ours = isinstance(network, HookedTransformer)
        self.settings = {
            "run": self.name, "kind": kind_of(network.config) if ours else "softmax",
            "task": to_dict(task.config)}
        if ours:
            check_fits(task, network.config)

    def called(self, name: str) -> None:
        """Give the model another name in results, where several are compared."""
        self.name = name
        self.settings = {**self.settings, "run": name}

    def shown(self, untrained: bool, seed: int) -> tuple[Any, dict[str, Any]]:
        model = with_fresh_weights(self.network, seed) if untrained else self.network
        return model, {**self.settings, "untrained": untrained}


def check_fits(task: Task, model: ModelConfig) -> None:
    """Raise `ConfigError` for a task whose problems are no input of a model of ours."""
    have = task.config
    check(have.d_input == model.d_input and have.d_output == model.d_output,
          f"task has d_input {have.d_input} and d_output {have.d_output}; expected "
          f"{model.d_input} and {model.d_output}, those of the model")


def placed(device: str | None) -> str:
    """Return the name of a device; `ConfigError` for one that there is not."""
    return str(resolve_device(device or "cpu"))
