"""Workers that start no process: what the tests of those who give them jobs need no process for."""

from __future__ import annotations

from collections.abc import Callable

from latentcode.errors import LatentCodeError
from latentcode.sweep.executors import Job, Outcome


class Here:
    """Does one job per `wait`, in this process; `seen` are those that it has begun."""

    def __init__(self, work: Callable[[Job], object], *others: object) -> None:
        self.work, self.at_once = work, 1
        self.jobs: list[Job] = []
        self.seen: list[Job] = []

    @property
    def n_pending(self) -> int:
        return len(self.jobs)

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def wait(self, seconds: float) -> list[Outcome]:
        if not self.jobs:
            return []
        job = self.jobs.pop(0)
        self.seen.append(job)
        try:
            self.work(job)
        except LatentCodeError as error:
            return [Outcome(job, error)]
        return [Outcome(job)]

    def stop(self) -> None:
        self.jobs.clear()

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
