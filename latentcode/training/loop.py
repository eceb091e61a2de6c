"""The training loop: update, record, keep.

`training_step` is one update and nothing else. `train` is the job around it: a run folder,
evaluations, checkpoints, interruption and resumption. The processor is never made to wait for
the device between two records: losses stay on the device until a record is due.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from latentcode.config import RunConfig
from latentcode.devices import resolve_device
from latentcode.errors import ArtifactError, TrainingError, check
from latentcode.metrics import Metric, mean_metric
from latentcode.models.transformer import HookedTransformer
from latentcode.runs import Run
from latentcode.seeds import make_generator
from latentcode.tasks import Batch, Task, make_task
from latentcode.training.evaluation import evaluate, forward
from latentcode.training.loggers import Logger, check_loggers, open_logger
from latentcode.training.optimizer import learning_rate, make_optimizer, set_learning_rate
from latentcode.training.progress import Progress
from latentcode.training.signals import StopRequest, stop_on_signals

TRAINING_LOSS = "training_loss"
"""Metric: mean loss of the batches since the last record, with dropout; n counts batches."""


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
    loss = task.loss(forward(model, batch.inputs, precision, generator), batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if grad_clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    return loss.detach()


@dataclass
class TrainingState:
    """Everything that the next update depends on, and the losses not yet recorded."""

    model: HookedTransformer
    optimizer: torch.optim.Optimizer
    generators: dict[str, torch.Generator]
    """`data` draws the training batches, `dropout` the masks."""
    step: int = 0
    """Number of updates done."""
    losses: list[Tensor] = field(default_factory=list)
    """Losses of the updates since the last record, on the device."""

    @classmethod
    def start(cls, config: RunConfig) -> TrainingState:
        """Return the state before the first update, which the configuration determines."""
        settings = config.training
        device = resolve_device(settings.device)
        model = HookedTransformer(config.model, seed=settings.seed).to(device).train()
        generators = {purpose: make_generator(settings.seed, f"train {purpose}", device)
                      for purpose in ("data", "dropout")}
        return cls(model, make_optimizer(model, settings), generators)

    def restore(self, run: Run) -> None:
        """Go to the newest checkpoint of a run."""
        checkpoint = run.load_checkpoint()
        checkpoint.restore_model(self.model)
        checkpoint.restore_optimizer(self.optimizer, self.model)
        checkpoint.restore_generators(self.generators)
        device = next(self.model.parameters()).device
        losses = checkpoint.extra.get("losses")
        if not isinstance(losses, list) or any(type(loss) is not float for loss in losses):
            raise ArtifactError(f"{checkpoint.path} has losses {losses!r}; expected a list of "
                                "numbers")
        self.losses = [torch.tensor(loss, device=device) for loss in losses]
        self.step = checkpoint.step

    def recent_losses(self) -> list[float]:
        """Return the losses not yet recorded; this waits for the device."""
        return torch.stack(self.losses).tolist() if self.losses else []

    def weights_are_finite(self) -> bool:
        """Whether no weight is NaN or infinite; this waits for the device."""
        largest = nn.utils.get_total_norm(list(self.model.parameters()), norm_type=math.inf)
        return math.isfinite(largest.item())


def train(
    config: RunConfig,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    loggers: Sequence[str] = (),
) -> Run:
    """Train a model from scratch, or go on with it, and return its run folder.

    config     task, model and optimisation; it determines the result (bit for bit on the CPU
               with the same number of threads)
    out        the run folder; it must be new, unless `resume` or `overwrite` is set
    resume     go on from the newest checkpoint of `out`, which must have the same `config`
    overwrite  replace the run in `out`
    progress   show a progress bar on a terminal, and a line per evaluation elsewhere
    loggers    `tensorboard`, `wandb` or both, beside `metrics.jsonl`; they write below `out`

    Ctrl-C and SIGTERM finish the update in progress, write a checkpoint and then raise
    `KeyboardInterrupt` or `SystemExit`; a second one stops at once, with the last checkpoint
    intact. Raises `TrainingError` when the loss or a weight is not finite (the last good
    checkpoint stays), `RunError` for a folder that cannot be used and `ConfigError` for a
    device that is not there.
    """
    check(not (resume and overwrite),
          "resume and overwrite are both set; expected at most one of them")
    # Whatever can be wrong with the request is found before a folder is made or replaced.
    check_loggers(loggers)
    task, state = make_task(config.task), TrainingState.start(config)
    if resume:
        run = Run.open(out)
        run.check_config(config)
    else:
        run = Run.create(out, config, overwrite=overwrite)
    with run.writing(), ExitStack() as stack:
        fresh = not run.checkpoints()
        if not fresh:
            state.restore(run)
        if resume:
            run.prepare_resumption(None if fresh else state.step)
        session = _Session(
            run, task, state, stack.enter_context(stop_on_signals()),
            stack.enter_context(Progress(config.training.steps, state.step, task.headline,
                                         enabled=progress)),
            [stack.enter_context(open_logger(name, run, state.step)) for name in loggers])
        session.work(fresh)
    return Run.open(run.path)


class _Session:
    """Training from one start or resumption to the end, an interruption or an error."""

    def __init__(
        self, run: Run, task: Task, state: TrainingState, stop: StopRequest, progress: Progress,
        loggers: Sequence[Logger],
    ) -> None:
        self.run, self.task, self.state = run, task, state
        self.stop, self.progress, self.loggers = stop, progress, loggers
        self.settings = run.config.training
        self.began = time.perf_counter()

    def work(self, fresh: bool) -> None:
        """Update until the last step, or until a signal asks to stop."""
        state, settings = self.state, self.settings
        self._note("start")
        if fresh:
            self._record()
            self._checkpoint()
        while state.step < settings.steps and not self.stop.requested:
            self._update()
            self._record()
            if state.step % settings.checkpoint_every == 0:
                self._checkpoint()
        if state.step not in self.run.checkpoints():
            self._checkpoint()
        if self.stop.requested:
            message = self._farewell()
            self.progress.say(message)
            raise self.stop.exception(message)

    def _update(self) -> None:
        state, settings = self.state, self.settings
        set_learning_rate(state.optimizer, learning_rate(state.step, settings))
        batch = self.task.sample("train", settings.batch_size, state.generators["data"])
        state.losses.append(training_step(
            state.model, self.task, batch, state.optimizer, precision=settings.precision,
            grad_clip=settings.grad_clip, generator=state.generators["dropout"]))
        state.step += 1
        self.progress.advance(state.step)

    def _record(self) -> None:
        """Log the training loss and evaluate, where the present step asks for it."""
        step, settings = self.state.step, self.settings
        last = step == settings.steps
        if self.state.losses and (last or step % settings.log_every == 0):
            losses = self._finite_losses()
            self._publish("train", {TRAINING_LOSS: mean_metric(torch.tensor(losses).numpy())})
            self.state.losses.clear()
            self._note("log")
        if last or step % settings.eval_every == 0:
            self._finite_losses()
            for split in self.task.splits:
                self._publish(split, evaluate(
                    self.state.model, self.task, split, settings.eval_instances,
                    seed=settings.seed, batch_size=settings.batch_size,
                    device=self.state.generators["data"].device, precision=settings.precision))
            self.progress.evaluated(step)
            self._note("evaluation")

    def _publish(self, split: str, metrics: dict[str, Metric]) -> None:
        self.run.append_metrics(self.state.step, split, metrics)
        self.progress.metrics(split, metrics)
        for logger in self.loggers:
            logger.log(self.state.step, split, metrics)

    def _checkpoint(self) -> None:
        losses = self._finite_losses()
        state = self.state
        self.run.save_checkpoint(state.step, state.model, state.optimizer, state.generators,
                                 extra={"losses": losses})
        self._note("checkpoint")

    def _finite_losses(self) -> list[float]:
        """Return the losses not yet recorded; `TrainingError` unless they and all weights are
        finite, so that no checkpoint of a broken model is ever written."""
        state, losses = self.state, self.state.recent_losses()
        first = state.step - len(losses) + 1
        broken = [(step, loss) for step, loss in enumerate(losses, first)
                  if not math.isfinite(loss)]
        if not broken and state.weights_are_finite():
            return losses
        what = (f"the loss is {broken[0][1]} at step {broken[0][0]}" if broken
                else f"a weight is not finite after step {state.step}")
        good = self.run.checkpoints()
        kept = (f"the last good checkpoint, of step {good[-1]}, is "
                f"{self.run.checkpoint_path(good[-1])}" if good else "there is no checkpoint yet")
        raise TrainingError(f"{what}; training stops and {kept}. A lower learning_rate, a longer "
                            "warm-up or grad_clip may help")

    def _note(self, event: str) -> None:
        seconds = round(time.perf_counter() - self.began, 3)
        self.run.append_timing({"step": self.state.step, "event": event, "seconds": seconds})

    def _farewell(self) -> str:
        done = f"stopped after step {self.state.step} of {self.settings.steps}"
        if self.state.step == self.settings.steps:
            return f"{done}: {self.run.path} is complete"
        return (f"{done}; a checkpoint is in {self.run.path}. Go on with the same command and "
                "--resume, or with train(config, out, resume=True)")
