"""What determines a run? Its configuration: checked, hashed, read from YAML and from presets."""

from __future__ import annotations

from latentcode.config.run import (
    TASKS,
    LanguageConfig,
    LogicConfig,
    RunConfig,
    SravenConfig,
    TaskConfig,
    TrainingConfig,
    config_hash,
    flatten,
    from_dict,
    from_yaml,
    load_config,
    parse_yaml,
    task_from_dict,
    to_dict,
    to_yaml,
)

__all__ = ["TASKS", "LanguageConfig", "LogicConfig", "RunConfig", "SravenConfig", "TaskConfig",
           "TrainingConfig", "config_hash", "flatten", "from_dict", "from_yaml", "load_config",
           "parse_yaml", "task_from_dict", "to_dict", "to_yaml"]
