"""Training as a job: update, record, keep, until the end, a signal, a deadline or an error.

The processor is never made to wait for the device between two records: losses stay on the device
until a record is due.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from latentcode.config import RunConfig
from latentcode.devices import device_name, evaluation_batch
from latentcode.errors import TrainingError
from latentcode.metrics import Metric, is_by_constituent, mean_metric
from latentcode.models.flops import peak_flops, training_flops_per_token
from latentcode.progress import Bar
from latentcode.runs import Run
from latentcode.training.evaluation import evaluate
from latentcode.training.loggers import Logger
from latentcode.training.processes import ALONE, Group
from latentcode.training.signals import StopRequest
from latentcode.training.state import Learner

TRAINING_LOSS = "training_loss"
"""Metric: mean loss of the batches since the last record, with dropout; n counts batches."""


class Session:
    """Training from one start or resumption to the end, an interruption or an error.

    runs     the run folder of each member of `learner`
    stop     asked before every update
    bar      shows the step, training loss, headline metric of each split, pace and time left
    loggers  told of every metric; for a single run
    group    the processes that train together: only the first one writes and evaluates

    A member that breaks (`failures`) is left out from then on; the others go on.
    """

    def __init__(
        self, runs: Sequence[Run], learner: Learner, stop: StopRequest, bar: Bar,
        loggers: Sequence[Logger] = (), group: Group = ALONE,
    ) -> None:
        self.runs, self.learner = runs, learner
        self.stop, self.bar, self.loggers, self.group = stop, bar, loggers, group
        self.settings = runs[0].config.training
        self.headline = learner.member(0).task.headline
        self.shown: dict[str, str] = {}
        self.failures: dict[int, TrainingError] = {}
        self.began = time.perf_counter()
        self.pace = Pace(self.runs[0].config, len(runs), group.size, learner.step)

    @property
    def working(self) -> list[int]:
        """The members that have not broken."""
        return [index for index in range(len(self.runs)) if index not in self.failures]

    def work(self, fresh: bool) -> None:
        """Update until the last step, or until it is time to stop.

        Raises the `TrainingError` of the members that broke, and what the signal that stopped
        the session would have raised.
        """
        learner, settings = self.learner, self.settings
        self._note("start")
        if fresh:
            self._record()
            self._checkpoint()
        kept = learner.step
        while (learner.step < settings.steps and self.working
                and not self.group.any(self.stop.requested)):
            learner.update()
            self.bar(learner.step, settings.steps)
            self._record()
            if (learner.step % settings.checkpoint_every == 0
                    or learner.step in settings.milestones):
                self._checkpoint()
                kept = learner.step
        if self.working and kept != learner.step:
            self._checkpoint()
        interrupted = self.group.any(self.stop.interrupted)
        if interrupted or learner.step < settings.steps:
            self.bar.say(self._farewell())
        if self.failures:
            raise self._failure()
        if interrupted:
            raise self.stop.exception(self._farewell())

    def _record(self) -> None:
        """Log the training loss and evaluate, where the present step asks for it."""
        step, settings = self.learner.step, self.settings
        last = step == settings.steps
        logs = step > 0 and (last or step % settings.log_every == 0)
        evaluates = last or step % settings.eval_every == 0 or step in settings.milestones
        if not (logs or evaluates):
            return
        losses = self._finite_losses()
        if logs and any(losses.values()):
            self._publish("train", {
                index: {TRAINING_LOSS: mean_metric(torch.tensor(recent).numpy())}
                for index, recent in losses.items()})
            self.learner.forget_losses()
            pace = self.pace.measured(step)
            for logger in self.loggers:
                logger(step, "train", {
                    name: Metric(value, math.nan, 1) for name, value in pace.items()})
            self.shown["pace"] = f"{pace['tokens_per_second']:,.0f} tokens/s"
            if "model_flop_utilisation" in pace:
                self.shown["pace"] += f" ({pace['model_flop_utilisation']:.0%} of the peak)"
            self._show()
            self._note("log", **pace)
        if evaluates:
            with self.stop.timed(), self.pace.aside():
                self._evaluate()
            self._note("evaluation")

    def _evaluate(self) -> None:
        settings = self.settings
        if not self.group.leads:
            return
        metrics: dict[str, dict[int, Mapping[str, Metric]]] = {}
        for index in self.working:
            state = self.learner.member(index)
            device = next(state.model.parameters()).device
            size = state.task.config
            n_logits = (state.task.n_read or size.n_tokens) * size.d_output
            for split in state.task.splits:
                metrics.setdefault(split, {})[index] = evaluate(
                    state.model, state.task, split, settings.eval_instances,
                    seed=state.config.training.seed,
                    batch_size=evaluation_batch(settings.batch_size, device, n_logits),
                    device=device,
                    precision=settings.precision)
        for split, of_member in metrics.items():
            self._publish(split, of_member)
        self._show(line=True)

    def _publish(self, split: str, metrics: Mapping[int, Mapping[str, Metric]]) -> None:
        step = self.learner.step
        if not self.group.leads:
            return
        for index, of_member in metrics.items():
            self.runs[index].append_metrics(step, split, of_member)
            for logger in self.loggers:
                logger(step, split, of_member)
        means = mean_over_members(list(metrics.values()))
        if self.headline in means:
            self.shown[split] = f"{split} {self.headline} {means[self.headline].mean:.3f}"
        if TRAINING_LOSS in means:
            self.shown["loss"] = f"loss {means[TRAINING_LOSS].mean:.4g}"

    def _show(self, *, line: bool = False) -> None:
        """Show the newest numbers on the bar; where there is none, in a line."""
        self.bar.text = ", ".join(self.shown.values())
        self.bar(self.learner.step, self.settings.steps, line=line)

    def _checkpoint(self) -> None:
        losses = self._finite_losses()
        with self.stop.timed(), self.pace.aside():
            for index, recent in losses.items() if self.group.leads else ():
                state = self.learner.member(index)
                self.runs[index].save_checkpoint(
                    self.learner.step, state.model, state.optimizer, state.generators,
                    extra={"losses": recent, **state.batches.cursor(state.step)})
        self._note("checkpoint")

    def _finite_losses(self) -> dict[int, list[float]]:
        """Return the losses not yet recorded of the members in which they and all weights are
        finite, so that no checkpoint of a broken model is ever written; note the failures."""
        losses, finite = self.learner.recent_losses(), self.learner.weights_are_finite()
        for index in self.working:
            first = self.learner.step - len(losses[index]) + 1
            broken = [(step, loss) for step, loss in enumerate(losses[index], first)
                      if not math.isfinite(loss)]
            if not broken and finite[index]:
                continue
            what = (f"the loss is {broken[0][1]} at step {broken[0][0]}" if broken
                    else f"a weight is not finite after step {self.learner.step}")
            kept = f"training stops and {_kept(self.runs[index])}"
            drawn = self._not_finite_in_batch(index, broken[0][0]) if broken else None
            self.failures[index] = TrainingError(
                f"{what}; {kept}. A lower learning_rate, a longer warm-up or grad_clip may help"
                if drawn is None else f"{what}, because {drawn}; {kept}")
        if not self.working:
            raise self._failure()
        return {index: losses[index] for index in self.working}

    def _not_finite_in_batch(self, index: int, step: int) -> str | None:
        """Say which numbers of the batch of an update, counted from 1, are not finite, if any."""
        state = self.learner.member(index)
        batch = state.batches[step - 1]
        for name, values in (("inputs", batch.inputs), ("targets", batch.targets)):
            broken = int((~values.isfinite()).sum())
            if broken:
                return (f"task {state.task.name!r} drew {name} that are not ({broken} of "
                        f"{values.numel()} numbers of its batch)")
        return None

    def _failure(self) -> TrainingError:
        if len(self.runs) == 1:
            return self.failures[0]
        return TrainingError(
            f"{len(self.failures)} of {len(self.runs)} members broke: " + "; ".join(
                f"{self.runs[index].path}: {error}" for index, error in self.failures.items()))

    def _note(self, event: str, **measured: float) -> None:
        if not self.group.leads:
            return
        seconds = round(time.perf_counter() - self.began, 3)
        for index in self.working:
            self.runs[index].append_timing(
                {"step": self.learner.step, "event": event, "seconds": seconds, **measured})

    def _farewell(self) -> str:
        step = self.learner.step
        done = f"stopped after step {step} of {self.settings.steps}"
        first, count = self.runs[0].path, len(self.runs)
        where = str(first) if count == 1 else f"each of {count} folders, such as {first}"
        if step == self.settings.steps:
            return f"{done}: {where} is complete"
        again = ("Go on with the same command and --resume, or with train(config, out, "
                 "resume=True)" if count == 1 else "Go on with the same call")
        return f"{done}; a checkpoint is in {where}. {again}"


def _kept(run: Run) -> str:
    good = run.checkpoints()
    return (f"the last good checkpoint, of step {good[-1]}, is {run.checkpoint_path(good[-1])}"
            if good else "there is no checkpoint yet")


def mean_over_members(metrics: Sequence[Mapping[str, Metric]]) -> Mapping[str, Metric]:
    """Return the mean over members, with the standard error over members; one is itself.

    Which constituents occur is a matter of each member, and they are left out.
    """
    if len(metrics) == 1:
        return metrics[0]
    return {name: mean_metric(np.array([of_member[name].mean for of_member in metrics]))
            for name in metrics[0] if not is_by_constituent(name)}


class Pace:
    """Counts updates and the seconds that they took; evaluations and checkpoints are left out.

    n_members    models that are trained at once, each with batches of its own
    n_processes  processes with a device each
    """

    def __init__(self, config: RunConfig, n_members: int, n_processes: int, step: int) -> None:
        settings = config.training
        self.tokens_per_step = n_members * settings.batch_size * config.task.n_tokens
        self.flops_per_token = training_flops_per_token(config.model, config.task.n_tokens)
        peak = (peak_flops(device_name(settings.device), settings.precision)
                if settings.device.startswith("cuda") else None)
        self.peak = None if peak is None else peak * n_processes
        self._step, self._began, self._aside = step, time.perf_counter(), 0.0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave out what is done in here."""
        began = time.perf_counter()
        yield
        self._aside += time.perf_counter() - began

    def measured(self, step: int) -> dict[str, float]:
        """Return `tokens_per_second` since the last call and, of a GPU whose peak is known,
        `model_flop_utilisation`, from 0 to 1."""
        now = time.perf_counter()
        seconds = now - self._began - self._aside
        tokens = (step - self._step) * self.tokens_per_step
        self._step, self._began, self._aside = step, now, 0.0
        speed = tokens / max(seconds, 1e-9)
        found = {"tokens_per_second": round(speed, 1)}
        if self.peak is not None:
            found["model_flop_utilisation"] = round(speed * self.flops_per_token / self.peak, 4)
        return found
