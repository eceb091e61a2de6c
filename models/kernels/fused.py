"""z = value_network(dropout(normalize(scores))) in one pass: the attention core, fast; and GELU.

The same function as `attention_scores`, `normalize`, `attention_dropout` and
`apply_value_network` of `latentcode.models.attention` one after the other, and tested against
them in float64, forward and gradients. Neither the scores nor the code, [B, H, Q, K], are ever
written to memory: the backward pass computes them again. There is no place for hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from latentcode.errors import check, check_choice
from latentcode.models.config import ModelConfig
from latentcode.models.kernels.threads import call_on_threads

if TYPE_CHECKING:
    import numpy as np

SERVED_NORMALIZATIONS: dict[str, int] = {
    "none": 0, "softmax": 1, "rms_head": 2, "softmax_rms_head": 3}
SERVED_VALUE_NETWORKS: tuple[str, ...] = ("linear", "hyla", "hyla_linear")
SERVED_NONLINEARITIES: tuple[str, ...] = ("identity", "relu", "gelu", "silu", "sigmoid", "tanh")
"""In the order of their numbers in the kernels; not asked of `latentcode.models.names`, because a
name that is added there is none of theirs yet."""
SERVED_TYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64)
LARGEST_HEAD = 16
"""Head dimension beyond which a row of features no longer fits the registers, and the plain
matrix products of few large heads are as fast."""
MOST_GROUPS = 16
"""Most partial sums of a bias gradient per member; bounds memory, and threads per member."""
SHARED_ROWS = 8_192
"""Rows of numbers from which on it takes less time to share them out than to do them alone."""

_written_out: ContextVar[bool] = ContextVar("written_out", default=False)


@contextmanager
def written_out() -> Iterator[None]:
    """Let every model compute attention by the functions of `latentcode.models.attention`.

    For what a kernel has no rule for, such as second derivatives and exports.
    """
    token = _written_out.set(True)
    try:
        yield
    finally:
        _written_out.reset(token)


def is_fused(config: ModelConfig, device: torch.device | str, dtype: torch.dtype) -> bool:
    """Does `fused_attention` compute the attention core of this model, here and in this type?

    Not of a normalisation, value network or nonlinearity that a user registered, nor within
    `written_out`, under the transforms of `torch.func`, nor while torch compiles.
    """
    return (_serves(device, dtype)
            and config.normalization in SERVED_NORMALIZATIONS
            and config.value_network in SERVED_VALUE_NETWORKS
            and config.nonlinearity in SERVED_NONLINEARITIES
            and max(config.d_head, config.d_head_v) <= LARGEST_HEAD
            and (config.attention_dropout == 0.0 or config.attention_dropout_form == "shared"))


def _serves(device: torch.device | str, dtype: torch.dtype) -> bool:
    """Whether the kernels are for tensors like these, and for the way they are looked at now."""
    return (torch.device(device).type == "cpu"
            and not _written_out.get()
            and not torch.compiler.is_compiling()
            and not torch._C._are_functorch_transforms_active()
            and dtype in SERVED_TYPES)


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
    kept    what the normalised code is multiplied by: m / (1 - p), shared by batch and heads
    causal  hide the keys after a query
    E       optional axis of members, each with its own bias and mask

    Gradients for q, k, v and bias, once differentiable. The result depends on neither the
    number of threads nor on chance. `ConfigError` for names and shapes that are not served. For
    more than one derivative see `written_out`.
    """
    check_choice("normalization", normalization, SERVED_NORMALIZATIONS)
    check_choice("value network", value_network, SERVED_VALUE_NETWORKS)
    check_choice("nonlinearity", nonlinearity, SERVED_NONLINEARITIES)
    phi = "identity" if value_network == "hyla_linear" else nonlinearity
    options = (SERVED_NORMALIZATIONS[normalization], int(value_network != "linear"),
               SERVED_NONLINEARITIES.index(phi), int(causal))
    check_inputs(q, k, v, bias, kept)
    members = q.shape[:-4]
    z: Tensor = _FusedAttention.apply(
        *(x if members else x[None] for x in (q, k, v)),
        None if bias is None else bias.reshape(-1, *bias.shape[-3:]),
        None if kept is None else kept.reshape(-1, *kept.shape[-2:]), options)
    return z if members else z.squeeze(0)


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
            check(x.dtype == q.dtype, f"{name} has type {x.dtype}; expected that of q, {q.dtype}")
    check(q.device.type == "cpu" and q.dtype in SERVED_TYPES,
          f"q has type {q.dtype} on {q.device}; expected float32 or float64 on the CPU")


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
                kept: Tensor | None, options: tuple[int, ...]) -> Tensor:
        from latentcode.models.kernels import cpu, lanes

        ctx.save_for_backward(q, k, v, bias, kept)
        ctx.options = options
        members, n_instances, n_queries, n_heads, d = q.shape
        n_keys, d_v = v.shape[2], v.shape[4]
        z = q.new_empty(members, n_instances, n_queries, n_heads, d_v)
        tensors = (z, *map(_with_dense_rows, (q, k, v)))
        arguments: tuple[Any, ...] = (
            *map(_memory, tensors), *_tables(q, bias, kept),
            tuple(x.stride()[:4] for x in tensors), (n_instances, n_queries, n_keys, n_heads),
            options, (0,) * d, (0,) * d_v)
        sizes = cpu.work_sizes(n_queries, n_keys, n_heads, d, d_v)

        def compute(first: int, last: int, work: tuple[np.ndarray, ...]) -> None:
            cpu.forward(first, last, work, *arguments)

        _share_out(compute, members * -(-n_instances // lanes.LANES), sizes, q.dtype)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        from latentcode.models.kernels import cpu, lanes

        q, k, v, bias, kept = ctx.saved_tensors
        members, n_instances, n_queries, n_heads, d = q.shape
        n_keys, d_v = v.shape[2], v.shape[4]
        gradients = tuple(x.new_empty(x.shape) for x in (q, k, v))
        groups = min(-(-n_instances // lanes.LANES), MOST_GROUPS)
        wanted = bias is not None and ctx.needs_input_grad[3]
        d_bias = q.new_zeros(members, groups, *((n_heads, n_queries, n_keys) if wanted
                                                else (0, 0, 0)))
        tensors = (*map(_with_dense_rows, (dz, q, k, v)), *gradients)
        arguments: tuple[Any, ...] = (
            groups, *map(_memory, tensors[:4]), *_tables(q, bias, kept),
            *map(_memory, gradients), d_bias.numpy(), tuple(x.stride()[:4] for x in tensors),
            (n_instances, n_queries, n_keys, n_heads), ctx.options, (0,) * d, (0,) * d_v)
        sizes = 2 * cpu.work_sizes(n_queries, n_keys, n_heads, d, d_v)

        def compute(first: int, last: int, work: tuple[np.ndarray, ...]) -> None:
            cpu.backward(first, last, work, *arguments)

        _share_out(compute, members * groups, sizes, q.dtype)
        return (*gradients, d_bias.sum(1) if wanted else None, None, None)


def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """gelu(x) = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, its tanh approximation.

    On a CPU about four times as fast as torch's, whose tanh takes most of the time; torch's
    elsewhere. As for `fused_attention` there is one derivative; see `written_out` for more.
    """
    from latentcode.models.kernels.lanes import LANES

    if _serves(x.device, x.dtype) and x.is_contiguous() and x.numel() % LANES == 0:
        y: Tensor = _Gelu.apply(x)
        return y
    return F.gelu(x, approximate="tanh")


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        from latentcode.models.kernels import cpu

        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        _by_rows(cpu.gelu, x, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        from latentcode.models.kernels import cpu

        x, = ctx.saved_tensors
        dx = torch.empty_like(x)
        _by_rows(cpu.gelu_backward, x, dy.contiguous(), dx)
        return dx


def _by_rows(kernel: Callable[..., None], *tensors: Tensor) -> None:
    """Call `kernel(first, last, *memory)` so that every row of numbers is done once."""
    from latentcode.models.kernels.lanes import LANES

    memory = [x.detach().view(-1).numpy() for x in tensors]
    rows = tensors[0].numel() // LANES
    if rows < SHARED_ROWS:
        kernel(0, rows, *memory)
    else:
        _on_threads(lambda first, last, _: kernel(first, last, *memory), rows)


def _with_dense_rows(x: Tensor) -> Tensor:
    """The tensor itself if the features of a head lie side by side, otherwise a copy."""
    x = x.detach()
    return x if x.stride(-1) == 1 else x.contiguous()


def _memory(x: Tensor) -> np.ndarray:
    """All numbers from the first to the last of a tensor, for access by strides."""
    span = 1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((span if x.numel() else 0,), (1,)).numpy()


def _tables(q: Tensor, bias: Tensor | None, kept: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    """Bias [E, H, Q, K] and kept [E, Q, K] as arrays, without elements for None."""
    members = q.shape[0]
    return ((q.new_empty(members, 0, 0, 0) if bias is None else bias).detach().contiguous().numpy(),
            (q.new_empty(members, 0, 0) if kept is None else kept).detach().contiguous().numpy())


def _share_out(
    compute: Callable[[int, int, tuple[np.ndarray, ...]], None], n_units: int,
    sizes: tuple[int, ...], dtype: torch.dtype,
) -> None:
    """Call `compute(first, last, work)` so that every unit is done once, on torch's number of
    threads; each call has memory of its own, in parts of these sizes."""
    work = [tuple(part.numpy() for part in row.split(sizes))
            for row in torch.empty(torch.get_num_threads(), sum(sizes), dtype=dtype)]
    _on_threads(lambda first, last, thread: compute(first, last, work[thread]), n_units)


def _on_threads(compute: Callable[[int, int, int], None], n_units: int) -> None:
    """Call `compute(first, last, thread)` so that every unit is done once."""
    threads = max(1, min(torch.get_num_threads(), n_units))
    ends = [n_units * i // threads for i in range(threads + 1)]
    call_on_threads(lambda thread: compute(ends[thread], ends[thread + 1], thread), threads)
