"""Trains one model, or an ensemble, and keeps each in its run folder.

The processor is never made to wait for the device between two records: losses stay on the device
until a record is due.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Literal

import numpy as np
import torch

from latentcode.config import RunConfig, config_hash, to_dict
from latentcode.devices import device_name, evaluation_batch, resolve_device
from latentcode.errors import TrainingError, as_tuple, check, check_choice
from latentcode.metrics import Metric, is_by_constituent, mean_metric
from latentcode.models.flops import peak_flops, training_flops_per_token
from latentcode.progress import Bar
from latentcode.runs.run import (
    TIMING,
    Run,
    check_resumable,
    go_back_to,
    newest_whole,
    with_name,
)
from latentcode.training.ensemble import Ensemble
from latentcode.training.processes import (
    ALONE,
    Group,
    check_alone,
    is_restart,
    note_launch,
    processes,
)
from latentcode.training.state import TrainingState, check_shares, evaluate

TRAINING_LOSS = "training_loss"
"""Metric: mean loss of the batches since the last record, with dropout; n counts batches."""
Learner = TrainingState | Ensemble
"""What a session trains: one model, or an ensemble of them, all at the same step."""
LoggerName = Literal["tensorboard", "wandb"]
LOGGERS: tuple[LoggerName, ...] = ("tensorboard", "wandb")
Logger = Callable[[int, str, Mapping[str, Metric]], None]
"""Takes a step, a split and the metrics of the split at that step."""
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP")
                if hasattr(signal, name))
"""What asks to stop; SIGHUP, which Windows lacks, is sent when a terminal is closed."""
_stop_all = threading.Event()


def train(
    config: RunConfig,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    loggers: Sequence[str] | str = (),
    deadline: float | None = None,
) -> Run:
    """Train a model, from scratch or from its last checkpoint, and return its run folder.

    On a CUDA device an update is captured as a graph and replayed (see `Ensemble`, of which this
    is one member); a CPU runs it as written. Called by several processes that `torchrun` started,
    each computes its share of every batch, and all have to find the same folder: the first one
    writes it and returns the run, the others return a handle that was not read. Processes that
    were started again after one has died go on from the newest checkpoint.

    Ctrl-C, SIGTERM and SIGHUP (a terminal that is closed; not under `nohup`) finish the update in
    progress, write a checkpoint and then raise `KeyboardInterrupt` or `SystemExit`; a second one
    stops at once, with the last checkpoint intact.

    Args:
        config: Task, model and optimisation; it determines the result (bit for bit on the CPU with
            the same number of threads and version of torch).
        out: The run folder; it must be new, unless `resume` or `overwrite` is set.
        resume: Continue from the newest checkpoint of `out`, which must have the same `config`; a
            checkpoint that is damaged is set aside, and the one before it is taken.
        overwrite: Replace the run in `out`.
        progress: Show a progress bar on a terminal, and a line per evaluation elsewhere.
        loggers: `tensorboard`, `wandb` or both, beside `metrics.jsonl`; they write below `out`.
        deadline: Time (seconds, as `time.time()`) by which to have stopped with a checkpoint; the
            run that is returned is then not complete.

    Raises:
        LatentCodeError: `TrainingError` when the loss or a weight is not finite (the last good
            checkpoint stays), `RunError` for a folder that cannot be used and `ConfigError` for a
            device that is not there.
    """
    check(not (resume and overwrite),
          "resume and overwrite are both set; expected at most one of them")
    loggers = as_tuple(loggers)
    with processes(config.training.device) as group, ExitStack() as stack:
        try:
            out = with_name(out)
            if group.any(group.leads and is_restart(out)):
                resume, overwrite = True, False
            # Whatever can be wrong with the request is found before a folder is made or replaced.
            with group.together():
                group.check_same("the configuration", config_hash(config))
                check_loggers(loggers)
                if resume:
                    run = Run.open(out)
                    check_resumable(run, config)
                    config = replace(config, task=run.config.task)
                learner = make_learner(config, group)
                config = learner.member(0).config
            with group.together():
                group.check_same(
                    "the configuration (with the text's revision)", config_hash(config))
            with group.together():
                if not resume:
                    run = (Run.create(out, config, overwrite=overwrite) if group.leads
                           else Run(out, config, {}))
                if group.leads:
                    stack.enter_context(run.writing())
                    note_launch(out)
            if isinstance(learner, TrainingState):
                learner.join(group)
            _work([run], learner, group, loggers=loggers, deadline=deadline, progress=progress)
        except TrainingError:
            if group.leads:
                raise
            raise SystemExit(1) from None  # every process found the same
        return Run.open(run.path) if group.leads else Run(out, config, {})


def make_learner(config: RunConfig, group: Group = ALONE) -> Learner:
    """Return one model as it is trained: step by step on a CPU, as captured steps on CUDA.

    Step by step there, too, where several processes train it (see `TrainingState.join`), or where
    it is to be compiled, to accumulate gradients or to compute activations again.
    """
    settings = config.training
    plain = settings.accumulate == 1 and not (settings.checkpoint_activations or settings.compile)
    if group.size > 1 or not plain:
        check_shares(config, group.size)
    elif resolve_device(settings.device).type == "cuda":
        return Ensemble([config])
    return TrainingState.start(config)


def train_ensemble(
    configs: Mapping[Path, RunConfig],
    *,
    deadline: float | None = None,
    progress: bool = True,
) -> dict[Path, Run]:
    """Train every configuration in its own run folder, all at once on one device.

    Missing folders are made; where all are there, training resumes from the newest step of
    which every run has a whole checkpoint. Progress shows the mean over the members. Signals are as
    in `train`.

    Args:
        configs: Run folder -> configuration.
        deadline: Time (seconds, as `time.time()`) by which to have stopped with checkpoints.
        progress: See `train`.

    Raises:
        TrainingError: Members broke; it names them all, at the end. Each stays at its last good
            checkpoint, and the others go on.
        ConfigError: The configurations cannot share an ensemble, or keep a single checkpoint.
        RunError: A folder cannot be used.
    """
    check_alone("train_ensemble")
    if len(configs) > 1:
        for config in configs.values():
            check_keeps_enough(config)
    ensemble = Ensemble(list(configs.values()))
    runs = []
    for path, state in zip(configs, ensemble.states, strict=True):
        exists = path.exists() and any(path.iterdir())
        run = Run.open(path) if exists else Run.create(path, state.config)
        check_resumable(run, state.config)
        runs.append(run)
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.writing())
        _work(runs, ensemble, deadline=deadline, progress=progress)
    return {run.path: Run.open(run.path) for run in runs}


def check_keeps_enough(config: RunConfig) -> None:
    """Raise `ConfigError` for a member that keeps a single checkpoint."""
    keep = config.training.keep_checkpoints
    check(keep is None or keep > 1, f"training.keep_checkpoints is {keep}; expected at least 2 in "
          "an ensemble: one whose checkpoints are being written when it is killed goes on from "
          "those before")


def _work(
    runs: Sequence[Run], learner: Learner, group: Group = ALONE, *, loggers: Sequence[str] = (),
    deadline: float | None, progress: bool,
) -> None:
    """Train to the end from the newest step of which every run has a whole checkpoint."""
    step: int | None = None
    damaged: Sequence[Mapping[int, str]] = ()
    lines: list[str] = []
    with group.together():
        if group.leads:
            step, damaged = newest_whole(runs)
    step = json.loads(group.texts(json.dumps(step))[0])
    with group.together():
        if step is not None:
            learner.restore(runs, step)
    with group.together():  # when all have read it
        for run, damaged_of_run in zip(runs, damaged, strict=False):
            if run.checkpoints() or (run.path / TIMING).exists():  # it was begun before
                lines += [f"{run.path}: {line}" for line in go_back_to(run, step, damaged_of_run)]
    steps = runs[0].config.training.steps
    with ExitStack() as stack:
        bar = stack.enter_context(Bar("training", steps, done=learner.step, transient=False,
                                      enabled=progress and group.leads))
        for line in lines:
            bar.say(line)
        if step == steps:
            bar.say(f"{runs[0].path} is finished at step {steps}; there is nothing left to train")
        stop = stack.enter_context(stop_on_signals(deadline))
        opened = [stack.enter_context(open_logger(name, runs[0], learner.step))
                  for name in (loggers if group.leads else ())]
        Session(runs, learner, stop, bar, opened, group).work(fresh=step is None)


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
        loggers: Sequence[Logger], group: Group,
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
        message = self._farewell()
        if interrupted or learner.step < settings.steps:
            self.bar.say(message)
        if self.failures:
            raise self._failure()
        if interrupted:
            raise self.stop.exception(message)

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
        for split, values in metrics.items():
            self._publish(split, values)
        self._show(line=True)

    def _publish(self, split: str, metrics: Mapping[int, Mapping[str, Metric]]) -> None:
        step = self.learner.step
        if not self.group.leads:
            return
        for index, values in metrics.items():
            self.runs[index].append_metrics(step, split, values)
            for logger in self.loggers:
                logger(step, split, values)
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
            broken = next(((step, loss) for step, loss in enumerate(losses[index], first)
                           if not math.isfinite(loss)), None)
            if broken is None and finite[index]:
                continue
            run, why = self.runs[index], None
            if broken is None:
                what = f"a weight is not finite after step {self.learner.step}"
            else:
                what = f"the loss is {broken[1]} at step {broken[0]}"
                why = self._not_finite_in_batch(index, broken[0])
            good = run.checkpoints()
            kept = ("training stops and " + (
                f"the last good checkpoint, of step {good[-1]}, is {run.checkpoint_path(good[-1])}"
                if good else "there is no checkpoint yet"))
            self.failures[index] = TrainingError(
                f"{what}; {kept}. A lower learning_rate, a longer warm-up or grad_clip may help"
                if why is None else f"{what}, because {why}; {kept}")
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


def mean_over_members(metrics: Sequence[Mapping[str, Metric]]) -> Mapping[str, Metric]:
    """Return the mean over members, with the standard error over members; one is itself.

    Which constituents occur is a matter of each member, and they are left out.
    """
    if len(metrics) == 1:
        return metrics[0]
    return {name: mean_metric(np.array([values[name].mean for values in metrics]))
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
        pace = {"tokens_per_second": round(speed, 1)}
        if self.peak is not None:
            pace["model_flop_utilisation"] = round(speed * self.flops_per_token / self.peak, 4)
        return pace


def request_stop() -> None:
    """Ask all training of this process, present and future, to stop as SIGTERM does.

    For a process whose owner cannot send a signal, or is gone. Asking again, before or
    after a signal, changes nothing: no update in progress is ever broken off by it.
    """
    _stop_all.set()


class StopRequest:
    """Whether a signal, `request_stop` or a deadline has asked to stop, and which signal."""

    def __init__(self, deadline: float | None = None) -> None:
        self.signal: int | None = None
        self.deadline = deadline
        self._needed = 0.0

    @property
    def interrupted(self) -> bool:
        """Whether somebody has asked to stop."""
        return self.signal is not None or _stop_all.is_set()

    @property
    def requested(self) -> bool:
        """Whether to stop after the update in progress.

        That is so before the deadline already, by the time that was `timed` last: what happens
        after the last update has to end before the deadline, too.
        """
        return self.interrupted or (
            self.deadline is not None and time.time() + self._needed >= self.deadline)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure work that can come between the last update and the end, such as a checkpoint."""
        began = time.perf_counter()
        yield
        self._needed = max(self._needed, 2.0 * (time.perf_counter() - began))

    def exception(self, message: str) -> BaseException:
        """Return what the signal would have raised: `KeyboardInterrupt`, or `SystemExit` with 128
        and its number, that of SIGTERM where there was none."""
        if self.signal == signal.SIGINT:
            return KeyboardInterrupt(message)
        return SystemExit(128 + (self.signal or signal.SIGTERM))


@contextmanager
def stop_on_signals(deadline: float | None = None) -> Iterator[StopRequest]:
    """Yield a request that SIGINT, SIGTERM and SIGHUP set; a second signal interrupts at once.

    An exception raised in the middle of an update would leave half of the weights updated, so
    the first signal is only noted. Outside the main thread signals cannot be caught; there the
    request is never set. A signal that is ignored, as SIGHUP is under `nohup`, stays so.
    """
    request = StopRequest(deadline)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if request.signal is not None:
            raise KeyboardInterrupt
        request.signal = number

    before = {number: signal.signal(number, handle) for number in SIGNALS
              if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tag(split: str, name: str) -> str:
    """Return what a metric is called; what precedes the slash is a section of a dashboard."""
    return f"{split} by constituent/{name}" if is_by_constituent(name) else f"{split}/{name}"


def check_loggers(names: Sequence[str]) -> None:
    """Raise `ConfigError` for an unknown logger, or for one whose library is not installed."""
    for name in names:
        check_choice("logger", name, LOGGERS)
        spec = find_spec(name)
        # A folder of that name in the working directory (W&B makes one) is no library.
        check(spec is not None and spec.origin is not None,
              f"logger {name!r} needs the package {name}, which is not installed: "
              f"pip install 'latentcode[track]'")


@contextmanager
def open_logger(name: str, run: Run, step: int) -> Iterator[Logger]:
    """Yield a logger that writes below the run folder, and close it afterwards.

    TensorBoard gets scalars named by `tag`, W&B values over `step` in project `latentcode`
    (WANDB_MODE=offline works).

    Args:
        name: One of `LOGGERS`.
        run: The run that is logged.
        step: Where training starts or resumes: what a dashboard holds beyond it is superseded.
    """
    if name == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(run.path / "tensorboard"),
                           purge_step=step + 1 if step else None) as writer:
            def add_scalars(step: int, split: str, metrics: Mapping[str, Metric]) -> None:
                for name, metric in metrics.items():
                    writer.add_scalar(tag(split, name), metric.mean, step)

            yield add_scalars
        return
    import wandb

    try:
        session = wandb.init(
            project="latentcode", name=run.name, id=run.id, resume="allow",
            config=to_dict(run.config), dir=str(run.path),
            settings=wandb.Settings(console="off", silent=True))
    except wandb.Error as error:
        raise TrainingError(f"W&B cannot start: {error}; log in with `wandb login`, or set "
                            "WANDB_MODE=offline") from error
    # Its own counter may not go back, ours does when a run is resumed from a checkpoint.
    session.define_metric("*", step_metric="step")
    try:
        yield lambda step, split, metrics: session.log(
            {"step": step, **{tag(split, name): metric.mean for name, metric in metrics.items()}})
    finally:
        session.finish()
