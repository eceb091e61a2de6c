"""Which labels of codes can colour the points of a picture?"""

from __future__ import annotations

import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.probes.common.labels import label_groups

MOST_CATEGORIES = 48
"""Labels with more values than this are not offered as colours."""


def colour_labels(codes: LatentCodes, pair: str) -> list[str]:
    """Return the labels that points can be coloured by, those that probes decode first.

    "rule" is the rule of the pair's response where there are rule_0, rule_1, ...
    """
    token = codes.pair(pair).token
    own = [group.removesuffix("s") for group, columns in label_groups(codes.labels.columns).items()
           if token is not None and f"{group.removesuffix('s')}_{token}" in columns]
    others = [str(name) for name in codes.labels.columns if offered(codes.labels[name])]
    return list(dict.fromkeys([*own, *others]))


def offered(values: pd.Series) -> bool:
    """Whether a label can colour points: measurements, and categories that can be told apart."""
    return is_measurement(values) or 1 < values.nunique() <= MOST_CATEGORIES


def is_measurement(values: pd.Series) -> bool:
    """Whether a label is a number on a scale rather than a name."""
    return bool(pd.api.types.is_float_dtype(values)) and values.nunique() > 2


__all__ = ["colour_labels", "is_measurement", "offered"]
