"""One pass over texts: metrics of every head, and which texts it is shown with.

A text counts for a head by its maximum, max a_qk over q, k >= 1. The intervals of a head have
equally many texts each, as the quantiles of a sample of the texts say; of the highest one the texts
with the largest maxima are shown, of the others some that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.errors import ProbeError, check, check_count
from latentcode.models.pretrained import Layout
from latentcode.models.read_out import look
from latentcode.probes.heads.batches import TextBatch
from latentcode.probes.heads.headvis.tree import INDUCTION_LEAST, MAXIMA_BINS
from latentcode.prompts import LanguageModel

DRAWN = 2_000
"""Texts that are drawn at most, of which the quantiles are taken."""
PURPOSE = 0x74657874
SUMS = ("self", "previous", "entropy", "distance", "squared", "induction")


@dataclass(frozen=True)
class Shown:
    """What is shown of every head.

    n_intervals  of maxima; the last is the highest
    per_interval, at_top  texts of each interval, and of the highest
    per_row      largest entries that are kept of the attention of a query
    least        attention below it is left out
    seed         of the texts that are drawn
    """

    n_intervals: int = 10
    per_interval: int = 3
    at_top: int = 10
    per_row: int = 8
    least: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("n_intervals", "per_interval", "at_top", "per_row"):
            check_count(name, getattr(self, name), 2 if name == "per_row" else 1)
        check(0.0 <= self.least < 1.0, f"least is {self.least}; expected 0 to 1, without 1")


class Scan:
    """Takes batches; keeps sums, maxima of at most `DRAWN` texts, and of each head the largest.

    Memory does not grow with the number of texts: what is kept are the tokens of those that may be
    shown, at most `DRAWN` + heads x at_top of them. Each row of a batch is shown by itself; those
    of a single token are passed over.
    """

    def __init__(
        self, asked: LanguageModel, shown: Layout, layers: Sequence[int], settings: Shown
    ) -> None:
        self.asked, self.model, self.layout = asked, asked.model, shown
        self.layers, self.settings = tuple(layers), settings
        size = (len(self.layers), shown.n_heads)
        self.sums = {name: np.zeros(size) for name in SUMS}
        self.n = {"queries": 0, "with_previous": 0, "repeated": 0}
        self.histogram = np.zeros((*size, MAXIMA_BINS), np.int64)
        self.sum_of_maxima = np.zeros(size)
        self.n_rows = self.n_texts = self.longest = 0
        self.tokens: dict[int, np.ndarray] = {}
        self._drawn = np.empty((0, *size), np.float32)
        self._drawn_texts = np.empty(0, np.int64)
        self._priority = np.empty(0)
        self._top = np.empty((*size, 0), np.float32)
        self._top_texts = np.empty((*size, 0), np.int64)

    def add(self, batch: TextBatch) -> None:
        """Read a batch, in one pass."""
        self.n_rows += len(batch)
        long = batch.lengths >= 2
        if not bool(long.any()):
            return
        where = _Where(batch, long, next(self.model.parameters()).device)
        maxima = np.zeros((len(batch), len(self.layers), self.layout.n_heads), np.float32)
        look(self.model, where.tokens, (
            (self.layout.pattern_hooks[layer], self._measure(i, where, maxima))
            for i, layer in enumerate(self.layers)), where.padding)
        kept = long.cpu().numpy()
        texts, maxima = batch.rows.cpu().numpy()[kept], maxima[kept]
        for name, number in where.counts.items():
            self.n[name] += number
        place = np.minimum((maxima * MAXIMA_BINS).astype(np.int64), MAXIMA_BINS - 1)
        layer, head = np.indices(place.shape[1:])
        for one in place:
            self.histogram[layer, head, one] += 1
        self.sum_of_maxima += maxima.sum(axis=0, dtype=np.float64)
        self.n_texts += len(texts)
        lengths = batch.lengths.cpu().numpy()[kept]
        self.longest = max(self.longest, int(lengths.max()))
        self._choose(texts, maxima)
        for text, ids, length in zip(texts.tolist(), batch.tokens[long].cpu().numpy(), lengths,
                                     strict=True):
            self.tokens[text] = ids[:length].astype(np.int32)
        wanted = {*self._drawn_texts.tolist(), *np.unique(self._top_texts).tolist()}
        self.tokens = {text: ids for text, ids in self.tokens.items() if text in wanted}

    def metrics(self) -> dict[str, np.ndarray]:
        """Return the six metrics of `METRICS`, [L, H]; NaN where nothing was there to measure."""
        queries, previous, repeated = (self.n[name] or np.nan for name in (
            "queries", "with_previous", "repeated"))
        distance = self.sums["distance"] / queries
        return {
            "self_attention_score": self.sums["self"] / queries,
            "prev_token_score": self.sums["previous"] / previous,
            "pattern_entropy": self.sums["entropy"] / queries,
            "qk_distance": distance,
            "qk_distance_variance": self.sums["squared"] / queries - distance**2,
            "induction_score": self.sums["induction"] / repeated}

    def chosen(self, layer: int, head: int) -> list[tuple[int, int]]:
        """Return (interval, text) of the texts that a head is shown with; `layer` is an index.

        The highest interval comes first, with the largest maxima first; `ProbeError` without texts.
        """
        check(self.n_texts > 0, f"there are {self.n_rows:,} texts, none of two tokens; expected "
              "some", ProbeError)
        n, drawn = self.settings.n_intervals, self._drawn[:, layer, head]
        edges = np.quantile(drawn, np.arange(1, n) / n)
        top = self._top_texts[layer, head][
            np.searchsorted(edges, self._top[layer, head], side="right") == n - 1]
        found = [(n, int(text)) for text in top[:self.settings.at_top]]
        interval = np.searchsorted(edges, drawn, side="right")
        order = np.argsort(self._priority, kind="stable")
        for i in range(n - 2, -1, -1):
            some = order[interval[order] == i][:self.settings.per_interval]
            found += [(i + 1, int(text)) for text in self._drawn_texts[some]]
        return found

    def _measure(self, place: int, where: _Where, maxima: np.ndarray) -> Callable[..., None]:
        def store(pattern: Tensor, hook: object) -> None:
            a = torch.where(where.inside[:, None], pattern.float(), 0.0)
            low, high = float(a.min()), float(a.max())
            check(low >= 0.0 and high <= 1.01, f"layer {self.layers[place]} of model "
                  f"{self.asked.settings.get('run')!r} computes codes from {low:.3g} to "
                  f"{high:.3g}; HeadVis shows attention, from 0 to 1, and knows no other codes")
            for name, value in where.sums(a).items():
                self.sums[name][place] += value.double().cpu().numpy()
            maxima[:, place] = a[:, :, 1:, 1:].amax(dim=(-2, -1)).cpu().numpy()
        return store

    def _choose(self, texts: np.ndarray, maxima: np.ndarray) -> None:
        """Draw among the texts, and keep those with the largest maxima; of equal ones the first."""
        priority = np.array([np.random.default_rng([self.settings.seed, PURPOSE, text]).random()
                             for text in texts.tolist()])
        self._priority = np.concatenate([self._priority, priority])
        lowest = np.argsort(self._priority, kind="stable")[:DRAWN]
        self._priority = self._priority[lowest]
        self._drawn = np.concatenate([self._drawn, maxima])[lowest]
        self._drawn_texts = np.concatenate([self._drawn_texts, texts])[lowest]
        values = np.concatenate([self._top, maxima.transpose(1, 2, 0)], axis=-1)
        numbers = np.concatenate(
            [self._top_texts, np.broadcast_to(texts, (*values.shape[:2], len(texts)))], axis=-1)
        largest = np.argsort(-values, axis=-1, kind="stable")[..., :self.settings.at_top]
        self._top = np.take_along_axis(values, largest, axis=-1)
        self._top_texts = np.take_along_axis(numbers, largest, axis=-1)


class _Where:
    """Which entries of the patterns of a batch count, and what is summed of them."""

    def __init__(self, batch: TextBatch, long: Tensor, device: torch.device) -> None:
        self.tokens = tokens = batch.tokens.to(device)
        self.padding: dict[str, Any] = {name: x.to(device) for name, x in batch.padding.items()}
        at = torch.arange(tokens.shape[1], device=device)
        lengths = torch.where(long, batch.lengths, 0).to(device)
        real = at < lengths[:, None]
        self.inside = real[:, :, None] & real[:, None, :]
        self.distance = (at[:, None] - at).abs().float()
        before = torch.roll(tokens, 1, dims=1)  # the token before each key
        self.repeated = ((tokens[:, :, None] == before[:, None, :]) & self.inside
                         & (at >= 1) & (at <= at[:, None]))
        self.counts = {
            "queries": int(lengths.sum()), "with_previous": int((lengths - 1).clamp(min=0).sum()),
            "repeated": int(self.repeated.any(dim=-1).sum())}

    def sums(self, a: Tensor) -> dict[str, Tensor]:
        """Return sums [H] over queries and keys of attention [B, H, Q, K], 0 outside the texts."""
        by_distance = a.sum(dim=0)
        later = torch.where(a >= INDUCTION_LEAST, a, 0.0)
        return {
            "self": a.diagonal(dim1=-2, dim2=-1).sum(dim=(0, 2)),
            "previous": a.diagonal(offset=-1, dim1=-2, dim2=-1).sum(dim=(0, 2)),
            "entropy": torch.special.entr(a).sum(dim=(0, 2, 3)),
            "distance": (by_distance * self.distance).sum(dim=(1, 2)),
            "squared": (by_distance * self.distance.square()).sum(dim=(1, 2)),
            "induction": (later * self.repeated[:, None]).sum(dim=(0, 2, 3))}


__all__ = ["DRAWN", "Scan", "Shown"]
