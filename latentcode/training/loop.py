"""Trains one model and keeps it in a run folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from latentcode.arguments import as_tuple
from latentcode.config import RunConfig, config_hash
from latentcode.devices import resolve_device
from latentcode.errors import TrainingError, check
from latentcode.progress import Bar
from latentcode.runs.resumption import check_resumable, go_back_to, newest_whole
from latentcode.runs.run import Run, with_name
from latentcode.training.ensemble import Ensemble
from latentcode.training.loggers import check_loggers, open_logger
from latentcode.training.processes import ALONE, Group, is_restart, note_launch, processes
from latentcode.training.session import Session
from latentcode.training.signals import stop_on_signals
from latentcode.training.state import Learner, TrainingState, check_shares


def make_learner(config: RunConfig, group: Group = ALONE) -> Learner:
    """Return one model as it is trained: step by step on a CPU, as captured steps on CUDA.

    Step by step there, too, where several processes train it (see `TrainingState.join`), or where
    it is to be compiled, to accumulate gradients or to compute activations again.
    """
    settings = config.training
    plain = settings.accumulate == 1 and not (settings.checkpoint_activations or settings.compile)
    if group.size == 1 and plain:
        if resolve_device(settings.device).type == "cuda":
            return Ensemble([config])
        return TrainingState.start(config)
    check_shares(config, group.size)
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
    with processes(config.training.device) as group:
        try:
            return _train(config, with_name(out), group, resume=resume, overwrite=overwrite,
                          progress=progress, loggers=as_tuple(loggers), deadline=deadline)
        except TrainingError:
            if group.leads:
                raise
            raise SystemExit(1) from None  # every process found the same


def _train(
    config: RunConfig, out: Path, group: Group, *, resume: bool, overwrite: bool, progress: bool,
    loggers: Sequence[str], deadline: float | None,
) -> Run:
    """As `train`, as one of the processes of a group."""
    if group.any(group.leads and is_restart(out)):
        resume, overwrite = True, False
    with ExitStack() as stack:
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
            group.check_same("the configuration (with the text's revision)", config_hash(config))
        with group.together():
            if not resume:
                run = (Run.create(out, config, overwrite=overwrite) if group.leads
                       else Run(out, config, {}))
            if group.leads:
                stack.enter_context(run.writing())
                note_launch(out)
        if isinstance(learner, TrainingState):
            learner.join(group)
        step: int | None = None
        damaged: dict[int, str] = {}
        told: list[str] = []
        with group.together():
            if group.leads:
                step, (damaged,) = newest_whole([run])
        step = json.loads(group.texts(json.dumps(step))[0])
        with group.together():
            if step is not None:
                learner.restore([run], step)
        with group.together():  # when all have read it
            if resume and group.leads:
                told = go_back_to(run, step, damaged)
        bar = stack.enter_context(Bar(
            "training", config.training.steps, done=learner.step, transient=False,
            enabled=progress and group.leads))
        for line in told:
            bar.say(line)
        if step == config.training.steps:
            bar.say(f"{run.path} is finished at step {config.training.steps}; there is nothing "
                    "left to train")
        session = Session(
            [run], learner, stack.enter_context(stop_on_signals(deadline)), bar,
            [stack.enter_context(open_logger(name, run, learner.step))
             for name in (loggers if group.leads else ())], group)
        session.work(fresh=step is None)
    return Run.open(run.path) if group.leads else Run(out, config, {})
