"""The metrics of all heads of a model over texts: one forward pass of each batch.

Nothing is kept of a pass but sums over the queries of each text, and of these sums over groups of
texts, which the bootstrap resamples: memory does not grow with the number of texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from latentcode.errors import check, is_out_of_memory
from latentcode.models.gates import gates
from latentcode.models.pretrained import layout
from latentcode.models.read_out import look
from latentcode.models.transformer import HookedTransformer
from latentcode.probes.common.contrasts import Contrasts, table_of
from latentcode.probes.heads.batches import TextBatch
from latentcode.probes.heads.direct import DIRECT, DirectLogits
from latentcode.probes.heads.metrics import METRICS, Matching, as_shares, looks_ahead
from latentcode.probes.heads.scores import Scores
from latentcode.probes.heads.tables import COLUMNS, CONTRASTS, GROUPS
from latentcode.probes.heads.texts import Texts
from latentcode.progress import Progress

OBSERVED = (*METRICS, DIRECT)
"""The metrics in the order of the last axis."""
SHARE = 0.95
"""How likely another fresh head lies within the interval of the control."""


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

    @property
    def n_groups(self) -> int:
        """How many groups of texts there are to resample."""
        return int(self.n.any(axis=1).sum())

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


def heads_table(
    layers: Sequence[int], of: Sums, fresh: Sequence[Sums], *, n_bootstrap: int, seed: int
) -> tuple[pd.DataFrame, Contrasts]:
    """Return the metrics of all heads, and how far each is from the mean of fresh heads.

    layers  what the axis L of sums stands for
    of      the sums of the model
    fresh   those of the same architecture with fresh weights on the same texts; may be none

    Intervals resample groups of texts, of a difference the same for both. `control` is the mean
    over all n heads of the fresh models, `control_low` and `control_high` are those of rank
    0.025 (n + 1) and 0.975 (n + 1) among them, between ranks by interpolation: between these lies
    another head that learned nothing with 95 %, where heads are independent. Of fewer than 39
    heads they are the least and the largest, and it lies between them with (n - 1) / (n + 1).
    """
    rows: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for metric, name in enumerate(OBSERVED):
        scores, *others = (one.scores(metric, n_bootstrap, seed) for one in (of, *fresh))
        heads = np.concatenate([np.empty(0), *(one.value.ravel() for one in others)])
        heads = heads[np.isfinite(heads)]
        control: dict[str, Any] = dict.fromkeys(
            ("control", "control_low", "control_high"), np.nan)
        if len(heads):
            ends = np.quantile(heads, [(1.0 - SHARE) / 2.0, (1.0 + SHARE) / 2.0],
                               method="weibull")
            control = {"control": heads.mean(), "control_low": ends[0], "control_high": ends[1]}
            mean = np.mean([_mean_over_heads(one.replicates) for one in others], axis=0)
            apart = replace(scores, value=scores.value - control["control"],
                            replicates=scores.replicates - mean[:, None, None])
        for at in np.ndindex(scores.value.shape):
            place = {"layer": layers[at[0]], "head": at[1]}
            rows.append({**place, "metric": name, **scores.row(at), **control, "n": scores.n})
            if len(heads):
                differences.append({**place, "features": "head", "quantity": name,
                                    "against": "untrained", **apart.row(at), **apart.size})
    return pd.DataFrame(rows, columns=list(COLUMNS)), table_of(differences, CONTRASTS)


def _mean_over_heads(replicates: np.ndarray) -> np.ndarray:
    """Return the mean over the heads that have the metric, [R]."""
    flat = replicates.reshape(len(replicates), -1)
    there = np.isfinite(flat).any(axis=0)
    return np.asarray(flat[:, there].mean(axis=1) if there.any() else np.full(len(flat), np.nan))
