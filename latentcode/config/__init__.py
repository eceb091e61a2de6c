"""What determines a run? Its configuration: checked, hashed, read from YAML and from presets."""

from __future__ import annotations

from latentcode.config.reading import (
    config_hash,
    fill_in,
    flatten,
    from_dict,
    from_yaml,
    parse_yaml,
    task_from_dict,
    to_dict,
    to_yaml,
)
from latentcode.config.run import RunConfig, load_config
from latentcode.config.tasks import (
    TASKS,
    LanguageConfig,
    LogicConfig,
    SravenConfig,
    TaskConfig,
)
from latentcode.config.training import TrainingConfig

__all__ = ["TASKS", "LanguageConfig", "LogicConfig", "RunConfig", "SravenConfig", "TaskConfig",
           "TrainingConfig", "config_hash", "fill_in", "flatten", "from_dict", "from_yaml",
           "load_config", "parse_yaml", "task_from_dict", "to_dict", "to_yaml"]
