"""The kernels for the processor as functions of torch, on as many threads as torch has."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
MOST_GROUPS = 16
"""Most partial sums of a bias gradient per member; bounds memory, and threads per member."""
SHARED_ROWS = 8_192
"""Rows of numbers from which on it takes less time to share them out than to do them alone."""


class _CpuAttention(torch.autograd.Function):
    """z [E, B, Q, H, dv] of q [E, B, Q, H, d], k, v [E, B, K, H, d or dv], bias [E, H, Q, K] and
    kept [E, Q, K], as `latentcode.models.kernels.fused.fused_attention` says.

    options  (bits of the normalisation, hyla, phi, causal), as `cpu.forward` takes them
    """

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

        work = _work(sizes, q.dtype)
        on_threads(lambda first, last, thread: cpu.forward(first, last, work[thread], *arguments),
                   members * -(-n_instances // lanes.LANES))
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

        work = _work(sizes, q.dtype)
        on_threads(lambda first, last, thread: cpu.backward(first, last, work[thread], *arguments),
                   members * groups)
        return (*gradients, d_bias.sum(1) if wanted else None, None, None)


class _CpuGelu(torch.autograd.Function):
    """gelu(x), its tanh approximation, of contiguous numbers that fill whole rows of lanes."""

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


cpu_attention = _CpuAttention.apply
"""Attention of tensors, as `_CpuAttention` says."""
cpu_gelu = _CpuGelu.apply
"""GELU of a tensor, as `_CpuGelu` says."""


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


def _work(sizes: tuple[int, ...], dtype: torch.dtype) -> list[tuple[np.ndarray, ...]]:
    """Return memory of each thread's own, in parts of these sizes."""
    return [tuple(part.numpy() for part in row.split(sizes))
            for row in torch.empty(torch.get_num_threads(), sum(sizes), dtype=dtype)]


def on_threads(compute: Callable[[int, int, int], None], n_units: int) -> None:
    """Call `compute(first, last, thread)` so that every unit is done once, on torch's threads.

    Between two of torch's operations its threads stay awake for a while, spinning; a second pool,
    Python's or numba's, would have to share the cores with them. So the threads are those of the
    OpenMP runtime that torch brings along, if that is GNU's, and Python's own elsewhere. They run
    in parallel as far as `compute` releases Python's lock. An error of a call is raised when all
    have ended.
    """
    n = max(1, min(torch.get_num_threads(), n_units))
    ends = [n_units * i // n for i in range(n + 1)]
    openmp = find_openmp()
    if n == 1:
        compute(0, n_units, 0)
    elif openmp is not None and n <= torch.get_num_threads():
        errors: list[BaseException] = []

        def body(_: int | None) -> None:
            index = openmp.omp_get_thread_num()
            try:
                # A runtime that is short of threads gives fewer than it was asked for.
                for i in range(index, n, openmp.omp_get_num_threads()):
                    compute(ends[i], ends[i + 1], i)
            except BaseException as error:  # it would be lost on the way through C
                errors.append(error)

        openmp.GOMP_parallel(_BODY(body), None, n, 0)
        if errors:
            raise errors[0]
    else:
        jobs = [_pool(os.getpid(), n - 1).submit(
            compute, ends[i], ends[i + 1], i) for i in range(1, n)]
        try:
            compute(0, ends[1], 0)
        finally:
            for job in jobs:
                job.result()


@lru_cache(maxsize=1)
def find_openmp() -> Any:
    """Return the GNU OpenMP runtime beside torch, which torch has loaded already, or None."""
    for path in Path(torch.__file__).with_name("lib").glob("libgomp*.so*"):
        library = ctypes.CDLL(str(path))
        if hasattr(library, "GOMP_parallel"):
            return library
    return None


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that live as long as the process; a forked one, which inherits none, gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="latentcode")


def hyla_of_codes(code: Tensor, v: Tensor, relu: bool) -> Tensor:
    """Return z [B, Q, H, d] of codes [B, H, Q, K] and values [B, K, H, d], without gradients.

        z_h = sum_j a_hj phi(t_j),   t_j = sum_h a_hj v_jh

    for one query, as where codes are written by hand. The plain functions copy the codes twice into
    another order of their axes; here they are read where they lie.

    relu  phi: the positive part, or the identity
    """
    n, n_heads, n_queries, n_keys = code.shape
    d = v.shape[-1]
    z = code.new_empty(n, n_queries, n_heads, d)
    from latentcode.models.kernels.cpu import hyla_of_instances

    codes, given = (x.detach().contiguous().numpy() for x in (code, v))

    def compute(first: int, last: int, _: int) -> None:
        hidden, values = (np.empty(shape, codes.dtype)
                          for shape in ((d, n_keys), (n_heads, d, n_keys)))
        hyla_of_instances(z.numpy(), codes, given, hidden, values, first, last, relu)

    on_threads(compute, n)
    return z
