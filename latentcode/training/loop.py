"""Trains one model and keeps it in a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from latentcode.arguments import as_tuple
from latentcode.config import RunConfig
from latentcode.devices import resolve_device
from latentcode.errors import check
from latentcode.progress import Display
from latentcode.runs import Run
from latentcode.training.ensemble import Ensemble
from latentcode.training.loggers import check_loggers, open_logger
from latentcode.training.progress import TrainingProgress
from latentcode.training.session import Session
from latentcode.training.signals import stop_on_signals
from latentcode.training.state import Learner, TrainingState


def make_learner(config: RunConfig) -> Learner:
    """Return one model as it is trained: step by step on a CPU, as captured steps on CUDA."""
    if resolve_device(config.training.device).type == "cuda":
        return Ensemble([config])
    return TrainingState.start(config)


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

    config     task, model and optimisation; it determines the result (bit for bit on the CPU
               with the same number of threads)
    out        the run folder; it must be new, unless `resume` or `overwrite` is set
    resume     continue from the newest checkpoint of `out`, which must have the same `config`
    overwrite  replace the run in `out`
    progress   show a progress bar on a terminal, and a line per evaluation elsewhere
    loggers    `tensorboard`, `wandb` or both, beside `metrics.jsonl`; they write below `out`
    deadline   time (seconds, as `time.time()`) by which to have stopped with a checkpoint;
               the run that is returned is then not complete

    On a CUDA device an update is captured as a graph and replayed (see `Ensemble`, of which this
    is one member); a CPU runs it as written.

    Ctrl-C and SIGTERM finish the update in progress, write a checkpoint and then raise
    `KeyboardInterrupt` or `SystemExit`; a second one stops at once, with the last checkpoint
    intact. Raises `TrainingError` when the loss or a weight is not finite (the last good
    checkpoint stays), `RunError` for a folder that cannot be used and `ConfigError` for a
    device that is not there.
    """
    check(not (resume and overwrite),
          "resume and overwrite are both set; expected at most one of them")
    # Whatever can be wrong with the request is found before a folder is made or replaced.
    loggers = as_tuple(loggers)
    check_loggers(loggers)
    if resume:
        run = Run.open(out)
        run.check_config(config)
        config = replace(config, task=run.config.task)
    learner = make_learner(config)
    if not resume:
        run = Run.create(out, learner.member(0).config, overwrite=overwrite)
    with run.writing(), ExitStack() as stack:
        steps = run.checkpoints()
        if steps:
            learner.restore([run], steps[-1])
        if resume:
            run.prepare_resumption(steps[-1] if steps else None)
        display = stack.enter_context(Display(enabled=progress))
        if config.training.steps in steps:
            display.say(f"{run.path} is finished at step {config.training.steps}; there is "
                        "nothing left to train")
        session = Session(
            [run], learner, stack.enter_context(stop_on_signals(deadline)),
            TrainingProgress(display, config.training.steps, learner.step,
                             learner.member(0).task.headline),
            [stack.enter_context(open_logger(name, run, learner.step)) for name in loggers])
        session.work(fresh=not steps)
    return Run.open(run.path)
