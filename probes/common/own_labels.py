"""What is asked about, before any code is read: names of labels, or functions of the problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentcode.codes.labels import check_new_label, label_groups, label_values
from latentcode.errors import ProbeError, UnknownNameError, as_tuple, check
from latentcode.probes.common.labels import check_classes

if TYPE_CHECKING:
    from latentcode.subjects import Subject
    from latentcode.tasks import Batch

LabelFunction = Callable[..., Any]
"""Of a `Batch` on the CPU, one value per instance: bool, whole numbers or text."""
Labels = Sequence[str] | Mapping[str, LabelFunction]
"""Names of labels, or name -> function: `{"even": lambda batch: batch.targets[:, 0] % 2 == 0}`."""


def own_labels(
    labels: Labels | None, of: Subject, parts: Sequence[tuple[str, int]], *, seed: int
) -> list[dict[str, np.ndarray]]:
    """Return the values of labels that are functions, for each part; none where they are names.

    of     what the codes are read from
    parts  split and number of problems; the first is what a probe is fitted on

    `UnknownNameError` for a name that stands for nothing; `ConfigError` for the name of a function
    that stands for a label of the problems already and for values that are no label, `ProbeError`
    for what is no function, for one that fails, for values that are no classes or a single class
    in the first part, and for functions where the problems are no batch of a task.
    """
    if not isinstance(labels, Mapping):
        if labels is not None:
            _check_names(as_tuple(labels), of.known_labels(parts[0][0], seed=seed))
        return [{} for _ in parts]
    check(len(labels) > 0, "labels is empty; expected at least one function", ProbeError)
    for name, function in labels.items():
        check(callable(function), f"label {name!r} is {function!r}; expected a function of a "
              "batch", ProbeError)
    found = []
    for number, (split, n) in enumerate(parts):
        batch = of.instances(split, n, seed=seed)
        taken = of.known_labels(split, seed=seed)
        values: dict[str, np.ndarray] = {}
        for name, function in labels.items():
            check_new_label(name, [*taken, *values])
            values[name] = _values(name, function, batch)
            classes = set(values[name].tolist())
            check(number > 0 or len(classes) > 1, f"label {name!r} has a single value, "
                  f"{classes.pop()!r}, in all {n} instances of {split}; expected at least two",
                  ProbeError)
        found.append(values)
    return found


def names_of(labels: Labels) -> tuple[str, ...]:
    """Return the names of labels, functions or not, one or several."""
    return tuple(labels) if isinstance(labels, Mapping) else as_tuple(labels)


def asked_labels(labels: Labels | None, of: Subject) -> Labels:
    """Return `labels`, or those that the problems themselves are asked about.

    `ProbeError` where neither says any.
    """
    if labels is not None or of.probe_labels:
        return of.probe_labels if labels is None else labels
    known = of.known_labels("ood", seed=0)
    raise ProbeError("labels are missing, and these problems do not say which matter; they have: "
                     f"{', '.join(known)}")


def _check_names(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise `UnknownNameError` for a name that stands for nothing at any pair."""
    groups = label_groups(known)
    choices = [*known, *(name for group in groups for name in (group.removesuffix("s"), group))]
    for name in names:
        if name not in choices:
            raise UnknownNameError("label", name, choices)


def _values(name: str, function: LabelFunction, batch: Batch) -> np.ndarray:
    try:
        given = function(batch)
    except Exception as error:
        raise ProbeError(f"label {name!r} cannot be computed: its function raised "
                         f"{type(error).__name__}: {error}") from error
    values = label_values(name, given, len(batch))
    check_classes(name, name, pd.Series(values))
    return values
