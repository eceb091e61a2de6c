"""What is asked about, before any code is read: names of labels, or functions of the problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.arguments import as_tuple
from latentcode.codes.instances import instances
from latentcode.codes.labels import check_new_label, label_groups, label_values
from latentcode.errors import ProbeError, UnknownNameError, check
from latentcode.probes.common.labels import check_classes
from latentcode.tasks import Batch, Task

LabelFunction = Callable[[Batch], Any]
"""Of a batch on the CPU, one value per instance: bool, whole numbers or text."""
Labels = Sequence[str] | Mapping[str, LabelFunction]
"""Names of labels, or name -> function: `{"even": lambda batch: batch.targets[:, 0] % 2 == 0}`."""


def own_labels(
    labels: Labels | None, task: Task, parts: Sequence[tuple[str, int]], *, seed: int,
    device: str = "cpu",
) -> list[dict[str, np.ndarray]]:
    """Return the values of labels that are functions, for each part; none where they are names.

    task   what the codes are extracted from
    parts  split and number of instances; the first is what a probe is fitted on

    `UnknownNameError` for a name that stands for nothing; `ConfigError` for the name of a function
    that stands for a label of the task already and for values that are no label, `ProbeError` for
    what is no function, for one that fails, and for values that are no classes or a single class
    in the first part.
    """
    if not isinstance(labels, Mapping):
        if labels is not None:
            _check_names(as_tuple(labels), task, parts[0][0], seed=seed, device=device)
        return [{} for _ in parts]
    check(len(labels) > 0, "labels is empty; expected at least one function", ProbeError)
    for name, function in labels.items():
        check(callable(function), f"label {name!r} is {function!r}; expected a function of a "
              "batch", ProbeError)
    found = []
    for number, (split, n) in enumerate(parts):
        batch = instances(task, split, n, seed=seed, device=device).to("cpu")
        taken = _known(task, batch[:1])
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


def _check_names(
    names: Sequence[str], task: Task, split: str, *, seed: int, device: str
) -> None:
    """Raise `UnknownNameError` for a name that stands for nothing at any pair."""
    known = _known(task, instances(task, split, 1, seed=seed, device=device).to("cpu"))
    groups = label_groups(known)
    known += [name for group in groups for name in (group.removesuffix("s"), group)]
    for name in names:
        if name not in known:
            raise UnknownNameError("label", name, known)


def _known(task: Task, batch: Batch) -> list[str]:
    """Return the labels that codes of a task have, the measures of a model's answers included."""
    logits = torch.zeros(len(batch), task.config.n_tokens, task.config.d_output)
    return [*map(str, task.labels(batch)), *task.measures(logits, batch)]


def _values(name: str, function: LabelFunction, batch: Batch) -> np.ndarray:
    try:
        given = function(batch)
    except Exception as error:
        raise ProbeError(f"label {name!r} cannot be computed: its function raised "
                         f"{type(error).__name__}: {error}") from error
    values = label_values(name, given, len(batch))
    check_classes(name, name, pd.Series(values))
    return values


__all__ = ["LabelFunction", "Labels", "names_of", "own_labels"]
