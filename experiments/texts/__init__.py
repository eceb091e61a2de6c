"""Where are the texts that language models are trained on? Beside the runs, made where missing.

A grid or a setting names such a text by a path relative to the folder that is worked in, so that
runs do not hold the paths of a machine: for the long trainings that is the folder of the runs, for
`latentcode reproduce` and `latentcode sweep` the current one. Which versions of the packages a text
is of is recorded in every run (its `task.revision`, and `text/` beside its checkpoints).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from latentcode.config import LanguageConfig, RunConfig
from latentcode.experiments.texts.packages import write_packages
from latentcode.experiments.texts.spans import write_spans

PACKAGES, SMOKE, SPANS = "text/packages", "text/smoke", "text/spans"
TEXTS: Mapping[str, Callable[[str], Any]] = {
    PACKAGES: write_packages,
    SMOKE: partial(write_packages, packages=("jinja2", "joblib", "pyyaml"), most_megabytes=0.2),
    SPANS: write_spans}
"""Text -> what writes it: that of the installed packages, or one in which copying pays."""


def make_texts(configs: Iterable[RunConfig]) -> None:
    """Write those of `TEXTS` that configurations name and that are not in the current folder."""
    named = {config.task.text for config in configs if isinstance(config.task, LanguageConfig)}
    for text in named & set(TEXTS):
        if not Path(text).exists():
            TEXTS[text](text)
