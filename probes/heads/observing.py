"""The metrics of all heads of a model over texts: one forward pass of each batch.

Nothing is kept of a pass but sums over the queries of each text, and of these sums over groups of
texts, which the bootstrap resamples: memory does not grow with the number of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import check, is_out_of_memory
from latentcode.models.gates import gates
from latentcode.models.pretrained import layout
from latentcode.models.read_out import look
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.heads.batches import GROUPS, TextBatch
from latentcode.probes.heads.direct import DIRECT, DirectLogits
from latentcode.probes.heads.metrics import METRICS, Matching, as_shares, looks_ahead
from latentcode.probes.heads.scores import Scores
from latentcode.probes.heads.texts import Texts
from latentcode.progress import Progress

OBSERVED = (*METRICS, DIRECT)
"""The metrics in the order of the last axis."""


class Observer:
    """A model whose heads are looked at.

    layout      where its patterns are; layers [L] here are those with attention
    direct      what heads write to the logits
    normalized  whether codes are shares of attention as they are (a softmax over keys)

    `ConfigError` for a model without patterns, and for one whose queries see later keys.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.layout = model, layout(model)
        check(self.layout.causal, "queries of the model see later keys; expected a causal language "
              "model, whose metrics of heads are known")
        ours = isinstance(model, HookedTransformer)
        self.normalized = (model.config.normalization == "softmax" if ours
                           else self.layout.normalized)
        self.direct = DirectLogits(model)

    def notes(self) -> list[str]:
        """Say what a reader of its numbers must know."""
        others, gated = self.layout.others, sorted(gates(self.model))
        kinds = ", ".join(dict.fromkeys(others.values()))
        return [
            *self.direct.notes(),
            *([f"Layers {_said(others)} have no attention ({kinds}), and no heads here."]
              if others else []),
            *([f"Attention of layers {_said(gated)} has a gate; patterns are those before it."]
              if gated else []),
            *([] if self.normalized else [
                "Codes of a query do not sum to 1: metrics are of |a_qk| / sum_k |a_qk|."])]

    def observe(
        self, batch: TextBatch, also: Iterable[tuple[str, Callable[..., None]]] = ()
    ) -> tuple[Float[Tensor, "B L H M"], Float[Tensor, "B M"]]:
        """Return sums over queries and over read positions, and how many of them there are.

        also  hooks of others that look at the same pass

        M, the metrics: `OBSERVED`. `ConfigError` for codes that are not finite or look ahead.
        """
        matching, direct = Matching.of(batch), self.direct.of(batch)
        layers = self.layout.layers
        found: dict[int, Tensor] = {}
        ahead: dict[int, Tensor] = {}

        def see(layer: int) -> Callable[..., None]:
            def add(pattern: Tensor, hook: object) -> None:
                ahead[layer] = looks_ahead(pattern)
                found[layer] = matching.sums(pattern if self.normalized else as_shares(pattern))
            return add

        look(self.model, batch.tokens, [
            *((name, see(layer)) for layer, name in self.layout.pattern_hooks.items()),
            *direct.hooks(), *also], batch.padding)
        of_patterns = torch.stack([found[layer] for layer in layers], dim=1)
        fault = torch.stack([ahead[layer] for layer in layers]).tolist()
        finite = of_patterns.isfinite().all(-1).all(-1).all(0).tolist()
        broken = [str(layer) for layer, fine in zip(layers, finite, strict=True) if not fine]
        check(not broken, f"layer {', '.join(broken)} gives codes that are NaN or infinite; "
              "expected finite weights, and a type in which codes do not overflow")
        at_fault = [str(layer) for layer, seen in zip(layers, fault, strict=True) if seen != 0]
        check(not at_fault, f"layer {', '.join(at_fault)} lets tokens attend to later ones"
              f"{' in a padded batch' if batch.padding else ''}; expected a model in which "
              "latentcode zoo check finds no such fault"
              f"{', or tokens_at_once=1' if batch.padding else ''}")
        read = batch.read.sum(1).to(matching.n.dtype)
        return (torch.cat([of_patterns, direct.sums()[..., None]], dim=-1),
                torch.cat([matching.n, read[:, None]], dim=-1))


def _said(layers: Iterable[int]) -> str:
    return ", ".join(map(str, layers))


@dataclass
class Sums:
    """Sums of metrics over groups of texts.

    sums     float64 [G, L, H, M]
    n        float64 [G, M], queries or read positions in them
    n_texts  texts that they are of
    """

    sums: np.ndarray
    n: np.ndarray
    n_texts: int = 0

    @classmethod
    def none(cls, *shape: int) -> Sums:
        """Return sums of nothing, of L layers, H heads and M metrics."""
        return cls(np.zeros((GROUPS, *shape)), np.zeros((GROUPS, shape[-1])))

    def add(self, batch: TextBatch, sums: Tensor, n: Tensor) -> None:
        """Add what was observed of a batch."""
        np.add.at(self.sums, batch.group, sums.double().cpu().numpy())
        np.add.at(self.n, batch.group, n.double().cpu().numpy())
        self.n_texts += len(batch)

    def scores(self, metric: int, n_bootstrap: int, seed: int) -> Scores:
        """Return a metric of all heads, [L, H]; NaN where there is no query for it."""
        there = self.n.any(axis=1)  # groups that hold texts
        n = self.n[there, metric]
        return Scores.of(self.sums[there, ..., metric], n[:, None, None], int(n.sum()),
                         n_bootstrap, seed)


def observe_texts(
    observer: Observer, texts: Texts, sums: Sums, progress: Progress | None = None
) -> None:
    """Add all texts to sums, which after an interruption are of the texts so far.

    `ProbeError` for a batch that memory does not suffice for, where that is known beforehand.
    """
    for block in texts.blocks():
        for batch in block.batches:
            texts.check_memory(batch)
            try:
                sums.add(batch, *observer.observe(batch))
            except (RuntimeError, MemoryError) as error:
                if is_out_of_memory(error):
                    raise texts.too_large(batch) from error
                raise
        if progress is not None:
            progress(min(block.after, texts.total), texts.total)
    if progress is not None:
        progress(texts.total, texts.total)


__all__ = ["OBSERVED", "Observer", "Sums", "observe_texts"]
