"""What the pages show of a model on texts: one pass of each text, from which all of it is taken.

    codes     of at most n pairs of a query and a key, those that `lc.heads(codes=n)` samples
    metrics   of all heads, summed up as `lc.heads` does
    maxima    max a_qk over q, k >= 1 of every text and head, and where: what texts of a head are
              sorted by

At any time the pairs are those of the texts that were read so far: the first picture need not wait
for the last text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.app.language.given import PAIRS
from latentcode.codes import LatentCodes
from latentcode.codes.reader import Hooks
from latentcode.errors import check
from latentcode.probes.heads.codes import PairSampler, attended_key
from latentcode.probes.heads.metrics import Observer, Sums, as_shares
from latentcode.prompts.texts import TextBatch, Texts

BATCH = 256
"""Tokens of a batch: so few that a prompt that was typed meanwhile does not wait for long."""
ROW_BYTES = 2**26
"""Bytes of the rows of codes of a batch that are kept until their keys are drawn."""


@dataclass(frozen=True)
class Read:
    """What was read of a model on texts so far.

    codes    N pairs `query->key` with labels, as `sample_codes` returns them
    rows     int64 [N], the text of each
    tokens   of every text, int32
    sums     of metrics
    notes    what must be known of them
    maxima   float32 [texts, L, H], the largest attention; `query` and `key` say where, int16
    whole    whether all texts were read, `n_asked` of them
    """

    codes: LatentCodes
    rows: np.ndarray
    tokens: tuple[np.ndarray, ...]
    sums: Sums
    notes: tuple[str, ...]
    maxima: np.ndarray
    query: np.ndarray
    key: np.ndarray
    whole: bool

    @property
    def stamp(self) -> tuple[int, bool]:
        """What tells it from what was read of the same model before, and after."""
        return self.n_texts, self.whole

    @property
    def n_texts(self) -> int:
        return len(self.tokens)

    @property
    def n_pairs(self) -> int:
        """How many pairs of a query, not the first token, and a key up to it there are."""
        return sum(len(ids) * (len(ids) + 1) // 2 - 1 for ids in self.tokens)

    @property
    def layers(self) -> tuple[int, ...]:
        return self.codes.layers

    @property
    def n_heads(self) -> int:
        return self.codes.n_heads


class OnePass(PairSampler):
    """`PairSampler` in the pass of another: rows of the queries that are drawn are kept until their
    keys are.

    Memory: a row of codes of every query of a batch, [m, L, H, T].
    """

    def looking(self, batch: TextBatch) -> Hooks:
        """Draw queries of a batch, and return the hooks that keep their rows."""
        self._batch, self._drawn = batch, self._draw(batch)
        row, query = (torch.tensor(self._drawn[name].to_numpy(), device=self._device)
                      for name in ("row", "query"))
        self._kept = torch.zeros(len(row), len(self.layers), self.layout.n_heads,
                                 batch.tokens.shape[1])

        def keep(place: int) -> Callable[..., None]:
            def store(pattern: Tensor, hook: object) -> None:
                self._kept[:, place] = pattern[row, :, query].float().cpu()
            return store

        return [(self.layout.pattern_hooks[layer], keep(i)) for i, layer in enumerate(self.layers)]

    def looked(self) -> None:
        """Draw the keys, and keep the codes: what `add` does, after the pass."""
        row, query, uniform, attended = (self._drawn[name].to_numpy() for name in (
            "row", "query", "uniform", "attended"))
        key = np.minimum((uniform * (query + 1)).astype(np.int64), query)
        given = self._kept.abs().sum(2).sum(1).double().numpy()
        for i in np.flatnonzero(attended):
            key[i] = attended_key(given[i, 1:query[i] + 1], uniform[i])
        codes = self._kept[torch.arange(len(row)), :, :, torch.from_numpy(key)].numpy()
        self._keep(self._batch, self._drawn.assign(key=key), codes)


class Reading:
    """Takes a model and texts, batch by batch; what was read so far is there at any time."""

    def __init__(self, texts: Texts, n_pairs: int = PAIRS) -> None:
        self.texts = texts
        self.observer = Observer(texts.model.model)
        self.layout = self.observer.layout
        self.notes = tuple(self.observer.notes())
        self.sums = Sums.zeros(len(self.layout.layers), self.layout.n_heads)
        self._tokens: dict[int, np.ndarray] = {}
        self._maxima: dict[int, np.ndarray] = {}
        self._where: dict[int, np.ndarray] = {}
        self.pairs = OnePass(texts.model, n=n_pairs)

    @property
    def n_pairs(self) -> int:
        """How many pairs are there at least."""
        return sum(map(len, self._tokens.values())) - len(self._tokens)

    def batches(self) -> Iterator[TextBatch]:
        """Yield what is to be read."""
        return self.texts.batches()

    def add(self, batch: TextBatch) -> None:
        """Read a batch in one pass; `ProbeError` where memory does not suffice for it."""
        self.texts.check_memory(batch)
        found: list[tuple[Tensor, Tensor]] = []
        hooks = [*self.pairs.looking(batch), *(
            (self.layout.pattern_hooks[layer], self._measure(batch, found))
            for layer in self.layout.layers)]
        self.sums.add(batch, *self.observer.observe(batch, hooks))
        self.pairs.looked()
        maxima, where = (torch.stack(parts, 1).cpu().numpy() for parts in zip(*found, strict=True))
        for i, (row, length) in enumerate(zip(batch.rows.tolist(), batch.lengths.tolist(),
                                              strict=True)):
            self._tokens[row] = batch.tokens[i, :length].cpu().numpy().astype(np.int32)
            self._maxima[row], self._where[row] = maxima[i], where[i]

    def read(self, *, whole: bool) -> Read:
        """Return what was read so far."""
        order = sorted(self._tokens)
        number = {row: i for i, row in enumerate(order)}
        sample = self.pairs.finish()
        rows = np.array([number[row] for row in sample.rows.tolist()])
        query, key = (x.astype(np.int16) for x in np.divmod(
            np.stack([self._where[row] for row in order]), 1 << 15))
        return Read(
            sample.codes, rows, tuple(self._tokens[row] for row in order),
            Sums(self.sums.sums.copy(), self.sums.n.copy()), self.notes,
            np.stack([self._maxima[row] for row in order]), query, key, whole)

    def _measure(
        self, batch: TextBatch, found: list[tuple[Tensor, Tensor]]
    ) -> Callable[..., None]:
        """Return a hook that notes the largest attention of each text and head, and where it is:
        query * 2^15 + key."""
        def store(pattern: Tensor, hook: object) -> None:
            a = pattern if self.observer.normalized else as_shares(pattern)
            size = a.shape[-1]
            inside = torch.arange(1, size, device=a.device) < batch.lengths[:, None]  # [B, Q - 1]
            largest, at = torch.where(inside[:, None, :, None], a[:, :, 1:, 1:], 0.0).flatten(
                2).max(-1)
            query, key = at // (size - 1) + 1, at % (size - 1) + 1
            found.append((largest.float(), query * (1 << 15) + key))
        return store


def texts_for(model: Any, source: Any, *, n: int, longest: int) -> Texts:
    """Return the texts that are read of a model: the first n, of each the first tokens."""
    context = model.context
    longest = longest if context is None else min(longest, int(context))
    check(longest >= 2, f"the context of the model is {context} tokens; expected at least 2")
    config = model.model.cfg
    row = 4 * int(config.n_layers) * int(config.n_heads) * longest
    return Texts(model, source, longest=longest, n=n,
                 tokens_at_once=max(longest, min(BATCH, ROW_BYTES // row)))


def shares(read: Read) -> Mapping[str, int]:
    """Return how many of the pairs were drawn which way."""
    counts = read.codes.labels["drawn"].value_counts()
    return {str(name): int(count) for name, count in counts.items()}
