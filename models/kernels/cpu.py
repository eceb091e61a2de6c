"""The attention core for one block of instances after another, compiled for the processor.

For every query the scores [H, K] of sixteen instances lie in the cache; nothing of the size
[B, H, Q, K] is written, and the backward pass computes scores and code again. With x the scores,
softmaxed over keys where the normalisation says so, the dropped code is a_hj = x_hj f_j, where
f_j holds the kept mask and the scale of RMSHead. The gradients are those of

    linear   z_h = sum_j a_hj phi(v_jh)
    hyla     z_h = sum_j a_hj phi(t_j),   t_j = sum_h a_hj v_jh

for one query. See `latentcode.models.kernels.fused` for the way in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit

from latentcode.models.attention import RMS_EPSILON
from latentcode.models.kernels import lanes
from latentcode.models.kernels.lanes import (
    LANES,
    collect,
    distribute,
    dot,
    exponential,
    is_positive,
    larger,
    load,
    positive_part,
    square_root,
    store,
    sum_of_lanes,
    zeros,
)

Memory: TypeAlias = np.ndarray
Numbers: TypeAlias = tuple[int, ...]
Row: TypeAlias = Any  # of latentcode.models.kernels.lanes; mypy knows nothing of numba
Function = TypeVar("Function", bound=Callable[..., object])


_INLINED = hashlib.sha256(
    Path(lanes.__file__).read_bytes() + str(RMS_EPSILON).encode()).hexdigest()[:16]
"""What the kernels take from other files, of which numba notices no change."""


def compiled(function: Function, fastmath: Collection[str] = ()) -> Function:
    """Compile on the first call, or read what an earlier process has compiled.

    fastmath  LLVM's names of what may be done to sums, such as `reassoc`
    """
    # What is compiled is kept under this name, until this file changes.
    function.__qualname__ += f"-{_INLINED}"
    try:
        return cast(Function, njit(function, nogil=True, cache=True, error_model="numpy",
                                   fastmath=set(fastmath)))
    except RuntimeError:
        # Neither this folder nor the user's can be written: every process compiles for itself.
        return _inner(function)


def _inner(function: Function) -> Function:
    return cast(Function, njit(function, nogil=True, error_model="numpy"))


ONE = (0,)
SOFTMAX, RMS_HEAD = 1, 2
"""Bits of a normalisation: neither, one, or the softmax and then RMSHead."""
IDENTITY, RELU, GELU, SILU, SIGMOID, TANH = range(6)
_GELU_SCALE, _GELU_CUBE = 2.0 * (2.0 / np.pi) ** 0.5, 0.044715
_GELU_FLOOR = -40.0
"""Where the gate of GELU, e^-40 there, is 0, as (1 + tanh) / 2 is in float32 and in float64.

A smaller gate times a gradient is a subnormal number, and products with those take a processor so
long that an update of a trained model took 3.4 times as long (experiments/benchmarks/README.md)."""


@_inner
def _sigmoid(x: Row) -> Row:
    return 1.0 / (1.0 + exponential(0.0 - x))


@_inner
def _gelu_gate(x: Row) -> Row:
    """sigmoid(u) = (1 + tanh(u / 2)) / 2 of u = 2 sqrt(2 / pi) (x + 0.044715 x^3)"""
    u = _GELU_SCALE * (x + _GELU_CUBE * x * x * x)
    return _sigmoid(larger(0.0 * u + _GELU_FLOOR, u)) * is_positive(u - _GELU_FLOOR)


@_inner
def _phi(kind: int, x: Row) -> Row:
    """phi(x)"""
    if kind == RELU:
        return positive_part(x)
    if kind == GELU:
        return x * _gelu_gate(x)
    if kind == SILU:
        return x * _sigmoid(x)
    if kind == SIGMOID:
        return _sigmoid(x)
    if kind == TANH:
        return 2.0 * _sigmoid(2.0 * x) - 1.0
    return x


@_inner
def _slope(kind: int, x: Row) -> Row:
    """phi'(x)"""
    if kind == RELU:
        return is_positive(x)
    if kind == GELU:
        s = _gelu_gate(x)
        inner = _GELU_SCALE * (1.0 + 3.0 * _GELU_CUBE * x * x)
        return s + x * s * (1.0 - s) * inner
    if kind == SILU:
        s = _sigmoid(x)
        return s + x * s * (1.0 - s)
    if kind == SIGMOID:
        s = _sigmoid(x)
        return s * (1.0 - s)
    if kind == TANH:
        s = _sigmoid(2.0 * x)
        return 4.0 * s * (1.0 - s)
    return 0.0 * x + 1.0


@_inner
def _gather(
    rows: Memory, places: Numbers, x: Memory, at: Numbers, strides: Numbers, count: int,
    n_tokens: int, n_heads: int, size: int
) -> None:
    """rows[t, h, i, lane] = x[lane, t, h, i], and 0 for lanes beyond `count`.

    at       member and first instance
    places   distances in `rows`: from a token to the next, from a head to the next
    strides  distances in `x`: member, instance, token, head
    """
    start = at[0] * strides[0] + at[1] * strides[1]
    for t in range(n_tokens):
        for h in range(n_heads):
            row, source = t * places[0] + h * places[1], start + t * strides[2] + h * strides[3]
            for i in range(size):
                store(rows, row + i, collect(x, source + i, strides[1], count))


@_inner
def _scatter(
    x: Memory, at: Numbers, strides: Numbers, rows: Memory, places: Numbers, count: int,
    n_tokens: int, n_heads: int, size: int
) -> None:
    """x[lane, t, h, i] = rows[t, h, i, lane]: `_gather` backwards."""
    start = at[0] * strides[0] + at[1] * strides[1]
    for t in range(n_tokens):
        for h in range(n_heads):
            row, target = t * places[0] + h * places[1], start + t * strides[2] + h * strides[3]
            for i in range(size):
                distribute(x, target + i, strides[1], count, load(rows, row + i, ONE))


@_inner
def _apply_phi(rows: Memory, n_rows: int, phi: int, like: Numbers) -> None:
    for row in range(n_rows):
        store(rows, row * len(like), _phi(phi, load(rows, row * len(like), like)))


@_inner
def _score(
    x: Memory, factor: Memory, q: Memory, k: Memory, bias: Memory, kept: Memory, t: int,
    n_heads: int, n_keys: int, visible: int, normalization: int, d: Numbers
) -> None:
    """Write x [H, K] and f [K] of query t; return nothing."""
    size, scale = len(d), 1.0 / np.sqrt(len(d))
    for h in range(n_heads):
        query = load(q, (t * n_heads + h) * size, d) * scale
        top = zeros(x, ONE) - np.inf
        for j in range(visible):
            score = dot(query, load(k, (h * n_keys + j) * size, d))
            if bias.size:
                score = score + bias[h, t, j]
            top = larger(score, top)
            store(x, h * n_keys + j, score)
        if normalization & SOFTMAX:
            total = zeros(x, ONE)
            for j in range(visible):
                weight = exponential(load(x, h * n_keys + j, ONE) - top)
                total = total + weight
                store(x, h * n_keys + j, weight)
            share = 1.0 / total
            for j in range(visible):
                store(x, h * n_keys + j, load(x, h * n_keys + j, ONE) * share)
    for j in range(visible):
        f = zeros(x, ONE) + (kept[t, j] if kept.size else 1.0)
        if normalization & RMS_HEAD:
            f = f * _inverse_rms(x, j, n_heads, n_keys)
        store(factor, j, f)


@_inner
def _inverse_rms(x: Memory, j: int, n_heads: int, n_keys: int) -> Row:
    """1 / sqrt(mean_h x_hj^2 + 1e-6)"""
    squares = zeros(x, ONE)
    for h in range(n_heads):
        value = load(x, h * n_keys + j, ONE)
        squares = squares + value * value
    return 1.0 / square_root(squares * (1.0 / n_heads) + RMS_EPSILON)


@_inner
def _forward_query(
    z: Memory, x: Memory, factor: Memory, hidden: Memory, v: Memory, t: int, n_heads: int,
    n_keys: int, visible: int, hyla: int, phi: int, dv: Numbers
) -> None:
    size = len(dv)
    if hyla:
        for j in range(visible):
            target = zeros(v, dv)
            for h in range(n_heads):
                target = target + load(x, h * n_keys + j, ONE) * load(
                    v, (j * n_heads + h) * size, dv)
            f = load(factor, j, ONE)
            store(hidden, j * size, f * _phi(phi, f * target))
    for h in range(n_heads):
        out = zeros(v, dv)
        if hyla:
            for j in range(visible):
                out = out + load(x, h * n_keys + j, ONE) * load(hidden, j * size, dv)
        else:
            for j in range(visible):
                code = load(x, h * n_keys + j, ONE) * load(factor, j, ONE)
                out = out + code * load(v, (h * n_keys + j) * size, dv)
        store(z, (t * n_heads + h) * size, out)


@compiled
def forward(
    first: int, last: int, work: tuple[Memory, ...], z: Memory, q: Memory, k: Memory, v: Memory,
    bias: Memory, kept: Memory, strides: tuple[Numbers, ...], shape: Numbers, options: Numbers,
    d: Numbers, dv: Numbers
) -> None:
    """z of the blocks `first` to `last` (exclusive), which are numbered member by member.

    z, q, k, v  flat memory, read by `strides` (member, instance, token, head) of each
    bias, kept  [E, H, Q, K] and [E, Q, K]; without elements where there is none
    work        memory, as many numbers as `work_sizes` says
    shape       (instances, queries, keys, heads)
    options     (bits of the normalisation, hyla, phi, causal)
    d, dv       tuples whose lengths are the sizes of a query and of a value
    """
    n_instances, n_queries, n_keys, n_heads = shape
    normalization, hyla, phi, causal = options
    n_d, n_v = len(d), len(dv)
    q_rows, k_rows, v_rows, z_rows, x, factor, hidden = work[:7]
    by_token, by_head, v_places, z_places = _places(n_keys, n_heads, n_d, n_v, hyla)
    n_blocks = (n_instances + LANES - 1) // LANES
    for unit in range(first, last):
        member, start = unit // n_blocks, unit % n_blocks * LANES
        count = min(LANES, n_instances - start)
        at = (member, start)
        _gather(q_rows, by_token, q, at, strides[1], count, n_queries, n_heads, n_d)
        _gather(k_rows, by_head, k, at, strides[2], count, n_keys, n_heads, n_d)
        _gather(v_rows, v_places, v, at, strides[3], count, n_keys, n_heads, n_v)
        if not hyla and phi != IDENTITY:
            _apply_phi(v_rows, n_keys * n_heads, phi, dv)
        for t in range(n_queries):
            visible = min(t + 1, n_keys) if causal else n_keys
            _score(x, factor, q_rows, k_rows, bias[member], kept[member], t, n_heads, n_keys,
                   visible, normalization, d)
            _forward_query(z_rows, x, factor, hidden, v_rows, t, n_heads, n_keys, visible, hyla,
                           phi, dv)
        _scatter(z, at, strides[0], z_rows, z_places, count, n_queries, n_heads, n_v)


@_inner
def _places(
    n_keys: int, n_heads: int, n_d: int, n_v: int, hyla: int
) -> tuple[tuple[int, int], ...]:
    """Where rows lie: queries by token and keys by head, as the scores read them; values by head
    too, but by token for hyla, which sums over heads; outputs by token."""
    by_token, by_head = (n_heads * n_v, n_v), (n_v, n_keys * n_v)
    return ((n_heads * n_d, n_d), (n_d, n_keys * n_d), by_token if hyla else by_head, by_token)


def work_sizes(n_queries: int, n_keys: int, n_heads: int, d: int, dv: int) -> tuple[int, ...]:
    """Numbers in each part of the memory that a thread needs; `backward` needs all of it twice."""
    q, k, v, z = (n * n_heads * size for n, size in
                  ((n_queries, d), (n_keys, d), (n_keys, dv), (n_queries, dv)))
    return tuple(LANES * rows for rows in (q, k, v, z, n_heads * n_keys, n_keys, n_keys * dv))


@_inner
def _backward_hyla(
    dx: Memory, dv_rows: Memory, x: Memory, factor: Memory, slope: Memory, v: Memory, dz:
    Memory, t: int, n_heads: int, n_keys: int, visible: int, phi: int, dv: Numbers
) -> None:
    """Write dL/dx [H, K] of query t and add to dL/dv."""
    size = len(dv)
    for j in range(visible):
        f = load(factor, j, ONE)
        target, cotangent = zeros(v, dv), zeros(v, dv)
        for h in range(n_heads):
            value = load(x, h * n_keys + j, ONE)
            target = target + value * load(v, (j * n_heads + h) * size, dv)
            cotangent = cotangent + value * load(dz, (t * n_heads + h) * size, dv)
        target = f * target
        unit = _phi(phi, target)
        cotangent = f * cotangent * _slope(phi, target)
        spread, along = f * cotangent, zeros(x, ONE)
        for h in range(n_heads):
            value = load(x, h * n_keys + j, ONE)
            place = (j * n_heads + h) * size
            slant = dot(load(dz, (t * n_heads + h) * size, dv), unit) + dot(
                load(v, place, dv), cotangent)
            store(dv_rows, place, load(dv_rows, place, dv) + value * spread)
            store(dx, h * n_keys + j, slant)
            along = along + value * slant
        store(slope, j, along)


@_inner
def _backward_linear(
    dx: Memory, dv_rows: Memory, x: Memory, factor: Memory, slope: Memory, v: Memory, dz:
    Memory, t: int, n_heads: int, n_keys: int, visible: int, dv: Numbers
) -> None:
    """Write dL/dx [H, K] of query t and add to dL/d phi(v)."""
    size = len(dv)
    for j in range(visible):
        store(slope, j, zeros(x, ONE))
    for h in range(n_heads):
        out = load(dz, (t * n_heads + h) * size, dv)
        for j in range(visible):
            value = load(x, h * n_keys + j, ONE)
            place = (h * n_keys + j) * size
            slant = dot(out, load(v, place, dv))
            store(dv_rows, place, load(dv_rows, place, dv) + value * load(factor, j, ONE) * out)
            store(dx, h * n_keys + j, slant)
            store(slope, j, load(slope, j, ONE) + value * slant)


@_inner
def _backward_scores(
    dq_rows: Memory, dk_rows: Memory, d_bias: Memory, x: Memory, dx: Memory, factor: Memory,
    slope: Memory, q: Memory, k: Memory, t: int, n_heads: int, n_keys: int, visible: int,
    normalization: int, d: Numbers
) -> None:
    """From dL/da to dL/dS, and add to the gradients of queries, keys and bias."""
    size, scale = len(d), 1.0 / np.sqrt(len(d))
    if normalization & RMS_HEAD:
        for j in range(visible):
            r = _inverse_rms(x, j, n_heads, n_keys)
            store(slope, j, load(slope, j, ONE) * load(factor, j, ONE) * r * r * (1.0 / n_heads))
    else:
        for j in range(visible):
            store(slope, j, zeros(x, ONE))
    for h in range(n_heads):
        mean = zeros(x, ONE)
        if normalization & SOFTMAX:
            for j in range(visible):
                value = load(x, h * n_keys + j, ONE)
                mean = mean + value * _through_factor(dx, factor, slope, value, h, j, n_keys)
        query = load(q, (t * n_heads + h) * size, d) * scale
        d_query = zeros(q, d)
        for j in range(visible):
            value = load(x, h * n_keys + j, ONE)
            gradient = _through_factor(dx, factor, slope, value, h, j, n_keys)
            if normalization & SOFTMAX:
                gradient = value * (gradient - mean)
            place = (h * n_keys + j) * size
            d_query = d_query + gradient * load(k, place, d)
            store(dk_rows, place, load(dk_rows, place, d) + gradient * query)
            if d_bias.size:
                d_bias[h, t, j] += sum_of_lanes(gradient)
        store(dq_rows, (t * n_heads + h) * size, d_query * scale)


@_inner
def _through_factor(
    dx: Memory, factor: Memory, slope: Memory, value: Row, h: int, j: int, n_keys: int
) -> Row:
    """dL/dx_hj = f_j dL/da_hj - x_hj (r_j^2 f_j mean_h x_hj dL/da_hj), without the last for r = 1.
    """
    return load(factor, j, ONE) * load(dx, h * n_keys + j, ONE) - value * load(slope, j, ONE)


@compiled
def backward(
    first: int, last: int, work: tuple[Memory, ...], n_groups: int, dz: Memory, q: Memory, k:
    Memory, v: Memory, bias: Memory, kept: Memory, dq: Memory, dk: Memory, dv: Memory, d_bias:
    Memory, strides: tuple[Numbers, ...], shape: Numbers, options: Numbers, d_like: Numbers,
    v_like: Numbers
) -> None:
    """dL/dq, dL/dk, dL/dv and dL/dbias of the groups of blocks `first` to `last` (exclusive).

    Arguments as for `forward`; in addition
    n_groups  how many groups every member's blocks are dealt out to, numbered member by member
    d_bias    zeros [E, n_groups, H, Q, K], or without elements: each group adds to its own part,
              so that the sum does not depend on who computes what
    """
    n_instances, n_queries, n_keys, n_heads = shape
    normalization, hyla, phi, causal = options
    n_d, n_v = len(d_like), len(v_like)
    q_rows, k_rows, v_rows, dz_rows, x, factor, _ = work[:7]
    dq_rows, dk_rows, dv_rows, _, dx, slope, _ = work[7:]
    by_token, by_head, v_places, z_places = _places(n_keys, n_heads, n_d, n_v, hyla)
    n_blocks = (n_instances + LANES - 1) // LANES
    for unit in range(first, last):
        member, group = unit // n_groups, unit % n_groups
        partial = d_bias[member, group]
        for block in range(group, n_blocks, n_groups):
            start = block * LANES
            count = min(LANES, n_instances - start)
            at = (member, start)
            _gather(dz_rows, z_places, dz, at, strides[0], count, n_queries, n_heads, n_v)
            _gather(q_rows, by_token, q, at, strides[1], count, n_queries, n_heads, n_d)
            _gather(k_rows, by_head, k, at, strides[2], count, n_keys, n_heads, n_d)
            _gather(v_rows, v_places, v, at, strides[3], count, n_keys, n_heads, n_v)
            if not hyla and phi != IDENTITY:
                _apply_phi(v_rows, n_keys * n_heads, phi, v_like)
            dk_rows[:] = 0.0
            dv_rows[:] = 0.0
            for t in range(n_queries):
                visible = min(t + 1, n_keys) if causal else n_keys
                _score(x, factor, q_rows, k_rows, bias[member], kept[member], t, n_heads, n_keys,
                       visible, normalization, d_like)
                if hyla:
                    _backward_hyla(dx, dv_rows, x, factor, slope, v_rows, dz_rows, t, n_heads,
                                   n_keys, visible, phi, v_like)
                else:
                    _backward_linear(dx, dv_rows, x, factor, slope, v_rows, dz_rows, t, n_heads,
                                     n_keys, visible, v_like)
                _backward_scores(dq_rows, dk_rows, partial, x, dx, factor, slope, q_rows, k_rows,
                                 t, n_heads, n_keys, visible, normalization, d_like)
            if not hyla and phi != IDENTITY:
                _gather(v_rows, v_places, v, at, strides[3], count, n_keys, n_heads, n_v)
                _multiply_by_slope(dv_rows, v_rows, n_keys * n_heads, phi, v_like)
            _scatter(dq, at, strides[4], dq_rows, by_token, count, n_queries, n_heads, n_d)
            _scatter(dk, at, strides[5], dk_rows, by_head, count, n_keys, n_heads, n_d)
            _scatter(dv, at, strides[6], dv_rows, v_places, count, n_keys, n_heads, n_v)


@_inner
def _multiply_by_slope(
    gradient: Memory, rows: Memory, n_rows: int, phi: int, like: Numbers
) -> None:
    for row in range(n_rows):
        at = row * len(like)
        store(gradient, at, load(gradient, at, like) * _slope(phi, load(rows, at, like)))


@compiled
def gelu(first: int, last: int, x: Memory, y: Memory) -> None:
    """y = gelu(x), of the rows of `LANES` numbers `first` to `last` (exclusive) of flat memory."""
    for row in range(first, last):
        store(y, row, _phi(GELU, load(x, row, ONE)))


@compiled
def gelu_backward(first: int, last: int, x: Memory, dy: Memory, dx: Memory) -> None:
    """dL/dx = dL/dy gelu'(x), as `gelu`."""
    for row in range(first, last):
        store(dx, row, load(dy, row, ONE) * _slope(GELU, load(x, row, ONE)))


def _of_instances(
    z: Memory, code: Memory, v: Memory, hidden: Memory, values: Memory, first: int, last: int,
    relu: bool,
) -> None:
    """Write z of some instances; `hidden` [d, K] and `values` [H, d, K] are scratch."""
    _, n_heads, n_queries, n_keys = code.shape
    d = v.shape[3]
    for b in range(first, last):
        for h in range(n_heads):
            for i in range(d):
                for j in range(n_keys):
                    values[h, i, j] = v[b, j, h, i]
        for q in range(n_queries):
            hidden[:] = 0.0
            for h in range(n_heads):
                for i in range(d):
                    for j in range(n_keys):
                        hidden[i, j] += code[b, h, q, j] * values[h, i, j]
            if relu:
                for i in range(d):
                    for j in range(n_keys):
                        # What is not a number stays so.
                        if hidden[i, j] < 0.0:
                            hidden[i, j] = 0.0
            for h in range(n_heads):
                for i in range(d):
                    total = code[b, h, q, 0] * hidden[i, 0]
                    for j in range(1, n_keys):
                        total += code[b, h, q, j] * hidden[i, j]
                    z[b, q, h, i] = total


hyla_of_instances = compiled(_of_instances, fastmath={"reassoc", "contract"})
"""z of codes that are given (`latentcode.models.kernels.fused.attention_of_codes`)."""
