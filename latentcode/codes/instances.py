"""The problems of a task that codes are read of: which they are, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from latentcode.codes.reader import Block, Source
from latentcode.codes.rows import Instances
from latentcode.config import TaskConfig
from latentcode.devices import checked_seed, make_generator, resolve_device
from latentcode.errors import as_tuple, check
from latentcode.runs import Run
from latentcode.runs.run import load_run
from latentcode.tasks import Batch, Task, as_task, try_task
from latentcode.tasks.base import DRAW

LOGIT_BYTES = 2**28
"""Bytes of the logits of all tokens beyond which a forward pass takes fewer instances."""


def instances(
    run_or_task: Run | str | Path | Task | TaskConfig,
    split: str = "ood",
    n: int | Sequence[int] = 4_096,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Batch:
    """Which problems are the rows of `extract(run, split=split, n=n, seed=seed)` the codes of?

    run_or_task  what they are drawn from: a run, its folder or a name of the zoo, which stand for
                 the run's own task; or a task, or its configuration. `decode` and the other verbs
                 draw from `make_task(run.config.task).probe_config`
    n            how many; or the numbers of the instances, from 0, in any order
    seed         that of the extraction
    device       where the codes were extracted, as a GPU draws other numbers from the same seed

    Fewer are the first of more. Raises what `load_run` raises, `ConfigError` for an n below 1 and
    for what is no whole number from 0, `SplitError` for a split that the task does not offer.
    """
    given = n.tolist() if hasattr(n, "tolist") else n  # an array, a tensor, or a number of numpy
    rows = range(given) if type(given) is int else as_tuple(given)
    check(len(rows) > 0 and all(_is_number(row) for row in rows), f"n is {n!r}; expected at least "
          "1, or numbers of instances, from 0")
    task = (as_task(load_run(run_or_task).config.task)
            if isinstance(run_or_task, Run | str | Path) else as_task(run_or_task))
    try_task(task, split)
    place = resolve_device(str(device))
    found = {block: drawn(task, split, block, seed, place)
             for block in sorted({row // DRAW for row in rows})}
    start = {block: i * DRAW for i, block in enumerate(found)}
    together = Batch.cat(list(found.values()))
    chosen = [start[row // DRAW] + row % DRAW for row in rows]
    return together[torch.tensor(chosen, device=together.inputs.device)]


def at_once(task: Task, batch_size: int) -> int:
    """Return how many instances to pass through a model: fewer where logits are large.

    At most `batch_size`, at least one, and no more than have logits of `LOGIT_BYTES`.
    """
    size = 4 * task.config.n_tokens * task.config.d_output
    return min(batch_size, max(LOGIT_BYTES // size, 1))


def _is_number(row: object) -> bool:
    return isinstance(row, Integral) and not isinstance(row, bool) and int(row) >= 0


def drawn(task: Task, split: str, block: int, seed: int, device: torch.device | str) -> Batch:
    """Return the instances of a split from number `block` * DRAW on, DRAW of them."""
    return task.sample(split, DRAW, make_generator(seed, f"extract {split} {block}", device))


class TaskSource(Source):
    """n instances of a split of a task.

    They are drawn DRAW at a time from a generator of their own, so that which they are depends
    neither on n nor on the batch size.

    pairs  default: the paper's, the first of the task's
    """

    def __init__(
        self, task: Task, split: str, *, n: int = 4_096, pairs: Sequence[str] | None = None,
        seed: int = 0, device: torch.device | str = "cpu",
    ) -> None:
        seed = checked_seed(seed)
        try_task(task, split)
        self.names = tuple(task.pairs)[:1] if pairs is None else as_tuple(pairs)
        task.check_pairs(self.names)
        self.task, self.split, self.seed, self.n, self.device = task, split, seed, n, device
        self.pairs = tuple(task.pairs[name] for name in self.names)
        self._first: Batch | None = None

    @property
    def settings(self) -> dict[str, Any]:
        return {"split": self.split, "seed": self.seed}

    def queries(self) -> Tensor:
        self._first = self._draw(0)
        return self.task.positions(self.names, self._first)[0]

    def _draw(self, index: int) -> Batch:
        if index == 0 and self._first is not None:  # drawn already, for its queries
            batch, self._first = self._first, None
            return batch
        return drawn(self.task, self.split, index, self.seed, self.device)

    def blocks(
        self, done: int, *, layers: Sequence[int], most: int, batch_size: int
    ) -> Iterator[Block]:
        batch_size = at_once(self.task, batch_size)
        size = min(max(most, batch_size), DRAW)
        for index in range(-(-done // DRAW), -(-self.n // DRAW)):
            batch = self._draw(index)[:self.n - index * DRAW]
            # Copies to a GPU wait for what it is doing: these are made before the forward passes.
            query, key = self.task.positions(self.names, batch)
            host = batch.to("cpu")
            for first in range(0, len(batch), size):
                part = slice(first, min(first + size, len(batch)))
                yield Block(
                    query[part],
                    self._batches(batch[part], query[part], key[part], batch_size),
                    partial(self._measure, batch[part]), partial(self._labels, host[part]))

    def _batches(
        self, batch: Batch, query: Tensor, key: Tensor, batch_size: int
    ) -> Iterator[Instances]:
        sets, places = self.task.key_sets(batch), self.task.places(batch)
        for start in range(0, len(batch), batch_size):
            rows = slice(start, min(start + batch_size, len(batch)))
            yield Instances(
                batch.inputs[rows], query[rows], key[rows], rows,
                key_sets={name: keys[rows] for name, keys in sets.items()},
                places={name: tokens[rows] for name, tokens in places.items()})

    def _measure(
        self, batch: Batch, logits: Tensor, instances: Instances
    ) -> Mapping[str, Tensor]:
        return self.task.measures(logits, batch[instances.rows])

    def _labels(self, batch: Batch, measured: Mapping[str, Tensor]) -> pd.DataFrame:
        labels = self.task.labels(batch)
        for name, values in measured.items():
            labels[name] = values.float().cpu().numpy()
        return labels
