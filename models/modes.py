"""In which mode does a model run, and for which thread?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from weakref import WeakKeyDictionary

import torch
from torch import nn

# Beside the models, not in them: a lock cannot be copied or saved, and they can.
_locks: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
_lookup, _drawing = Lock(), RLock()


@contextmanager
def locked(model: nn.Module) -> Iterator[None]:
    """Hold the lock of a model: its hooks and its mode are those of all threads."""
    with _lookup:
        lock = _locks.setdefault(model, RLock())
    with lock:
        yield


@contextmanager
def own_draws() -> Iterator[None]:
    """Set torch's generator of the CPU back afterwards; one thread draws from it at a time."""
    with _drawing, torch.random.fork_rng(devices=[]):
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Hold the lock of a model in evaluation mode, without gradients; restore its mode after."""
    with locked(model), _evaluation(model):
        yield


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    was_training = model.training
    changes = any(module.training for module in model.modules())
    if changes:  # setting the mode of every module takes longer than a small layer
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if changes:
            model.train(was_training)
