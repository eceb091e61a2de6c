"""A model is opened and texts are read in the background, once for all visitors.

A page shows what is there. Passes through a model go one after the other, since hooks are the
model's: what a visitor asks for goes before the texts.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from latentcode.app.language.given import Given, given
from latentcode.errors import ArtifactError, LatentCodeError, check

if TYPE_CHECKING:
    from latentcode.app.language.reading import Read
    from latentcode.prompts import LanguageModel

FIRST, EVERY = 4.0, 20.0
"""Seconds of reading after which there is a first picture, and then another one."""
FEWEST_PAIRS = 200
"""Pairs that the first picture waits for."""
PATIENCE = 600.0
"""Seconds that a page waits for a model."""


class Turns:
    """A lock that is taken by turns: who asks for it in a hurry comes before who does not."""

    def __init__(self) -> None:
        self._lock, self._waiting = threading.Lock(), 0
        self._count = threading.Lock()

    @contextmanager
    def now(self) -> Iterator[None]:
        """Take the next turn."""
        with self._count:
            self._waiting += 1
        try:
            self._lock.acquire()
        finally:
            with self._count:
                self._waiting -= 1
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def later(self) -> Iterator[None]:
        """Take a turn when nobody is in a hurry."""
        while self._waiting:
            time.sleep(0.005)
        with self._lock:
            yield


@dataclass
class Job:
    """The model that was given, and what was read of it.

    doing    what is being done, in words
    done, total  how far it is
    begun    when that began
    is_over  whether all is done, or nothing more can be
    said     what a visitor should know, such as that the cache was damaged
    """

    title: str
    doing: str = "Waiting"
    done: int = 0
    total: int = 1
    begun: float = field(default_factory=time.monotonic)
    is_over: bool = False
    read: Read | None = None
    model: LanguageModel | None = None
    error: str | None = None
    said: str = ""
    opened: threading.Event = field(default_factory=threading.Event)
    turns: Turns = field(default_factory=Turns)

    @cached_property
    def layout(self) -> Any:
        """Where the codes of the model are; it is tried once."""
        from latentcode.models.pretrained import layout

        return layout(self.wait_for_model().model)

    @property
    def share(self) -> float:
        return min(self.done / max(self.total, 1), 1.0)

    @property
    def text(self) -> str:
        """What the bar says."""
        passed = time.monotonic() - self.begun
        left = passed * (1 - self.share) / self.share if self.share > 0.02 else None
        return self.doing + ("" if left is None else f" · {left:.0f} s left")

    def begin(self, doing: str, total: int = 1) -> None:
        """Say what is being done from now on."""
        self.doing, self.done, self.total, self.begun = doing, 0, total, time.monotonic()

    def wait_for_model(self) -> LanguageModel:
        """Return the model once it is open; `ArtifactError` where it cannot be opened."""
        self.opened.wait(PATIENCE)
        check(self.model is not None, self.error or f"{self.title} is not open yet; expected to "
              "wait a little longer", ArtifactError)
        assert self.model is not None
        return self.model


class Work:
    """All that was given, and the thread that reads it, which begins at once."""

    def __init__(self, asked: Given) -> None:
        self.given = asked
        self.job = Job(asked.model.short)
        self._thread = threading.Thread(target=self._run, name="language", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until all is read, or so long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        job = self.job
        try:
            self._do(job)
        except LatentCodeError as error:
            job.error = str(error)
        except Exception as error:
            logging.getLogger(__name__).error("a language model was not read", exc_info=error)
            job.error = (f"{job.title} could not be read: {type(error).__name__}. The terminal "
                         "that runs the explorer has the details; please report them.")
        finally:
            job.is_over = True
            job.opened.set()

    def _do(self, job: Job) -> None:
        from latentcode.app.language.reading import folder_of, keep, kept

        folder = folder_of(self.given)
        try:
            found = kept(folder)
        except (LatentCodeError, OSError, ValueError, KeyError) as error:
            found = None
            logging.getLogger(__name__).info("read again: %s", error)
            job.said = "What was kept of an earlier start is damaged, and was read again."
            shutil.rmtree(folder, ignore_errors=True)
        if found is not None:
            job.read = found
        job.begin(f"Opening {job.title} …")
        job.model = _opened(self.given.model.name)
        job.opened.set()
        if found is not None:
            return
        read = self._read(job)
        try:
            keep(read, folder)
        except (LatentCodeError, OSError) as error:
            job.said = f"What was read is not kept for another start: {error}"

    def _read(self, job: Job) -> Read:
        from latentcode.app.language.reading import Reading, texts_for
        from latentcode.prompts.texts import source_of

        texts = texts_for(job.model, source_of(self.given.texts), n=self.given.n,
                          longest=self.given.longest)
        with job.turns.later():
            reading = Reading(texts)
        total = sum(1 for _ in zip(texts.source.read(), range(self.given.n), strict=False))
        job.begin(f"Reading {total:,} texts", total)
        last, wait = time.monotonic(), FIRST
        for batch in reading.batches():
            with job.turns.later():
                reading.add(batch)
            job.done += len(batch)
            job.doing = f"Read {min(job.done, total):,} of {total:,} texts"
            if time.monotonic() - last > wait and reading.n_pairs >= FEWEST_PAIRS:
                job.read = reading.read(whole=False)
                last, wait = time.monotonic(), EVERY
        read = job.read = reading.read(whole=True)
        return read


def _opened(name: str) -> Any:
    from latentcode.prompts import load_language_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_language_model(name)


@cache
def work() -> Work:
    """Return the work of this server, which begins with the first call."""
    asked = given()
    assert asked is not None
    return Work(asked)
