"""Which layers of a model have attention? All, but of hybrids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentcode.errors import ConfigError, UnknownNameError, check

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
    check(not attention or layer in there, f"layer {layer} of this model has no attention but "
          f"{other_layers(model).get(layer)}, and so no codes; expected one of "
          f"{', '.join(map(str, there))}", ConfigError)
