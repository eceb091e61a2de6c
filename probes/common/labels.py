"""Labels as indicator matrices, combinations as clusters, and how far two sets of codes overlap.

A label is a column (`term_1`), a name that a pair resolves (`rule`: the rule of that pair's
response), or a group: `terms` means which values occur in any of the columns `term_1`,
`term_2`, ..., whatever their order. A group is a multi-label problem. Functions of the problems are
labels, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from latentcode.codes import LatentCodes
from latentcode.codes.latent_codes import check_new_label, label_groups, label_values
from latentcode.errors import (
    ProbeError,
    UnknownNameError,
    as_tuple,
    called,
    check,
    check_choice,
    check_distinct,
    listed,
)
from latentcode.tasks.pairs import Pair

if TYPE_CHECKING:
    from latentcode.codes.reader import Rows
    from latentcode.subjects import Subject

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
    train: pd.DataFrame, heldout: pd.DataFrame, name: str, pair: Pair, *, constant: bool = False
) -> Target:
    """Return the label `name` of a pair as indicator matrices, from all labels of the problems.

    constant  whether it may have a single outcome in training

    `UnknownNameError` lists the labels there are; `ProbeError` for a label with missing values,
    with values that are no classes, or with a single class in training.
    """
    columns, multilabel = resolve_label(name, train, pair)
    if not set(columns) <= set(heldout):
        raise UnknownNameError("label", name, heldout.columns)
    for labels in (train, heldout):
        for column in columns:
            check_classes(name, column, labels[column])
    values = [labels[list(columns)].to_numpy(dtype=object) for labels in (train, heldout)]
    occurring = {value for part in values for value in part.ravel()}
    try:
        classes = tuple(sorted(occurring))
    except TypeError:
        kinds = sorted({type(value).__name__ for value in occurring})
        raise ProbeError(f"label {name!r} mixes values of types {', '.join(kinds)}; expected one "
                         "type") from None
    target = Target(columns, multilabel, classes, *(
        np.stack([(part == value).any(axis=1) for value in classes], axis=1) for part in values))
    only = [repr(classes[i]) for i in np.flatnonzero(target.train.any(axis=0))]
    check(constant or target.varies, f"label {name!r} of pair {pair.name!r} has a single outcome "
          f"in training, the {'classes' if len(only) > 1 else 'class'} {', '.join(only)}; expected "
          "at least two", ProbeError)
    return target


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


def single_labels(labels: pd.DataFrame, names: Iterable[str], pair: Pair) -> tuple[str, ...]:
    """Return those of some names that stand for one column at a pair, and not for a group."""
    return tuple(name for name in names if not resolve_label(name, labels, pair)[1])


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


LabelFunction = Callable[..., Any]
"""Of a `Batch` on the CPU, one value per instance: bool, whole numbers or text."""
Labels = Sequence[str] | Mapping[str, LabelFunction]
"""Names of labels, or name -> function: `{"even": lambda batch: batch.targets[:, 0] % 2 == 0}`."""


def custom_labels(
    labels: Labels | None, subject: Subject, parts: Sequence[tuple[str, int]], *, seed: int
) -> list[dict[str, np.ndarray]]:
    """Return the values of labels that are functions, for each part; none where they are names.

    parts  split and number of problems; the first is what a probe is fitted on

    Before anything is read: `UnknownNameError` for a name that stands for nothing; `ConfigError`
    for the name of a function that stands for a label of the problems already and for values that
    are no label, `ProbeError` for what is no function, for one that fails, for values that are no
    classes or a single class in the first part, and for problems that are no batch of a task.
    """
    if labels is None:
        return [{} for _ in parts]
    if not isinstance(labels, Mapping):
        known = known_labels(subject, parts[0][0], seed=seed)
        groups = label_groups(known)  # of rule_0 and rule_1 the pair's rule, and rules
        for name in as_tuple(labels):
            check_choice("label", name, [
                *(each for group in groups for each in (group.removesuffix("s"), group)), *known])
        return [{} for _ in parts]
    from latentcode.subjects.tasks import TaskSubject  # saved results are opened without torch

    if not isinstance(subject, TaskSubject):
        raise ProbeError("labels are functions of a batch, and the problems are prompts, or codes "
                         "in hand; expected names, or labels of codes that are given by "
                         "codes.with_labels(name=values)")
    check(len(labels) > 0, "labels is empty; expected at least one function", ProbeError)
    for name, function in labels.items():
        check(callable(function), f"label {name!r} is {function!r}; expected a function of a "
              "batch", ProbeError)
    computed = []
    for number, (split, n) in enumerate(parts):
        batch = subject.instances(split, n, seed=seed)
        taken = known_labels(subject, split, seed=seed)
        values: dict[str, np.ndarray] = {}
        for name, function in labels.items():
            check_new_label(name, [*taken, *values])
            given = called(f"label {name!r} cannot be computed: its function", ProbeError,
                           function, batch)
            values[name] = label_values(name, given, len(batch))
            check_classes(name, name, pd.Series(values[name]))
            classes = set(values[name].tolist())
            check(number > 0 or len(classes) > 1, f"label {name!r} has a single value, "
                  f"{classes.pop()!r}, in all {n} instances of {split}; expected at least two",
                  ProbeError)
        computed.append(values)
    return computed


def known_labels(subject: Subject, split: str, *, seed: int) -> list[str]:
    """Return the names of the labels that problems of a split have."""
    import torch

    from latentcode.subjects.prompts import PromptSubject
    from latentcode.subjects.tasks import TaskSubject

    if isinstance(subject, TaskSubject):
        batch, config = subject.instances(split, 1, seed=seed), subject.task.config
        logits = torch.zeros(len(batch), config.n_tokens, config.d_output)
        return [*map(str, subject.task.labels(batch)), *subject.task.measures(logits, batch)]
    if isinstance(subject, PromptSubject):
        return subject.label_names
    return [*map(str, subject.reader(split, n=1).read().labels)]


def names_of(labels: Labels) -> tuple[str, ...]:
    """Return the names of labels, functions or not, one or several, each once."""
    names = tuple(labels) if isinstance(labels, Mapping) else as_tuple(labels)
    check_distinct("labels", names)
    return names


def asked_labels(labels: Labels | None, subject: Subject) -> Labels:
    """Return `labels`, or those that the problems themselves are asked about.

    `ProbeError` where neither says any.
    """
    if labels is not None or subject.probe_labels:
        return subject.probe_labels if labels is None else labels
    known = known_labels(subject, "ood", seed=0)
    raise ProbeError("labels are missing, and these problems do not say which matter; they have: "
                     f"{listed(known)}")


def shared_combinations(
    train: LatentCodes | Rows, heldout: LatentCodes | Rows, allow_overlap: str = "nothing"
) -> int:
    """Return how many held-out combinations occur in training.

    allow_overlap  what the two may share: `nothing`; `combinations`, which asks about new instances
                   of the same ones, as in the split `test`; or `instances`, which asks about what
                   the probe was fitted on itself (`shared_instances`, of codes alone)

    `ProbeError` where they share more.
    """
    check_choice("allow_overlap", allow_overlap, ("nothing", "combinations", "instances"))
    if not all("combination" in codes.labels for codes in (train, heldout)):
        return 0
    ours, theirs = (set(codes.labels["combination"].astype(str)) for codes in (train, heldout))
    common = sorted(ours & theirs)
    if not common or allow_overlap == "instances":
        return len(common)
    codes = [x if isinstance(x, LatentCodes) else x.codes for x in (train, heldout)]
    same, known_by = (0, "") if None in codes else shared_instances(*codes)  # type: ignore[arg-type]
    check(same == 0, f"{same} of {len(heldout)} held-out instances are training instances, too "
          f"({known_by}); expected others, such as those of the splits train and ood, or "
          "allow_overlap='instances' to score a probe on what it was fitted on", ProbeError)
    check(allow_overlap == "combinations", f"{len(common)} of {len(theirs)} held-out combinations "
          f"occur in training, such as {common[0]!r}; expected others, such as those of the splits "
          "train and ood, or allow_overlap='combinations' for new instances of the same ones",
          ProbeError)
    return len(common)


def shared_instances(train: LatentCodes, heldout: LatentCodes) -> tuple[int, str]:
    """Return how many held-out instances are training instances, and by what they are known.

    Two extractions of one task, split and seed number the same instances, whatever model read
    them. Where codes do not say what they are of, those are the same whose labels and codes all
    are.
    """
    names = [name for name in train.labels if name in heldout.labels and name != "split"]
    _, of_train, of_heldout = np.intersect1d(train.instances(), heldout.instances(),
                                             return_indices=True)
    if of_train.size and all(stated(train, key) == stated(heldout, key) is not None
           for key in ("task", "split", "seed")):
        exact = [name for name in names if train.labels[name].dtype.kind != "f"]
        ours, theirs = (codes.labels[exact].iloc[rows].astype(str).to_numpy()
                        for codes, rows in ((train, of_train), (heldout, of_heldout)))
        if np.array_equal(ours, theirs):
            same = np.isin(heldout.instances(), train.instances())
            return int(same.sum()), (f"both are of split {train.meta['split']!r} with seed "
                                     f"{train.meta['seed']}")

    def digests(codes: LatentCodes) -> list[int]:
        labels = codes.labels[names].astype(str).itertuples(index=False, name=None)
        return [hash((*row, scores.tobytes()))
                for row, scores in zip(labels, codes.scores, strict=True)]

    same = np.isin(digests(heldout), digests(train))
    return int(same.sum()), "their labels and codes are the same"


def shared_caveat(settings: Mapping[str, Any]) -> list[str]:
    """Return the caveat that what is held out was trained on, where it was allowed."""
    n = settings.get("shared_combinations", 0)
    if not n:
        return []
    what = "what the probe was fitted on" if settings.get("allow_overlap") == "instances" else (
        "new instances of known combinations")
    return [f"{n} held-out combinations occur in training: these are scores on {what}."]


def stated(codes: LatentCodes | Rows, key: str) -> str | None:
    """Return what codes say of where they come from, as JSON: saved ones have lists for tuples."""
    return json.dumps(codes.meta[key], sort_keys=True, default=str) if key in codes.meta else None
