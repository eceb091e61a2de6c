"""The configuration of a run: frozen dataclasses, validated.

`RunConfig` = task + model + training. Nothing of this room imports torch, so that the command line
can show its help at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from latentcode.config.reading import from_yaml
from latentcode.config.tasks import LanguageConfig, LogicConfig, TaskConfig
from latentcode.config.training import TrainingConfig
from latentcode.errors import ConfigError, check
from latentcode.models.config import ModelConfig


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


def load_config(path: str | Path) -> RunConfig:
    """Read a `RunConfig` from a YAML file; `ConfigError` names the file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read configuration {path}: {error}") from None
    try:
        return from_yaml(RunConfig, text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
