"""Who trains the jobs of a sweep? Processes of this machine, or a Ray cluster.

What a job has achieved is in its run folders, on a file system that all share.

A worker of this machine imports torch once and then takes jobs as long as there are some. The pipe
to it is its lifeline: what it is told through it, or its end when the owner has died, stops the
training in progress with a checkpoint. A worker that is killed is replaced, and its job started
again, from its newest checkpoint.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import pickle
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, Self, cast

import torch

from latentcode.config import RunConfig, own_in
from latentcode.devices import available_cores, resolve_device
from latentcode.errors import ConfigError, LatentCodeError, TrainingError, check, check_count
from latentcode.registry import Import, asked_for, import_again
from latentcode.training.loop import request_stop, train, train_ensemble

Job = Mapping[Path, RunConfig]
"""What is trained together: run folders and their configurations."""
Packed = tuple[tuple[Import, ...], bytes]
"""A job on its way to another process."""
ExecutorName = Literal["local", "ray"]
TRIALS = 4
"""How often a job is started whose worker dies every time."""


def train_job(job: Job, deadline: float | None = None) -> None:
    """Train the members of a job, from their newest checkpoints if they have some.

    One member on the CPU is trained alone, with one thread: two threads of a small model wait for
    each other, whole models side by side do not. Everything else is an ensemble.

    Args:
        job: The members.
        deadline: Seconds as `time.time` counts them, by which to stop with a checkpoint.

    Raises:
        TrainingError: CUDA runs out of memory, which is then freed.
    """
    if deadline is not None and time.time() >= deadline:
        return
    (path, config), *others = job.items()
    if config.training.device == "cpu":
        torch.set_num_threads(1)
        if not others:
            train(config, path, resume=(path / "config.yaml").exists(), progress=False,
                  deadline=deadline)
            return
    try:
        train_ensemble(job, deadline=deadline, progress=False)
        return
    except torch.OutOfMemoryError as error:
        message = str(error).partition(". ")[0]
    # Not in the handler: there the error still holds the memory that is to be freed.
    gc.collect()
    torch.cuda.empty_cache()
    raise TrainingError(f"{len(job)} member(s) at once: {message}")


def make_executor(
    name: ExecutorName, device: str, *, processes: int | None = None,
    deadline: float | None = None, ray_address: str | None = None,
) -> Executor:
    """Return an executor for jobs on a device.

    Args:
        name: Processes of this machine, or a Ray cluster.
        device: Where jobs are trained.
        processes: Jobs at once; default: all that the cores or GPUs allow.
        deadline: Passed to every job.
        ray_address: Address of a running cluster (`auto`: the one of this machine); default: a
            cluster of its own.

    Raises:
        ConfigError: For a device that is not there, or for Ray where it is not installed.
    """
    if processes is not None:
        check_count("processes", processes, most=1_024)
    work = partial(train_job, deadline=deadline)
    if name == "ray":
        check(device in ("cpu", "cuda"), f"device is {device!r}; expected cpu or cuda: Ray gives "
              "every job a GPU of its own")
        return RayExecutor(work, device, processes, ray_address)
    check(ray_address is None, f"a Ray address is given ({ray_address}), but the executor is "
          "local; expected --executor ray")
    return Workers(work, environments(device, processes))


def environments(device: str, processes: int | None) -> list[Mapping[str, str]]:
    """Return the environment variables of each process: every GPU has one of its own.

    Args:
        device: Where jobs are trained.
        processes: Default: one for each core that this process may use, or each visible GPU.
    """
    target = resolve_device(device)
    if target.type == "cpu":
        return [{}] * (processes or available_cores())
    if target.index is not None:
        return [{}] * (processes or 1)
    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",")[:count] if visible else [str(index) for index in range(count)]
    return [{"CUDA_VISIBLE_DEVICES": names[i % count]} for i in range(processes or count)]


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with an error, or without one, complete or stopped; the runs tell."""

    job: Job
    error: Exception | None = None


class Executor(ABC):
    """Trains jobs, several at once; as a context manager it stops and awaits them at its end.

    at_once  how many jobs there are room for
    """

    at_once: int
    stopping: Callable[[], bool] = staticmethod(lambda: False)
    """Whether the owner is about to `stop`: a process that ends meanwhile, by the same Ctrl-C
    perhaps, has not died, and no job is started."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Job, int]] = deque()
        self._running: dict[Any, tuple[Job, int]] = {}
        self._stopped = False

    @property
    def n_pending(self) -> int:
        """Number of jobs that have not ended."""
        return len(self._waiting) + len(self._running)

    def submit(self, job: Job) -> None:
        """Add a job; after `stop` it is never started."""
        if not self._stopped:
            self._waiting.append((job, 1))
            self._hand_out()

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

    def _try_again(self, job: Job, trial: int, problem: str) -> list[Outcome]:
        """Put a job back in front; after the last trial the problem is its outcome."""
        if trial == TRIALS:
            return [Outcome(job, TrainingError(problem))]
        self._waiting.appendleft((job, trial + 1))
        return []


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
        self.at_once = len(environments)
        self._workers = [_Worker(work, environment) for environment in environments]
        self._idle = deque(self._workers)

    def wait(self, seconds: float) -> list[Outcome]:
        ready = wait([worker.connection for worker in self._running], seconds)
        outcomes: list[Outcome] = []
        for worker in [worker for worker in self._running if worker.connection in ready]:
            job, trial = self._running.pop(worker)
            self._idle.append(worker)
            try:
                outcomes.append(Outcome(job, worker.connection.recv()))
            except (EOFError, OSError):
                code = worker.join()
                if self._stopped or self.stopping():
                    outcomes.append(Outcome(job))
                    continue
                first, *others = job
                more = f" and {len(others)} more" if others else ""
                outcomes += self._try_again(job, trial, (
                    f"the process that trained {first}{more} ended {TRIALS} times before it was "
                    f"done, the last time with exit code {code}"))
        self._hand_out()
        return outcomes

    def stop(self) -> None:
        super().stop()
        for worker in self._workers:
            worker.send(None)

    def __exit__(self, *error: object) -> None:
        self.stop()
        for worker in self._workers:
            worker.join()

    def _hand_out(self) -> None:
        while self._idle and self._waiting and not self.stopping():
            worker, (job, trial) = self._idle.popleft(), self._waiting.popleft()
            self._running[worker] = job, trial
            worker.start()
            worker.send(packed(job))


class _Worker:
    """A place for one process at a time, and the pipe to it."""

    connection: Connection

    def __init__(self, work: Callable[[Job], None], environment: Mapping[str, str]) -> None:
        self.work, self.environment = work, environment
        self.process: Any = None

    def start(self) -> None:
        """Start the process if there is none."""
        if self.process is not None and self.process.is_alive():
            return
        self.join()
        # A forked child would inherit torch's threads in an unknown state.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, self.work, self.environment), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, message: Packed | None) -> None:
        """Give the process a job, or tell it to stop."""
        if self.process is not None:
            with suppress(OSError):  # one that has died is found by `wait`
                self.connection.send(message)

    def join(self) -> int | None:
        """Wait for the process to end and return its exit code."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        process.join()
        self.connection.close()
        return int(process.exitcode)


def _serve(
    connection: Connection, work: Callable[[Job], None], environment: Mapping[str, str]
) -> None:
    """Do one job after another until the owner says stop, or is gone."""
    os.environ.update(environment)
    inbox: SimpleQueue[Packed | None] = SimpleQueue()

    def listen() -> None:
        message: Packed | None = ((), b"")
        while message is not None:
            try:
                message = connection.recv()
            except (EOFError, OSError):
                message = None
            if message is None:
                request_stop()
            inbox.put(message)

    Thread(target=listen, daemon=True).start()
    # A training that was stopped raises one of these and ends the process. If it was not the
    # owner who stopped it, but a signal for this process alone, the job is started again.
    with suppress(KeyboardInterrupt, SystemExit, BrokenPipeError):
        while (job := inbox.get()) is not None:
            connection.send(attempt(work, job))
            gc.collect()  # what an error still held is returned before the next job begins


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
    """Do a job, and return its error in a form that survives the way through a pipe."""
    try:
        work(unpacked(job))
    except LatentCodeError as error:
        return error
    except Exception as error:  # a bug of ours or of the machine: where it happened is not lost
        return RuntimeError(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    return None


class RayExecutor(Executor):
    """Jobs as tasks of a Ray cluster of several machines, with a core or a GPU each.

    A task whose worker dies is run again, elsewhere if need be, and resumes from its newest
    checkpoint: the folder of the sweep has to be on a file system that all hosts share. No usage
    statistics are sent, and a cluster started here has no dashboard.
    """

    def __init__(
        self, work: Callable[[Job], None], device: str, processes: int | None,
        address: str | None,
    ) -> None:
        super().__init__()
        # Ray reads this when it is imported.
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        try:
            import ray
        except ImportError:
            raise ConfigError("executor is 'ray', which is not installed: "
                              "pip install 'latentcode[sweep]'") from None
        self._ray: Any = ray
        settings: dict[str, Any] = {"address": address or "local", "log_to_driver": False,
                                    "logging_level": logging.ERROR}
        if address is None:
            settings |= {"include_dashboard": False, "num_cpus": processes or available_cores()}
        try:
            ray.init(**settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(f"no Ray cluster at {address or 'this machine'}: {error}") from None
        places = int(ray.cluster_resources().get("GPU" if device == "cuda" else "CPU", 0))
        if not places:
            ray.shutdown()
            raise ConfigError(f"device is {device!r}, but the Ray cluster has no such device")
        self.at_once = min(processes or places, places)
        self._remote = ray.remote(_report).options(
            num_cpus=1, num_gpus=int(device == "cuda"), max_retries=TRIALS - 1)
        self._work = work
        # On a cluster of others a limit of ours is kept by not handing out more jobs.
        self._most = processes if address is not None else None

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._running:
            return []
        ended, _ = self._ray.wait(list(self._running), timeout=seconds)
        outcomes: list[Outcome] = []
        for task in ended:
            job, trial = self._running.pop(task)
            try:
                done, error = self._ray.get(task)
            except self._ray.exceptions.RayError as broken:
                # Cancelled, or a worker that has died as often as Ray begins a task.
                done, error = True, (
                    None if self._stopped else TrainingError(f"Ray gives up: {broken}"))
            if done or self._stopped:
                outcomes.append(Outcome(job, error))
            else:
                outcomes += self._try_again(
                    job, trial, f"a signal stopped the training {TRIALS} times")
        self._hand_out()
        return outcomes

    def stop(self) -> None:
        super().stop()
        for task in self._running:
            # In a worker this is a Ctrl-C, which the training in progress notes.
            self._ray.cancel(task, force=False)

    def __exit__(self, *error: object) -> None:
        try:
            self.stop()
            while self._running:
                self.wait(1.0)
        finally:
            self._ray.shutdown()

    def _hand_out(self) -> None:
        while self._waiting and (self._most is None or len(self._running) < self._most):
            job, trial = self._waiting.popleft()
            self._running[self._remote.remote(self._work, packed(job))] = job, trial


def _report(work: Callable[[Job], None], job: Packed) -> tuple[bool, Exception | None]:
    """Return whether no signal stopped a job, and its error, rather than raise it."""
    try:
        return True, attempt(work, job)
    except (KeyboardInterrupt, SystemExit):
        return False, None
    finally:
        gc.collect()
