"""z = value_network(dropout(normalize(scores))) in one pass: the attention core, fast; and GELU.

The same function as `attention_scores`, `normalize`, `attention_dropout` and
`apply_value_network` of `latentcode.models.attention` one after the other, and tested against
them in float64, forward and gradients. Neither the scores nor the code, [B, H, Q, K], are ever
written to memory: the backward pass computes them again. There is no place for hooks.

| kernel   | where | what it serves                                                             |
|----------|-------|----------------------------------------------------------------------------|
| `sdpa`   | both  | softmax attention without bias and dropout; PyTorch's own                  |
| `linear` | both  | linear attention without bias and dropout, in time linear in the length    |
| `cpu`    | CPU   | all of `SERVED_NORMALIZATIONS` and `SERVED_VALUE_NETWORKS`, heads up to 16 |
| `triton` | CUDA  | the same, up to 64 heads of up to 128                                      |
| `plain`  | both  | everything, through the hooks                                              |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import ConfigError, check, check_choice
from latentcode.models.attention import nonlinearity
from latentcode.models.config import ModelConfig
from latentcode.models.kernels import (
    SERVED_NONLINEARITIES,
    SERVED_NORMALIZATIONS,
    SERVED_VALUE_NETWORKS,
)

LARGEST_HEAD = 16
"""Head dimension beyond which a row of features no longer fits the registers of a processor, and
the plain matrix products of few large heads are as fast."""
LARGEST_HEAD_ON_GPU = 128
LONG = 128
"""Keys from which on PyTorch's own attention and the linear form are chosen. Below that there is
little to gain, and their gradients may be sums in an order that depends on chance."""
CHUNK = 64
"""Tokens of a chunk of causal linear attention: with more, its scores take more memory than the
sums of the chunks before it."""
PLAIN = "plain"

_asked_for: ContextVar[str | None] = ContextVar("asked_for", default=None)


class Kind(NamedTuple):
    """What is computed: names of the normalisation, the value network and the nonlinearity."""

    normalization: str
    value_network: str
    nonlinearity: str = "identity"

    @property
    def phi(self) -> str:
        return "identity" if self.value_network == "hyla_linear" else self.nonlinearity


Tensors: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
"""q [*E, B, Q, H, d], k [*E, B, K, H, d], v [*E, B, K, H, dv], bias [*E, 1, H, Q, K] and kept
[*E, 1, 1, Q, K]."""


@dataclass(frozen=True)
class Case:
    """What decides which kernel computes attention.

    d        the larger one of the features of a query and of a value
    dropout  None, or its form: one mask for the whole batch ("shared"), or "independent" ones
    """

    kind: Kind
    device: torch.device
    dtype: torch.dtype
    n_keys: int
    n_heads: int
    d: int
    has_bias: bool
    dropout: str | None

    @classmethod
    def of(cls, kind: Kind, tensors: Tensors) -> Case:
        q, k, v, bias, kept = tensors
        dropout = None if kept is None else (
            "shared" if kept.shape[-4:-2] == (1, 1) else "independent")
        return cls(kind, q.device, q.dtype, k.shape[-3], q.shape[-2],
                   max(q.shape[-1], v.shape[-1]), bias is not None, dropout)

    @classmethod
    def of_training(cls, config: ModelConfig, device: torch.device | str, dtype: torch.dtype,
                    n_keys: int) -> Case:
        """What a model meets when it is trained on sequences of that many tokens."""
        kind = Kind(config.normalization, config.value_network, config.nonlinearity)
        return cls(kind, torch.device(device), dtype, n_keys, config.n_heads,
                   max(config.d_head, config.d_head_v), config.positions == "t5",
                   config.attention_dropout_form if config.attention_dropout else None)


@contextmanager
def attention_by(kernel: str) -> Iterator[None]:
    """Let every model compute attention by one kernel of `KERNELS`, or by `plain`, in here.

    A `ConfigError` says what the kernel does not serve where it comes to that. What a hook looks
    at is computed by the plain functions all the same, with equal results.
    """
    check_choice("attention kernel", kernel, (*KERNELS, PLAIN))
    token = _asked_for.set(kernel)
    try:
        yield
    finally:
        _asked_for.reset(token)


def asked_for() -> str | None:
    """Return the kernel that `attention_by` asks for; None outside of it."""
    return _asked_for.get()


@contextmanager
def written_out() -> Iterator[None]:
    """Let every model compute attention by the functions of `latentcode.models.attention`.

    For what a kernel has no rule for, such as second derivatives and exports.
    """
    with attention_by(PLAIN):
        yield


def kernel_for(case: Case) -> str:
    """Return the name of the kernel that computes this: the one asked for, or the first that
    serves; `plain` where there is none.

    None serves a normalisation, value network or nonlinearity that a user registered, dropout
    that differs between instances, or the transforms of `torch.func`. `ConfigError` where the
    kernel that is asked for does not serve.
    """
    asked = _asked_for.get()
    if asked == PLAIN:
        return PLAIN
    if asked is not None:
        refused = _refusal(asked, case)
        check(refused is None, f"attention kernel {asked!r} is asked for, and {refused}")
        return asked
    # Triton's interpreter, the only way on a CPU, is for those who ask for it.
    skipped = (() if case.n_keys >= LONG else ("sdpa", "linear")) + (
        ("triton",) if case.device.type == "cpu" else ())
    return next((name for name in KERNELS if name not in skipped and not _refusal(name, case)),
                PLAIN)


def _refusal(kernel: str, case: Case) -> str | None:
    """Say what a kernel does not serve of this; None if it serves."""
    if torch._C._are_functorch_transforms_active():
        return "has no rule for the transforms of torch.func"
    for what, name, served in (
        ("normalization", case.kind.normalization, SERVED_NORMALIZATIONS),
        ("value network", case.kind.value_network, SERVED_VALUE_NETWORKS),
        ("nonlinearity", case.kind.nonlinearity, SERVED_NONLINEARITIES),
    ):
        if name not in served:
            return f"{what} is {name!r}; expected one of {', '.join(served)}"
    if case.dropout == "independent":
        return "dropout differs between instances; expected attention_dropout_form='shared'"
    return _REFUSALS[kernel](case)


def _not_on_cpu(case: Case) -> str | None:
    if case.device.type != "cpu":
        return f"tensors are on {case.device}; expected the CPU"
    if torch.compiler.is_compiling():
        return "torch compiles, which cannot look into it"
    if case.dtype not in (torch.float32, torch.float64):
        return f"q has type {case.dtype}; expected float32 or float64"
    if case.d > LARGEST_HEAD:
        return f"heads have {case.d} features; expected at most {LARGEST_HEAD}"
    return None


def _not_by_triton(case: Case) -> str | None:
    from latentcode.models.kernels.gpu.available import why_not

    if case.dtype not in (torch.float32, torch.bfloat16):
        return f"q has type {case.dtype}; expected float32 or bfloat16"
    refused = why_not(case.device)
    if refused is not None:
        return refused
    from latentcode.models.kernels.gpu.launch import most_heads

    if case.d > LARGEST_HEAD_ON_GPU or case.n_heads > most_heads(case.dtype):
        return (f"there are {case.n_heads} heads of {case.d} features; expected at most "
                f"{most_heads(case.dtype)} of {LARGEST_HEAD_ON_GPU}")
    return None


def _is_more_than(normalization: str, case: Case) -> str | None:
    if case.kind[:2] != (normalization, "linear"):
        return (f"the kind is {case.kind.normalization} with value network "
                f"{case.kind.value_network}; expected {normalization} with a linear one")
    if case.has_bias or case.dropout is not None:
        return "scores have a bias or codes are dropped; expected neither"
    return None


_REFUSALS: dict[str, Callable[[Case], str | None]] = {
    "sdpa": partial(_is_more_than, "softmax"),
    "linear": partial(_is_more_than, "none"),
    "cpu": _not_on_cpu,
    "triton": _not_by_triton,
}
KERNELS: tuple[str, ...] = tuple(_REFUSALS)
"""In the order in which they are tried."""


def fused_attention(
    q: Float[Tensor, "*E B Q H d"],
    k: Float[Tensor, "*E B K H d"],
    v: Float[Tensor, "*E B K H dv"],
    bias: Float[Tensor, "*E 1 H Q K"] | None = None,
    kept: Float[Tensor, "*E 1 1 Q K"] | None = None,
    *,
    causal: bool = False,
    normalization: str,
    value_network: str,
    nonlinearity: str = "identity",
) -> Float[Tensor, "*E B Q H dv"]:
    """z_qh = sum_k a_hqk phi(...), a = sigma(q . k / sqrt(d) + bias) m / (1 - p) (Eq. 2, 6, 7).

    bias    added to the scores before normalisation; its gradient is summed over the batch
    kept    what the normalised code is multiplied by: m / (1 - p), shared by batch and heads;
            bias and kept may be float32 where the others are bfloat16
    causal  hide the keys after a query
    E       optional axis of members, each with its own bias and mask

    Gradients for q, k, v and bias, once differentiable. The result depends on neither the
    number of threads nor on chance, but on a GPU those of `sdpa` and of causal `linear` may.
    `ConfigError` for names and shapes that no kernel serves. For more than one derivative see
    `written_out`.
    """
    kind, tensors = Kind(normalization, value_network, nonlinearity), (q, k, v, bias, kept)
    check_choice("normalization", normalization, SERVED_NORMALIZATIONS)
    check_choice("value network", value_network, SERVED_VALUE_NETWORKS)
    check_choice("nonlinearity", nonlinearity, SERVED_NONLINEARITIES)
    check_inputs(*tensors)
    case = Case.of(kind, tensors)
    kernel = kernel_for(case)
    if kernel == PLAIN:
        reasons = "; ".join(f"{name}: {_refusal(name, case)}" for name in KERNELS)
        raise ConfigError(f"no attention kernel serves this ({reasons})")
    return call_kernel(kernel, kind, tensors, causal)


def call_kernel(kernel: str, kind: Kind, tensors: Tensors, causal: bool) -> Tensor:
    """Compute z by the kernel that `kernel_for` has named."""
    q, k, v, bias, kept = tensors
    if kernel == "sdpa":
        return softmax_attention(q, k, v, causal, kind.phi)
    if kernel == "linear":
        return linear_attention(q, k, v, causal, kind.phi)
    members = q.shape[:-4]
    if not members:
        q, k, v = q[None], k[None], v[None]
    if bias is not None:
        bias = bias.reshape(-1, *bias.shape[-3:])
    if kept is not None:
        kept = kept.reshape(-1, *kept.shape[-2:])
    options = (SERVED_NORMALIZATIONS[kind.normalization], int(kind.value_network != "linear"),
               SERVED_NONLINEARITIES.index(kind.phi), int(causal))
    if kernel == "triton":
        from latentcode.models.kernels.gpu.launch import triton_attention

        z = triton_attention(q, k, v, bias, kept, options)
    else:
        from latentcode.models.kernels.on_cpu import cpu_attention

        z = cpu_attention(q, k, v, bias, kept, options)
    return z if members else z.squeeze(0)


def softmax_attention(
    q: Float[Tensor, "*E B Q H d"], k: Float[Tensor, "*E B K H d"], v: Float[Tensor, "*E B K H dv"],
    causal: bool, phi: str,
) -> Float[Tensor, "*E B Q H dv"]:
    """z_qh = sum_k softmax_k(q_qh . k_kh / sqrt(d)) phi(v_kh), by PyTorch's own kernels."""
    lead = q.shape[:-3]
    q, k, v = (x.flatten(0, -4).transpose(-3, -2) for x in (q, k, nonlinearity(phi)(v)))
    z = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return z.transpose(-3, -2).unflatten(0, lead)


def linear_attention(
    q: Float[Tensor, "*E B Q H d"], k: Float[Tensor, "*E B K H d"], v: Float[Tensor, "*E B K H dv"],
    causal: bool, phi: str,
) -> Float[Tensor, "*E B Q H dv"]:
    """z_qh = sum_k (q_qh . k_kh / sqrt(d)) phi(v_kh) = q_qh (sum_k k_kh phi(v_kh)^T) / sqrt(d).

    In time and memory linear in the length. Causal: within a chunk by scores, and by the sum of
    k phi(v)^T over the chunks before it, which is kept in float32 at least.
    """
    n_queries, dtype = q.shape[-3], q.dtype
    q, k, v = (x.transpose(-3, -2) for x in (q / math.sqrt(q.shape[-1]), k, nonlinearity(phi)(v)))
    if not causal:
        return (q @ (k.mT @ v)).transpose(-3, -2)
    length = CHUNK * -(-max(n_queries, k.shape[-2]) // CHUNK)
    q, k, v = (F.pad(x, (0, 0, 0, length - x.shape[-2])).unflatten(-2, (-1, CHUNK))
               for x in (q, k, v))
    sums = (k.mT @ v).to(torch.promote_types(dtype, torch.float32))
    before = (sums.cumsum(-3) - sums).to(dtype)
    z = q @ before + (q @ k.mT).tril() @ v
    return z.flatten(-3, -2)[..., :n_queries, :].transpose(-3, -2)


def check_inputs(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None
) -> None:
    """The kernels go by the shape of the queries and would read beyond a smaller tensor."""
    check(q.ndim in (4, 5) and k.ndim == v.ndim == q.ndim,
          f"q, k and v have {q.ndim}, {k.ndim} and {v.ndim} axes; expected [B, T, H, d], all with "
          "an axis of members before that or none")
    *batch, n_queries, heads, d = q.shape
    n_keys, d_v, tables = k.shape[-3], v.shape[-1], q.shape[:-4]
    for name, x, shape in (
        ("k", k, (*batch, n_keys, heads, d)), ("v", v, (*batch, n_keys, heads, d_v)),
        ("bias", bias, (*tables, 1, heads, n_queries, n_keys)),
        ("kept", kept, (*tables, 1, 1, n_queries, n_keys)),
    ):
        if x is not None:
            check(x.shape == shape, f"{name} has shape {tuple(x.shape)}; expected {shape}")
            exact = name in ("bias", "kept") and q.dtype == torch.bfloat16
            check(x.dtype == q.dtype or (exact and x.dtype == torch.float32),
                  f"{name} has type {x.dtype}; expected that of q, {q.dtype}"
                  f"{', or float32' if exact else ''}")
            check(x.device == q.device, f"{name} is on {x.device}; expected that of q, {q.device}")


def attention_of_codes(
    kind: Kind, code: Float[Tensor, "B H Q K"], v: Float[Tensor, "B K H d"]
) -> Float[Tensor, "B Q H d"] | None:
    """Return z of codes that are given, by a kernel; None where none serves, as for gradients."""
    if (kind.value_network not in ("hyla", "hyla_linear") or kind.phi not in ("identity", "relu")
            or code.device.type != "cpu" or code.dtype not in (torch.float32, torch.float64)
            or code.dtype != v.dtype or torch.is_grad_enabled() or _asked_for.get() == PLAIN
            or torch.compiler.is_compiling()
            or torch._C._are_functorch_transforms_active()):
        return None
    from latentcode.models.kernels.on_cpu import hyla_of_codes

    return hyla_of_codes(code, v, kind.phi == "relu")


def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """gelu(x) = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, its tanh approximation.

    On a CPU about four times as fast as torch's, whose tanh takes most of the time; torch's
    elsewhere. As for `fused_attention` there is one derivative; see `written_out` for more.
    """
    from latentcode.models.kernels.lanes import LANES

    if (x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
            and _asked_for.get() != PLAIN and not torch.compiler.is_compiling()
            and not torch._C._are_functorch_transforms_active()
            and x.is_contiguous() and x.numel() % LANES == 0):
        from latentcode.models.kernels.on_cpu import cpu_gelu

        return cpu_gelu(x)
    return F.gelu(x, approximate="tanh")
