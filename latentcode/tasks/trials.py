"""A registered task is tried on a few instances: shapes of what its members return, finite numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor

from latentcode.devices import make_generator
from latentcode.errors import check
from latentcode.tasks.base import Task
from latentcode.tasks.batch import Batch
from latentcode.tasks.registry import REGISTRY

N = 4
"""Instances of a trial."""


def try_task(task: Task, *splits: str) -> None:
    """Raise `ConfigError`, which names the member, unless a task's members fit each other.

    Args:
        task: The task; one of the library is not tried.
        splits: Those to draw from, N instances each.
    """
    if REGISTRY.file(getattr(task, "name", "")) is None:
        return
    for split in splits:
        task.check_split(split)
        _try_split(task, split)


def _try_split(task: Task, split: str) -> None:
    def expect(condition: bool, member: str, returned: object, expected: str) -> None:
        given = (f"a tensor {list(returned.shape)}" if isinstance(returned, Tensor) else
                 returned if isinstance(returned, str) else f"a {type(returned).__name__}")
        check(condition, f"task {task.name!r}: for {N} instances of {split}, {member} returned "
              f"{given}; expected {expected}")

    def expect_tensor(member: str, values: object, *shape: int) -> None:
        fits = isinstance(values, Tensor) and tuple(values.shape) == shape
        expect(fits, member, values, f"a tensor {list(shape)}")
        finite = isinstance(values, Tensor) and bool(values.isfinite().all())
        expect(finite, member, "NaN or infinite numbers", "finite ones")

    size, batch = task.config, task.sample(split, N, make_generator(0, "trial"))
    expect(isinstance(batch, Batch), "sample", batch, "a lc.Batch")
    token_ids = isinstance(batch.inputs, Tensor) and batch.inputs.ndim == 2
    expect_tensor("sample (inputs)", batch.inputs, N, size.n_tokens,
                  *(() if token_ids else (size.d_input,)))
    expect_tensor("sample (targets)", batch.targets, N, *batch.targets.shape[1:])
    expect_tensor("sample (combination)", batch.combination, N)
    logits = torch.randn(N, task.check_n_read() or size.n_tokens, size.d_output,
                         generator=make_generator(0, "trial"))
    expect_tensor("losses", task.losses(logits, batch.targets), N)
    measures = task.measures(logits, batch)
    expect(isinstance(measures, Mapping), "measures", measures, "a dictionary of tensors")
    for name, values in measures.items():
        expect_tensor(f"measures ({name!r})", values, N)
    metrics = task.summarize({name: x.double().numpy() for name, x in {
        **measures, **task.constituent_measures(logits, batch)}.items()})
    expect(task.headline in metrics, "measures", ", ".join(metrics) or "nothing",
           f"the headline {task.headline!r} among them")
    names, labels = tuple(task.pairs), task.labels(batch)
    for part, values in zip(("query", "key"), task.positions(names, batch), strict=True):
        expect_tensor(f"positions ({part})", values, N, len(names))
        inside = bool(((values >= 0) & (values < size.n_tokens)).all())
        expect(inside, f"positions ({part})", f"numbers from {int(values.min())} to "
               f"{int(values.max())}", f"0 to {size.n_tokens - 1}")
    expect(isinstance(labels, pd.DataFrame), "labels", labels, f"a data frame of {N} rows")
    expect(len(labels) == N, "labels", f"{len(labels)} rows", f"{N}, one for each instance")
    expect("combination" in labels, "labels", f"the columns {', '.join(map(str, labels))}",
           "'combination' among them")
