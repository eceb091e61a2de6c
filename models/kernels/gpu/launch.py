"""Choose the sizes of tiles and start the programs: the attention core as two operators of torch.

As operators with stand-ins for tensors without numbers they can be traced, compiled around and
captured in a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from latentcode.models.kernels import SERVED_NONLINEARITIES

MOST_HEADS = 64
"""With Triton up to 3.6 half as many in float32: it pads a tile to more than fits."""
MOST_IN_TILE = 8_192
"""Numbers in a tile that a program keeps, heads x tokens x features or tokens^2 x features: with 8
warps, 32 of the 255 registers of a thread. Twice as many of 16 bits where that is all."""
PROGRAMS = 1_024
"""Programs that keep a large GPU busy: instances are grouped, for the sum over them that the
gradient of a bias is, where there are more."""
EMULATED = "emulated"


@dataclass(frozen=True)
class Tiles:
    """Sizes of a tile, powers of two: heads, queries, keys, and chunks of d and dv; and warps."""

    heads: int
    queries: int
    keys: int
    d: int
    dv: int
    warps: int

    @classmethod
    def of(cls, heads: int, d: int, dv: int, dtype: torch.dtype) -> Tiles:
        """Choose for H heads of d (dv) features.

        The accumulators, heads x tokens x features, must fit the registers.
        """
        least = least_summed(dtype)
        h = max(least, _power(heads))
        tokens = least if h >= 64 else 16
        most = MOST_IN_TILE * (1 if dtype == torch.float32 else 2)
        chunk_d, chunk_dv = (_chunk(max(least, _power(size)), least, h * tokens, most)
                             for size in (d, dv))
        largest = max(h * max(chunk_d, chunk_dv), tokens * chunk_dv, h * tokens) * tokens
        return cls(h, tokens, tokens, chunk_d, chunk_dv, 4 if largest <= 2_048 else 8)

    def launched(self) -> dict[str, int]:
        """Return what Triton is told besides: threads / 32, and no loads ahead of their use."""
        return {"num_warps": self.warps, "num_stages": 1}


@cache
def least_summed(dtype: torch.dtype) -> int:
    """Return how long the axis is at least that a matrix product of this Triton sums over."""
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import min_dot_size

    element = tl.float32 if dtype == torch.float32 else tl.bfloat16
    least: int = min_dot_size(GPUTarget("cuda", 90, 32))(element, element)[2]
    return least


def most_heads(dtype: torch.dtype) -> int:
    """Return of how many heads the shared memory of a GPU holds a tile."""
    return MOST_HEADS // (2 if dtype == torch.float32 and least_summed(dtype) > 8 else 1)


def _power(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _chunk(features: int, least: int, rows: int, most: int) -> int:
    """Return all features where a tile of so many rows has room for them, else fewer: computing
    scores and code once more for each chunk costs less than spilling registers."""
    return features if rows * features <= most else max(least, MOST_IN_TILE // rows)


def precision(dtype: torch.dtype) -> str:
    """How matrix products are computed: of float32 as torch's own are, TF32 where that is allowed.

    `emulated` where Triton's interpreter runs the programs, on a CPU.
    """
    if is_interpreted():
        return EMULATED
    if dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest":
        return "ieee"
    return "tf32"


@cache
def is_interpreted() -> bool:
    """Whether the programs are run by Triton's interpreter (TRITON_INTERPRET=1), not compiled."""
    from triton.runtime.interpreter import InterpretedFunction

    from latentcode.models.kernels.gpu import programs

    return isinstance(programs.forward, InterpretedFunction)


def groups_of(members: int, instances: int, query_tiles: int) -> int:
    """Return among how many programs the instances of a member are divided."""
    return max(1, min(instances, PROGRAMS // max(1, members * query_tiles)))


def triton_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None,
    options: Sequence[int],
) -> Tensor:
    """z [E, B, Q, H, dv] as `attention` computes it, with gradients for q, k, v and bias."""
    z: Tensor = _TritonAttention.apply(q, k, v, bias, kept, options)
    return z


class _TritonAttention(torch.autograd.Function):
    """`attention` with its gradients for q, k, v and bias."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
                kept: Tensor | None, options: Sequence[int]) -> Tensor:
        z: Tensor
        # The backward pass computes the same scores again, whatever is set by then.
        ctx.options, ctx.products = list(options), precision(q.dtype)
        z, lse = attention(q, k, v, bias, kept, ctx.options, ctx.products)
        ctx.save_for_backward(q, k, v, bias, kept, lse)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, kept, lse = ctx.saved_tensors
        wants_bias = bias is not None and ctx.needs_input_grad[3]
        dq, dk, dv, dbias = attention_backward(
            dz, q, k, v, bias, kept, lse, ctx.options, ctx.products, wants_bias)
        return dq, dk, dv, dbias if wants_bias else None, None, None


@torch.library.custom_op("latentcode::attention", mutates_args=())
def attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None,
    options: Sequence[int], products: str,
) -> tuple[Tensor, Tensor]:
    """Return z [E, B, Q, H, dv] of q, k [E, B, T, H, d], v, bias [E, H, Q, K], kept [E, Q, K],
    and lse [E, B, H, Q] (without elements where no softmax is taken).

    options   (bits of the normalisation, hyla, phi, causal), as in the kernels for the CPU
    products  how matrices are multiplied, one of what `precision` returns
    """
    from latentcode.models.kernels.gpu import programs

    z, lse = _outputs(q, k, v, bias, kept, options, products)
    if z.numel() == 0:
        return z, lse
    call = _Call(q, k, v, bias, kept, options, products)
    grid = (call.instances * call.query_tiles, -(-call.dv // call.tiles.dv))
    with torch.cuda.device_of(q):
        programs.forward[grid](
            *call.inputs, z, lse, call.b, call.n_queries, call.n_keys, call.scale,
            **call.constants)
    return z, lse


@attention.register_fake
def _outputs(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None,
    options: Sequence[int], products: str,
) -> tuple[Tensor, Tensor]:
    members, b, n_queries, heads, _ = q.shape
    rows = n_queries if options[0] & 1 else 0
    return (q.new_empty(members, b, n_queries, heads, v.shape[-1]),
            q.new_empty((members, b, heads, rows), dtype=torch.float32))


@torch.library.custom_op("latentcode::attention_backward", mutates_args=())
def attention_backward(
    dz: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None,
    lse: Tensor, options: Sequence[int], products: str, wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return dL/dq, dL/dk and dL/dv of the shapes of q, k and v, and dL/dbias [E, H, Q, K] summed
    over the B instances (without elements where it is not wanted), from dz [E, B, Q, H, dv] and
    what `attention` took and returned."""
    from latentcode.models.kernels.gpu import programs

    dq, dk, dv, _ = _gradients(
        dz, q, k, v, bias, kept, lse, options, products, wants_bias)
    call = _Call(q, k, v, bias, kept, options, products)
    groups = (groups_of(q.shape[0], call.b, call.query_tiles) if wants_bias
              else call.b)
    parts = dz.new_zeros(
        (q.shape[0], groups, call.heads, call.n_queries, call.n_keys) if wants_bias else (0,),
        dtype=torch.float32)
    if dz.numel() and call.n_keys:
        delta, dz = torch.empty_like(lse), dz.contiguous()
        sizes = (call.n_queries, call.n_keys, call.scale)
        chunks = (-(-call.d // call.tiles.d), -(-call.dv // call.tiles.dv))
        with torch.cuda.device_of(q):
            programs.backward_queries[q.shape[0] * groups * call.query_tiles, chunks[0]](
                *call.inputs, dz, lse, delta, dq, parts, call.b, groups, *sizes,
                WANTS_BIAS=wants_bias, **call.constants)
            programs.backward_keys[call.instances * call.key_tiles, max(chunks)](
                *call.inputs, dz, lse, delta, dk, dv, call.b, *sizes, **call.constants)
    else:
        for gradient in (dq, dk, dv):
            gradient.zero_()
    return dq, dk, dv, parts.sum(1).to(bias.dtype) if wants_bias and bias is not None else parts


@attention_backward.register_fake
def _gradients(
    dz: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None,
    lse: Tensor, options: Sequence[int], products: str, wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    none = torch.empty(0, dtype=torch.float32, device=q.device)
    dbias = none if bias is None or not wants_bias else torch.empty_like(
        bias, memory_format=torch.contiguous_format)
    return dq, dk, dv, dbias


class _Call:
    """What both operators pass to their programs."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None,
                 options: Sequence[int], products: str) -> None:
        members, self.b, self.n_queries, self.heads, self.d = q.shape
        self.n_keys, self.dv = v.shape[2], v.shape[4]
        self.instances = members * self.b
        self.tiles = Tiles.of(self.heads, self.d, self.dv, q.dtype)
        self.query_tiles = -(-self.n_queries // self.tiles.queries)
        self.key_tiles = -(-self.n_keys // self.tiles.keys)
        self.scale = 1.0 / math.sqrt(self.d)
        # A program needs something to point at where there is no table.
        self.inputs = tuple(q if x is None else x.contiguous() for x in (q, k, v, bias, kept))
        self.constants = {
            **constants(options, self.heads, self.d, self.dv, bias is not None, kept is not None,
                        products, self.tiles), **self.tiles.launched()}


def constants(
    options: Sequence[int], heads: int, d: int, dv: int, has_bias: bool, has_kept: bool,
    precision: str, tiles: Tiles,
) -> dict[str, Any]:
    """Return what is fixed when a program is compiled, as the programs call it."""
    normalization, hyla, phi, causal = options
    return {"H": heads, "D": d, "DV": dv, "SOFTMAX": bool(normalization & 1),
            "RMS_HEAD": bool(normalization & 2), "HYLA": bool(hyla),
            "PHI": SERVED_NONLINEARITIES[phi], "CAUSAL": bool(causal), "HAS_BIAS": has_bias,
            "HAS_KEPT": has_kept, "PRECISION": precision, "BH": tiles.heads, "BQ": tiles.queries,
            "BK": tiles.keys, "BD": tiles.d, "BV": tiles.dv}
