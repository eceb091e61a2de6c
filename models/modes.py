"""In which mode does a model run?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, without gradients; restore its mode afterwards."""
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
