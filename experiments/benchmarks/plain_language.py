"""The language model with softmax attention as one would write it in plain PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentcode.models.dense import LAYER_NORM_EPSILON
from latentcode.models.transformer import HookedTransformer


class PlainLayer(nn.Module):
    """x <- x + attention(LN1(x));  x <- x + SwiGLU(LN2(x))"""

    def __init__(self, d_model: int, n_heads: int, d_mlp: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.ln1, self.ln2 = (nn.LayerNorm(d_model, LAYER_NORM_EPSILON) for _ in range(2))
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.gate, self.value = (nn.Linear(d_model, d_mlp, bias=False) for _ in range(2))
        self.down = nn.Linear(d_mlp, d_model, bias=False)

    def forward(
        self, x: Float[Tensor, "B T D"], cos: Float[Tensor, "T half"], sin: Float[Tensor, "T half"]
    ) -> Float[Tensor, "B T D"]:
        heads = self.qkv(self.ln1(x)).unflatten(-1, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = heads.unbind()
        z = F.scaled_dot_product_attention(
            turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)
        x = x + self.out(z.transpose(1, 2).flatten(-2))
        y = self.ln2(x)
        hidden: Tensor = self.down(F.silu(self.gate(y)) * self.value(y))
        return x + hidden


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the rotated halves of the features of every head."""
    one, other = x.chunk(2, dim=-1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)


class PlainLanguageModel(nn.Module):
    """logits = LN(layers(E[ids])) E^T / sqrt(D)"""

    def __init__(
        self, n_vocabulary: int, n_layers: int, d_model: int, n_heads: int, d_mlp: int
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(n_vocabulary, d_model)
        self.layers = nn.ModuleList(PlainLayer(d_model, n_heads, d_mlp) for _ in range(n_layers))
        self.ln = nn.LayerNorm(d_model, LAYER_NORM_EPSILON)
        self.d_head = d_model // n_heads

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        x = self.embed(ids)
        frequency = 10_000.0 ** (-torch.arange(0, self.d_head, 2, dtype=x.dtype) / self.d_head)
        angle = torch.arange(ids.shape[1], dtype=x.dtype)[:, None] * frequency
        cos, sin = angle.cos(), angle.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.ln(x) / math.sqrt(x.shape[-1]), self.embed.weight)

    def update(
        self, optimizer: torch.optim.Optimizer, ids: Int[Tensor, "B T"],
        targets: Int[Tensor, "B T"],
    ) -> None:
        """Update the weights once."""
        loss = F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    @classmethod
    def of(cls, model: HookedTransformer) -> PlainLanguageModel:
        """Return a model of our kind `softmax`, with rotary positions and SwiGLU, written so."""
        config = model.config
        plain = cls(config.d_input, config.n_layers, config.d_model, config.n_heads, config.d_mlp)
        plain = plain.to(model.embed.W_E.dtype)
        weights: dict[str, Tensor] = {
            "embed.weight": model.embed.W_E, "ln.weight": model.ln_final.w,
            "ln.bias": model.ln_final.b}
        for index in range(config.n_layers):
            block, at = model.layer(index), f"layers.{index}."
            attention, mlp = block.attn, block.mlp
            joined = torch.cat([w.transpose(0, 1).flatten(1).T for w in (
                attention.W_Q, attention.W_K, attention.W_V)])
            weights |= {
                f"{at}ln1.weight": block.ln1.w, f"{at}ln1.bias": block.ln1.b,
                f"{at}ln2.weight": block.ln2.w, f"{at}ln2.bias": block.ln2.b,
                f"{at}qkv.weight": joined, f"{at}qkv.bias": torch.cat([
                    b.flatten() for b in (attention.b_Q, attention.b_K, attention.b_V)]),
                f"{at}out.weight": attention.W_O.flatten(0, 1).T, f"{at}out.bias": attention.b_O,
                f"{at}gate.weight": mlp.get_parameter("W_gate").T,
                f"{at}value.weight": mlp.get_parameter("W_in").T,
                f"{at}down.weight": mlp.get_parameter("W_out").T}
        plain.load_state_dict({name: weight.detach() for name, weight in weights.items()})
        return plain
