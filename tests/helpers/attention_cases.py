"""Inputs of the attention core, its reference in float64, and how far a kernel is from that."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from latentcode.models.attention import (
    apply_value_network,
    attention_scores,
    nonlinearity,
    normalize,
)
from latentcode.models.kernels.fused import (
    SERVED_NORMALIZATIONS,
    SERVED_VALUE_NETWORKS,
    Kind,
    asked_for,
    attention_by_kernel,
)

PROGRAMS = "cuda" if torch.cuda.is_available() else "cpu"
"""Where Triton's programs compute: without a GPU its interpreter does, on a CPU."""
KINDS = [(normalization, value_network, phi)
         for normalization, value_network in itertools.product(
             SERVED_NORMALIZATIONS, SERVED_VALUE_NETWORKS)
         for phi in (("identity",) if value_network == "hyla_linear" else ("identity", "relu"))]


def draw(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def attention_inputs(
    b: int, n_query: int, n_key: int, h: int, d: int, dv: int, *, members: int = 0,
    bias: bool = True, dropout: bool = True, dtype: torch.dtype = torch.float64,
) -> list[Tensor | None]:
    """q, k, v, bias and kept, all but the last with gradients."""
    e = (members,) if members else ()
    drawn: list[Tensor | None] = [
        draw(0, *e, b, n_query, h, d, dtype=dtype), draw(1, *e, b, n_key, h, d, dtype=dtype),
        draw(2, *e, b, n_key, h, dv, dtype=dtype),
        draw(3, *e, 1, h, n_query, n_key, dtype=dtype) if bias else None]
    drawn = [None if x is None else x.requires_grad_() for x in drawn]
    kept = (draw(4, *e, 1, 1, n_query, n_key) > -0.8).to(dtype) / 0.8
    return [*drawn, kept if dropout else None]


def reference(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None, causal: bool,
    kind: tuple[str, str, str], hook_code: Callable[[Tensor], Tensor] = lambda code: code,
) -> Tensor:
    """z of the functions of `latentcode.models.attention`, one after the other.

    kept       what the normalised code is multiplied by, m / (1 - p)
    causal     hide the keys after a query
    hook_code  sees the dropped code, [*E, B, H, Q, K], and may replace it
    """
    normalization, value_network, phi = kind
    mask = None
    if causal:
        mask = torch.ones(q.shape[-3], k.shape[-3], dtype=torch.bool, device=q.device).tril()
        mask = mask.view(*(1,) * (q.ndim - 2), *mask.shape)
    code = normalize(attention_scores(q, k, bias, mask, normalization), normalization)
    return apply_value_network(hook_code(code if kept is None else code * kept), v, value_network,
                               nonlinearity(phi))


def reference_of_rounded(*inputs: Any) -> Tensor:
    """As `reference`, of a code that is rounded to bfloat16, with the gradient as if it were not.

    Rounding the code moves hidden units next to 0 across the corner of a ReLU, whose slope jumps
    there, however right the rest of a kernel is.
    """
    def rounded(code: Tensor) -> Tensor:
        return code + (code.to(torch.bfloat16).to(code.dtype) - code).detach()

    return reference(*inputs, hook_code=rounded)


def fused(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kept: Tensor | None, causal: bool,
    kind: tuple[str, str, str],
) -> Tensor:
    """By the kernel that is asked for, whose result lies where the inputs do."""
    device = PROGRAMS if asked_for() == "triton" else q.device
    moved: Any = tuple(None if x is None else x.to(device) for x in (q, k, v, bias, kept))
    z = attention_by_kernel(Kind(*kind), moved, causal)
    assert z is not None
    return z.to(q.device)


def results(function: Any, inputs: list[Any], causal: bool, kind: Any) -> list[Tensor]:
    """z and the gradients of all that have one."""
    z = function(*inputs, causal, kind)
    dz = draw(5, *z.shape, dtype=z.dtype)
    return [z.detach(), *torch.autograd.grad(z, [x for x in inputs[:4] if x is not None], dz)]


def relative_error(got: Tensor, wanted: Tensor) -> float:
    difference, size = (got.double() - wanted).norm(), wanted.norm().clamp(min=1e-12)
    return float(difference.detach() / size.detach())


def errors_of(
    function: Any, inputs: list[Any], causal: bool, kind: Any, reference: Any = reference
) -> dict[str, float]:
    """How far z and the gradients of a function are from the reference in float64, as a share."""
    exact = [None if x is None else x.detach().double().requires_grad_(x.requires_grad)
             for x in inputs]
    got = results(function, inputs, causal, kind)
    wanted = results(reference, exact, causal, kind)
    errors = {}
    for name, one, other in zip(("z", "dq", "dk", "dv", "dbias"), got, wanted, strict=False):
        assert one.dtype == inputs[0].dtype
        assert one.shape == other.shape
        # With one key a softmax is constant, and its gradients are rounding around 0.
        errors[name] = min(relative_error(one, other), float((one - other).abs().max()))
    return errors


def compare(
    inputs: list[Any], causal: bool, kind: Any, tolerance: float, reference: Any = reference
) -> None:
    errors = errors_of(fused, inputs, causal, kind, reference)
    assert max(errors.values()) <= tolerance, errors
