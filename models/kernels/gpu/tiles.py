"""What a program computes for one tile of queries and keys: scores, code, units, gradients.

A tile holds all heads. Everything in it is a batched matrix product or acts on each element:

    S_hqk = q_qh . k_kh / sqrt(d) + b_hqk      batched over heads
    t_qk  = sum_h A_hqk v_kh                   batched over keys,     (BQ x H) (H x d)
    z_qh  = sum_k A_hqk phi(t_qk)              batched over queries,  (H x BK) (BK x d)

with A = a m / (1 - p), the code after dropout. RMSHead looks at one pair of query and key at a
time, so tiles may be computed in any order; a softmax over keys needs the logarithm of the sum of
its exponentials (`lse`) of every row first.

Names of axes: h heads, q queries, k keys, c features (a chunk of d or dv). `BH`, `BQ`, `BK` and
`BC` are their sizes in a tile, powers of two; what lies beyond H, Q, K and D is read as 0.
"""

# Triton reads the annotations of its own functions: they must not become strings.
import triton
import triton.language as tl


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """Return a b for every matrix of a batch, in float32. The interpreter (PRECISION "emulated")
    reads bfloat16 as whole numbers in `tl.dot`, and multiplies the same numbers in float32."""
    if PRECISION == "emulated":
        result = tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        result = tl.dot(a, b, input_precision=PRECISION)
    return result


@triton.jit
def narrow(x, TYPE: tl.constexpr, PRECISION: tl.constexpr):
    """Return float32 numbers in a type, rounded to the nearest one, as the interpreter does not."""
    if PRECISION == "emulated" and TYPE == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
        result = bits.to(tl.float32, bitcast=True).to(TYPE)
    else:
        result = x.to(TYPE)
    return result


@triton.jit
def along(start, SIZE: tl.constexpr, AXIS: tl.constexpr):
    """Return start, start + 1, ... along one of three axes."""
    index = start + tl.arange(0, SIZE)
    if AXIS == 0:
        result = index[:, None, None]
    elif AXIS == 1:
        result = index[None, :, None]
    else:
        result = index[None, None, :]
    return result


@triton.jit
def read(x, token, head, feature, T, H: tl.constexpr, D: tl.constexpr):
    """Return x[token, head, feature] of an array [T, H, D], in the order of the indices' axes."""
    inside = (token < T) & (head < H) & (feature < D)
    return tl.load(x + (token * H + head) * D + feature, mask=inside, other=0.0)


@triton.jit
def write(
    x, value, token, head, feature, T, H: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr
):
    inside = (token < T) & (head < H) & (feature < D)
    tl.store(x + (token * H + head) * D + feature, narrow(value, x.dtype.element_ty, PRECISION),
             mask=inside)


@triton.jit
def phi(x, KIND: tl.constexpr):
    if KIND == "relu":
        y = tl.where(x <= 0, 0.0, x)  # what is not a number stays that
    elif KIND == "gelu":  # the tanh approximation; 1.59... = 2 sqrt(2 / pi)
        y = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    elif KIND == "silu":
        y = x * tl.sigmoid(x)
    elif KIND == "sigmoid":
        y = tl.sigmoid(x)
    elif KIND == "tanh":
        # 2 sigmoid(2 x) - 1 loses digits around 0, where five terms of the series have all.
        square = x * x
        series = x * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 + square * (
            -17.0 / 315.0 + square * (62.0 / 2835.0)))))
        y = tl.where(square < 0.0625, series, 2.0 * tl.sigmoid(2.0 * x) - 1.0)
    else:
        tl.static_assert(KIND == "identity")
        y = x
    return y


@triton.jit
def slope(x, KIND: tl.constexpr):
    """Return phi'(x)."""
    if KIND == "relu":
        y = tl.where(x > 0, 1.0, 0.0)
    elif KIND == "gelu":  # 0.21... = 3 0.044715 2 sqrt(2 / pi)
        s = tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
        y = s + x * s * (1.0 - s) * (1.5957691216057308 + 0.2140644488 * x * x)
    elif KIND == "silu":
        s = tl.sigmoid(x)
        y = s + x * s * (1.0 - s)
    elif KIND == "sigmoid":
        s = tl.sigmoid(x)
        y = s * (1.0 - s)
    elif KIND == "tanh":
        s = tl.sigmoid(2.0 * x)
        y = 4.0 * s * (1.0 - s)
    else:
        y = 0.0 * x + 1.0
    return y


@triton.jit
def scores(
    q, k, bias, q0, k0, Q, K, scale, H: tl.constexpr, D: tl.constexpr, HAS_BIAS: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr, BH: tl.constexpr, BQ: tl.constexpr,
    BK: tl.constexpr, BD: tl.constexpr,
):
    """Return S [h, q, k], and where a score is seen: bool [h, q, k]."""
    head, query, key = along(0, BH, 0), along(q0, BQ, 1), along(k0, BK, 2)
    s = tl.zeros([BH, BQ, BK], tl.float32)
    for c0 in range(0, D, BD):
        rows = read(q, query, head, along(c0, BD, 2), Q, H, D)
        columns = read(k, key, head, along(c0, BD, 1), K, H, D)
        s += product(rows, columns, PRECISION)
    s *= scale
    seen = (head < H) & (query < Q) & (key < K)
    if HAS_BIAS:
        place = bias + (head.to(tl.int64) * Q + query) * K + key  # H Q K may exceed 32 bits
        s += tl.load(place, mask=seen, other=0.0).to(tl.float32)
    if CAUSAL:
        seen = seen & (key <= query)
    return s, seen


@triton.jit
def row_values(x, q0, Q, H: tl.constexpr, BH: tl.constexpr, BQ: tl.constexpr):
    """Return x[h, q] of an array [H, Q] as [h, q, 1]."""
    head, query = along(0, BH, 0), along(q0, BQ, 1)
    return tl.load(x + head * Q + query, mask=(head < H) & (query < Q), other=0.0)


@triton.jit
def code(
    s, seen, lse, kept, q0, k0, Q, K, H: tl.constexpr, SOFTMAX: tl.constexpr,
    RMS_HEAD: tl.constexpr, HAS_KEPT: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
):
    """Return p, what RMSHead divides; 1 / its root mean square over heads; and what the code is
    multiplied by, m / (1 - p), the latter two [q, k] (1 where there is neither).

    The code is a = p root, and A = a keep.
    """
    if SOFTMAX:
        p = tl.exp(tl.where(seen, s - lse, -1e30))
    else:
        p = tl.where(seen, s, 0.0)
    root = tl.full([BQ, BK], 1.0, tl.float32)
    if RMS_HEAD:
        root = 1.0 / tl.sqrt(tl.sum(p * p, axis=0) / H + 1e-6)
    keep = tl.full([BQ, BK], 1.0, tl.float32)
    if HAS_KEPT:
        query, key = (q0 + tl.arange(0, BQ))[:, None], (k0 + tl.arange(0, BK))[None, :]
        keep = tl.load(kept + query * K + key, mask=(query < Q) & (key < K), other=0.0
                       ).to(tl.float32)
    return p, root, keep


@triton.jit
def targets(
    A, v, k0, c0, K, H: tl.constexpr, DV: tl.constexpr, PRECISION: tl.constexpr,
    BH: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):
    """Return t_qk = sum_h A_hqk v_kh as [k, q, c], and the values as [k, h, c]."""
    values = read(v, along(k0, BK, 0), along(0, BH, 1), along(c0, BV, 2), K, H, DV)
    codes = narrow(tl.permute(A, (2, 1, 0)), values.dtype, PRECISION)
    return product(codes, values, PRECISION), values


@triton.jit
def hidden_gradient(
    A, v, dz, q0, k0, c0, Q, K, H: tl.constexpr, DV: tl.constexpr, PHI: tl.constexpr,
    PRECISION: tl.constexpr, BH: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr,
):
    """Return t and dL/dt [k, q, c] of a hidden layer, the values [k, h, c] and dz [q, h, c]."""
    t, values = targets(A, v, k0, c0, K, H, DV, PRECISION, BH, BK, BV)
    out = read(dz, along(q0, BQ, 0), along(0, BH, 1), along(c0, BV, 2), Q, H, DV)
    du = product(narrow(tl.permute(A, (1, 2, 0)), out.dtype, PRECISION), out, PRECISION)
    return t, tl.permute(du, (1, 0, 2)) * slope(t, PHI), values, out


@triton.jit
def code_gradient(
    A, v, dz, q0, k0, Q, K, H: tl.constexpr, DV: tl.constexpr, HYLA: tl.constexpr,
    PHI: tl.constexpr, PRECISION: tl.constexpr, BH: tl.constexpr, BQ: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr,
):
    """Return dL/dA [h, q, k], and dL/dt [k, q, c] of the last chunk (0 without hidden units).

    hyla    dA_hqk = dz_qh . phi(t_qk) + dt_qk . v_kh
    linear  dA_hqk = dz_qh . phi(v_kh)
    """
    dA = tl.zeros([BH, BQ, BK], tl.float32)
    dt = tl.zeros([BK, BQ, BV], tl.float32)
    for c0 in range(0, DV, BV):
        if HYLA:
            t, dt, values, out = hidden_gradient(
                A, v, dz, q0, k0, c0, Q, K, H, DV, PHI, PRECISION, BH, BQ, BK, BV)
            units = narrow(tl.permute(phi(t, PHI), (1, 2, 0)), out.dtype, PRECISION)
            dA += tl.permute(product(out, units, PRECISION), (1, 0, 2))
            dA += tl.permute(product(narrow(dt, values.dtype, PRECISION),
                                     tl.permute(values, (0, 2, 1)), PRECISION), (2, 1, 0))
        else:
            out = read(dz, along(q0, BQ, 1), along(0, BH, 0), along(c0, BV, 2), Q, H, DV)
            values = read(v, along(k0, BK, 2), along(0, BH, 0), along(c0, BV, 1), K, H, DV)
            units = narrow(phi(values.to(tl.float32), PHI), values.dtype, PRECISION)
            dA += product(out, units, PRECISION)
    return dA, dt


@triton.jit
def normalizer_gradient(dA, p, root, keep, H: tl.constexpr, RMS_HEAD: tl.constexpr):
    """Return dL/dp of p, what RMSHead divides: dp = root (da - a mean_h(a da)), da = dA keep."""
    da = dA * keep[None, :, :]
    if RMS_HEAD:
        a = p * root[None, :, :]
        dp = root[None, :, :] * (da - a * (tl.sum(a * da, axis=0) / H)[None, :, :])
    else:
        dp = da
    return dp
