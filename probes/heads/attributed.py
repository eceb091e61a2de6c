"""Which heads would matter if all were ablated together? An estimate for all of them at once.

    e_h = int_0^1 sum_t (m_h - z_ht) . dL/dz'_ht da,    z' = (1 - a) z + a m in every layer

L is the loss at the tokens that are read, m the mean of z. With a = 0 alone this is attribution
patching (Nanda 2023; Syed et al., arXiv 2310.10348) of mean ablation: one pass forward and one
backward. It misses heads that another one covers for, or whose output a nonlinearity saturates, as
there L has no slope. So the slope is taken at several a between none and all ablated (integrated
gradients, Sundararajan et al., arXiv 1703.01365; in circuits Hanna et al., arXiv 2403.17806). z of
a layer follows from what the lower ones were changed to, so that the estimates of all heads sum up
to what ablating all of them does, with steps enough for the integral. Heads are ranked by the mean
of |slope| over the steps, which few of them suffice for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import ProbeError, check, check_count
from latentcode.models.modes import evaluating
from latentcode.models.replay import logits_at, z_hook
from latentcode.probes.heads.batches import TextBatch
from latentcode.probes.heads.parts import in_parts
from latentcode.prompts import LanguageModel


def attributed(
    asked: LanguageModel, batches: Iterable[TextBatch], means: Mapping[int, Tensor], *,
    steps: int = 5, n_read: int | None = 64, seed: int = 0,
) -> Float[np.ndarray, "A L H"]:
    """Return the slope at each a, sum_t (m_h - z_ht) . dL/dz'_ht, in nats a token that is read.

    means   what is put in (`mean_z`)
    steps   values of a: the midpoints of as many parts of [0, 1]; 1: a = 0, attribution patching
    n_read  tokens of each text that are read, drawn at random

    Their mean over a is e_h, by how much the loss is estimated to rise.

    `ProbeError` where no token is read.
    """
    check_count("steps", steps)
    config = asked.model.cfg
    total, n = np.zeros((steps, config.n_layers, config.n_heads)), 0
    shares = [0.0] if steps == 1 else [(step + 0.5) / steps for step in range(steps)]
    for batch in batches:
        for part in in_parts(batch, asked.model, n_read, seed, backward=True):
            n += int(part.read.sum())
            for step, share in enumerate(shares):
                for layer, slopes in _slopes(asked, part, means, share).items():
                    total[step, layer] += slopes
    check(n > 0, "no token is read; expected texts of at least two tokens", ProbeError)
    return total / n


def ranked(
    slopes: Float[np.ndarray, "A L H"], layers: Iterable[int]
) -> list[tuple[int, int]]:
    """Return all heads of some layers, layer and number, those with the largest mean |slope| first.
    """
    size = np.abs(slopes).mean(0)
    heads = [(layer, head) for layer in layers for head in range(size.shape[1])]
    return sorted(heads, key=lambda head: -size[head])


def _slopes(
    asked: LanguageModel, batch: TextBatch, means: Mapping[int, Tensor], share: float
) -> dict[int, np.ndarray]:
    """Return by layer sum_t (m_h - z_ht) . dL/dz'_ht of its heads, a share of the way gone."""
    model = asked.model
    z: dict[int, Tensor] = {}
    put: dict[int, Tensor] = {}

    def go(layer: int) -> Callable[..., Tensor]:
        def towards(live: Tensor, hook: object) -> Tensor:
            z[layer] = live.detach()
            mean = means[layer].to(live)
            moved = live + share * (mean - live)
            # Where no weight asks for a gradient, the lowest z begins the graph.
            put[layer] = moved if moved.requires_grad else moved.requires_grad_()
            return put[layer]
        return towards

    at = batch.read.flatten().nonzero().flatten()
    with evaluating(model), torch.enable_grad():
        logits = logits_at(model, batch.tokens, batch.padding, at, [
            (z_hook(layer), go(layer)) for layer in means])
        loss = F.cross_entropy(logits[0].float(), batch.targets[batch.read], reduction="sum")
        slopes = torch.autograd.grad(loss, list(put.values()))
    return {layer: ((means[layer].to(slope) - z[layer]) * slope).double().sum((0, 1, 3)).cpu(
        ).numpy() for layer, slope in zip(put, slopes, strict=True)}


__all__ = ["attributed", "ranked"]
