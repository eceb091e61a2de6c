"""The programs of the attention core: forward, dL/dq with dL/dbias, dL/dk with dL/dv.

Every program holds one tile of queries (or keys) of one instance, goes over the tiles of keys (or
queries) and computes the code of each again, so that nothing of the size [B, H, Q, K] is written.
Arrays are contiguous: q, z, dz [N, Q, H, d], k, v [N, K, H, d], N = E B instances, the B of a
member one after the other; bias [E, H, Q, K], kept [E, Q, K], lse and delta [N, H, Q] in float32.
"""

import triton
import triton.language as tl

from latentcode.models.kernels.gpu.tiles import (
    along,
    code,
    code_gradient,
    hidden_gradient,
    narrow,
    normalizer_gradient,
    phi,
    product,
    read,
    row_values,
    scores,
    slope,
    targets,
    write,
)


@triton.jit
def forward(
    q, k, v, bias, kept, z, lse, B, Q, K, scale, H: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, SOFTMAX: tl.constexpr, RMS_HEAD: tl.constexpr, HYLA: tl.constexpr,
    PHI: tl.constexpr,
    CAUSAL: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_KEPT: tl.constexpr,
    PRECISION: tl.constexpr, BH: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
    BD: tl.constexpr, BV: tl.constexpr,
):
    """Write z of a tile of queries, in one chunk of features, and its lse."""
    tiles = tl.cdiv(Q, BQ)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    q0, c0 = (tl.program_id(0) % tiles) * BQ, tl.program_id(1) * BV
    q += n * Q * H * D
    k += n * K * H * D
    v += n * K * H * DV
    z += n * Q * H * DV
    bias += n // B * H * Q * K
    kept += n // B * Q * K
    lse += n * H * Q
    end = tl.minimum(q0 + BQ, K) if CAUSAL else K
    row = tl.zeros([BH, BQ, 1], tl.float32)
    if SOFTMAX:
        largest = tl.full([BH, BQ], -1e30, tl.float32)
        total = tl.zeros([BH, BQ], tl.float32)
        for k0 in range(0, end, BK):
            s, seen = scores(q, k, bias, q0, k0, Q, K, scale, H, D, HAS_BIAS, CAUSAL, PRECISION,
                             BH, BQ, BK, BD)
            s = tl.where(seen, s, -2e30)  # so far below all others that its exponential is 0
            new = tl.maximum(largest, tl.max(s, axis=2))
            total = total * tl.exp(largest - new) + tl.sum(tl.exp(s - new[:, :, None]), axis=2)
            largest = new
        # Where there is no key to see, the row is never used.
        row = (largest + tl.log(tl.where(total > 0, total, 1.0)))[:, :, None]
        head, query = along(0, BH, 0), along(q0, BQ, 1)
        if tl.program_id(1) == 0:
            tl.store(lse + head * Q + query, row, mask=(head < H) & (query < Q))
    if HYLA:
        sums = tl.zeros([BQ, BH, BV], tl.float32)
    else:
        sums = tl.zeros([BH, BQ, BV], tl.float32)
    for k0 in range(0, end, BK):
        s, seen = scores(q, k, bias, q0, k0, Q, K, scale, H, D, HAS_BIAS, CAUSAL, PRECISION,
                         BH, BQ, BK, BD)
        p, root, keep = code(
            s, seen, row, kept, q0, k0, Q, K, H, SOFTMAX, RMS_HEAD, HAS_KEPT, BQ, BK)
        A = p * (root * keep)[None, :, :]
        if HYLA:
            t, values = targets(A, v, k0, c0, K, H, DV, PRECISION, BH, BK, BV)
            units = narrow(tl.permute(phi(t, PHI), (1, 0, 2)), values.dtype, PRECISION)
            codes = narrow(tl.permute(A, (1, 0, 2)), values.dtype, PRECISION)
            sums += product(codes, units, PRECISION)
        else:
            values = read(v, along(k0, BK, 1), along(0, BH, 0), along(c0, BV, 2), K, H, DV)
            units = narrow(phi(values.to(tl.float32), PHI), values.dtype, PRECISION)
            sums += product(narrow(A, values.dtype, PRECISION), units, PRECISION)
    if HYLA:
        write(z, sums, along(q0, BQ, 0), along(0, BH, 1), along(c0, BV, 2), Q, H, DV, PRECISION)
    else:
        write(z, sums, along(q0, BQ, 1), along(0, BH, 0), along(c0, BV, 2), Q, H, DV, PRECISION)


@triton.jit
def scores_gradient(
    q, k, v, bias, kept, dz, row, shift, q0, k0, Q, K, scale, H: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, SOFTMAX: tl.constexpr, RMS_HEAD: tl.constexpr, HYLA: tl.constexpr,
    PHI: tl.constexpr,
    CAUSAL: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_KEPT: tl.constexpr,
    PRECISION: tl.constexpr, BH: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
    BD: tl.constexpr, BV: tl.constexpr,
):
    """Return dL/dS [h, q, k], dp p (its sum over keys is `delta`), A and dL/dt of the last chunk.

    row    lse of the rows, [h, q, 1]
    shift  delta of the rows: dS = p (dp - delta) for a softmax, dS = dp otherwise
    """
    s, seen = scores(q, k, bias, q0, k0, Q, K, scale, H, D, HAS_BIAS, CAUSAL, PRECISION,
                     BH, BQ, BK, BD)
    p, root, keep = code(s, seen, row, kept, q0, k0, Q, K, H, SOFTMAX, RMS_HEAD, HAS_KEPT, BQ, BK)
    A = p * (root * keep)[None, :, :]
    dA, dt = code_gradient(A, v, dz, q0, k0, Q, K, H, DV, HYLA, PHI, PRECISION, BH, BQ, BK, BV)
    dp = normalizer_gradient(dA, p, root, keep, H, RMS_HEAD)
    if SOFTMAX:
        ds = p * (dp - shift)
    else:
        ds = dp
    return tl.where(seen, ds, 0.0), tl.where(seen, dp * p, 0.0), A, dt


@triton.jit
def backward_queries(
    q, k, v, bias, kept, dz, lse, delta, dq, dbias, B, GROUPS, Q, K, scale, H: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, SOFTMAX: tl.constexpr, RMS_HEAD: tl.constexpr,
    HYLA: tl.constexpr, PHI: tl.constexpr, CAUSAL: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_KEPT: tl.constexpr,
    WANTS_BIAS: tl.constexpr, PRECISION: tl.constexpr, BH: tl.constexpr, BQ: tl.constexpr,
    BK: tl.constexpr, BD: tl.constexpr, BV: tl.constexpr,
):
    """Write dL/dq of a tile of queries, in one chunk of features, and its delta; add to dL/dbias.

    The program takes every GROUPS-th instance of its member one after the other, and adds their
    dL/dbias [H, BQ, K] to a sum of its own, dbias [E, GROUPS, H, Q, K].
    """
    tiles = tl.cdiv(Q, BQ)
    unit = (tl.program_id(0) // tiles).to(tl.int64)
    member, group = unit // GROUPS, unit % GROUPS
    q0, c0 = (tl.program_id(0) % tiles) * BQ, tl.program_id(1) * BD
    end = tl.minimum(q0 + BQ, K) if CAUSAL else K
    bias += member * H * Q * K
    kept += member * Q * K
    dbias += unit * H * Q * K
    head, query = along(0, BH, 0), along(q0, BQ, 1)
    for b in range(group, B, GROUPS):
        n = member * B + b
        q_n, k_n, v_n = q + n * Q * H * D, k + n * K * H * D, v + n * K * H * DV
        dz_n, dq_n = dz + n * Q * H * DV, dq + n * Q * H * D
        row = tl.zeros([BH, BQ, 1], tl.float32)
        shift = tl.zeros([BH, BQ, 1], tl.float32)
        if SOFTMAX:
            row = row_values(lse + n * H * Q, q0, Q, H, BH, BQ)
            sums = tl.zeros([BH, BQ], tl.float32)
            for k0 in range(0, end, BK):
                _, weighted, _, _ = scores_gradient(
                    q_n, k_n, v_n, bias, kept, dz_n, row, shift, q0, k0, Q, K, scale, H, D, DV,
                    SOFTMAX, RMS_HEAD, HYLA, PHI, CAUSAL, HAS_BIAS, HAS_KEPT, PRECISION, BH, BQ, BK,
                    BD, BV)
                sums += tl.sum(weighted, axis=2)
            shift = sums[:, :, None]
            if tl.program_id(1) == 0:
                tl.store(delta + n * H * Q + head * Q + query, shift,
                         mask=(head < H) & (query < Q))
        gradient = tl.zeros([BH, BQ, BD], tl.float32)
        for k0 in range(0, end, BK):
            ds, _, _, _ = scores_gradient(
                q_n, k_n, v_n, bias, kept, dz_n, row, shift, q0, k0, Q, K, scale, H, D, DV,
                SOFTMAX, RMS_HEAD, HYLA, PHI, CAUSAL, HAS_BIAS, HAS_KEPT, PRECISION, BH, BQ, BK, BD,
                BV)
            keys = read(k_n, along(k0, BK, 1), head, along(c0, BD, 2), K, H, D)
            gradient += product(narrow(ds, keys.dtype, PRECISION), keys, PRECISION)
            if WANTS_BIAS:
                if tl.program_id(1) == 0:
                    key = along(k0, BK, 2)
                    place = dbias + (head.to(tl.int64) * Q + query) * K + key
                    inside = (head < H) & (query < Q) & (key < K)
                    tl.store(place, tl.load(place, mask=inside, other=0.0) + ds, mask=inside)
        write(dq_n, gradient * scale, query, head, along(c0, BD, 2), Q, H, D, PRECISION)
        if WANTS_BIAS:
            # Other threads of the program may read there what these have written.
            tl.debug_barrier()


@triton.jit
def backward_keys(
    q, k, v, bias, kept, dz, lse, delta, dk, dv, B, Q, K, scale, H: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, SOFTMAX: tl.constexpr, RMS_HEAD: tl.constexpr,
    HYLA: tl.constexpr, PHI: tl.constexpr, CAUSAL: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_KEPT: tl.constexpr,
    PRECISION: tl.constexpr, BH: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
    BD: tl.constexpr, BV: tl.constexpr,
):
    """Write dL/dk and dL/dv of a tile of keys, in one chunk of features."""
    tiles = tl.cdiv(K, BK)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    k0 = (tl.program_id(0) % tiles) * BK
    d0, c0 = tl.program_id(1) * BD, tl.program_id(1) * BV
    q += n * Q * H * D
    k += n * K * H * D
    v += n * K * H * DV
    dz += n * Q * H * DV
    dk += n * K * H * D
    dv += n * K * H * DV
    bias += n // B * H * Q * K
    kept += n // B * Q * K
    lse += n * H * Q
    delta += n * H * Q
    head, key = along(0, BH, 0), along(k0, BK, 1)
    of_keys = tl.zeros([BH, BK, BD], tl.float32)
    if HYLA:
        of_values = tl.zeros([BK, BH, BV], tl.float32)
    else:
        of_values = tl.zeros([BH, BK, BV], tl.float32)
    row = tl.zeros([BH, BQ, 1], tl.float32)
    shift = tl.zeros([BH, BQ, 1], tl.float32)
    for q0 in range(k0 // BQ * BQ if CAUSAL else 0, Q, BQ):
        if SOFTMAX:
            row = row_values(lse, q0, Q, H, BH, BQ)
            shift = row_values(delta, q0, Q, H, BH, BQ)
        ds, _, A, dt = scores_gradient(
            q, k, v, bias, kept, dz, row, shift, q0, k0, Q, K, scale, H, D, DV, SOFTMAX, RMS_HEAD,
            HYLA, PHI, CAUSAL, HAS_BIAS, HAS_KEPT, PRECISION, BH, BQ, BK, BD, BV)
        queries = read(q, along(q0, BQ, 1), head, along(d0, BD, 2), Q, H, D)
        of_keys += product(narrow(tl.permute(ds, (0, 2, 1)), queries.dtype, PRECISION), queries,
                           PRECISION)
        if HYLA:
            if BV < DV:  # `dt` is that of another chunk
                _, dt, _, _ = hidden_gradient(
                    A, v, dz, q0, k0, c0, Q, K, H, DV, PHI, PRECISION, BH, BQ, BK, BV)
            codes = narrow(tl.permute(A, (2, 0, 1)), queries.dtype, PRECISION)
            of_values += product(codes, narrow(dt, queries.dtype, PRECISION), PRECISION)
        else:
            out = read(dz, along(q0, BQ, 1), head, along(c0, BV, 2), Q, H, DV)
            codes = narrow(tl.permute(A, (0, 2, 1)), out.dtype, PRECISION)
            of_values += product(codes, out, PRECISION)
    write(dk, of_keys * scale, key, head, along(d0, BD, 2), K, H, D, PRECISION)
    if HYLA:
        write(dv, of_values, along(k0, BK, 0), along(0, BH, 1), along(c0, BV, 2), K, H, DV,
              PRECISION)
    else:
        values = read(v, key, head, along(c0, BV, 2), K, H, DV).to(tl.float32)
        write(dv, of_values * slope(values, PHI), key, head, along(c0, BV, 2), K, H, DV, PRECISION)
