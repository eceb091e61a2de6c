"""The configuration of a run: frozen dataclasses, validated.

`RunConfig` = task + model + training. Nothing of this room imports torch, so that the command line
can show its help at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latentcode.config.reading import from_yaml, read_text
from latentcode.config.tasks import TASKS, LanguageConfig, LogicConfig, TaskConfig
from latentcode.config.training import TrainingConfig
from latentcode.errors import ConfigError, check
from latentcode.models.config import OWN, ModelConfig
from latentcode.registry import Registry
from latentcode.sources import Source


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run."""

    task: TaskConfig = field(default_factory=LogicConfig)
    """The problems."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The hooked transformer."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """The optimisation."""

    def __post_init__(self) -> None:
        kind = TASKS.find(self.task.name)
        check(isinstance(self.task, kind), f"task is a {type(self.task).__qualname__}; expected a "
              f"{kind.__qualname__}, as task {self.task.name!r} is registered now")
        for name in ("d_input", "d_output"):
            mine, wanted = getattr(self.model, name), getattr(self.task, name)
            check(mine == wanted, f"model.{name} is {mine}; expected {wanted}, the {name} of "
                  f"task {self.task.name!r}")
        embedding = "token" if isinstance(self.task, LanguageConfig) else "dense"
        check(self.model.embedding == embedding,
              f"model.embedding is {self.model.embedding!r}; expected {embedding!r} for task "
              f"{self.task.name!r}")
        check(not self.model.cross_attention, "model.cross_attention is True; expected False: "
              f"task {self.task.name!r} has one sequence")


REGISTRIES: Mapping[str, Registry[Any]] = {
    registry.what: registry for registry in (TASKS, *OWN.values())}
"""What users can register and a configuration can name."""


def registered_in(config: RunConfig) -> dict[str, dict[str, str]]:
    """Which names of users does a configuration hold? What -> name -> the file it comes from."""
    return {what: {name: source.file} for what, (name, source) in own_in(config).items()}


def own_in(config: RunConfig) -> dict[str, tuple[str, Source]]:
    """Which names of users does a configuration hold? What -> the name, and where it is from."""
    named = {TASKS.what: config.task.name, **{
        registry.what: getattr(config.model, field) for field, registry in OWN.items()}}
    return {what: (name, source) for what, name in named.items()
            if (source := REGISTRIES[what].source(name)) is not None}


def check_registered(names: Mapping[str, Mapping[str, str]], where: object) -> None:
    """Raise `ConfigError` unless all names of `registered_in` are registered here, too.

    Nothing is imported because a file says so: the message tells the user what to import.
    """
    for what, files in names.items():
        for name, file in files.items():
            if name not in REGISTRIES.get(what, ()):
                raise ConfigError(
                    f"{where} has {what} {name!r}, which was registered in {file}; expected it to "
                    "be registered first, as it was there"
                    if " " in file else  # as in `NOWHERE`
                    f"{where} has {what} {name!r}, which is not registered here; expected `import "
                    f"{file.removesuffix('.py')}` first, or --import {file} on the command line")


def load_config(path: str | Path) -> RunConfig:
    """Read a `RunConfig` from a YAML file; `ConfigError` names the file."""
    text = read_text("configuration", Path(path))
    try:
        return from_yaml(RunConfig, text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
