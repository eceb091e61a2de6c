"""Tables of earlier formats, with the columns of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from latentcode.probes.decoding.naming import named


def as_today(table: pd.DataFrame, settings: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table of `DecodingResult` as it is today, whatever version wrote it.

    Versions before 4 reduced no features, and did not say how many numbers they have. Results of
    `latentcode.rows` called the code of a pair so, and had the model in a column of its own.
    """
    if "model" in table:
        table = _of_rows(table, settings)
    known = set(table)
    later = {"width"} if {"f1", "gain", "against"} & known else {"width", "size", "dimensions"}
    table = table.assign(**dict.fromkeys(later - known, np.nan))
    layers = [int(layer) if str(layer).isdigit() else layer for layer in table["layer"]]
    return table.assign(layer=pd.Series(layers, index=table.index))


def _of_rows(table: pd.DataFrame, settings: Mapping[str, Any]) -> pd.DataFrame:
    read = [named("code" if features == "pair" else features, model)
            for features, model in zip(table["features"], table["model"], strict=True)]
    table = table.assign(features=read)
    if "gain" in table:
        return table.drop(columns=["model", "size", "dimensions", "status"])
    n_train, n_heldout = settings["train"]["n"], settings["heldout"]["n"]
    return table.assign(
        n_train=n_train, n_heldout=n_heldout, n_train_combinations=np.nan,
        C=1.0 / (table["penalty"] * n_train)).rename(columns={"best_constant": "chance"}).drop(
            columns=["model", "penalty", "prior", "status"])
