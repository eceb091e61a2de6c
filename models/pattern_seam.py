"""Attention of transformers whose pattern can be replaced while it is computed.

    a = softmax(scores),    y = a v        becomes        y = hook(a) v

Some bridges leave attention to the module of transformers and show its pattern when it has been
used. TransformerLens has a seam for modules that take the hook along (`accepts_pattern_fn`); here
those of transformers get it, whatever their code looks like: in their forward pass the first
product of the weights that a softmax gave is a v, and the weights are replaced there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Function = Callable[..., Any]
SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
PRODUCTS = {torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__}


class Replacing(TorchFunctionMode):
    """While it is entered, the pattern of one attention passes through a hook before it is used.

    hook     pattern [B, H, Q, K] -> what takes its place
    n_heads  H, which tells the instances of a pattern [B H, Q, K] from its heads

    used  the pattern that was used; None as long as there was none
    """

    def __init__(self, hook: Callable[[Tensor], Tensor], n_heads: int) -> None:
        super().__init__()
        self.hook, self.n_heads = hook, n_heads
        self.used: Float[Tensor, "B H Q K"] | None = None
        self._weights: torch.Size | None = None

    def __torch_function__(
        self, func: Function, types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in PRODUCTS and len(args) > 1 and self._is_pattern(*args[:2]):
            args = (self._replaced(args[0]), *args[1:])
        found = func(*args, **(kwargs or {}))
        if func in SOFTMAX and found.ndim in (3, 4):
            # Keys of no token, such as a sink, are dropped before weights are used.
            self._weights = found.shape
        return found

    def _is_pattern(self, weights: Any, values: Any) -> bool:
        """Whether a product is a v: its left side the newest weights, and nothing used yet."""
        return (self.used is None and self._weights is not None and isinstance(weights, Tensor)
                and isinstance(values, Tensor) and weights.shape[:-1] == self._weights[:-1]
                and weights.shape[-1] <= self._weights[-1] and values.ndim == weights.ndim
                and values.shape[-2] == weights.shape[-1])

    def _replaced(self, weights: Tensor) -> Tensor:
        shape = weights.shape
        pattern = weights.view(-1, self.n_heads, *shape[-2:]) if weights.ndim == 3 else weights
        self.used = self.hook(pattern)
        return self.used.reshape(shape)


@cache
def with_seam(attention: type[nn.Module]) -> type[nn.Module]:
    """Return a class of attention that takes `pattern_fn`, the hook of its pattern.

    It returns the pattern that was used in place of the one that was computed. A class, rather
    than a function in the place of `forward`, so that models can be copied.
    """

    class WithSeam(attention):  # type: ignore[misc,valid-type]
        accepts_pattern_fn = True

        def forward(self, *args: Any, pattern_fn: Any, **kwargs: Any) -> Any:
            if not pattern_fn.has_hooks():
                return super().forward(*args, **kwargs)
            with Replacing(pattern_fn, self.pattern_heads) as replacing:
                output = super().forward(*args, **kwargs)
            if replacing.used is None or not isinstance(output, tuple):
                return output
            return output[0], replacing.used, *output[2:]

    WithSeam.__name__ = WithSeam.__qualname__ = attention.__name__
    return WithSeam


def add_seam(bridge: Any, n_heads: int) -> bool:
    """Let the pattern of a bridge's attention be replaced; return whether there was a need.

    bridge  an `AttentionBridge`, changed in place

    There is none where the bridge computes attention itself.
    """
    from transformer_lens.model_bridge.generalized_components.attention import AttentionBridge

    module = getattr(bridge, "original_component", None)
    if (not isinstance(bridge, AttentionBridge) or module is None
            or type(bridge).forward is not AttentionBridge.forward
            or getattr(module, "accepts_pattern_fn", False)):
        return False
    kind: Any = type(module)
    module.__class__ = with_seam(kind)
    cast(Any, module).pattern_heads = n_heads
    return True
