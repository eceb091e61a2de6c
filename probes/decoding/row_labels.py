"""What features of more than a code are asked: operation, operands and answer, as classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from latentcode.codes.labels import label_groups
from latentcode.errors import UnknownNameError
from latentcode.probes.common.labels import Target, indicated
from latentcode.subjects import Subject

N_BINS = 8
"""Bins of equal share of the training instances that a measurement, such as the answer of fuzzy
logic, is put into: as many as SRAVEN has symbols."""
ANSWER, OPERAND = "answer", "operand"
"""The column of the answer, and what those of operands begin with (`Task.row_labels`)."""


def asked(
    of: Subject, pair: str, train: pd.DataFrame, others: Sequence[pd.DataFrame]
) -> list[pd.DataFrame]:
    """Return operation, operands and answer of training instances, then those of others.

    Measurements are bins 1 .. N_BINS, between the quantiles of the training instances.
    """
    frames = [of.row_labels(labels, pair) for labels in (train, *others)]
    for column in frames[0].columns[frames[0].dtypes.map(lambda dtype: dtype.kind == "f")]:
        edges = np.quantile(frames[0][column], np.linspace(0, 1, N_BINS + 1)[1:-1])
        for frame in frames:
            frame[column] = 1 + np.searchsorted(edges, frame[column].to_numpy())
    return frames


def default_labels(of: Subject, frame: pd.DataFrame) -> tuple[str, ...]:
    """Return every column, and the groups that the task names for probing, such as `terms`."""
    groups = label_groups(frame.columns)
    return (*map(str, frame.columns), *(name for name in of.probe_labels if name in groups))


def targets_of(
    names: Sequence[str], train: pd.DataFrame, heldout: pd.DataFrame
) -> dict[str, Target]:
    """Return labels as indicator matrices; `UnknownNameError` for one that there is not."""
    groups = label_groups(train.columns)
    found = {}
    for name in names:
        if name not in train and name not in groups:
            raise UnknownNameError("label", name, [*map(str, train.columns), *groups])
        columns = (name,) if name in train else groups[name]
        found[name] = indicated(name, columns, name not in train, train, heldout)
    return found


def conditions(frame: pd.DataFrame) -> Mapping[str, tuple[str, ...]]:
    """Return what may be known beside features: the answer, or the answer and all operands."""
    operands = tuple(str(name) for name in frame if str(name).startswith(OPERAND))
    if ANSWER not in frame:
        return {}
    alone = {ANSWER: (ANSWER,)}
    return alone | {"answer and operands": (ANSWER, *operands)} if operands else alone


def is_operation(name: str) -> bool:
    """Whether a column of `Task.row_labels` says what is done, not to what or what comes out."""
    return name != ANSWER and not name.startswith(OPERAND)
