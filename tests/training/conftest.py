"""A run that takes a fraction of a second and still uses everything: dropout, all splits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from latentcode.config import LogicConfig, RunConfig, TrainingConfig
from latentcode.models.config import ModelConfig
from latentcode.tasks import Batch
from latentcode.tasks.logic.task import FuzzyLogic
from latentcode.training import state

TINY = RunConfig(
    LogicConfig(n_variables=3, n_terms=2, n_examples=6, ood_fraction=0.3),
    ModelConfig(d_input=4, n_layers=2, d_model=8, n_heads=2, d_head=2, d_head_v=2, d_mlp=8,
                n_buckets=6, max_distance=6, attention_dropout=0.1),
    TrainingConfig(steps=12, batch_size=8, warmup_steps=2, eval_every=5, eval_instances=20,
                   log_every=4, checkpoint_every=5, keep_checkpoints=2, learning_rate=1e-2))


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
