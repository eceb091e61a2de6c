"""The language models of the example that have learnt less: what a few countries have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from latentcode.experiments.examples.small_language_models import (
    COUNTRIES,
    LONGER,
    TEMPLATES,
    factorial,
    train,
)


def factorial_prompts(templates: Sequence[str] = TEMPLATES) -> pd.DataFrame:
    """Return three operations of eight countries in every template; half of the countries are held
    out. The key is the operation."""
    frame = factorial(templates, ("capital", "food", "river"), COUNTRIES[:8])
    return frame.assign(key=frame["operation"])


class LearntModels:
    """Folders of models by the name of their architecture."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, architecture: str, steps: int = 150) -> Path:
        folder = self.root / f"{architecture}-{steps}"
        if not folder.exists():
            sentences = factorial_prompts((*TEMPLATES, LONGER))
            train((sentences["prompt"] + sentences["answer"]).tolist(), folder, architecture,
                  steps=steps)
        return folder
