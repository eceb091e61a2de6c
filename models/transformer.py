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
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache, HookedRootModule
from transformer_lens.hook_points import HookPoint

from latentcode.errors import check
from latentcode.models.attention import (
    apply_value_network,
    attention_dropout,
    attention_scores,
    nonlinearity,
    normalize,
)
from latentcode.models.config import ModelConfig
from latentcode.models.feedforward import make_feedforward
from latentcode.models.initialization import init_weights
from latentcode.models.positions import relative_bias, rotary

LAYER_NORM_EPSILON = 1e-6


class LayerNorm(nn.Module):
    """y = (x - mean) / sqrt(var + 1e-6) * w + b over the last axis, biased variance."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(d_model))
        self.b = nn.Parameter(torch.zeros(d_model))
        self.hook_scale = HookPoint()  # [B, T, 1]
        self.hook_normalized = HookPoint()  # [B, T, D]

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        if not (self.hook_scale.has_hooks() or self.hook_normalized.has_hooks()):
            # The fused kernel is faster, but has nowhere to put the two hooks.
            return F.layer_norm(x, (x.shape[-1],), self.w, self.b, LAYER_NORM_EPSILON)
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        scale = self.hook_scale((variance + LAYER_NORM_EPSILON).sqrt())
        return self.hook_normalized(centred / scale) * self.w + self.b


class Attention(nn.Module):
    """y_q = sum_h W_O^h z_qh + b_O, where z comes from the value networks that the codes generate.

    Queries come from `x`, keys and values from `context` where one is given (cross-attention)
    and from `x` otherwise. The T5 bias belongs to self-attention; rotary positions to both.
    """

    def __init__(self, config: ModelConfig, cross: bool = False) -> None:
        super().__init__()
        heads, d, d_head, d_head_v = (
            config.n_heads, config.d_model, config.d_head, config.d_head_v)
        self.cfg = config
        self.causal = config.causal and not cross
        self.W_Q = nn.Parameter(torch.zeros(heads, d, d_head))
        self.b_Q = nn.Parameter(torch.zeros(heads, d_head))
        self.W_K = nn.Parameter(torch.zeros(heads, d, d_head))
        self.b_K = nn.Parameter(torch.zeros(heads, d_head))
        self.W_V = nn.Parameter(torch.zeros(heads, d, d_head_v))
        self.b_V = nn.Parameter(torch.zeros(heads, d_head_v))
        self.W_O = nn.Parameter(torch.zeros(heads, d_head_v, d))
        self.b_O = nn.Parameter(torch.zeros(d))
        self.W_V2 = (nn.Parameter(torch.zeros(heads, d_head_v, d_head_v))
                     if config.value_network == "deep" else None)
        self.rel_pos_bias = (nn.Parameter(torch.zeros(heads, config.n_buckets))
                             if config.positions == "t5" and not cross else None)
        self.phi = nonlinearity(config.nonlinearity)
        self.hook_q = HookPoint()  # [B, Q, H, d_head]
        self.hook_k = HookPoint()  # [B, K, H, d_head]
        self.hook_v = HookPoint()  # [B, K, H, d_head_v]
        self.hook_attn_scores = HookPoint()  # [B, H, Q, K], biased and masked
        self.hook_pattern = HookPoint()  # [B, H, Q, K], the latent code: write here
        self.hook_z = HookPoint()  # [B, Q, H, d_head_v]
        if config.value_network != "linear":
            self.hook_value_hidden = HookPoint()  # [B, Q, K, d_head_v], units of the value network

    def forward(
        self,
        x: Float[Tensor, "B Q D"],
        context: Float[Tensor, "B K D"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "B Q D"]:
        config = self.cfg
        source = x if context is None else context
        q = self.hook_q(_project(x, self.W_Q, self.b_Q))
        k = self.hook_k(_project(source, self.W_K, self.b_K))
        v = self.hook_v(_project(source, self.W_V, self.b_V))
        if config.positions == "rotary":
            q, k = rotary(q), rotary(k)
        n_query, n_key = q.shape[1], k.shape[1]
        bias = None
        if self.rel_pos_bias is not None:
            bias = relative_bias(self.rel_pos_bias, n_query, n_key, config.max_distance)
        if self.causal:
            past = torch.ones(n_query, n_key, dtype=torch.bool, device=x.device).tril()[None, None]
            mask = past if mask is None else mask & past
        scores = self.hook_attn_scores(attention_scores(q, k, bias, mask, config.normalization))
        code = normalize(scores, config.normalization)
        if self.training:
            code = attention_dropout(
                code, config.attention_dropout, config.attention_dropout_form, generator)
        code = self.hook_pattern(code)
        hook_hidden = getattr(self, "hook_value_hidden", None)
        z = self.hook_z(apply_value_network(
            code, v, config.value_network, self.phi, self.W_V2,
            *(() if hook_hidden is None else (hook_hidden,))))
        return F.linear(z.flatten(2), self.W_O.flatten(0, 1).T, self.b_O)


def _project(
    x: Float[Tensor, "B T D"], w: Float[Tensor, "H D d"], b: Float[Tensor, "H d"]
) -> Float[Tensor, "B T H d"]:
    """x W_h + b_h for all heads in one matrix product."""
    heads, _, d = w.shape
    weight = w.transpose(1, 2).reshape(heads * d, -1)
    return F.linear(x, weight, b.flatten()).unflatten(-1, (heads, d))


class Block(nn.Module):
    """x + attention(LN1(x)), then (where configured) cross-attention, then the feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.ln1 = LayerNorm(config.d_model)
        self.attn = Attention(config)
        if config.cross_attention:
            self.ln_cross = LayerNorm(config.d_model)
            self.cross_attn = Attention(config, cross=True)
            self.hook_cross_attn_out = HookPoint()  # [B, T, D]
        self.ln2 = LayerNorm(config.d_model)
        self.mlp = make_feedforward(config)
        self.hook_resid_pre = HookPoint()  # [B, T, D]
        self.hook_attn_out = HookPoint()  # [B, T, D]
        self.hook_resid_mid = HookPoint()  # [B, T, D]
        self.hook_mlp_out = HookPoint()  # [B, T, D]
        self.hook_resid_post = HookPoint()  # [B, T, D]

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: Float[Tensor, "B K D"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "B T D"]:
        x = self.hook_resid_pre(x)
        x = x + self.hook_attn_out(self.attn(self.ln1(x), mask=mask, generator=generator))
        if context is not None:
            cross = self.cross_attn(self.ln_cross(x), context=context, generator=generator)
            x = x + self.hook_cross_attn_out(cross)
        x = self.hook_resid_mid(x)
        x = x + self.hook_mlp_out(self.mlp(self.ln2(x)))
        return self.hook_resid_post(x)


class Embed(nn.Module):
    """x W_E + b_E for vectors, W_E[x] for token ids; no scaling."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.zeros(config.d_input, config.d_model))
        self.b_E = (nn.Parameter(torch.zeros(config.d_model))
                    if config.embedding == "dense" else None)

    def forward(
        self, inputs: Float[Tensor, "B T d_input"] | Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        if self.b_E is None:
            return F.embedding(inputs, self.W_E)
        return F.linear(inputs, self.W_E.T, self.b_E)


class Unembed(nn.Module):
    """x W_U + b_U."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.W_U = nn.Parameter(torch.zeros(config.d_model, config.d_output))
        self.b_U = nn.Parameter(torch.zeros(config.d_output))

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T d_output"]:
        return F.linear(x, self.W_U.T, self.b_U)


class HookedTransformer(HookedRootModule):
    """logits = read-out(LN(blocks(embed(inputs)))): [B, T, d_output].

    Weights are drawn with `seed` (see `init_weights`); dropout masks in training mode with the
    `generator` of the call. `cfg` holds the `ModelConfig`.
    """

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.cfg = config
        self.embed = Embed(config)
        self.hook_embed = HookPoint()  # [B, T, D]
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.ln_final = LayerNorm(config.d_model)
        self.unembed = Unembed(config) if config.readout == "dense" else None
        self.init_weights(seed)
        self.setup()

    def init_weights(self, seed: int) -> None:
        """Draw all weights anew; see `latentcode.models.initialization.init_weights`."""
        init_weights(self, seed)

    def forward(
        self,
        inputs: Float[Tensor, "B T d_input"] | Int[Tensor, "B T"],
        context: Float[Tensor, "B K D"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, "B T d_output"]:
        """Return logits.

        inputs   vectors [B, T, d_input] or token ids [B, T], as `cfg.embedding` says
        context  [B, K, d_model] for a model with cross-attention, and only for one
        mask     bool, broadcastable to [B, H, T, T]; False hides a key from a query
        """
        config = self.cfg
        wanted = 3 if config.embedding == "dense" else 2
        check(inputs.ndim == wanted and (wanted == 2 or inputs.shape[-1] == config.d_input),
              f"inputs have shape {tuple(inputs.shape)}; expected "
              + (f"[B, T, {config.d_input}]" if wanted == 3 else "[B, T] token ids"))
        check((context is not None) == config.cross_attention,
              f"context is {'missing' if context is None else 'given'}, but cross_attention is "
              f"{config.cross_attention}")
        x = self.hook_embed(self.embed(inputs))
        for block in self.blocks:
            x = block(x, context=context, mask=mask, generator=generator)
        x = self.ln_final(x)
        if self.unembed is not None:
            return self.unembed(x)
        return F.linear(x, self.embed.W_E) / math.sqrt(config.d_model)

    def run_with_cache(
        self, *args: Any, return_cache_object: bool = True, **kwargs: Any
    ) -> tuple[Tensor, ActivationCache | dict[str, Tensor]]:
        """Return (logits, cache); `cache["pattern", 0]` is the code of layer 0, [B, H, Q, K]."""
        logits, cache = super().run_with_cache(*args, **kwargs)
        if return_cache_object:
            removed = kwargs.get("remove_batch_dim", False)
            return logits, ActivationCache(cache, self, has_batch_dim=not removed)
        return logits, cache

    def layer(self, index: int) -> Block:
        """Return a block."""
        block = self.blocks[index]
        assert isinstance(block, Block)
        return block

    @property
    def n_parameters(self) -> int:
        """Number of trained numbers."""
        return sum(p.numel() for p in self.parameters())
