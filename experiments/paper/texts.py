"""Where are the texts that language models are trained on? Beside the runs, made where missing.

A grid or a setting names such a text by a path relative to the folder that is worked in, so that
runs do not hold the paths of a machine: for the long trainings that is the folder of the runs, for
`latentcode reproduce` the current one. Which versions of the packages a text is of is recorded in
every run (its `task.revision`, and `text/` beside its checkpoints).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from latentcode.config import LanguageConfig, RunConfig

PACKAGES, SMOKE = "text/packages", "text/smoke"
TEXTS: Mapping[str, Mapping[str, Any]] = {
    PACKAGES: {}, SMOKE: {"packages": ("jinja2", "joblib", "pyyaml"), "most_megabytes": 0.2}}
"""Text of the installed packages -> what of them, as `write_packages` takes it."""


def make_texts(configs: Iterable[RunConfig]) -> None:
    """Write those of `TEXTS` that configurations name and that are not in the current folder."""
    from latentcode.tasks.text.packages import write_packages

    named = {config.task.text for config in configs if isinstance(config.task, LanguageConfig)}
    for text in named & set(TEXTS):
        if not Path(text).exists():
            write_packages(text, **TEXTS[text])


__all__ = ["PACKAGES", "SMOKE", "TEXTS", "make_texts"]
