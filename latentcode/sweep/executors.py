"""Who trains the jobs of a sweep? Processes of this machine, or a Ray cluster.

Both offer the same few things: submit a job, wait for what has ended, stop everything with a
checkpoint. What a job has achieved is in its run folders, on a file system that all share.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch

from latentcode.devices import available_cores, resolve_device
from latentcode.errors import ConfigError, TrainingError, check, check_count
from latentcode.training.ensemble import train_ensemble
from latentcode.training.loop import train
from latentcode.training.workers import (
    TRIALS,
    Executor,
    Job,
    Outcome,
    Packed,
    Workers,
    attempt,
    packed,
)

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
