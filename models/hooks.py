"""Is anybody looking at, or writing, an activation?"""

from __future__ import annotations

from transformer_lens.hook_points import HookPoint


def is_hooked(point: HookPoint) -> bool:
    """Whether a hook sits on `point`: one of TransformerLens or one of torch's own.

    What computes several activations at once must ask, or the hook would silently do nothing.
    """
    return point.has_hooks() or any((
        point._forward_hooks, point._forward_pre_hooks,
        point._backward_hooks, point._backward_pre_hooks))
