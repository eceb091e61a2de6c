"""Does a task of a user's do what training and reading ask of it? A few instances tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import pandas as pd
import torch
from torch import Tensor

from latentcode.errors import ConfigError
from latentcode.seeds import make_generator
from latentcode.tasks.base import Task
from latentcode.tasks.batch import Batch
from latentcode.tasks.registry import REGISTRY

N = 4
"""Instances of a trial."""


def try_task(task: Task, *splits: str) -> None:
    """Are a registered task's batches, losses, measures, positions and labels of the right shape?

    splits  those to draw from, N instances each; a task of the library is not tried

    `ConfigError` names the member, what it returned and what was expected.
    """
    if REGISTRY.file(getattr(task, "name", "")) is None:
        return
    for split in splits:
        task.check_split(split)
        _Trial(task, split).run()


class _Trial:
    """One split of a task; in errors it says `task 'modadd': sample(...) returned a tuple ...`."""

    def __init__(self, task: Task, split: str) -> None:
        self.task, self.split = task, split

    def run(self) -> None:
        batch = self._batch()
        n_read = self.task.check_n_read() or self.task.config.n_tokens
        logits = torch.randn(N, n_read, self.task.config.d_output, requires_grad=True,
                             generator=make_generator(0, "trial"))
        losses = self.task.losses(logits, batch.targets)
        self._check_tensor("losses", losses, (N,), floating=True)
        if not losses.requires_grad:
            self._refuse("losses", "numbers without a gradient", "a differentiable function of "
                         "the logits")
        with torch.no_grad():
            self._check_measures(logits, batch)
        self._check_positions(batch)
        self._check_labels(batch)

    def _batch(self) -> Batch:
        task, size = self.task, self.task.config
        batch, again = (task.sample(self.split, N, make_generator(0, "trial")) for _ in range(2))
        if not isinstance(batch, Batch):
            self._refuse("sample", _described(batch), "a lc.Batch")
        if isinstance(batch.inputs, Tensor) and batch.inputs.ndim == 2:
            self._check_tensor("sample (inputs)", batch.inputs, (N, size.n_tokens),
                               floating=False, below=size.d_input)
        else:
            self._check_tensor("sample (inputs)", batch.inputs, (N, size.n_tokens, size.d_input),
                               floating=True)
        self._check_tensor("sample (targets)", batch.targets, (N, None))
        known = task.combinations(self.split)
        self._check_tensor("combinations", known, (None, None), floating=False)
        self._check_tensor("sample (combination)", batch.combination, (N,), floating=False,
                           below=len(known))
        for name, values in batch.info.items():
            if not isinstance(values, Tensor) or values.shape[:1] != (N,):
                self._refuse(f"sample (info {name!r})", _described(values), f"a tensor of {N} rows")
        for what, numbers in (("inputs", batch.inputs), ("targets", batch.targets)):
            if not bool(numbers.isfinite().all()):
                self._refuse(f"sample ({what})", "NaN or infinite numbers", "finite ones")
        different = _difference(batch, again)
        if different is not None:
            self._refuse("sample", f"other {different} when it was given an equal generator again",
                         "random numbers of that generator alone, and none of a global state")
        return batch

    def _check_measures(self, logits: Tensor, batch: Batch) -> None:
        measures = self.task.measures(logits, batch)
        if not isinstance(measures, Mapping):
            self._refuse("measures", _described(measures), "a dictionary of tensors")
        for name, values in measures.items():
            self._check_tensor(f"measures ({name!r})", values, (N,))
        every = {**measures, **self.task.constituent_measures(logits, batch)}
        metrics = self.task.summarize({name: x.double().numpy() for name, x in every.items()})
        if self.task.headline not in metrics:
            self._refuse("measures", ", ".join(metrics) or "nothing",
                         f"the headline {self.task.headline!r} among them")

    def _check_positions(self, batch: Batch) -> None:
        names = tuple(self.task.pairs)
        found = self.task.positions(names, batch)
        if not isinstance(found, tuple) or len(found) != 2:
            self._refuse("positions", _described(found), "a tuple of two tensors")
        for what, values in zip(("query", "key"), found, strict=True):
            self._check_tensor(f"positions ({what})", values, (N, len(names)), floating=False,
                               below=self.task.config.n_tokens)

    def _check_labels(self, batch: Batch) -> None:
        labels = self.task.labels(batch)
        if not isinstance(labels, pd.DataFrame):
            self._refuse("labels", _described(labels), f"a data frame of {N} rows")
        if len(labels) != N:
            self._refuse("labels", f"{len(labels)} rows", f"{N}, one for each instance")
        if "combination" not in labels:
            self._refuse("labels", f"the columns {', '.join(map(str, labels))}",
                         "'combination' among them")

    def _check_tensor(
        self, member: str, values: object, shape: tuple[int | None, ...], *,
        floating: bool | None = None, below: int | None = None,
    ) -> None:
        """A tensor of a shape (None: any size), of a kind of numbers, from 0 to `below` - 1."""
        wanted = f"a tensor [{', '.join('any' if n is None else str(n) for n in shape)}]"
        if not isinstance(values, Tensor) or len(values.shape) != len(shape) or any(
                n not in (None, size) for n, size in zip(shape, values.shape, strict=True)):
            self._refuse(member, _described(values), wanted)
        if floating is not None and floating != values.is_floating_point():
            self._refuse(member, str(values.dtype),
                         f"{wanted} of {'float32' if floating else 'int64'}")
        if below is not None and not bool(((values >= 0) & (values < below)).all()):
            self._refuse(member, f"numbers from {int(values.min())} to {int(values.max())}",
                         f"0 to {below - 1}")

    def _refuse(self, member: str, returned: str, expected: str) -> NoReturn:
        raise ConfigError(f"task {self.task.name!r}: for {N} instances of {self.split}, {member} "
                          f"returned {returned}; expected {expected}")


def _difference(one: Batch, other: object) -> str | None:
    """Return in what two batches differ, or None."""
    if not isinstance(other, Batch):
        return "things"
    pairs = {"inputs": (one.inputs, other.inputs), "targets": (one.targets, other.targets),
             "combination": (one.combination, other.combination),
             **{f"info {name!r}": (values, other.info.get(name))
                for name, values in one.info.items()}}
    for name, (mine, its) in pairs.items():
        if not isinstance(its, Tensor) or mine.shape != its.shape or not bool(
                ((mine == its) | ((mine != mine) & (its != its))).all()):  # NaN is NaN here
            return name
    return None


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    return f"a {type(value).__name__}"


__all__ = ["try_task"]
