"""What goes into the value networks of a layer: the inputs x_k at keys, of any model.

    y_q = sum_k W_qk x_k + b_O        (paper, Eq. 2 = Eq. 5)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.errors import check
from latentcode.models.read_out import look
from latentcode.models.transformer import HookedTransformer


def shown_input(model: Any, layer: int) -> tuple[str, Callable[[Tensor], Tensor]]:
    """Return a hook of a layer, and what makes x, that which its values are computed from, of what
    the hook shows.

    Of our own models x is LN1 of the residual stream; of a bridge it is what `attn.hook_in` shows,
    in most architectures the same.
    """
    if isinstance(model, HookedTransformer):
        return f"blocks.{layer}.hook_resid_pre", model.layer(layer).ln1
    return f"blocks.{layer}.attn.hook_in", _as_it_is


def shown_output(model: Any, layer: int) -> str:
    """Return the hook that shows y_q, what the value networks of a layer sum to, plus b_O.

    Of a bridge it shows the output of the output projection: before a norm that follows attention,
    as in Gemma 2. What caps scores comes before the codes, and changes nothing in this identity.
    """
    if isinstance(model, HookedTransformer):
        return f"blocks.{layer}.hook_attn_out"
    return f"blocks.{layer}.attn.o.hook_out"


def key_inputs(
    model: Any, batches: Iterable[tuple[Tensor, Int[Tensor, "_ P"]]], layers: Sequence[int]
) -> Float[Tensor, "L P N D"]:
    """Return x_k, what the value networks at the keys of N instances are applied to.

    model    a `HookedTransformer` or a `TransformerBridge`
    batches  inputs of a model, token ids [B, T] or vectors [B, T, d_input], with the positions of
             P keys in each instance. Batches may differ in T; instances that are padded on the
             right are read rightly by causal models

    `value_network(model, layer, code)` applied to them is what each key contributes to the output
    of attention (`shown_output`) at its query. `ConfigError` for a bridge that does not show what
    goes into attention.
    """
    found: dict[int, list[Tensor]] = {layer: [] for layer in layers}
    shown = {layer: shown_input(model, layer) for layer in layers}
    lacking = [name for name, _ in shown.values() if name not in model.hook_dict]
    check(not lacking, f"the model has no hook {', '.join(lacking)}; expected one that shows what "
          "goes into attention in every layer")

    def keep(layer: int, key: Tensor) -> Callable[..., None]:
        def store(activation: Tensor, hook: object) -> None:
            x = shown[layer][1](activation)
            found[layer].append(_at_keys(x, key))
        return store

    for inputs, key in batches:
        look(model, inputs, ((name, keep(layer, key)) for layer, (name, _) in shown.items()))
    return torch.stack([torch.cat(found[layer], dim=1) for layer in layers])


def _at_keys(x: Float[Tensor, "B T D"], key: Int[Tensor, "B P"]) -> Float[Tensor, "P B D"]:
    return x[torch.arange(len(x), device=x.device)[:, None], key].transpose(0, 1)


def _as_it_is(x: Tensor) -> Tensor:
    return x
