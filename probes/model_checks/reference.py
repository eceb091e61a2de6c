"""What `transformers` itself computes, before a bridge takes the model over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.errors import ConfigError
from latentcode.seeds import make_generator


@dataclass(frozen=True)
class Reference:
    """One prompt and what the forward pass of `transformers` makes of it.

    tokens   [B, T]
    logits   [B, T, V]
    hidden   the stream entering each layer [B, T, D]; empty where it is not told
    weights  the attention weights of each layer [B, H, Q, K]; empty where they are not told
    """

    tokens: Int[Tensor, "B T"]
    logits: Float[Tensor, "B T V"]
    hidden: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]


def random_prompts(
    vocabulary: int, lengths: Sequence[int], seed: int, device: torch.device
) -> list[Int[Tensor, "B T"]]:
    """Return two prompts of random tokens [2, T] of each length."""
    generator = make_generator(seed, "check model")
    return [torch.randint(vocabulary, (2, length), generator=generator).to(device)
            for length in lengths]


@torch.no_grad()
def reference(network: Any, tokens: Int[Tensor, "B T"]) -> Reference:
    """Return what a model of `transformers` computes; `ConfigError` where it computes nothing."""
    try:
        output = network(input_ids=tokens, use_cache=False, output_attentions=True,
                         output_hidden_states=True)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        raise ConfigError(
            f"transformers cannot run a {type(network).__name__} with weights in "
            f"{str(network.dtype).removeprefix('torch.')}: {str(error).splitlines()[0]}") from error
    return Reference(tokens, output.logits, _tensors(output, "hidden_states"),
                     _tensors(output, "attentions"))


def _tensors(output: Any, name: str) -> tuple[Tensor, ...]:
    """Return what is told of every layer, nothing where it is told of some only."""
    found = tuple(getattr(output, name, None) or ())
    return found if all(isinstance(x, Tensor) for x in found) else ()
