"""The position-wise half of a block: GELU layer, SwiGLU, or a mixture of experts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from latentcode.models.config import ModelConfig
from latentcode.models.dense import dense
from latentcode.models.kernels.fused import gelu


class GeluLayer(nn.Module):
    """y = W_out^T gelu(W_in^T x + b_in) + b_out, with the tanh approximation of GELU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, hidden = config.d_model, config.d_mlp
        self.W_in = nn.Parameter(torch.zeros(d, hidden))
        self.b_in = nn.Parameter(torch.zeros(hidden))
        self.W_out = nn.Parameter(torch.zeros(hidden, d))
        self.b_out = nn.Parameter(torch.zeros(d))
        self.hook_in = HookPoint()  # [B, T, D]
        self.hook_pre = HookPoint()  # [B, T, d_mlp]
        self.hook_post = HookPoint()  # [B, T, d_mlp]

    def forward(self, x: Float[Tensor, "*E B T D"]) -> Float[Tensor, "*E B T D"]:
        x = self.hook_in(x)
        pre = self.hook_pre(dense(x, self.W_in, self.b_in))
        post = self.hook_post(gelu(pre))
        return dense(post, self.W_out, self.b_out)


class SwiGLU(nn.Module):
    """y = W_out^T (silu(W_gate^T x) * W_in^T x), without biases (official `swiglu`)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, hidden = config.d_model, config.d_mlp
        self.W_gate = nn.Parameter(torch.zeros(d, hidden))
        self.W_in = nn.Parameter(torch.zeros(d, hidden))
        self.W_out = nn.Parameter(torch.zeros(hidden, d))
        self.hook_in = HookPoint()  # [B, T, D]
        self.hook_pre = HookPoint()  # [B, T, d_mlp], the gate before silu
        self.hook_pre_linear = HookPoint()  # [B, T, d_mlp], the value
        self.hook_post = HookPoint()  # [B, T, d_mlp]

    def forward(self, x: Float[Tensor, "*E B T D"]) -> Float[Tensor, "*E B T D"]:
        x = self.hook_in(x)
        gate = self.hook_pre(dense(x, self.W_gate))
        value = self.hook_pre_linear(dense(x, self.W_in))
        return dense(self.hook_post(F.silu(gate) * value), self.W_out)


class MixtureOfExperts(nn.Module):
    """y = sum_i g_i(x) W_out,i^T gelu(W_in,i^T x), g = softmax over the top k gates (paper, A.1).

    The equation of the paper has no biases and no auxiliary loss, and neither has this layer.
    All experts are computed and the unrouted ones weighted by zero: exact, without routing
    on the host, at n_experts / top_k times the arithmetic of a sparse implementation.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, hidden, experts = config.d_model, config.d_mlp, config.n_experts
        self.top_k = config.top_k
        self.W_gate = nn.Parameter(torch.zeros(d, experts))
        self.W_in = nn.Parameter(torch.zeros(experts, d, hidden))
        self.W_out = nn.Parameter(torch.zeros(experts, hidden, d))
        self.hook_in = HookPoint()  # [B, T, D]
        self.hook_gate = HookPoint()  # [B, T, n_experts], zero for experts not chosen
        self.hook_pre = HookPoint()  # [B, T, n_experts, d_mlp]
        self.hook_post = HookPoint()  # [B, T, n_experts, d_mlp]

    def forward(self, x: Float[Tensor, "*E B T D"]) -> Float[Tensor, "*E B T D"]:
        x = self.hook_in(x)
        logits = dense(x, self.W_gate)
        top, chosen = logits.topk(self.top_k, dim=-1)
        gate = torch.zeros_like(logits).scatter(-1, chosen, top.softmax(dim=-1).to(logits.dtype))
        gate = self.hook_gate(gate)
        pre = self.hook_pre(torch.einsum("...btd,...edh->...bteh", x, self.W_in))
        post = self.hook_post(gelu(pre))
        return torch.einsum("...bte,...bteh,...ehd->...btd", gate, post, self.W_out)


_FEEDFORWARDS: dict[str, type[nn.Module]] = {
    "gelu": GeluLayer, "swiglu": SwiGLU, "moe": MixtureOfExperts}


def make_feedforward(config: ModelConfig) -> nn.Module:
    """Return the feed-forward layer that `config.feedforward` names."""
    return _FEEDFORWARDS[config.feedforward](config)
