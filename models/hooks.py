"""Is anybody looking at, or writing, an activation? And what do activations look like?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)
from transformer_lens.hook_points import HookPoint

from latentcode.models.modes import locked


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
