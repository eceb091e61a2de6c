"""The parts of the transformer: embedding, LayerNorm, attention, feed-forward, blocks, read-out.

    x <- x + attention(LN1(x));  x <- x + feedforward(LN2(x))        (paper, appendix C)

`*E` stands for nothing, or for the leading axis of an ensemble whose members are computed
together, each with its own weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from latentcode.models.attention import (
    apply_value_network,
    attention_scores,
    dropout_mask,
    nonlinearity,
    normalize,
    relative_bias,
    relative_bias_rows,
    rotary,
)
from latentcode.models.config import VALUE_NETWORKS, ModelConfig
from latentcode.models.hooks import is_hooked
from latentcode.models.kernels.fused import (
    Kind,
    Tensors,
    attention_by_kernel,
    attention_of_codes,
    gelu,
)

LAYER_NORM_EPSILON = 1e-6


def _is_one_on_gpu(w: Tensor) -> bool:
    """Whether an ensemble has one member, as whatever is trained alone on a GPU; on a CPU, where
    that is no ensemble, one of one member stays bit for bit what it was."""
    return len(w) == 1 and w.device.type == "cuda"


def dense(
    x: Float[Tensor, "*E B T n"],
    w: Float[Tensor, "*E n m"],
    b: Float[Tensor, "*E m"] | None = None,
) -> Float[Tensor, "*E B T m"]:
    """y = x w + b, in one (batched) matrix product."""
    if w.ndim == 2:
        return F.linear(x, w.T, b)
    if _is_one_on_gpu(w):  # the product of one model adds the bias as it goes
        return dense(x.squeeze(0), w.squeeze(0), None if b is None else b.squeeze(0)).unsqueeze(0)
    rows = x.flatten(1, -2)
    y = torch.bmm(rows, w) if b is None else torch.baddbmm(b[:, None], rows, w)
    return y.unflatten(1, x.shape[1:-1])


def layer_norm(
    x: Float[Tensor, "*E B T D"], w: Float[Tensor, "*E D"], b: Float[Tensor, "*E D"]
) -> Float[Tensor, "*E B T D"]:
    """y = (x - mean) / sqrt(var + 1e-6) * w + b over the last axis, biased variance."""
    shape = (x.shape[-1],)
    if w.ndim == 1:
        return F.layer_norm(x, shape, w, b, LAYER_NORM_EPSILON)
    if _is_one_on_gpu(w):
        return layer_norm(x.squeeze(0), w.squeeze(0), b.squeeze(0)).unsqueeze(0)
    normalized = F.layer_norm(x, shape, eps=LAYER_NORM_EPSILON)
    return torch.addcmul(b[:, None, None], normalized, w[:, None, None])


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


Generators = torch.Generator | Sequence[torch.Generator] | Iterator[Tensor] | None
"""What draws dropout masks: torch's own, one generator, or one for each member of an ensemble; or
the factors themselves, drawn beforehand in the order of the layers."""


@dataclass(frozen=True)
class Distinct:
    """The few different tokens of a batch: token t of instance b is sum_v which_btv rows_v."""

    rows: Float[Tensor, "*E 1 V D"]
    which: Float[Tensor, "*E B T V"]
    """1 for the row that a token is, else 0."""


class LayerNorm(nn.Module):
    """y = (x - mean) / sqrt(var + 1e-6) * w + b over the last axis, biased variance."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(d_model))
        self.b = nn.Parameter(torch.zeros(d_model))
        self.hook_scale = HookPoint()  # [B, T, 1]
        self.hook_normalized = HookPoint()  # [B, T, D]

    def forward(self, x: Float[Tensor, "*E B T D"]) -> Float[Tensor, "*E B T D"]:
        if not (is_hooked(self.hook_scale) or is_hooked(self.hook_normalized)):
            # The fused kernel is faster, but has nowhere to put the two hooks.
            return layer_norm(x, self.w, self.b)
        centred = x - x.mean(dim=-1, keepdim=True)
        variance = centred.square().mean(dim=-1, keepdim=True)
        scale = self.hook_scale((variance + LAYER_NORM_EPSILON).sqrt())
        weights = (self.w, self.b) if self.w.ndim == 1 else (
            self.w[:, None, None], self.b[:, None, None])
        return self.hook_normalized(centred / scale) * weights[0] + weights[1]


class Embed(nn.Module):
    """x W_E + b_E for vectors, W_E[x] for token ids; no scaling."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.zeros(config.d_input, config.d_model))
        self.b_E = (nn.Parameter(torch.zeros(config.d_model))
                    if config.embedding == "dense" else None)

    def forward(
        self, inputs: Float[Tensor, "*E B T d_input"] | Int[Tensor, "*E B T"]
    ) -> Float[Tensor, "*E B T D"]:
        if self.b_E is not None:
            return dense(inputs, self.W_E, self.b_E)
        if self.W_E.ndim == 2:
            return F.embedding(inputs, self.W_E)
        return torch.stack([F.embedding(x, w) for x, w in zip(inputs, self.W_E, strict=True)])


class Unembed(nn.Module):
    """x W_U + b_U."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.W_U = nn.Parameter(torch.zeros(config.d_model, config.d_output))
        self.b_U = nn.Parameter(torch.zeros(config.d_output))

    def forward(self, x: Float[Tensor, "*E B T D"]) -> Float[Tensor, "*E B T d_output"]:
        return dense(x, self.W_U, self.b_U)


class Attention(nn.Module):
    """y_q = sum_h W_O^h z_qh + b_O, where z comes from the value networks that the codes generate.

    Queries come from `x`, keys and values from `context` where one is given (cross-attention)
    and from `x` otherwise, where `read` leaves queries for the last tokens only. With `which`, as
    in `Distinct`, `x` holds rows in place of tokens. The T5 bias belongs to self-attention; rotary
    positions to both.
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
        own = VALUE_NETWORKS.find(config.value_network)
        self.own_names = () if own is None else tuple(own.parameters)
        for name in self.own_names:
            assert own is not None
            self.register_parameter(name, nn.Parameter(torch.zeros(*own.parameters[name](config))))
        self.rel_pos_bias = (nn.Parameter(torch.zeros(heads, config.n_buckets))
                             if config.positions == "t5" and not cross else None)
        self.phi = nonlinearity(config.nonlinearity)
        self.hook_q = HookPoint()  # [B, Q, H, d_head]
        self.hook_k = HookPoint()  # [B, K, H, d_head]
        self.hook_v = HookPoint()  # [B, K, H, d_head_v]
        self.hook_attn_scores = HookPoint()  # [B, H, Q, K], biased and masked
        self.hook_pattern = HookPoint()  # [B, H, Q, K], the latent code: write here
        self.hook_z = HookPoint()  # [B, Q, H, d_head_v]
        has_hidden = config.value_network != "linear" if own is None else own.sees_hidden
        self.hook_value_hidden = (  # [B, Q, K, d_head_v], units of the value network
            HookPoint() if has_hidden else None)

    def forward(
        self,
        x: Float[Tensor, "*E _ _ D"],
        context: Float[Tensor, "*E B K D"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        generator: Generators = None,
        read: int | None = None,
        which: Float[Tensor, "*E B Q V"] | None = None,
    ) -> Float[Tensor, "*E B R D"]:
        config = self.cfg
        source = x if context is None else context
        n_query, n_key = ((x if which is None else which).shape[-2],
                          (source if which is None else which).shape[-2])
        first = 0 if read is None else n_query - read
        if which is None:
            q = project_to_heads(x[..., first:, :], self.W_Q, self.b_Q)
            k, v = (project_to_heads(source, w, b)
                    for w, b in ((self.W_K, self.b_K), (self.W_V, self.b_V)))
        else:
            q = _spread(which[..., first:, :], project_to_heads(x, self.W_Q, self.b_Q))
            k, v = (_spread(which, project_to_heads(x, w, b))
                    for w, b in ((self.W_K, self.b_K), (self.W_V, self.b_V)))
        q, k, v = self.hook_q(q), self.hook_k(k), self.hook_v(v)
        if config.positions == "rotary":
            q, k = rotary(q, first), rotary(k)
        bias = self._bias(n_query, n_key)
        kept = None
        if self.training and config.attention_dropout > 0.0:
            # Of all queries, so that the stream is the same however few of them are read.
            kept = dropout_mask(
                (q.shape[-4], config.n_heads, n_query, n_key), config.attention_dropout,
                config.attention_dropout_form, generator, device=q.device, dtype=self.W_Q.dtype)
        if first:
            bias, kept = (None if square is None else square[..., first:, :]
                          for square in (bias, kept))
        z = None
        # No kernel takes a mask, or has a place for a hook on what it skips.
        skipped = (self.hook_attn_scores, self.hook_pattern, self.hook_value_hidden)
        if mask is None and not any(hook is not None and is_hooked(hook) for hook in skipped):
            tensors: Tensors = (q, k, v, bias, kept)
            if q.device.type == "cpu":  # whose kernels are exact under autocast, too
                exact = self.W_Q.dtype
                tensors = (q.to(exact), k.to(exact), v.to(exact),
                           None if bias is None else bias.to(exact),
                           None if kept is None else kept.to(exact))
            z = attention_by_kernel(self._kind, tensors, self.causal)
        if z is None:
            z = self._read(self._codes(q, k, bias, kept, mask), v)
        return self.summed(self.hook_z(z))

    def _codes(
        self, q: Tensor, k: Tensor, bias: Tensor | None, kept: Tensor | None, mask: Tensor | None
    ) -> Float[Tensor, "*E B H Q K"]:
        config = self.cfg
        if self.causal:
            n_query, n_key = q.shape[-3], k.shape[-3]
            whole = torch.ones(n_query, n_key, dtype=torch.bool, device=q.device)
            past = whole.tril(n_key - n_query)[None, None]  # the queries are the last ones
            mask = past if mask is None else mask & past
        scores = self.hook_attn_scores(attention_scores(q, k, bias, mask, config.normalization))
        code = normalize(scores, config.normalization)
        return self.hook_pattern(code if kept is None else code * kept)

    def _read(self, code: Tensor, v: Tensor) -> Float[Tensor, "*E B Q H d"]:
        return apply_value_network(
            code, v, self.cfg.value_network, self.phi, self.W_V2, self.hook_value_hidden,
            {name: getattr(self, name) for name in self.own_names})

    def codes(
        self, x: Float[Tensor, "B T D"], read: int | None = None
    ) -> tuple[Float[Tensor, "B H R T"], Float[Tensor, "B T H d"]]:
        """Return what `hook_pattern` and `hook_v` see of normalised tokens, without dropout.

        read  R: the codes of the last queries only; None: of all
        """
        n_tokens = x.shape[1]
        queries = last_tokens(x, read)
        q = self.hook_q(project_to_heads(queries, self.W_Q, self.b_Q))
        k = self.hook_k(project_to_heads(x, self.W_K, self.b_K))
        if self.cfg.positions == "rotary":
            q, k = rotary(q, n_tokens - queries.shape[1]), rotary(k)
        bias = self._bias(n_tokens, n_tokens)
        if bias is not None:
            bias = last_tokens(bias, read)
        return self._codes(q, k, bias, None, None), self.values(x)

    def values(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T H d"]:
        """Return what `hook_v` sees of normalised tokens."""
        return self.hook_v(project_to_heads(x, self.W_V, self.b_V))

    def z(
        self, code: Float[Tensor, "B H Q K"], v: Float[Tensor, "B K H d"]
    ) -> Float[Tensor, "B Q H d"]:
        """Return what `hook_z` sees, which the codes of some queries make of the values."""
        hidden = self.hook_value_hidden
        z = None if hidden is not None and is_hooked(hidden) else attention_of_codes(
            self._kind, code, v)
        return self.hook_z(self._read(code, v) if z is None else z)

    def summed(self, z: Float[Tensor, "*E B Q H d"]) -> Float[Tensor, "*E B Q D"]:
        """Return sum_h W_O^h z_qh + b_O."""
        return dense(z.flatten(-2), self.W_O.flatten(-3, -2), self.b_O)

    @property
    def _kind(self) -> Kind:
        return Kind(self.cfg.normalization, self.cfg.value_network, self.cfg.nonlinearity)

    def _bias(self, n_query: int, n_key: int) -> Float[Tensor, "*E 1 H Q K"] | None:
        if self.rel_pos_bias is None:
            return None
        return relative_bias(self.rel_pos_bias, n_query, n_key, self.cfg.max_distance)

    def code_rows(
        self,
        q: Float[Tensor, "B Q H d"],
        k: Float[Tensor, "B K H d"],
        query: Int[Tensor, "B P"],
    ) -> Float[Tensor, "B H P K"]:
        """a_hpk, the codes of all keys for some queries only, without dropout.

        q, k   what `hook_q` and `hook_k` saw
        query  positions of the queries, of each instance its own

        The same numbers as in `hook_pattern`, up to rounding, without the rest of the pattern.
        """
        if self.cfg.positions == "rotary":
            q, k = rotary(q), rotary(k)
        n_query, n_key = q.shape[1], k.shape[1]
        bias = mask = None
        if self.rel_pos_bias is not None:
            bias = relative_bias_rows(
                self.rel_pos_bias, query, n_query, n_key, self.cfg.max_distance)
        if self.causal:
            mask = (torch.arange(n_key, device=q.device) <= query[..., None])[:, None]
        rows = q[torch.arange(len(q), device=q.device)[:, None], query]
        return normalize(attention_scores(rows, k, bias, mask, self.cfg.normalization),
                         self.cfg.normalization)


def last_tokens(x: Float[Tensor, "*E B T D"], n: int | None) -> Float[Tensor, "*E B R D"]:
    """Return the last n tokens, or all."""
    return x if n is None else x[..., -n:, :]


def project_to_heads(
    x: Float[Tensor, "*E B T D"], w: Float[Tensor, "*E H D d"], b: Float[Tensor, "*E H d"]
) -> Float[Tensor, "*E B T H d"]:
    """x W_h + b_h for all heads in one matrix product."""
    heads, _, d = w.shape[-3:]
    return dense(x, w.transpose(-3, -2).flatten(-2), b.flatten(-2)).unflatten(-1, (heads, d))


def _spread(
    which: Float[Tensor, "*E B T V"], rows: Float[Tensor, "*E 1 V H d"]
) -> Float[Tensor, "*E B T H d"]:
    """Return of every token the row that it is."""
    return dense(which, rows.flatten(-2).squeeze(-3)).unflatten(-1, rows.shape[-2:])


class Block(nn.Module):
    """x + attention(LN1(x)), then (where configured) cross-attention, then the feed-forward."""

    hook_out_is_single_residual_stream = True  # TransformerLens' logit lens wants to know

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
        x: Float[Tensor, "*E B T D"],
        context: Float[Tensor, "*E B K D"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        generator: Generators = None,
        feedforward_dtype: torch.dtype | None = None,
        read: int | None = None,
        distinct: Distinct | None = None,
    ) -> Float[Tensor, "*E B R D"]:
        """Return the residual stream after the block, of the last `read` tokens or of all.

        distinct  the tokens of `x`, if they are few: what is computed of each by itself, up to
                  queries, keys and values, is computed once
        """
        x = self.hook_resid_pre(x)
        rows, which = (x, None) if distinct is None else (distinct.rows, distinct.which)
        attended = self.attn(self.ln1(rows), mask=mask, generator=generator, read=read,
                             which=which)
        x = last_tokens(x, read) + self.hook_attn_out(attended)
        if context is not None:
            cross = self.cross_attn(self.ln_cross(x), context=context, generator=generator)
            x = x + self.hook_cross_attn_out(cross)
        x = self.hook_resid_mid(x)
        normalized = self.ln2(x)
        with (nullcontext() if feedforward_dtype is None else
              torch.autocast(x.device.type, dtype=feedforward_dtype)):
            out = self.mlp(normalized)
        return self.hook_resid_post(x + self.hook_mlp_out(out))

    def codes(
        self, x: Float[Tensor, "B T D"], read: int | None = None
    ) -> tuple[Float[Tensor, "B H R T"], Float[Tensor, "B T H d"]]:
        """Return the codes (of the last R = `read` queries) and the values: its first half."""
        return self.attn.codes(self.ln1(self.hook_resid_pre(x)), read)

    def values(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T H d"]:
        """Return the values alone."""
        return self.attn.values(self.ln1(self.hook_resid_pre(x)))

    def after_codes(
        self, x: Float[Tensor, "B Q D"], code: Float[Tensor, "B H Q K"],
        v: Float[Tensor, "B K H d"],
    ) -> Float[Tensor, "B Q D"]:
        """Return the stream that leaves the block at some of its tokens: its second half.

        x     the stream that enters the block at these tokens
        code  their codes of all keys, and `v` the values of these; as `codes` returns them, or
              others
        """
        return self.after_z(x, self.attn.z(code, v))

    def after_z(
        self, x: Float[Tensor, "B Q D"], z: Float[Tensor, "B Q H d"],
        write: Callable[[str, Tensor], Tensor] | None = None,
    ) -> Float[Tensor, "B Q D"]:
        """Return the same from what the heads put out at these tokens, before W_O.

        write  what is put in the place of `attended`, what attention adds to the stream, `mlp_in`
               and `mlp_out` [B, Q, D], given which of these it is and what is computed
        """
        write = write or (lambda site, activation: activation)
        x = self.hook_resid_mid(x + write("attended", self.hook_attn_out(self.attn.summed(z))))
        out = self.mlp(write("mlp_in", self.ln2(x)))
        return self.hook_resid_post(x + write("mlp_out", self.hook_mlp_out(out)))
