"""What the next page or selection will need, loaded while a person looks at the first picture."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentcode.app.data.catalog import Entry

DRAWS = "latentcode.codes.reader"
"""The last of the modules that draw a problem and let a model answer it."""
MODULES = ("torch", "latentcode.models.transformer", "latentcode.tasks", DRAWS,
           "latentcode.probes.common.logistic",
           "latentcode.probes.interventions.bench", "latentcode.models.hypernetwork")
"""What fits a probe to a selection, and what patches a problem and shows its attention.

One after the other: who asks for one meanwhile waits for that one alone.
"""
PATIENCE = 120.0
"""Seconds that a page waits for what is being loaded."""

NAME = "preload"
"""Of the thread."""
CONTEXT = "streamlit.runtime.scriptrunner_utils.script_run_context"

_once = Lock()
_working, _ready, _loaded = Event(), Event(), Event()


def in_background(entry: Entry, split: str) -> Thread | None:
    """Load what other pages need: modules, once in the life of the server, then a model's weights.

    Returns the thread that does, or None where that has begun before. Call it when the first
    picture is there: it takes seconds of a processor.

    The weights and the problems go through the caches of the pages: a page that needs them
    meanwhile waits for what is left to do, and does not do it again.
    """
    if not _once.acquire(blocking=False):
        return None
    thread = Thread(target=_load, args=(entry, split), name=NAME, daemon=True)
    thread.start()
    return thread


def until_ready() -> Iterator[None]:
    """Yield now and then until a problem can be drawn; nothing where nobody loads modules."""
    while _working.is_set() and not _ready.wait(0.1):
        yield


def _load(entry: Entry, split: str) -> None:
    _working.set()
    try:
        for module in MODULES:
            import_module(module)
            if module == DRAWS:
                _ready.set()
        _loaded.set()
        if entry.kind != "codes":
            _warm(entry, split)
    except Exception as error:  # the page that needs it will say what is wrong
        logging.getLogger(__name__).info("not loaded in advance: %s", error)
    finally:
        _ready.set()
        _loaded.set()


def was_half_loaded(error: BaseException) -> bool:
    """Whether a page failed over a module that a thread was loading; then, wait for the thread.

    Libraries such as scipy look into `sys.modules` for torch, and find it before it is complete.
    """
    if "partially initialized module" not in str(error):
        return False
    return _once.locked() and _loaded.wait(PATIENCE)


def _warm(entry: Entry, split: str) -> None:
    """Load the weights for the pages that show problems, and for the one that writes codes."""
    from latentcode.app.data import benches, loaded

    # Streamlit would tell the terminal that nobody sees this thread's spinners.
    logging.getLogger(CONTEXT).addFilter(lambda record: record.threadName != NAME)
    loaded.open_model(entry)
    loaded.task_shown(entry, split)
    benches.find_opening(entry, split)
