"""What is computed of a model from one activation of the response's token on.

A place is a site and a layer: `code`, the row of the response (H codes for each of K keys), or
`residual`, the stream of the response's token that enters the layer. What lies below a place is
computed once, and only what follows from it again for every patch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.errors import ProbeError, UnknownNameError, check, check_choice
from latentcode.models.kernels.fused import written_out
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.interventions.of_model import CORE
from latentcode.probes.interventions.patches import PATCHES
from latentcode.probes.interventions.sites import SITES, Place, capture
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

DAS_SITES = ("code", "residual")
BATCH = 250
"""Instances that are passed through the model at once."""
ANSWERED = ("bases", "sources", *CORE)
"""Problems that the model has to answer rightly for a pair to count."""


@dataclass(frozen=True)
class Held:
    """N pairs that count, and what a model computes of them below a place.

    clean   [N, T, V], the logits of the bases
    stream  [N, T, D], the residual stream of the bases that enters the layer
    query   int64 [N], the position of the response
    own     [N, d], the activation of the bases at the place
    sources  patch -> [N, d], that of the sources
    right    patch -> bool [N], whether the model answers the source rightly
    """

    pairs: MinimalPairs
    clean: Tensor
    stream: Tensor
    query: Tensor
    own: Tensor
    sources: Mapping[str, Tensor]
    right: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.query)


def check_place(model: Any, place: Place) -> None:
    """Raise an error that names what is not a place of a model, or no model of ours."""
    site, layer = place
    check(isinstance(model, HookedTransformer), f"model is a {type(model).__name__}; expected a "
          "latentcode.HookedTransformer, which can be computed from a layer on", ProbeError)
    check_choice("site", site, DAS_SITES)
    if layer not in range(model.cfg.n_layers):
        raise UnknownNameError("layer", layer, range(model.cfg.n_layers))


def hold(
    model: HookedTransformer,
    task: Counterfactuals,
    place: Place,
    sources: tuple[str, ...],
    *,
    split: str,
    n: int,
    known: bool,
    generator: torch.Generator,
) -> Held:
    """Return those of n pairs of a split that count, and what a model computes of them.

    sources  patches whose sources are wanted (`PATCHES`)
    known   only pairs whose problems (`ANSWERED`) the model answers rightly
    """
    pairs = task.sample(split, n, generator)
    pairs = pairs[pairs.counts.nonzero()[:, 0]]
    query = task.scope("row", pairs).any(2).long().argmax(1)
    clean, own, stream = _passed(model, pairs.bases.inputs, place, query)
    kept = task.right(pairs, clean, "bases") if known else torch.ones_like(pairs.counts)
    found: dict[str, Tensor] = {}
    right: dict[str, Tensor] = {}
    asked = {PATCHES[name].source for name in sources}
    for name in dict.fromkeys((*(ANSWERED[1:] if known else ()), *sorted(asked))):
        logits, found[name], _ = _passed(model, pairs.batch(name).inputs, place, query)
        # Whether the model answers a problem that shares nothing does not matter.
        right[name] = (task.right(pairs, logits, name) if known and name != "unrelated"
                       else torch.ones_like(kept))
        if name in ANSWERED:
            kept = kept & right[name]
    rows = kept.nonzero()[:, 0]
    check(len(rows) >= 2, f"of {n} instances of {split}, the model gives the four different "
          f"answers in {len(rows)}; expected at least two. Is it trained, and n large "
          "enough?", ProbeError)
    return Held(pairs[rows], clean[rows], stream[rows], query[rows], own[rows],
                {name: found[PATCHES[name].source][rows] for name in sources},
                {name: right[PATCHES[name].source][rows] for name in sources})


def _passed(
    model: HookedTransformer, inputs: Tensor, place: Place, query: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits, the activation at a place and the stream that enters its layer."""
    below = ("residual", place[1])
    parts = []
    for x, at in zip(inputs.split(BATCH), query.split(BATCH), strict=True):
        logits, found = capture(model, x, {place, below})
        parts.append((logits, _of_response(place, found[place], at), found[below]))
    logits, own, stream = (torch.cat(part) for part in zip(*parts, strict=True))
    return logits, own, stream


def _of_response(place: Place, activation: Tensor, query: Tensor) -> Float[Tensor, "B d"]:
    """Return the vector of the response's token: [B, H, Q, K] -> [B, H K], [B, T, D] -> [B, D]."""
    rows = torch.arange(len(query), device=query.device)
    vectors = activation[rows, :, query] if place[0] == "code" else activation[rows, query]
    return vectors.flatten(1)


def logits_from(
    model: HookedTransformer, place: Place, held: Held, rows: Int[Tensor, "B"],
    written: Float[Tensor, "B d"],
) -> Float[Tensor, "B T V"]:
    """Return the logits of some pairs' bases where their activation at the place is `written`.

    Those of tokens before the responses are not computed again, and are zero.
    """
    site, layer = place
    config, stream, query = model.config, held.stream[rows], held.query[rows]
    n_tokens = stream.shape[1]
    here = torch.arange(n_tokens, device=query.device) == query[:, None]  # [B, T]
    # The last block is asked for the responses alone; causal masks count from the first token.
    first = 0 if config.causal else int(held.query.min())
    hooks: list[tuple[str | Callable[..., Any], Callable[..., Any]]] = []
    if site == "residual":
        stream = torch.where(here[..., None], written[:, None], stream)
    else:
        def put(code: Tensor, hook: object) -> Tensor:
            row = written.view(len(code), config.n_heads, 1, n_tokens)
            return torch.where(here[:, None, -code.shape[2]:, None], row, code)

        hooks = [(SITES["code"].hook.format(layer), put)]
    with written_out(), model.hooks(fwd_hooks=hooks):
        for index in range(layer, config.n_layers):
            last = index == config.n_layers - 1
            stream = model.layer(index)(stream, read=n_tokens - first if last else None)
        logits = model.read_out(stream)
    return torch.nn.functional.pad(logits, (0, 0, first, 0))
