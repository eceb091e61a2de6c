"""z of codes that are given, as where they are written by hand: HYLA, compiled for the processor.

    z_h = sum_j a_hj phi(t_j),   t_j = sum_h a_hj v_jh

for one query. The plain functions copy the codes twice into another order of their axes; here they
are read where they lie, and keys are what is computed side by side.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from latentcode.models.kernels.cpu import Memory, compiled
from latentcode.models.kernels.on_cpu import on_threads


def hyla(code: Tensor, v: Tensor, relu: bool) -> Tensor:
    """Return z [B, Q, H, d] of codes [B, H, Q, K] and values [B, K, H, d], without gradients.

    relu  phi: the positive part, or the identity
    """
    n, n_heads, n_queries, n_keys = code.shape
    d = v.shape[-1]
    z = code.new_empty(n, n_queries, n_heads, d)
    codes, given = (x.detach().contiguous().numpy() for x in (code, v))

    def compute(first: int, last: int, _: int) -> None:
        hidden, values = (np.empty(shape, codes.dtype)
                          for shape in ((d, n_keys), (n_heads, d, n_keys)))
        _hyla(z.numpy(), codes, given, hidden, values, first, last, relu)

    on_threads(compute, n)
    return z


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


_hyla = compiled(_of_instances, fastmath={"reassoc", "contract"})
