"""Which instances does each update see?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from latentcode.seeds import make_generator
from latentcode.tasks import Batch, Task

CHUNK = 32
"""Updates whose batches are drawn together: drawing is many small operations, whose overhead
would otherwise be paid in every update."""
DATA = "data"
"""What a checkpoint calls the place in a text."""


class TrainingBatches:
    """The batches of one run: that of a step depends on (task, seed, batch size, step) alone.

    Steps CHUNK c to CHUNK (c + 1) - 1 share a generator of their own, so that training can begin
    or resume at any step without a state of the stream. Of a task that reads its instances in
    order, step s has those from s * batch_size on.
    """

    def __init__(self, task: Task, seed: int, batch_size: int, device: torch.device) -> None:
        self.task, self.seed, self.batch_size, self.device = task, seed, batch_size, device
        self._in_order = task.in_order(seed)
        self._drawn: tuple[int, Batch] | None = None

    def chunk(self, index: int) -> Batch:
        """Return the instances of CHUNK successive updates, those of step CHUNK * index first."""
        if self._drawn is None or self._drawn[0] != index:
            n = CHUNK * self.batch_size
            if self._in_order is None:
                generator = make_generator(self.seed, f"train data {index}", self.device)
                self._drawn = index, self.task.sample("train", n, generator)
            else:
                self._drawn = index, self._in_order.read(index * n, n, self.device)
        return self._drawn[1]

    def __getitem__(self, step: int) -> Batch:
        """Return the batch of an update, which counts from 0."""
        index, place = divmod(step, CHUNK)
        return self.chunk(index)[place * self.batch_size:(place + 1) * self.batch_size]

    def forget(self) -> None:
        """Free the memory of the instances drawn last; they are drawn again when asked for."""
        self._drawn = None

    def cursor(self, step: int) -> dict[str, Mapping[str, Any]]:
        """Return what a checkpoint keeps, beside the step, of where an order goes on."""
        return {} if self._in_order is None else {
            DATA: self._in_order.cursor(step // CHUNK * CHUNK * self.batch_size)}

    def go_to(self, cursor: Mapping[str, Any] | None) -> None:
        """Take what `cursor` returned to an earlier process under `DATA`."""
        if self._in_order is not None and cursor is not None:
            self._in_order.go_to(cursor)
