"""What operations do codes generate? Measures of value networks and of their differences.

    W_qk = sum_h a_hqk W_V^h W_O^h                                        (paper, Eq. 5)

Every layer of a generated network is linear in the code, W(a) = sum_h a_h M_h, so that products
of the weights of thousands of codes need the H x H products of the M_h alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentcode.models.hypernetwork import ValueNetwork, value_network
from latentcode.probes.common.features import ROUNDING


def effective_rank(singular: Float[Tensor, "... r"]) -> Float[Tensor, "..."]:
    """exp(-sum_i p_i log p_i), p_i = s_i / sum_j s_j (Roy and Vetterli 2007); NaN for zero."""
    p = singular / singular.sum(dim=-1, keepdim=True)
    return torch.special.entr(p).sum(dim=-1).exp()


def stable_rank(singular: Float[Tensor, "... r"]) -> Float[Tensor, "..."]:
    """sum_i s_i^2 / max_i s_i^2, the squared Frobenius over the squared spectral norm."""
    return singular.square().sum(dim=-1) / singular.square().amax(dim=-1)


def generated_parts(
    model: Any, layer: int, codes: Float[Tensor, "N H"]
) -> dict[str, Float[Tensor, "N n m"]]:
    """Return the weights that each code generates: `matrix` of an affine network, or `weights 1`..

    With a nonlinearity on each head's values the first layer is the same for every code and is
    left out.
    """
    network = value_network(model, layer, codes)
    if network.is_linear:
        return {"matrix": network.matrix}
    config = model.blocks[layer].attn.cfg  # an attention without one is linear
    first = 1 if config.value_network == "linear" else 0
    return {f"weights {i}": weight for i, weight in enumerate(network.weights, 1) if i > first}


def weight_products(
    model: Any, layer: int, codes: Float[Tensor, "N H"]
) -> dict[str, Float[Tensor, "N N"]]:
    """Return <W(a), W(b)>_F = sum_gh a_g b_h <M_g, M_h>_F for all pairs of codes, per part.

    The parts are those of `generated_parts`. Where the whole network is affine in several layers
    its matrix is not linear in the code, and all matrices are made: N x d_model^2 numbers.
    """
    heads = torch.eye(codes.shape[1], dtype=codes.dtype, device=codes.device)
    network = value_network(model, layer, heads)
    if network.is_linear and len(network.weights) > 1:
        matrices = value_network(model, layer, codes).matrix.flatten(1).double()
        return {"matrix": matrices @ matrices.T}
    products = {}
    for part, maps in generated_parts(model, layer, heads).items():
        flat = maps.flatten(1).double()  # [H, n m], the M_h
        products[part] = codes.double() @ (flat @ flat.T) @ codes.double().T
    return products


def cosines(products: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:
    """Return <W_a, W_b> / (|W_a| |W_b|) of products <W_a, W_b>; NaN where a norm is 0."""
    norms = products.diagonal().clamp(min=0.0).sqrt()
    return (products / (norms[:, None] * norms)).clamp(-1.0, 1.0)


def centred(products: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:
    """Return <W_a - W, W_b - W> of products <W_a, W_b>, where W is the mean of all N.

    0 for a network that differs from the mean by no more than rounding.
    """
    rows = products - products.mean(dim=0, keepdim=True)
    differences = rows - rows.mean(dim=1, keepdim=True)
    rounding = differences.diagonal() <= ROUNDING**2 * products.diagonal()
    differences[rounding] = 0.0
    differences[:, rounding] = 0.0
    return differences


def relative_distances(products: Float[Tensor, "N N"]) -> Float[Tensor, "N"]:
    """Return |W_a - W| / |W_a| of products <W_a, W_b>, with the mean W; NaN where |W_a| is 0."""
    squared = products.diagonal()
    ratio = (centred(products).diagonal().clamp(min=0.0) / squared).sqrt()
    return torch.where(squared > 0.0, ratio, torch.nan)


def respond(
    model: Any, layer: int, codes: Float[Tensor, "N H"], x: Float[Tensor, "M D"]
) -> tuple[Float[Tensor, "N M D"], Bool[Tensor, "N M n"] | None]:
    """Return the outputs of each code's network on each input, and which hidden units are active.

    x  layer-normed residual streams, what the layer's values are computed from

    A unit of the last hidden layer is active where phi(u) > phi(0), for a ReLU u > 0. None for
    an affine network, whose units are never off.
    """
    outputs, active = [], []
    for code in codes:
        network = value_network(model, layer, code)
        *hidden, output = network.activations(x)
        outputs.append(output)
        if not network.is_linear:
            active.append(_is_active(network, hidden[-1]))
    return torch.stack(outputs), torch.stack(active) if active else None


def _is_active(network: ValueNetwork, hidden: Tensor) -> Tensor:
    return hidden > network.phi(torch.zeros((), dtype=hidden.dtype, device=hidden.device))


@dataclass(frozen=True)
class Networks:
    """The value networks of N codes, part by part: the generated weights, and the `response`.

    matrices  part -> [N, n, m]; the response is the outputs on M inputs over the root of M
    products  part -> [N, N], the inner products of the matrices
    active    which units of the last hidden layer are active on each input, [N, M, n]; None for
              an affine network
    """

    matrices: dict[str, Tensor]
    products: dict[str, Tensor]
    active: Tensor | None


@torch.no_grad()
def networks(
    model: Any, layer: int, codes: Float[Tensor, "N H"], x: Float[Tensor, "M D"]
) -> Networks:
    """Return the networks that codes generate, and how they respond to inputs."""
    outputs, active = respond(model, layer, codes, x)
    response = outputs / len(x)**0.5
    flat = response.flatten(1).double()
    return Networks(
        {**generated_parts(model, layer, codes), "response": response},
        {**weight_products(model, layer, codes), "response": flat @ flat.T}, active)


@torch.no_grad()
def own_activity(
    model: Any, layer: int, codes: Float[Tensor, "M H"], x: Float[Tensor, "M D"]
) -> Bool[Tensor, "M n"] | None:
    """Return which hidden units are active where each code meets its own input, as they do in the
    forward pass."""
    network = value_network(model, layer, codes)
    return None if network.is_linear else _is_active(network, network.activations(x)[-2])
