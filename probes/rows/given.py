"""Is there operation in features beyond what the answer tells of it?

A code that determines the answer tells something of the rule, as the answer does. So two probes
are compared: one that knows the answer, and one that knows the answer and the features. What is
known enters as log p(class | answer), the table of the training split, as a linear probe on
[one-hot answer] would learn it; with answer and operands it is log p(class | answer, operands),
which no linear probe on one-hot vectors could learn: they determine the answer together with the
rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from latentcode.probes.common.labels import Target
from latentcode.probes.decoding.logistic import LEAST_PROBABILITY

TABLE_INSTANCES = 65_536
"""Instances of the training split that the tables are counted on; no model reads them."""


@dataclass(frozen=True)
class Known:
    """What is known beside features: log p(class | known labels), float64 [N, class].

    label   what is decoded; given: the name of what is known
    losses  of the probe that has nothing else, on the held-out instances, nats, float64 [N]
    """

    label: str
    given: str
    train: np.ndarray
    heldout: np.ndarray
    losses: np.ndarray


def log_posteriors(
    label: str, known: Sequence[str], target: Target, counted: pd.DataFrame,
    frames: Sequence[pd.DataFrame],
) -> list[np.ndarray]:
    """Return log p(class | known labels) of the instances of some frames, float64 [N, class].

    counted  instances whose classes and known labels are counted; to each cell the prior is
             added, with the weight of one instance
    """
    known = list(known)
    together = pd.concat([counted[known], *(frame[known] for frame in frames)])
    cells = together.groupby(known, sort=False, observed=True).ngroup().to_numpy()
    index = {value: i for i, value in enumerate(target.classes)}
    # A class of few training instances alone may be missing among those that are decoded.
    seen = counted[label].isin(index).to_numpy()
    classes = counted.loc[seen, label].map(index).to_numpy()
    counts = np.zeros((cells.max() + 1, len(index)))
    np.add.at(counts, (cells[:len(counted)][seen], classes), 1.0)
    prior = counts.sum(axis=0) / counts.sum()
    share = (counts + prior) / (counts.sum(axis=1, keepdims=True) + 1.0)
    table = np.log(np.maximum(share, LEAST_PROBABILITY))
    ends = np.cumsum([len(counted), *map(len, frames)])
    return [table[cells[first:last]] for first, last in pairwise(ends)]
