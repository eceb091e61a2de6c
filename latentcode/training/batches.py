"""Which instances does each update see?"""

from __future__ import annotations

import torch

from latentcode.seeds import make_generator
from latentcode.tasks import Batch, Task

CHUNK = 32
"""Updates whose batches are drawn together: drawing is many small operations, whose overhead
would otherwise be paid in every update."""


class TrainingBatches:
    """The batches of one run: that of a step depends on (task, seed, batch size, step) alone.

    Steps CHUNK c to CHUNK (c + 1) - 1 share a generator of their own, so that training can begin
    or resume at any step without a state of the stream.
    """

    def __init__(self, task: Task, seed: int, batch_size: int, device: torch.device) -> None:
        self.task, self.seed, self.batch_size, self.device = task, seed, batch_size, device
        self._drawn: tuple[int, Batch] | None = None

    def chunk(self, index: int) -> Batch:
        """Return the instances of CHUNK successive updates, those of step CHUNK * index first."""
        if self._drawn is None or self._drawn[0] != index:
            generator = make_generator(self.seed, f"train data {index}", self.device)
            self._drawn = index, self.task.sample("train", CHUNK * self.batch_size, generator)
        return self._drawn[1]

    def __getitem__(self, step: int) -> Batch:
        """Return the batch of an update, which counts from 0."""
        index, place = divmod(step, CHUNK)
        return self.chunk(index)[place * self.batch_size:(place + 1) * self.batch_size]

    def forget(self) -> None:
        """Free the memory of the instances drawn last; they are drawn again when asked for."""
        self._drawn = None
