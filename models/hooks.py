"""Is anybody looking at, or writing, an activation?"""

from __future__ import annotations

from torch import nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)
from transformer_lens.hook_points import HookPoint


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
