"""The kernels for the processor as functions of torch, on as many threads as torch has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from latentcode.models.kernels.threads import call_on_threads

if TYPE_CHECKING:
    import numpy as np

MOST_GROUPS = 16
"""Most partial sums of a bias gradient per member; bounds memory, and threads per member."""
SHARED_ROWS = 8_192
"""Rows of numbers from which on it takes less time to share them out than to do them alone."""


def cpu_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None,
    options: tuple[int, ...],
) -> Tensor:
    """z [E, B, Q, H, dv] of q [E, B, Q, H, d], k, v [E, B, K, H, d or dv], bias [E, H, Q, K] and
    kept [E, Q, K], as `latentcode.models.kernels.fused.fused_attention` says.

    options  (bits of the normalisation, hyla, phi, causal), as `cpu.forward` takes them
    """
    z: Tensor = _CpuAttention.apply(q, k, v, bias, kept, options)
    return z


def cpu_gelu(x: Tensor) -> Tensor:
    """gelu(x), its tanh approximation, of contiguous numbers that fill whole rows of lanes."""
    y: Tensor = _CpuGelu.apply(x)
    return y


class _CpuAttention(torch.autograd.Function):
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


class _CpuGelu(torch.autograd.Function):
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
        on_threads(lambda first, last, _: kernel(first, last, *memory), rows)


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
    on_threads(lambda first, last, thread: compute(first, last, work[thread]), n_units)


def on_threads(compute: Callable[[int, int, int], None], n_units: int) -> None:
    """Call `compute(first, last, thread)` so that every unit is done once."""
    threads = max(1, min(torch.get_num_threads(), n_units))
    ends = [n_units * i // threads for i in range(threads + 1)]
    call_on_threads(lambda thread: compute(ends[thread], ends[thread + 1], thread), threads)
