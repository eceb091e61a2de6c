"""A hooked transformer: embedding, pre-LayerNorm blocks, final LayerNorm, read-out.

    x <- x + attention(LN1(x));  x <- x + feedforward(LN2(x))        (paper, appendix C)

Every activation passes a TransformerLens `HookPoint` under its TransformerLens name, and
weights have TransformerLens' names and shapes, so that `run_with_cache`, `run_with_hooks` and
everybody's habits work. `blocks.{l}.attn.hook_pattern` is the latent code for every attention
kind, and writing it changes what the value network does. Fixed by the official implementation:
LayerNorm eps 1e-6, tanh-approximated GELU, biases on all dense layers but SwiGLU's, embeddings
not scaled, initial weights as in `HookedTransformer.init_weights`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformer_lens.hook_points import HookPoint

from latentcode.devices import checked_seed
from latentcode.errors import check
from latentcode.models.blocks import (
    Block,
    Distinct,
    Embed,
    Generators,
    LayerNorm,
    Unembed,
    dense,
    last_tokens,
)
from latentcode.models.config import ModelConfig
from latentcode.models.hooks import is_hooked
from latentcode.models.lens import LensConfig, LensSurface, VectorTokens


class HookedTransformer(LensSurface):
    """logits = read-out(LN(blocks(embed(inputs)))): [B, T, d_output].

    seed  of the initial weights (see `init_weights`). A sequence of E seeds makes an ensemble of
          E models that are computed together: every weight, input, activation and logit has a
          leading axis of E members, and member e is the model of seed e.

    Dropout masks in training mode are drawn with the `generator` of the call, for an ensemble a
    sequence of them. `config` holds the `ModelConfig`; `cfg` is the same with TransformerLens'
    names, and what else its tools ask for stands in `LensSurface`.
    """

    def __init__(self, config: ModelConfig, seed: int | Sequence[int] = 0) -> None:
        super().__init__()
        config = config.plain if isinstance(config, LensConfig) else config
        self.config = config
        self.n_members = len(seed) if isinstance(seed, Sequence) else None
        self.embed = Embed(config)
        self.hook_embed = HookPoint()  # [B, T, D]
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.ln_final = LayerNorm(config.d_model)
        self.unembed = Unembed(config) if config.readout == "dense" else None
        if self.n_members is not None:
            for module in self.modules():
                for name, weight in list(module.named_parameters(recurse=False)):
                    members = nn.Parameter(weight.new_zeros(self.n_members, *weight.shape))
                    setattr(module, name, members)
        self.init_weights(seed)
        self.setup()

    def init_weights(self, seed: int | Sequence[int]) -> None:
        """Draw all weights again; see `latentcode.models.transformer.init_weights`."""
        parameters = dict(self.named_parameters())
        if not isinstance(seed, Sequence):
            return init_weights(parameters, seed)
        for index, member in enumerate(seed):
            init_weights({name: p[index] for name, p in parameters.items()}, member)

    def forward(
        self,
        inputs: Float[Tensor, "*E B T d_input"] | Int[Tensor, "*E B T"],
        context: Float[Tensor, "*E B K D"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        generator: Generators = None,
        feedforward_dtype: torch.dtype | None = None,
        read: int | None = None,
        one_hot: bool = False,
        recompute: bool = False,
        stop_at_layer: int | None = None,
        return_type: str = "logits",
    ) -> Float[Tensor, "*E B R d_output"]:
        """Return logits, of all tokens (R = T) or of the last R.

        inputs   vectors [B, T, d_input] or token ids [B, T], as `cfg.embedding` says
        context  [B, K, d_model] for a model with cross-attention, and only for one
        mask     bool, broadcastable to [B, H, T, T]; False hides a key from a query
        feedforward_dtype  compute the feed-forward layers under autocast to this type
        read     R: the logits of the last tokens only, the same up to rounding. The last block
                 then has queries, codes and a feed-forward for those alone, unless a hook sits on
                 it or on what follows, which always sees all tokens
        one_hot  all vectors are unit vectors or zero, which is not checked here. The first block
                 then computes queries, keys and values of d_input + 1 tokens only, unless a hook
                 sits on what leads to them; the logits are the same up to rounding
        recompute  keep for the backward pass only what enters each block, and compute the rest
                 again, hooks included: less memory, a third more time, the same gradients
        stop_at_layer  return the residual stream that enters this layer, [B, R, D], and compute no
                 further; -1 is the last layer
        return_type  "logits"; the losses that TransformerLens knows belong to a task here
        """
        config = self.config
        check(return_type == "logits", f"return_type is {return_type!r}; expected 'logits': a loss "
              "belongs to the task (task.loss)")
        n_layers = config.n_layers
        check(stop_at_layer is None or (
            type(stop_at_layer) is int and -n_layers <= stop_at_layer <= n_layers),
            f"stop_at_layer is {stop_at_layer!r}; expected a layer from {-n_layers} to {n_layers}")
        stop = n_layers if stop_at_layer is None else (
            stop_at_layer if stop_at_layer >= 0 else n_layers + stop_at_layer)
        if isinstance(inputs, VectorTokens):
            inputs = inputs.vectors
        members = () if self.n_members is None else (self.n_members,)
        width = (config.d_input,) if config.embedding == "dense" else ()
        shape = tuple(inputs.shape)
        check(len(shape) == len((*members, "B", "T", *width))
              and shape[:len(members)] == members and shape[len(shape) - len(width):] == width,
              f"inputs have shape {shape}; expected "
              f"[{', '.join(map(str, (*members, 'B', 'T', *width)))}]"
              + ("" if width else " token ids"))
        check((context is not None) == config.cross_attention,
              f"context is {'missing' if context is None else 'given'}, but cross_attention is "
              f"{config.cross_attention}")
        n_tokens = inputs.shape[len(members) + 1]
        check(read is None or (type(read) is int and 1 <= read <= n_tokens),
              f"read is {read!r}; expected a number of tokens from 1 to {n_tokens}, or None for "
              "all")
        x = self.hook_embed(self.embed(inputs))
        shares = one_hot and not inputs.requires_grad and self._can_share()
        distinct = self._distinct(inputs) if shares else None
        spares = read is not None and mask is None and self._can_spare()
        for index, block in enumerate(self.blocks):
            if index == stop:
                break
            last = index == n_layers - 1
            call = recomputed(block, generator) if recompute and torch.is_grad_enabled() else block
            x = call(x, context=context, mask=mask, generator=generator,
                     feedforward_dtype=feedforward_dtype, read=read if spares and last else None,
                     distinct=distinct if index == 0 else None)
        if stop_at_layer is not None:
            return last_tokens(x, read)
        return last_tokens(self.read_out(x), read)

    def read_out(self, x: Float[Tensor, "*E B T D"]) -> Float[Tensor, "*E B T d_output"]:
        """Return the logits of the residual stream that leaves the last block."""
        x = self.ln_final(x)
        if self.unembed is not None:
            return self.unembed(x)
        # The features are divided, as there are fewer of them than logits.
        return dense(x / math.sqrt(self.config.d_model), self.embed.W_E.transpose(-1, -2))

    def _can_spare(self) -> bool:
        """Whether the last block may leave tokens out: nobody looks at it or at what follows, and
        nothing in it counts queries from the first (causal masks, cross-attention)."""
        behind = (self.blocks[-1], self.ln_final, self.unembed)
        return not (self.config.causal or self.config.cross_attention) and not any(
            is_hooked(module) for part in behind if part is not None for module in part.modules())

    def _can_share(self) -> bool:
        """Whether nobody looks at a token, or writes one, before the first queries."""
        block = self.layer(0)
        before = (self.embed, self.hook_embed, block, block.hook_resid_pre, block.attn,
                  *block.ln1.modules())
        return self.config.embedding == "dense" and not any(map(is_hooked, before))

    def _distinct(self, inputs: Float[Tensor, "*E B T d_input"]) -> Distinct:
        """Return the d_input + 1 tokens of unit vectors and zeros, the zero vector last."""
        vectors = F.pad(torch.eye(self.config.d_input, device=inputs.device, dtype=inputs.dtype),
                        (0, 0, 0, 1))
        rows = self.embed(vectors.expand(*inputs.shape[:-3], 1, -1, -1))
        return Distinct(rows, torch.cat([inputs, 1.0 - inputs.sum(-1, keepdim=True)], dim=-1))

    def layer(self, index: int) -> Block:
        """Return a block."""
        block = self.blocks[index]
        assert isinstance(block, Block)
        return block

    @property
    def n_parameters(self) -> int:
        """Number of trained numbers."""
        return sum(p.numel() for p in self.parameters())


def recomputed(block: nn.Module, generator: Generators) -> Callable[..., Tensor]:
    """Return the block as a function of which autograd keeps the arguments alone.

    generator  what draws its dropout masks; the second time it draws the same ones

    `ConfigError` for masks that were drawn beforehand, of which each is handed out once.
    """
    check(generator is None or isinstance(generator, (torch.Generator, Sequence)),
          "dropout masks are drawn ahead; expected generators where activations are computed again")
    generators: list[torch.Generator] = (
        [generator] if isinstance(generator, torch.Generator) else
        list(cast(Sequence[torch.Generator], generator or ())))
    before = [one.get_state() for one in generators]
    called = False

    def compute(*args: Any, **options: Any) -> Any:
        nonlocal called
        if not called:
            called = True
            return block(*args, **options)
        after = [one.get_state() for one in generators]
        for one, state in zip(generators, before, strict=True):
            one.set_state(state)
        try:
            return block(*args, **options)
        finally:
            for one, state in zip(generators, after, strict=True):
                one.set_state(state)

    def call(*args: Any, **options: Any) -> Tensor:
        kept: Tensor = checkpoint(compute, *args, use_reentrant=False,
                                  preserve_rng_state=generator is None, **options)
        return kept

    return call


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
        module, _, leaf = name.rpartition(".")
        value = torch.empty(parameter.shape, dtype=torch.float32)
        if module.rpartition(".")[2] in ("ln1", "ln2", "ln_cross", "ln_final"):
            value.fill_(1.0 if leaf == "w" else 0.0)
        elif leaf.startswith("b_"):
            value.zero_()
        # A dense embedding has a bias and is a kernel; without one W_E is a table of tokens.
        elif leaf == "rel_pos_bias" or (
                leaf == "W_E" and name.replace("W_E", "b_E") not in parameters):
            value.normal_(0.0, 1.0 / math.sqrt(parameter.shape[-1]), generator=generator)
        else:
            contracts_all = module.endswith("attn") and leaf not in ("W_Q", "W_K", "W_V")
            fan_in = math.prod(parameter.shape[:-1]) if contracts_all else parameter.shape[-2]
            std = 1.0 / math.sqrt(fan_in) / TRUNCATED_STD
            nn.init.trunc_normal_(value, 0.0, std, -2 * std, 2 * std, generator=generator)
        parameter.data.copy_(value)
