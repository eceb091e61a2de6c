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

import ctypes
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from latentcode.errors import check, check_choice
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
KERNELS = ("sdpa", "linear", "cpu", "triton")
"""In the order in which they are tried."""
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
    kind = case.kind
    if torch._C._are_functorch_transforms_active():
        return "has no rule for the transforms of torch.func"
    for what, name, served in (
        ("normalization", kind.normalization, SERVED_NORMALIZATIONS),
        ("value network", kind.value_network, SERVED_VALUE_NETWORKS),
        ("nonlinearity", kind.nonlinearity, SERVED_NONLINEARITIES),
    ):
        if name not in served:
            return f"{what} is {name!r}; expected one of {', '.join(served)}"
    if case.dropout == "independent":
        return "dropout differs between instances; expected attention_dropout_form='shared'"
    if kernel == "cpu":
        if case.device.type != "cpu":
            return f"tensors are on {case.device}; expected the CPU"
        if torch.compiler.is_compiling():
            return "torch compiles, which cannot look into it"
        if case.dtype not in (torch.float32, torch.float64):
            return f"q has type {case.dtype}; expected float32 or float64"
        if case.d > LARGEST_HEAD:
            return f"heads have {case.d} features; expected at most {LARGEST_HEAD}"
    elif kernel == "triton":
        if case.dtype not in (torch.float32, torch.bfloat16):
            return f"q has type {case.dtype}; expected float32 or bfloat16"
        from latentcode.models.kernels.gpu.available import why_not

        refused = why_not(case.device)
        if refused is not None:
            return refused
        from latentcode.models.kernels.gpu.launch import most_heads

        if case.d > LARGEST_HEAD_ON_GPU or case.n_heads > most_heads(case.dtype):
            return (f"there are {case.n_heads} heads of {case.d} features; expected at most "
                    f"{most_heads(case.dtype)} of {LARGEST_HEAD_ON_GPU}")
    else:
        normalization = {"sdpa": "softmax", "linear": "none"}[kernel]
        if kind[:2] != (normalization, "linear"):
            return (f"the kind is {kind.normalization} with value network {kind.value_network}; "
                    f"expected {normalization} with a linear one")
        if case.has_bias or case.dropout is not None:
            return "scores have a bias or codes are dropped; expected neither"
    return None


def attention_by_kernel(kind: Kind, tensors: Tensors, causal: bool) -> Tensor | None:
    """z_qh = sum_k a_hqk phi(...), a = sigma(q . k / sqrt(d) + bias) m / (1 - p) (Eq. 2, 6, 7).

    tensors  q, k, v; bias, which is added to the scores before normalisation, and whose gradient
             is summed over the batch; and kept, what the normalised code is multiplied by,
             m / (1 - p), shared by batch and heads. Bias and kept may be float32 where the others
             are bfloat16
    causal   hide the keys after a query

    None where no kernel serves. Gradients for q, k, v and bias, once differentiable; for more than
    one derivative see `written_out`. The result depends on neither the number of threads nor on
    chance, but on a GPU those of `sdpa` and of causal `linear` may. `ConfigError` for shapes that
    do not fit together.
    """
    kernel = kernel_for(Case.of(kind, tensors))
    if kernel == PLAIN:
        return None
    check_inputs(*tensors)
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
        z = _CpuAttention.apply(q, k, v, bias, kept, options)
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
    """z_h = sum_j a_hj phi(t_j),  t_j = sum_h a_hj v_jh, of codes that are given, by a kernel.

    The plain functions copy the codes twice into another order of their axes; here they are read
    where they lie. None where no kernel serves, as for gradients.
    """
    if (kind.value_network not in ("hyla", "hyla_linear") or kind.phi not in ("identity", "relu")
            or code.device.type != "cpu" or code.dtype not in (torch.float32, torch.float64)
            or code.dtype != v.dtype or torch.is_grad_enabled() or _asked_for.get() == PLAIN
            or torch.compiler.is_compiling()
            or torch._C._are_functorch_transforms_active()):
        return None
    from latentcode.models.kernels.cpu import hyla_of_instances

    n, n_heads, n_queries, n_keys = code.shape
    d = v.shape[-1]
    z = code.new_empty(n, n_queries, n_heads, d)
    codes, values = (x.detach().contiguous().numpy() for x in (code, v))

    def compute(first: int, last: int, _: int) -> None:
        hidden = np.empty((d, n_keys), codes.dtype)
        by_head = np.empty((n_heads, d, n_keys), codes.dtype)
        hyla_of_instances(z.numpy(), codes, values, hidden, by_head, first, last,
                          kind.phi == "relu")

    on_threads(compute, n)
    return z


def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """gelu(x) = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, its tanh approximation.

    On a CPU about four times as fast as torch's, whose tanh takes most of the time; torch's
    elsewhere. As for `attention_by_kernel` there is one derivative; see `written_out` for more.
    """
    from latentcode.models.kernels.lanes import LANES

    if (x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
            and _asked_for.get() != PLAIN and not torch.compiler.is_compiling()
            and not torch._C._are_functorch_transforms_active()
            and x.is_contiguous() and x.numel() % LANES == 0):
        return _CpuGelu.apply(x)
    return F.gelu(x, approximate="tanh")


# The kernels of the processor as functions of torch, on as many threads as torch has.

_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
MOST_GROUPS = 16
"""Most partial sums of a bias gradient per member; bounds memory, and threads per member."""
SHARED_ROWS = 8_192
"""Rows of numbers from which on it takes less time to share them out than to do them alone."""


class _CpuAttention(torch.autograd.Function):
    """z [E, B, Q, H, dv] of q [E, B, Q, H, d], k, v [E, B, K, H, d or dv], bias [E, H, Q, K] and
    kept [E, Q, K], as `attention_by_kernel` says.

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
        from latentcode.models.kernels import cpu, lanes

        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        memory = [flat.detach().view(-1).numpy() for flat in (x, y)]
        on_threads(lambda first, last, _: cpu.gelu(first, last, *memory),
                   x.numel() // lanes.LANES, SHARED_ROWS)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        from latentcode.models.kernels import cpu, lanes

        x, = ctx.saved_tensors
        dx = torch.empty_like(x)
        memory = [flat.detach().view(-1).numpy() for flat in (x, dy.contiguous(), dx)]
        on_threads(lambda first, last, _: cpu.gelu_backward(first, last, *memory),
                   x.numel() // lanes.LANES, SHARED_ROWS)
        return dx


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


def on_threads(
    compute: Callable[[int, int, int], None], n_units: int, least_shared: int = 0
) -> None:
    """Call `compute(first, last, thread)` so that every unit is done once, on torch's threads.

    least_shared  fewer units are left to this thread

    Between two of torch's operations its threads stay awake for a while, spinning; a second pool,
    Python's or numba's, would have to share the cores with them. So the threads are those of the
    OpenMP runtime that torch brings along, if that is GNU's, and Python's own elsewhere. They run
    in parallel as far as `compute` releases Python's lock. An error of a call is raised when all
    have ended.
    """
    n = 1 if n_units < least_shared else max(1, min(torch.get_num_threads(), n_units))
    if n == 1:
        return compute(0, n_units, 0)
    ends = [n_units * i // n for i in range(n + 1)]
    openmp = find_openmp()
    if openmp is not None and n <= torch.get_num_threads():
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
