"""What the next page or selection will need, loaded while a person looks at the first picture."""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from threading import Event, Lock, Thread, get_native_id

from latentcode.app.data.catalog import Entry

MODULES = ("torch", "latentcode.probes.decoding.logistic", "latentcode.models.transformer",
           "latentcode.tasks", "latentcode.probes.interventions.bench.bench",
           "latentcode.codes.instances", "latentcode.models.hypernetwork",
           "latentcode.experiments.moves.problems")
"""What fits a probe to a selection, and what the pages of interventions and the idea need.

One after the other: who asks for one meanwhile waits for that one alone.
"""
NICENESS = 2
"""How far the thread stands back behind the pages, of 19: so little, because a page that needs what
is being loaded waits for this thread, and nobody may give it its priority back."""
PATIENCE = 120.0
"""Seconds that a page waits for what is being loaded."""

_once = Lock()
_loaded = Event()


def in_background(entry: Entry) -> Thread | None:
    """Load the modules of other pages and the task of a model, once in the life of the server.

    Returns the thread that does, or None where that has begun before. Call it when the first
    picture is there: it takes seconds of a processor.

    It takes nothing out of Streamlit's caches, where a page would have to wait for it: of a task it
    leaves the code behind, which is what takes time.
    """
    if not _once.acquire(blocking=False):
        return None
    thread = Thread(target=_load, args=(entry,), name="preload", daemon=True)
    thread.start()
    return thread


def _load(entry: Entry) -> None:
    _stand_back()
    try:
        for module in MODULES:
            import_module(module)
        if entry.kind != "codes":
            _make_task(entry.path)
    except Exception as error:  # the page that needs it will say what is wrong
        logging.getLogger(__name__).info("not loaded in advance: %s", error)
    finally:
        _loaded.set()


def was_half_loaded(error: BaseException) -> bool:
    """Whether a page failed over a module that the thread was loading; then, wait for the thread.

    Libraries such as scipy look into `sys.modules` for torch, and find it before it is complete.
    """
    half = _once.locked() and "partially initialized module" in str(error)
    return half and _loaded.wait(PATIENCE)


def _make_task(path: Path) -> None:
    from latentcode.runs import Run
    from latentcode.tasks import make_task

    make_task(Run.open(path).config.task)


def _stand_back() -> None:
    """Give this thread a lower priority; only on Linux does a thread have one of its own."""
    if sys.platform == "linux":
        thread = get_native_id()
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(now + NICENESS, 19))
