"""What is there to decode? Labels of codes as indicator matrices, and combinations as clusters.

A label is a column (`term_1`), a name that a pair resolves (`rule`: the rule of that pair's
response), or a group: `terms` means which values occur in any of the columns `term_1`,
`term_2`, ..., whatever their order. A group is a multi-label problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.codes.labels import label_groups
from latentcode.errors import ProbeError, UnknownNameError, as_tuple, check
from latentcode.tasks.pairs import Pair

MAX_CLASSES = 256
"""A label with more different values than this is taken for a measurement, not a class."""


@dataclass(frozen=True)
class Target:
    """A label of two sets of codes in a common order of classes.

    columns     the label columns that the name stands for
    multilabel  whether several classes can hold at once
    classes     the values that occur in either set, in rising order
    train, heldout  bool [N, class]
    """

    columns: tuple[str, ...]
    multilabel: bool
    classes: tuple[object, ...]
    train: np.ndarray
    heldout: np.ndarray

    @property
    def varies(self) -> bool:
        """Whether training holds instances with a class and instances without it."""
        return bool((self.train.any(axis=0) & ~self.train.all(axis=0)).any())

    @property
    def constant(self) -> np.ndarray:
        """The best constant answer to the scored problems, bool [N, class]: every class of a group,
        else the commonest."""
        if self.multilabel:
            return np.ones_like(self.heldout)
        answer = np.zeros_like(self.heldout)
        answer[:, self.heldout.sum(axis=0).argmax()] = True
        return answer

    @property
    def n_unseen(self) -> int:
        """Held-out instances with a class that never occurs in training."""
        unseen = ~self.train.any(axis=0)
        return int(self.heldout[:, unseen].any(axis=1).sum())


def make_target(
    train: LatentCodes, heldout: LatentCodes | Sequence[LatentCodes], name: str, pair: str
) -> Target:
    """Return the label `name` of a pair as indicator matrices; held-out splits follow each other.

    `UnknownNameError` lists the labels there are; `ProbeError` for a label with missing values,
    with values that are no classes, or with a single class in training.
    """
    columns, multilabel = label_columns(train, name, pair)
    splits = as_tuple(heldout)
    for codes in (train, *splits):
        if not set(columns) <= set(codes.labels):
            raise UnknownNameError("label", name, codes.labels.columns)
    scored = pd.concat([codes.labels[list(columns)] for codes in splits], ignore_index=True)
    return varying(indicated(name, columns, multilabel, train.labels, scored), name, pair)


def varying(target: Target, name: str, pair: str) -> Target:
    """Return the label `name` of a pair; `ProbeError` where it has a single outcome in training."""
    if not target.varies:
        only = [target.classes[i] for i in np.flatnonzero(target.train.any(axis=0))]
        held = "classes" if len(only) > 1 else "class"
        raise ProbeError(f"label {name!r} of pair {pair!r} has a single outcome in training, the "
                         f"{held} {', '.join(map(repr, only))}; expected at least two")
    return target


def indicated(
    name: str, columns: Sequence[str], multilabel: bool, train: pd.DataFrame,
    heldout: pd.DataFrame,
) -> Target:
    """Return the label `name`, which stands for some columns, as indicator matrices.

    `ProbeError` for missing values and for values that are no classes.
    """
    frames = [labels[list(columns)] for labels in (train, heldout)]
    for frame in frames:
        for column in columns:
            check_classes(name, column, frame[column])
    values = [np.stack([f[c].to_numpy(dtype=object) for c in columns], axis=1) for f in frames]
    classes = _sorted_classes(name, np.concatenate([v.ravel() for v in values]))
    index = {value: i for i, value in enumerate(classes)}
    indicators = []
    for block in values:
        indicator = np.zeros((len(block), len(classes)), dtype=bool)
        rows = np.arange(len(block))
        for column in block.T:
            indicator[rows, [index[v] for v in column]] = True
        indicators.append(indicator)
    return Target(tuple(columns), multilabel, classes, indicators[0], indicators[1])


def label_columns(codes: LatentCodes, name: str, pair: str) -> tuple[tuple[str, ...], bool]:
    """Return the columns that a label of a pair stands for, and whether it is a group."""
    return resolve_label(name, codes.labels, codes.pair(pair))


def resolve_label(
    name: str, labels: pd.DataFrame, pair: Pair
) -> tuple[tuple[str, ...], bool]:
    """Return the columns that a name stands for at a pair, and whether it is a group.

    `rule` is a column of that name or, at a pair whose response is token 2, `rule_2`; `rules` are
    all of `rule_0`, `rule_1` and so on. `UnknownNameError` for a name that stands for nothing.
    """
    for column in (name, f"{name}_{pair.token}"):
        if column in labels:
            return (column,), False
    groups = label_groups(labels.columns)
    if name not in groups:
        raise UnknownNameError("label", name, [*map(str, labels.columns), *groups])
    return groups[name], True


def single_labels(codes: LatentCodes, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of some names that stand for one column and not for a group."""
    pair = codes.pairs[0].name
    return tuple(name for name in names if not label_columns(codes, name, pair)[1])


def combination_clusters(codes: LatentCodes) -> np.ndarray:
    """Return the combination of each instance as int [N] from 0 to n_combinations - 1."""
    return groups_of(codes.labels)


def groups_of(labels: pd.DataFrame) -> np.ndarray:
    """Return the combination of each row as int [N] from 0 to n_combinations - 1.

    Read from the column `combination`; `ProbeError` without one.
    """
    check("combination" in labels, "the labels have no column 'combination', by which instances "
          f"are clustered; they have: {', '.join(map(str, labels.columns))}", ProbeError)
    column = labels["combination"]
    check(not column.isna().any(), "the label 'combination' has missing values", ProbeError)
    return np.asarray(pd.factorize(column.astype(str))[0], dtype=np.int64)


def check_classes(name: str, column: str, values: pd.Series) -> None:
    """Raise `ProbeError` for values that are missing, measurements, or too many to be classes."""
    check(not values.isna().any(), f"label {name!r} (column {column!r}) has "
          f"{int(values.isna().sum())} missing values; expected none", ProbeError)
    if pd.api.types.is_float_dtype(values):
        raise ProbeError(f"label {name!r} (column {column!r}) is a measurement ({values.dtype}); "
                         "logistic regression decodes classes: bin it first, or decode a label "
                         "with whole numbers or names")
    n = values.nunique()
    check(n <= MAX_CLASSES, f"label {name!r} (column {column!r}) has {n} different values; "
          f"expected at most {MAX_CLASSES} classes", ProbeError)


def _sorted_classes(name: str, values: np.ndarray) -> tuple[object, ...]:
    distinct = set(values.tolist())
    try:
        return tuple(sorted(distinct))
    except TypeError:
        kinds = sorted({type(v).__name__ for v in distinct})
        raise ProbeError(f"label {name!r} mixes values of types {', '.join(kinds)}; expected one "
                         "type") from None
