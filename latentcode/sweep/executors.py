"""Who trains the jobs of a sweep? Processes of this machine, or a Ray cluster.

Both offer the same few things: submit a job, wait for what has ended, stop everything with a
checkpoint. What a job has achieved is in its run folders, on a file system that all share.

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


ExecutorName = Literal["local", "ray"]


def train_job(job: Job, deadline: float | None = None) -> None:
    """Train the members of a job, from their newest checkpoints if they have some.

    One member on the CPU is trained alone, with one thread: two threads of a small model wait for
    each other, whole models side by side do not. Everything else is an ensemble.

    deadline  seconds as `time.time` counts them, by which to stop with a checkpoint

    Raises `TrainingError` where CUDA runs out of memory, which is then freed.
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

    processes  default: one for each core that this process may use, or for each visible GPU
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


def jobs_and_sharing(device: str, processes: int | None) -> tuple[int, int]:
    """Return how many jobs run at once on this machine's GPUs, and how many of them share one."""
    target = resolve_device(device)
    n_gpus = torch.cuda.device_count() if target.type == "cuda" and target.index is None else 1
    jobs = processes or n_gpus
    return jobs, -(-jobs // n_gpus)


class RayExecutor(Executor):
    """Jobs as tasks of a Ray cluster, with a core or a GPU each.

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
        gpus = 1 if device == "cuda" else 0
        if gpus and not ray.cluster_resources().get("GPU"):
            ray.shutdown()
            raise ConfigError("device is 'cuda', but the Ray cluster has no GPU")
        self._remote = ray.remote(_report).options(
            num_cpus=1, num_gpus=gpus, max_retries=TRIALS - 1)
        self._work = work
        # On a cluster of others a limit of ours is kept by not handing out more jobs.
        self._most = processes if address is not None else None
        self._running: dict[Any, tuple[Job, int]] = {}

    @property
    def n_pending(self) -> int:
        return len(self._waiting) + len(self._running)

    def wait(self, seconds: float) -> list[Outcome]:
        if not self._running:
            return []
        ended, _ = self._ray.wait(list(self._running), timeout=seconds)
        outcomes = [self._outcome(task, *self._running.pop(task)) for task in ended]
        self._hand_out()
        return [outcome for outcome in outcomes if outcome is not None]

    def stop(self) -> None:
        super().stop()
        for task in self._running:
            # In a worker this is a Ctrl-C, which the training in progress notes.
            self._ray.cancel(task, force=False)

    def free_memory(self) -> int:
        """Return the bytes of memory that are free on a GPU of the cluster."""
        task = self._ray.remote(_free_memory).options(num_cpus=0, num_gpus=1).remote("cuda")
        return int(self._ray.get(task))

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

    def _outcome(self, task: Any, job: Job, trial: int) -> Outcome | None:
        """Return the outcome of a task; None if its job is to be tried again."""
        errors = self._ray.exceptions
        try:
            ended, error = self._ray.get(task)
        except errors.RayError as broken:
            # Cancelled, or a worker that has died as often as Ray begins a task.
            ended, error = True, None if self._stopped else TrainingError(f"Ray gives up: {broken}")
        if ended or self._stopped:
            return Outcome(job, error)
        return self._try_again(job, trial, f"a signal stopped the training {TRIALS} times")


def _report(work: Callable[[Job], None], job: Packed) -> tuple[bool, Exception | None]:
    """Return whether no signal stopped a job, and its error, rather than raise it."""
    try:
        return True, attempt(work, job)
    except (KeyboardInterrupt, SystemExit):
        return False, None
    finally:
        gc.collect()


def free_memory(executor: Executor, device: str) -> int:
    """Return the bytes of memory that are free on the GPU that jobs are trained on.

    A process of its own finds out, so that the present one takes up none of it.
    """
    if isinstance(executor, RayExecutor):
        return executor.free_memory()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_free_memory, (device,))


def _free_memory(device: str) -> int:
    target = resolve_device(device)
    indices = range(torch.cuda.device_count()) if target.index is None else [target.index]
    return min(torch.cuda.mem_get_info(index)[0] for index in indices)
