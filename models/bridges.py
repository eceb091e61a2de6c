"""What does a model show, and is it what its value networks make?

    sum_k W_qk x_k + b_O = y_q        (Eq. 2 = Eq. 5 of the paper)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.models.hypernetwork import value_network
from latentcode.models.key_inputs import shown_input, shown_output


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

    logits = model.run_with_hooks(tokens, fwd_hooks=[
        (name, look(name)) for name in dict.fromkeys(names) if name in model.hook_dict])
    return logits, seen


def identity_error(model: Any, tokens: Int[Tensor, "B T"]) -> Float[Tensor, " L"]:
    """max |sum_k W_qk x_k + b_O - y_q| of every layer: does Eq. 2 = Eq. 5 of the paper hold?

    tokens  a few: every W_qk is made, for each query B x T matrices of D x D

    Rounding where the value networks are what `value_network` says; otherwise attention does
    something more (a gate, a norm before the output projection), and the value networks of this
    architecture are not to be trusted.
    """
    layers = (generated_and_shown(model, tokens, layer) for layer in range(len(model.blocks)))
    return torch.stack([(generated - shown).abs().max() for generated, shown in layers])


def generated_and_shown(
    model: Any, tokens: Int[Tensor, "B T"], layer: int
) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
    """sum_k W_qk x_k + b_O and y_q: what value networks make of a layer's input, and its output.

    tokens  as for `identity_error`; of y_q see `shown_output`

    `KeyError` for a bridge that does not show what goes into attention, its codes or its output;
    where its weights are not those of value heads, what `value_network` raises.
    """
    entering, as_input = shown_input(model, layer)
    names = [entering, f"blocks.{layer}.attn.hook_pattern", shown_output(model, layer)]
    with torch.no_grad():
        _, seen = see(model, tokens, names)
        x, pattern, shown = (seen[name] for name in names)
        return generated_output(model, layer, as_input(x), pattern), shown


def generated_output(
    model: Any, layer: int, x: Float[Tensor, "B T D"], pattern: Float[Tensor, "B H Q T"]
) -> Float[Tensor, "B Q D"]:
    """sum_k W_qk x_k + b_O for every query of a layer                        (paper, Eq. 5)

    x        what values are computed from, see `shown_input`
    pattern  codes, measured or made up

    One query at a time, because each has a matrix D x D per key.
    """
    total = torch.stack([
        value_network(model, layer, code.transpose(1, 2))(x).sum(dim=1)
        for code in pattern.unbind(dim=2)], dim=1)
    bias = model.blocks[layer].attn.b_O
    return total if bias is None else total + bias


__all__ = ["generated_and_shown", "generated_output", "identity_error", "see"]
