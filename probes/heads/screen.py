"""Which heads of a model of many are ablated: those that an estimate ranks first, and random ones.

    estimate_h = sum_t (m_h - z_ht) . dL/dz_ht

in nats a token that is read, for all heads from one pass forward and one backward: attribution
patching of mean ablation (Nanda 2023; Syed et al., arXiv 2310.10348), `sets.attributed` with one
step. It is linear, and misses heads whose effect saturates or that others cover for. So two lists
are ablated exactly: the `n_exact` heads with the largest |estimate|, and as many that are drawn at
random among all. The second says what the first is worth: Spearman's correlation of |estimate| and
|effect| over the random heads (an interval from resampled heads), and those of them that are not in
the first list and do more than the head of that list that does least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.devices import make_generator
from latentcode.errors import ConfigError, UnknownNameError, as_tuple, check
from latentcode.models.hooks import attention_layers, check_layer
from latentcode.models.patched.heads import HEAD
from latentcode.probes.common.results import where
from latentcode.probes.common.statistics import Resampled
from latentcode.probes.heads.ablate import effects_table, mean_z
from latentcode.probes.heads.metrics import Scores
from latentcode.probes.heads.sets import QUANTITY, Head, attributed_sums
from latentcode.progress import Progress
from latentcode.prompts import LanguageModel
from latentcode.prompts.texts import TextBatch

ESTIMATE = "attribution"
"""The estimate, as a patch of the table of effects."""


def parse_heads(
    model: Any, heads: Sequence[str] | str | None, layers: Sequence[int] | int | None
) -> list[Head] | None:
    """Return the heads that are named, and all heads of some layers; None where nothing is.

    `ConfigError` for what is no name such as L18H6 or 18.6, for names given twice, and a layer
    without attention; `UnknownNameError` for a layer or a head that the model does not have.
    """
    if heads is None and layers is None:
        return None
    every = range(int(model.cfg.n_heads))
    named = [(layer, head) for layer in as_tuple(() if layers is None else layers)
             for head in every]
    for name in as_tuple(() if heads is None else heads):
        # As a number, 18.10 would be 18.1.
        match = HEAD.fullmatch(name) if isinstance(name, str) else None
        if match is None or match[2] is None:
            raise ConfigError(f"heads has {name!r}; expected a layer and a head, such as L18H6 or "
                              "18.6")
        named.append((int(match[1]), int(match[2])))
    for layer, head in named:
        check_layer(model, layer)
        if head not in every:
            raise UnknownNameError("head", head, every, f" in layer {layer}")
    check(len(named) > 0, "heads and layers name no head; expected names such as L18H6, or None "
          "for all", ConfigError)
    check(len(set(named)) == len(named), "heads or layers has a head twice; expected each once")
    return sorted(named)


def label(head: Head) -> str:
    """Return the name of a head, such as L18H6."""
    return f"L{head[0]}H{head[1]}"


@dataclass(frozen=True)
class Screen:
    """The estimates of all heads, and which are ablated.

    Attributes:
        estimates: Table of effects (`EFFECTS`) of the patch `attribution`.
        means: Mean z of each layer with attention.
        ranked: The heads that the estimate ranks first, the largest |estimate| first.
        random: As many, drawn at random among all heads.
    """

    estimates: pd.DataFrame
    means: dict[int, Tensor]
    ranked: list[Head]
    random: list[Head]

    @property
    def heads(self) -> list[Head]:
        """Both lists together."""
        return sorted({*self.ranked, *self.random})

    def settings(self, effects: pd.DataFrame, n_bootstrap: int, seed: int) -> dict[str, Any]:
        """Return both lists, and how well the estimate ranks the random heads.

        `effects` are those of exact ablation. `missed` are random heads outside the ranked list
        that do more than the one of it that does least, `last`.
        """
        size = pd.DataFrame({name: where(table, quantity=QUANTITY).set_index(["layer", "head"])[
            "value"].abs() for name, table in (("estimate", self.estimates), ("effect", effects))})
        random, effect = size.loc[self.random], size["effect"]
        draws = np.random.default_rng(seed).integers(len(random), size=(n_bootstrap, len(random)))
        correlation = Resampled(_spearman(random), np.array(
            [_spearman(random.iloc[draw]) for draw in draws]), len(random), len(random))
        numbers = zip(("correlation", "low", "high"), map(float, (
            correlation.value, *correlation.interval())), strict=True)
        last = min(self.ranked, key=effect.__getitem__)
        outside = effect.loc[[head for head in self.random if head not in self.ranked]]
        missed = outside[outside > effect[last]].sort_values(ascending=False)
        return {"n_heads": len(size), "ranked": list(map(label, self.ranked)),
                "random": list(map(label, self.random)), "last": label(last),
                "n_outside": len(outside), "missed": list(map(label, missed.index)),
                **{name: x if np.isfinite(x) else None for name, x in numbers}}


def _spearman(size: pd.DataFrame) -> float:
    return float(size.rank().corr().to_numpy()[0, 1])


def screen(
    model: LanguageModel, batches: Sequence[TextBatch], *, n_exact: int, zero: bool = False,
    n_read: int | None = 64, n_bootstrap: int = 1_000, seed: int = 0,
    progress: Progress | None = None,
) -> Screen:
    """Return the estimates of all heads on some texts, and the heads to ablate.

    zero  whether zero ablation is estimated, not mean ablation
    """
    layers = attention_layers(model.model)
    means = mean_z(model, batches)
    towards = {layer: torch.zeros_like(z) for layer, z in means.items()} if zero else means
    sums, counts = attributed_sums(
        model, batches, towards, steps=1, n_read=n_read, seed=seed, progress=progress)
    filled = np.flatnonzero(counts)
    by_head = sums[0][filled][:, list(layers)].reshape(len(filled), -1, 1)
    heads = [(layer, head) for layer in layers for head in range(sums.shape[-1])]
    scores = Scores.of(by_head, counts[filled, None, None], int(counts.sum()), n_bootstrap, seed)
    order = np.argsort(-np.abs(scores.value[:, 0]), kind="stable")
    drawn = torch.randperm(
        len(heads), generator=make_generator(seed, "heads to ablate"))[:n_exact].tolist()
    return Screen(effects_table(ESTIMATE, heads, (QUANTITY,), scores, None, ""), means,
                  [heads[i] for i in order[:n_exact]], [heads[i] for i in drawn])
