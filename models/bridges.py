"""What does a model show, and is it what its value networks make?

    sum_k W_qk x_k + b_O = y_q        (Eq. 2 = Eq. 5 of the paper)
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.models.gates import gate_of
from latentcode.models.hooks import see
from latentcode.models.hypernetwork import value_network
from latentcode.models.key_inputs import shown_input, shown_output


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
    gate = gate_of(model, layer)
    names = [entering, f"blocks.{layer}.attn.hook_pattern", shown_output(model, layer)]
    with torch.no_grad():
        _, seen = see(model, tokens, [*names, *([] if gate is None else [gate.hook])])
        x, pattern, shown = (seen[name] for name in names)
        return generated_output(model, layer, as_input(x), pattern, gate=(
            None if gate is None else gate(seen[gate.hook]))), shown


def generated_output(
    model: Any, layer: int, x: Float[Tensor, "B T D"], pattern: Float[Tensor, "B H Q T"], *,
    gate: Float[Tensor, "B Q H _"] | None = None,
) -> Float[Tensor, "B Q D"]:
    """sum_k W_qk x_k + b_O for every query of a layer                        (paper, Eq. 5)

    x        what values are computed from, see `shown_input`
    pattern  codes, measured or made up
    gate     of the queries, where attention has one

    One query at a time, because each has a matrix D x D per key.
    """
    total = torch.stack([
        value_network(model, layer, code.transpose(1, 2), gate=(
            None if gate is None else gate[:, query, None]))(x).sum(dim=1)
        for query, code in enumerate(pattern.unbind(dim=2))], dim=1)
    bias = model.blocks[layer].attn.b_O
    return total if bias is None else total + bias
