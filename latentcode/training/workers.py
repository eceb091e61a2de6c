"""Processes side by side that train one job after another.

A worker imports torch once and then takes jobs as long as there are some. The pipe to it is its
lifeline: what it is told through it, or its end when the owner has died, stops the training in
progress with a checkpoint. A worker that is killed is replaced, and its job started again,
from its newest checkpoint.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self, cast

from latentcode.config import RunConfig
from latentcode.config.run import own_in
from latentcode.errors import ConfigError, LatentCodeError, TrainingError, check
from latentcode.imports import asked_for, import_again
from latentcode.sources import Import
from latentcode.training.signals import request_stop

Job = Mapping[Path, RunConfig]
"""What is trained together: run folders and their configurations."""
Packed = tuple[tuple[Import, ...], bytes]
"""A job on its way to another process."""

TRIALS = 4
"""How often a job is started whose worker dies every time."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with an error, or without one, complete or stopped; the runs tell."""

    job: Job
    error: Exception | None = None


class Executor(ABC):
    """Trains jobs, several at once; as a context manager it stops and awaits them at its end."""

    stopping: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the owner is about to `stop`: a process that ends meanwhile, by the same Ctrl-C
    perhaps, has not died, and no job is started."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Job, int]] = deque()
        self._stopped = False

    def submit(self, job: Job) -> None:
        """Add a job; after `stop` it is never started."""
        if not self._stopped:
            self._waiting.append((job, 1))
            self._hand_out()

    @property
    @abstractmethod
    def n_pending(self) -> int:
        """Number of jobs that have not ended."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Outcome]:
        """Return the jobs that have ended since the last call, after at most `seconds`."""

    def stop(self) -> None:
        """Let the jobs in progress stop with a checkpoint, and start no other."""
        self._stopped = True
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...

    @abstractmethod
    def _hand_out(self) -> None:
        """Start jobs that wait, as far as there is room."""

    def _try_again(self, job: Job, trial: int, problem: str) -> Outcome | None:
        """Return None for a job that is to be started again, or the problem as its outcome."""
        if trial == TRIALS:
            return Outcome(job, TrainingError(problem))
        self._waiting.appendleft((job, trial + 1))
        return None


class Workers(Executor):
    """Calls `work(job)` in one process per environment, as many jobs at once.

    work          a function of a module, which a new process can import
    environments  environment variables, for each process its own

    An error of `work` is the outcome of its job and stops nothing else.
    """

    def __init__(
        self, work: Callable[[Job], None], environments: Sequence[Mapping[str, str]]
    ) -> None:
        super().__init__()
        check(len(environments) >= 1, f"processes is {len(environments)}; expected at least 1")
        self._slots = [_Slot(work, environment) for environment in environments]

    @property
    def n_pending(self) -> int:
        return len(self._waiting) + sum(slot.job is not None for slot in self._slots)

    def wait(self, seconds: float) -> list[Outcome]:
        busy = {slot.connection: slot for slot in self._slots if slot.job is not None}
        outcomes = []
        for connection in wait(list(busy), seconds):
            assert isinstance(connection, Connection)
            outcome = self._outcome(busy[connection])
            if outcome is not None:
                outcomes.append(outcome)
        self._hand_out()
        return outcomes

    def stop(self) -> None:
        super().stop()
        for slot in self._slots:
            slot.stop()

    def __exit__(self, *error: object) -> None:
        self.stop()
        for slot in self._slots:
            slot.join()

    def _hand_out(self) -> None:
        for slot in self._slots:
            if slot.job is None and self._waiting and not self.stopping():
                slot.start(*self._waiting.popleft())

    def _outcome(self, slot: _Slot) -> Outcome | None:
        """Take what a worker has sent; None if it died and its job is to be started again."""
        job, trial = slot.job, slot.trial
        assert job is not None
        try:
            error = slot.connection.recv()
        except (EOFError, OSError):
            code = slot.join()
            if self._stopped or self.stopping():
                return Outcome(job)
            return self._try_again(job, trial, (
                f"the process that trained {_names(job)} ended {TRIALS} times before it was done, "
                f"the last time with exit code {code}"))
        slot.job = None
        return Outcome(job, error)


class _Slot:
    """A place for one process at a time."""

    connection: Connection

    def __init__(self, work: Callable[[Job], None], environment: Mapping[str, str]) -> None:
        self.work, self.environment = work, environment
        self.process: Any = None
        self.job: Job | None = None
        self.trial = 0

    def start(self, job: Job, trial: int) -> None:
        """Give the process a job; it is started if there is none."""
        if self.process is None or not self.process.is_alive():
            self.join()
            # A forked child would inherit torch's threads in an unknown state.
            context = multiprocessing.get_context("spawn")
            self.connection, theirs = context.Pipe()
            self.process = context.Process(
                target=_serve, args=(theirs, self.work, self.environment), daemon=True)
            self.process.start()
            theirs.close()
        self.job, self.trial = job, trial
        with suppress(OSError):  # a process that has died is found by `wait`
            self.connection.send(packed(job))

    def stop(self) -> None:
        if self.process is not None:
            with suppress(OSError):
                self.connection.send(None)

    def join(self) -> int | None:
        """Wait for the process to end and return its exit code."""
        if self.process is None:
            return None
        process, self.process, self.job = self.process, None, None
        process.join()
        self.connection.close()
        return int(process.exitcode)


def _serve(
    connection: Connection, work: Callable[[Job], None], environment: Mapping[str, str]
) -> None:
    """Do one job after another until the owner says stop, or is gone."""
    os.environ.update(environment)
    inbox: SimpleQueue[Packed | None] = SimpleQueue()
    Thread(target=_listen, args=(connection, inbox), daemon=True).start()
    # A training that was stopped raises one of these and ends the process. If it was not the
    # owner who stopped it, but a signal for this process alone, the job is started again.
    with suppress(KeyboardInterrupt, SystemExit, BrokenPipeError):
        while (job := inbox.get()) is not None:
            connection.send(attempt(work, job))
            gc.collect()  # what an error still held is returned before the next job begins


def _listen(connection: Connection, inbox: SimpleQueue[Packed | None]) -> None:
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            message = None
        if message is None:
            request_stop()
        inbox.put(message)
        if message is None:
            return


def packed(job: Job) -> Packed:
    """Return a job for another process, and what that one has to import before it unpacks it.

    It is what was asked for here, and what registers the names that the job's configurations hold.
    """
    own = [source.module for config in job.values() for _, source in own_in(config).values()
           if source.module is not None]
    return tuple(dict.fromkeys([*asked_for(), *own])), pickle.dumps(job)


def unpacked(job: Packed) -> Job:
    """Return a job in the process that does it; `ConfigError` where a class of it is unknown."""
    imports, data = job
    import_again(imports)
    try:
        return cast(Job, pickle.loads(data))
    except (AttributeError, ImportError) as error:
        raise ConfigError(
            f"a process that trains does not know the task ({error}): it was registered in a "
            "notebook or below `if __name__ == \"__main__\"`; expected it in a file of its own, "
            "which is imported (--import FILE on the command line)") from None


def attempt(work: Callable[[Job], None], job: Packed) -> Exception | None:
    try:
        work(unpacked(job))
    except LatentCodeError as error:
        return error
    except Exception as error:
        # Anything else is a bug of ours or of the machine; where it happened must not be lost,
        # and not every exception survives the way through a pipe.
        return RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    return None


def _names(job: Job) -> str:
    first, *others = job
    return f"{first}" + (f" and {len(others)} more" if others else "")
