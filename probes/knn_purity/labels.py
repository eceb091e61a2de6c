"""Which labels can neighbours agree on, and what are their values?"""

from __future__ import annotations

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.codes.labels import is_measurement, label_groups
from latentcode.errors import ProbeError, check
from latentcode.probes.common.labels import MAX_CLASSES


def judged_labels(codes: LatentCodes, pair: str) -> dict[str, np.ndarray]:
    """Return the values [N] of all labels that neighbours can agree on, by name.

    A label of the pair's token goes by its short name and comes first: `rule` and not `rule_2`.
    Left out are labels of a single value or more than 256, those with a value of its own for every
    instance, such as the texts of prompts, and those with missing values.
    """
    short = own_labels(codes, pair)
    names = sorted(map(str, codes.labels.columns), key=lambda name: name not in short)
    return {short.get(name, name): values.to_numpy() for name in names
            if _is_judged(values := codes.labels[name])}


def own_labels(codes: LatentCodes, pair: str) -> dict[str, str]:
    """Return column -> name of what a pair's response has of its own: {"rule_2": "rule"}."""
    token = codes.pair(pair).token
    names = [group.removesuffix("s") for group in label_groups(codes.labels.columns)]
    return {f"{name}_{token}": name for name in names if f"{name}_{token}" in codes.labels}


def label_classes(name: str, values: np.ndarray) -> np.ndarray:
    """Return the value of each point as int [N], numbered as they appear.

    Decimals of more than two values are a measurement: 1 above the median, else 0; where no value
    is above it, 1 for those that are equal to it. `ProbeError` for missing values, and for one
    value or more than 256.
    """
    series = pd.Series(values)
    check(not series.isna().any(), f"label {name!r} has {int(series.isna().sum())} missing values; "
          "expected none", ProbeError)
    if is_measurement(series):
        above = series > series.median()
        series = above if above.any() else series >= series.median()
    kind, kinds = pd.factorize(series)
    check(2 <= len(kinds) <= MAX_CLASSES, f"label {name!r} has {len(kinds)} different values; "
          f"expected 2 to {MAX_CLASSES}", ProbeError)
    return np.asarray(kind, dtype=np.int64)


def _is_judged(values: pd.Series) -> bool:
    return not values.isna().any() and (
        is_measurement(values) or 2 <= values.nunique() <= min(MAX_CLASSES, len(values) - 1))
