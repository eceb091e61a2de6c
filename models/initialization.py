"""Initial weights, drawn as the official implementation draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from latentcode.seeds import checked_seed

TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of a unit normal truncated at two sigma; dividing by it restores 1."""


def init_weights(parameters: Mapping[str, Tensor], seed: int) -> None:
    """Draw the named parameters of a `HookedTransformer` in place, with one CPU generator.

    Kernels  truncated normal at two sigma with variance 1 / fan_in after the correction (LeCun);
             fan_in = d_model for W_Q, W_K, W_V, and heads x d_head_v for W_O and W_V2, which
             contract over heads and head dimension together; for a weight of a registered value
             network all axes but the last are taken for contracted
    tables   (token embedding, relative bias) untruncated normal with standard deviation
             1 / sqrt(size of the last axis)
    biases 0, LayerNorm 1 and 0

    The draws do not depend on device or dtype: they are made in float32 on the CPU.
    """
    generator = torch.Generator().manual_seed(checked_seed(seed))
    for name, parameter in parameters.items():
        # A dense embedding has a bias and is a kernel; without one W_E is a table of tokens.
        is_table = name.endswith("rel_pos_bias") or (
            name.endswith("W_E") and name.replace("W_E", "b_E") not in parameters)
        parameter.data.copy_(_initial_value(name, parameter, is_table, generator))


def _initial_value(
    name: str, parameter: Tensor, is_table: bool, generator: torch.Generator
) -> Tensor:
    module, _, leaf = name.rpartition(".")
    value = torch.empty(parameter.shape, dtype=torch.float32)
    if module.rpartition(".")[2] in ("ln1", "ln2", "ln_cross", "ln_final"):
        return value.fill_(1.0 if leaf == "w" else 0.0)
    if leaf.startswith("b_"):
        return value.zero_()
    if is_table:
        return value.normal_(0.0, 1.0 / math.sqrt(parameter.shape[-1]), generator=generator)
    contracts_all = module.endswith("attn") and leaf not in ("W_Q", "W_K", "W_V")
    fan_in = math.prod(parameter.shape[:-1]) if contracts_all else parameter.shape[-2]
    std = 1.0 / math.sqrt(fan_in) / TRUNCATED_STD
    return nn.init.trunc_normal_(value, 0.0, std, -2 * std, 2 * std, generator=generator)
