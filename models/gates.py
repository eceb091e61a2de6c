"""Attention with a gate: what a head brings is let through in part, as the query decides.

    y_q = sum_k W_qk x_k + b_O,    W_qk = sum_h a_hqk W_O^h diag(g_hq) W_V^h

g_hq = sigmoid(gate_hq), of one architecture softplus, has one number a head or one for each of its
dimensions. The code of the hypernetwork is then a_hqk g_hq, the score times the gate; with several
numbers a head, the *effective code* here has the mean of the gate over these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from latentcode.models.hooks import see
from latentcode.models.layers import attention_layers, check_layer

FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid, "softplus": F.softplus}
OTHERWISE = {"LagunaForCausalLM": "softplus"}
"""Architectures whose gate is no sigmoid."""


@dataclass(frozen=True)
class Gate:
    """The gate of a layer.

    hook      shows the gate before its function, [B, T, H] or [B, T, H d]
    function  its name in `FUNCTIONS`
    n_heads   H
    """

    hook: str
    function: str
    n_heads: int

    def __call__(self, shown: Tensor) -> Float[Tensor, "B T H g"]:
        """Return g of what the hook shows: one number a head, or one for each of its dimensions."""
        return FUNCTIONS[self.function](shown).unflatten(-1, (self.n_heads, -1)) if (
            shown.ndim == 3) else FUNCTIONS[self.function](shown)


def gate_of(model: Any, layer: int) -> Gate | None:
    """Return the gate of a layer of a bridge; None for attention without one."""
    attention: Any = getattr(model.blocks[layer], "attn", None)
    if not hasattr(model, "original_model") or attention is None:
        return None
    names = set(attention._modules)
    point = next((name for name, there in (
        ("hook_q_gate", getattr(attention.config, "gated_q_proj", False)),
        ("hook_gate", "gate" in names), ("gate.hook_out", "gate" in names))
        if there and f"blocks.{layer}.attn.{name}" in model.hook_dict), None)
    if point is None:
        return None
    function = OTHERWISE.get(str(model.cfg.architecture), "sigmoid")
    return Gate(f"blocks.{layer}.attn.{point}", function, model.cfg.n_heads)


def gates(model: Any) -> Mapping[int, Gate]:
    """Return the gates of a model by layer; of our own models there are none."""
    found = {layer: gate_of(model, layer) for layer in attention_layers(model)}
    return {layer: gate for layer, gate in found.items() if gate is not None}


def effective_codes(
    model: Any, tokens: Int[Tensor, "B T"], layer: int
) -> Float[Tensor, "B H Q K"]:
    """Return the effective codes of a layer: each score times the mean of its gate, a_hqk <g_hq>.

    Of attention without a gate these are the codes. Raises what `check_layer` raises.
    """
    check_layer(model, layer)
    pattern = f"blocks.{layer}.attn.hook_pattern"
    gate = gate_of(model, layer)
    with torch.no_grad():
        _, seen = see(model, tokens, [pattern, *([] if gate is None else [gate.hook])])
    if gate is None:
        return seen[pattern]
    return seen[pattern] * gate(seen[gate.hook]).mean(-1).transpose(1, 2)[..., None]
