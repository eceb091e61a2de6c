"""Our side of the benchmarks: training as `train` does it, and as plain PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from latentcode.config import RunConfig
from latentcode.devices import resolve_device
from latentcode.experiments.benchmarks.harness import Clock, Local
from latentcode.tasks import Batch
from latentcode.training.batches import CHUNK, TrainingBatches
from latentcode.training.ensemble import Ensemble
from latentcode.training.loop import make_learner
from latentcode.training.state import Learner, TrainingState


class SameBatches(TrainingBatches):
    """Batches that are drawn once and then used again and again."""

    def chunk(self, index: int) -> Batch:
        """Return the first CHUNK batches, whatever the index."""
        return super().chunk(0)

    def forget(self) -> None:
        """Keep what was drawn."""


def learner(configs: Sequence[RunConfig], *, sampling: bool = True,
            alone: bool | None = None) -> Learner:
    """Return a training: what `train` makes of one configuration, or an ensemble of several.

    sampling  False draws batches once, so that updates alone are left
    alone     whether one configuration is trained without the ensemble's machinery; default: as
              `train`, on the CPU
    """
    made: Learner
    if len(configs) > 1 or alone is False:
        made = Ensemble(configs)
    else:
        made = TrainingState.start(configs[0]) if alone else make_learner(configs[0])
    if not sampling:
        for index in range(len(configs)):
            state = made.member(index)
            state.batches = SameBatches(
                state.task, state.config.training.seed, state.config.training.batch_size,
                resolve_device(state.config.training.device))
    return made


@dataclass(frozen=True)
class Updates:
    """The contestant: updates of a training, all members at once.

    multiple  batches are drawn many at a time, so that a turn is a whole number of draws
    context   entered for every turn
    clock     what the seconds are of
    """

    name: str
    learner: Learner
    device: torch.device
    multiple: int = CHUNK
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    clock: Clock = time.perf_counter

    def seconds(self, n: int) -> float:
        """Return the seconds of n updates."""
        with self.context():
            taken = Local(
                self.name, self.learner.update, self.device, clock=self.clock).seconds(n)
        self.learner.forget_losses()
        return taken
