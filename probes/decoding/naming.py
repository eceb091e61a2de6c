"""What features of untrained models and with shuffled labels are called in tables."""

from __future__ import annotations

import pandas as pd

MODELS = ("trained", "untrained", "shuffled")
"""Whose features are read: those of the model, of its initial weights, and of the model with
labels of other instances."""


def named(features: str, model: str = "trained") -> str:
    """Return `row`, `untrained row` or `shuffled row`; of the code the control's name alone."""
    if model == "trained":
        return features
    return model if features == "code" else f"{model} {features}"


def parted(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with column `model`, one of `MODELS`, and `features` without it."""
    model = table["features"].str.extract(f"^({'|'.join(MODELS[1:])})(?: |$)")[0]
    bare = [name if of not in MODELS else name.removeprefix(of).strip() or "code"
            for name, of in zip(table["features"], model, strict=True)]
    return table.assign(features=bare, model=model.fillna(MODELS[0]))
