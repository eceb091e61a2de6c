"""Activations that are computed twice rather than kept: memory for time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from latentcode.errors import check
from latentcode.models.blocks import Generators


def recomputed(block: nn.Module, generator: Generators) -> Callable[..., Tensor]:
    """Return the block as a function of which autograd keeps the arguments alone.

    generator  what draws its dropout masks; the second time it draws the same ones

    `ConfigError` for masks that were drawn beforehand, of which each is handed out once.
    """
    check(generator is None or isinstance(generator, (torch.Generator, Sequence)),
          "dropout masks are drawn ahead; expected generators where activations are computed again")
    generators: list[torch.Generator] = (
        [generator] if isinstance(generator, torch.Generator) else
        list(cast(Sequence[torch.Generator], generator or ())))
    before = [one.get_state() for one in generators]
    called = False

    def compute(*args: Any, **options: Any) -> Any:
        nonlocal called
        if not called:
            called = True
            return block(*args, **options)
        after = [one.get_state() for one in generators]
        _set(generators, before)
        try:
            return block(*args, **options)
        finally:
            _set(generators, after)

    def call(*args: Any, **options: Any) -> Tensor:
        kept: Tensor = checkpoint(compute, *args, use_reentrant=False,
                                  preserve_rng_state=generator is None, **options)
        return kept

    return call


def _set(generators: Sequence[torch.Generator], states: Sequence[Tensor]) -> None:
    for one, state in zip(generators, states, strict=True):
        one.set_state(state)
