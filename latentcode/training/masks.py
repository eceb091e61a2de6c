"""Which scores does each update of an ensemble on a GPU drop?

A generator inside a captured step costs two launches per replay, and each mask another; drawn
beforehand for many steps, all of them cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.models.attention import dropout_mask
from latentcode.models.config import ModelConfig
from latentcode.seeds import make_generator


def can_be_drawn_ahead(config: ModelConfig) -> bool:
    """Whether there is dropout, with masks small enough to keep: one for a whole batch."""
    return config.attention_dropout > 0.0 and config.attention_dropout_form == "shared"


def draw_masks(
    config: ModelConfig, seeds: Sequence[int], index: int, inputs: Tensor, dtype: torch.dtype
) -> Float[Tensor, "N L E 1 1 T T"]:
    """m / (1 - p), m ~ Bernoulli(1 - p), for the L layers of E members in a chunk of N updates.

    index   of the chunk, as in `TrainingBatches`
    inputs  [N, E, B, T, ...], on the device where the masks are wanted
    dtype   of the masks, that of the weights

    As for the batches, each member has a generator of its own for every chunk, so that training
    resumes at any step without a state of the stream.
    """
    generators = [make_generator(seed, f"train dropout {index}", inputs.device) for seed in seeds]
    n_updates, n_tokens = len(inputs), inputs.shape[3]
    drawn = dropout_mask(
        (n_updates * config.n_layers, 1, n_tokens, n_tokens), config.attention_dropout,
        "independent", generators, device=inputs.device, dtype=dtype)
    return drawn.unflatten(1, (n_updates, config.n_layers, 1)).movedim(0, 2).contiguous()
