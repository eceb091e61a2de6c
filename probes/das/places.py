"""What is computed of a model from one activation of the response's token on.

A place is a site and a layer: `code`, the row of the response (H codes for each of K keys), `z`,
what the H heads put out for it before W_O, or `residual`, the stream of the response's token that
enters the layer. What lies below a place is computed once, and only what follows from it again for
every patch (`latentcode.models.patched.passes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.errors import ProbeError, check, check_choice
from latentcode.models.kernels.fused import written_out
from latentcode.models.layers import attention_layers, check_layer
from latentcode.models.patched.passes import (
    Output,
    clean_pass,
    computed_by_layers,
    run_from,
    unshared,
)
from latentcode.models.patched.sites import Place, check_written
from latentcode.probes.interventions.intervention import CORE
from latentcode.probes.interventions.patches import PATCHES
from latentcode.tasks.counterfactuals import Counterfactuals, MinimalPairs

DAS_SITES = ("code", "z", "residual")
BATCH = 250
"""Instances that are passed through the model at once."""
ANSWERED = ("bases", "sources", *CORE)
"""Problems that the model has to answer rightly for a pair to count."""


@dataclass(frozen=True)
class Held:
    """N pairs that count, and what a model computes of them below a place.

    clean   [N, T, V], the logits of the bases
    entering  what enters the layer in the bases; None where passes share nothing
    query   int64 [N], the position of the response, where is written
    token   int64 [N], where the answer is read (`Counterfactuals.answer_token`)
    own     [N, d], the activation of the bases at the place
    sources  patch -> [N, d], that of the sources
    right    patch -> bool [N], whether the model answers the source rightly
    number   int64 [N], which of the pairs that were drawn each is
    """

    pairs: MinimalPairs
    clean: Tensor
    entering: Output | None
    query: Tensor
    token: Tensor
    own: Tensor
    sources: Mapping[str, Tensor]
    right: Mapping[str, Tensor]
    number: Tensor

    def __len__(self) -> int:
        return len(self.query)


def checked_place(model: Any, site: str, layer: int | None) -> Place:
    """Return the place, by default in the last layer; an error names what is none, or no model."""
    check(hasattr(model, "cfg") and hasattr(model, "run_with_hooks"), f"model is a "
          f"{type(model).__name__}; expected one with hooks: a latentcode.HookedTransformer, or a "
          "TransformerBridge as lc.load_pretrained returns", ProbeError)
    check_choice("site", site, DAS_SITES)
    last = model.cfg.n_layers - 1 if site == "residual" else attention_layers(model)[-1]
    layer = last if layer is None else layer
    check_layer(model, layer, attention=site != "residual")
    return site, layer


def hold(
    model: Any,
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
    if not computed_by_layers(model):
        check_written(model, pairs.bases.inputs[:2], [place])
    clean, own, entering = _passed(model, pairs.bases.inputs, place, query,
                                   shared=not unshared(model))
    kept = task.right(pairs, clean, "bases") if known else torch.ones_like(pairs.counts)
    found: dict[str, Tensor] = {}
    right: dict[str, Tensor] = {}
    asked = {PATCHES[name].source for name in sources}
    for name in dict.fromkeys((*(ANSWERED[1:] if known else ()), *sorted(asked))):
        logits, found[name], _ = _passed(model, pairs.batch(name).inputs, place, query,
                                         shared=computed_by_layers(model))
        # Whether the model answers a problem that shares nothing does not matter.
        right[name] = (task.right(pairs, logits, name) if known and name != "unrelated"
                       else torch.ones_like(kept))
        if name in ANSWERED:
            kept = kept & right[name]
    rows = kept.nonzero()[:, 0]
    check(len(rows) >= 2, f"of {n} instances of {split}, the model gives the four different "
          f"answers in {len(rows)}; expected at least two. Is it trained, and n large "
          f"enough?{task.doubt}", ProbeError)
    return Held(pairs[rows], clean[rows], None if entering is None else entering[rows], query[rows],
                task.answer_token(pairs)[rows], own[rows],
                {name: found[PATCHES[name].source][rows] for name in sources},
                {name: right[PATCHES[name].source][rows] for name in sources}, rows)


def _passed(
    model: Any, inputs: Tensor, place: Place, query: Tensor, *, shared: bool
) -> tuple[Tensor, Tensor, Output | None]:
    """Return the logits, the activation at a place and what enters its layer, where that is shared.
    """
    logits, own, below = [], [], []
    for x, at in zip(inputs.split(BATCH), query.split(BATCH), strict=True):
        with written_out():
            clean = clean_pass(model, x, [place], shown=True, shared=shared)
        logits.append(clean.logits)
        own.append(_of_response(place, clean.at(place), at))
        below.append(clean.layers[place[1]].entering)
    streams = [kept.first for kept in below if kept is not None]
    entering = below[0]
    return torch.cat(logits), torch.cat(own), None if entering is None else replace(
        entering, first=torch.cat(streams))


def _of_response(place: Place, activation: Tensor, query: Tensor) -> Float[Tensor, "B d"]:
    """Return the vector of the response's token: [B, H, Q, K] -> [B, H K], [B, T, H, d] ->
    [B, H d], [B, T, D] -> [B, D]."""
    rows = torch.arange(len(query), device=query.device)
    vectors = activation[rows, :, query] if place[0] == "code" else activation[rows, query]
    # A subspace of few bits would hardly be orthonormal.
    return vectors.flatten(1).to(torch.promote_types(vectors.dtype, torch.float32))


def first_computed(model: Any, held: Held) -> int:
    """Return the first token whose logits `logits_from` computes."""
    return int(held.query.min()) if computed_by_layers(model) else 0


def logits_from(
    model: Any, place: Place, held: Held, rows: Int[Tensor, "B"], written: Float[Tensor, "B d"],
) -> Float[Tensor, "B t V"]:
    """Return the logits of some pairs' bases where their activation at the place is `written`.

    Those of tokens before the first that is computed (`first_computed`) are zero.
    """
    query = held.query[rows]
    n_tokens = held.pairs.bases.inputs.shape[1]
    here = torch.arange(n_tokens, device=query.device) == query[:, None]  # [B, T]

    def put(activation: Tensor) -> Tensor:
        new = written.to(activation.dtype)
        if place[0] != "code":
            own = activation.shape[2:]
            return torch.where(here.view(*here.shape, *[1] * len(own)),
                               new.view(len(new), 1, *own), activation)
        row = new.view(*activation.shape[:2], 1, n_tokens)
        return torch.where(here[:, None, -activation.shape[2]:, None], row, activation)

    first = first_computed(model, held)
    with written_out():  # fits and scores alike: the kernels for codes have no gradients
        logits = run_from(model, place[1], None if held.entering is None else held.entering[rows],
                          {place: put}, n_tokens - first, inputs=held.pairs.bases.inputs[rows],
                          cut=True)
    return torch.nn.functional.pad(logits, (0, 0, first, 0))
