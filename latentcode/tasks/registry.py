"""Which class solves which configuration."""

from __future__ import annotations

from latentcode.config import LanguageConfig, LogicConfig, TaskConfig
from latentcode.errors import ConfigError
from latentcode.tasks.base import Task


def make_task(config: TaskConfig) -> Task:
    """Return the task that a configuration describes.

    `ConfigError` for language, of which there is no text to draw from.
    """
    if isinstance(config, LanguageConfig):
        raise ConfigError(
            "task 'language' has no instances to draw: its runs are imported, and the text that "
            "they were trained on is not here. Give the run's model token ids of your own")
    if isinstance(config, LogicConfig):
        from latentcode.tasks.logic.task import FuzzyLogic

        return FuzzyLogic(config)
    from latentcode.tasks.sraven import Sraven

    return Sraven(config)
