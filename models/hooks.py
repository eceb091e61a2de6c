"""Hooks of a model: whether any sit on it, passes that look through them, and the lock they need.

Models are ours or bridges of TransformerLens. What tells them apart here is `original_model`, the
model of transformers that a bridge wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)
from transformer_lens.hook_points import HookPoint

from latentcode.errors import ConfigError, UnknownNameError, check

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
    with locked(model), torch.no_grad():
        was_training = model.training
        changes = any(module.training for module in model.modules())
        if changes:  # setting the mode of every module takes longer than a small layer
            model.eval()
        try:
            yield
        finally:
            if changes:
                model.train(was_training)


def is_hooked(module: nn.Module) -> bool:
    """Whether a hook sits on a module: one of TransformerLens or one of torch's own, global ones
    included.

    What computes several activations at once must ask, or the hook would silently do nothing.
    """
    return (isinstance(module, HookPoint) and module.has_hooks()) or any((
        module._forward_hooks, module._forward_pre_hooks,
        module._backward_hooks, module._backward_pre_hooks,
        _global_forward_hooks, _global_forward_pre_hooks,
        _global_backward_hooks, _global_backward_pre_hooks))


def see(
    model: Any, tokens: Int[Tensor, "B T"], names: Sequence[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits and what those of some hooks show that exist.

    Unlike those of `run_with_cache` the hooks return nothing, so that a bridge that writes wrongly
    is read rightly.
    """
    seen: dict[str, Tensor] = {}

    def look(name: str) -> Callable[..., None]:
        def keep(activation: Tensor, hook: object) -> None:
            seen[name] = activation.clone()
        return keep

    with locked(model):
        logits = model.run_with_hooks(tokens, fwd_hooks=[
            (name, look(name)) for name in dict.fromkeys(names) if name in model.hook_dict])
    return logits, seen


PARTS = "mixer", "linear_attn", "conv"
"""What bridges call that which stands in the place of attention."""


def attention_layers(model: Any) -> tuple[int, ...]:
    """Return the layers that have attention: of our models all, of a bridge those with `attn`.
    """
    if not hasattr(model, "original_model"):
        return tuple(range(model.cfg.n_layers))
    return tuple(i for i, block in enumerate(model.blocks) if hasattr(block, "attn"))


def other_layers(model: Any) -> Mapping[int, str]:
    """Return what stands in each layer that has no attention: the class of transformers."""
    with_attention = attention_layers(model)
    return {i: next((type(getattr(block, name).original_component).__name__
                     for name in PARTS if hasattr(block, name)), type(block).__name__)
            for i, block in enumerate(getattr(model, "blocks", ())) if i not in with_attention}


def check_layer(model: Any, layer: int, *, attention: bool = True) -> None:
    """Raise `UnknownNameError` for a layer that there is not, `ConfigError` for one without codes.

    attention  whether it has to have attention
    """
    if layer not in range(model.cfg.n_layers):
        raise UnknownNameError("layer", layer, range(model.cfg.n_layers))
    there = attention_layers(model)
    if attention and layer not in there:
        raise ConfigError(f"layer {layer} of this model has no attention but "
                          f"{other_layers(model).get(layer)}, and so no codes; expected one of "
                          f"{', '.join(map(str, there))}")


def read_out_hook(model: Any) -> str:
    """Return the hook through which the residual stream [B, T, D] passes to the read-out.

    The tokens that a hook there leaves are those that have logits. `ConfigError` for a bridge
    without one, which is no language model.
    """
    if not hasattr(model, "original_model"):
        return f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    name = "unembed.hook_in"
    check(name in model.hook_dict, f"the model has no hook {name}; expected a language model")
    return name


def last_token(stream: Tensor, hook: object) -> Tensor:
    """Leave the last token: the logits of all of them would be larger than everything else."""
    return stream[..., -1:, :]


def look(
    model: Any, inputs: Tensor, hooks: Iterable[tuple[str, Callable[..., Any]]],
    padding: Mapping[str, Tensor] | None = None,
) -> None:
    """Pass inputs through a model for what its hooks show, of the logits none but the last token's.

    inputs   token ids [B, T], or vectors [B, T, d_input]
    padding  what the model is told of padding, by the names of its arguments [B, T]
    """
    with evaluating(model):
        model.run_with_hooks(inputs, **(padding or {}), fwd_hooks=[
            *hooks, (read_out_hook(model), last_token)])
