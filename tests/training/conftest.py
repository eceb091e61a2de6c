"""A run that takes a fraction of a second and still uses everything: dropout, all splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tiny_training import TINY
from torch import Tensor

from latentcode.config import LogicConfig, RunConfig
from latentcode.tasks import Batch
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.training import state


@pytest.fixture
def tiny() -> Callable[..., RunConfig]:
    """Return the tiny configuration with some training fields changed."""

    def make(**training: Any) -> RunConfig:
        return replace(TINY, training=replace(TINY.training, **training))

    return make


@pytest.fixture
def meddle(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[int, Callable[[Tensor], Tensor]], AbstractContextManager[None]]:
    """Return a context in which the loss of one update of each session passes a function."""

    @contextmanager
    def meddling(update: int, action: Callable[[Tensor], Tensor]) -> Iterator[None]:
        class Meddled(FuzzyLogic):
            updates = 0

            def loss(self, logits: Tensor, batch: Batch) -> Tensor:
                loss = super().loss(logits, batch)
                self.updates += 1
                return action(loss) if self.updates == update else loss

        def make(config: LogicConfig) -> FuzzyLogic:
            return Meddled(config)

        with monkeypatch.context() as patch:
            patch.setattr(state, "make_task", make)
            yield

    return meddling
