"""One model in training: an update, and everything that the next update depends on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from latentcode.config import RunConfig
from latentcode.devices import check_precision, resolve_device
from latentcode.errors import ArtifactError
from latentcode.models.transformer import HookedTransformer
from latentcode.runs import Run
from latentcode.seeds import make_generator
from latentcode.tasks import Batch, Task, make_task, try_task
from latentcode.training.batches import DATA, TrainingBatches
from latentcode.training.evaluation import forward, matrix_products
from latentcode.training.optimizer import learning_rate, make_optimizer, set_learning_rate


def training_step(
    model: nn.Module,
    task: Task,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    *,
    precision: str = "float32",
    grad_clip: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Update the weights once and return the loss before the update, a scalar on the device.

    `generator` draws the dropout masks. Nothing here waits for the device.
    """
    with matrix_products(precision):
        logits = forward(model, task, batch.inputs, precision, generator, one_hot=batch.one_hot)
        loss = task.loss(logits, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
    if grad_clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    return loss.detach()


class Learner(Protocol):
    """What a session trains: one model, or an ensemble of them, all at the same step."""

    @property
    def step(self) -> int:
        """Number of updates done."""

    def update(self) -> None:
        """Update the weights once, without waiting for the device."""

    def recent_losses(self) -> list[list[float]]:
        """Return, per member, the losses not yet recorded; this waits for the device."""

    def forget_losses(self) -> None:
        """Drop the losses that have been recorded."""

    def weights_are_finite(self) -> list[bool]:
        """Return, per member, whether no weight is NaN or infinite; this waits for the device."""

    def restore(self, runs: Sequence[Run], step: int) -> None:
        """Go to the checkpoints of a step, one run per member."""

    def member(self, index: int) -> TrainingState:
        """Return a member as a state of its own, to look at until the next call or update."""


@dataclass
class TrainingState:
    """A model, its optimiser, its random streams, and the losses not yet recorded.

    As a `Learner` it has one member.
    """

    config: RunConfig
    task: Task
    model: HookedTransformer
    optimizer: torch.optim.Optimizer
    generators: dict[str, torch.Generator]
    """`dropout` draws the masks."""
    batches: TrainingBatches
    step: int = 0
    """Number of updates done."""
    losses: list[Tensor] = field(default_factory=list)
    """Losses of the updates since the last record, on the device."""

    @classmethod
    def start(cls, config: RunConfig) -> TrainingState:
        """Return the state before the first update, which the configuration determines."""
        settings = config.training
        device = resolve_device(settings.device)
        check_precision(settings.precision, device)
        task = make_task(config.task)
        config = replace(config, task=task.config)  # which says what state a text is in
        try_task(task, *task.splits)
        model = HookedTransformer(config.model, seed=settings.seed).to(device).train()
        return cls(
            config, task, model, make_optimizer(model, settings),
            {"dropout": make_generator(settings.seed, "train dropout", device)},
            TrainingBatches(task, settings.seed, settings.batch_size, device))

    def update(self) -> None:
        """Update the weights once."""
        settings = self.config.training
        set_learning_rate(self.optimizer, learning_rate(self.step, settings))
        self.losses.append(training_step(
            self.model, self.task, self.batches[self.step], self.optimizer,
            precision=settings.precision, grad_clip=settings.grad_clip,
            generator=self.generators["dropout"]))
        self.step += 1

    def restore(self, runs: Sequence[Run], step: int) -> None:
        """Go to the checkpoint of a step of one run."""
        run, = runs
        checkpoint = run.load_checkpoint(step)
        checkpoint.restore_model(self.model)
        checkpoint.restore_optimizer(self.optimizer, self.model)
        checkpoint.restore_generators(self.generators)
        device = next(self.model.parameters()).device
        losses = checkpoint.extra.get("losses")
        if not isinstance(losses, list) or any(type(loss) is not float for loss in losses):
            raise ArtifactError(f"{checkpoint.path} has losses {losses!r}; expected a list of "
                                "numbers")
        self.losses = [torch.tensor(loss, device=device) for loss in losses]
        self.batches.go_to(checkpoint.extra.get(DATA))
        self.step = checkpoint.step

    def recent_losses(self) -> list[list[float]]:
        """Return the losses not yet recorded; this waits for the device."""
        return [torch.stack(self.losses).tolist() if self.losses else []]

    def forget_losses(self) -> None:
        """Drop the losses that have been recorded."""
        self.losses.clear()

    def weights_are_finite(self) -> list[bool]:
        """Return whether no weight is NaN or infinite; this waits for the device."""
        largest = nn.utils.get_total_norm(list(self.model.parameters()), norm_type=math.inf)
        return [math.isfinite(largest.item())]

    def member(self, index: int) -> TrainingState:
        """Return the state itself."""
        return self
