"""A sample of codes across all heads over texts.

A code is a of one pair of a query and a key, over the heads of a layer or of all. Pairs are drawn
in two steps. The query is one of all tokens that have an earlier one, each as likely as any other.
The key is, of half the pairs,

    uniform    any token up to the query, the first and the query itself among them
    attended   token k with probability  sum_lh |a_lh,qk| / sum_k' sum_lh |a_lh,qk'|,  0 < k <= q,
               what all heads give it; the first token, at which heads leave what they have no use
               for, is left out
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.devices import checked_seed
from latentcode.errors import ProbeError, check
from latentcode.files.provenance import package_version
from latentcode.models.hooks import look
from latentcode.models.pretrained import layout
from latentcode.prompts import LanguageModel, as_language_model
from latentcode.prompts.texts import TextBatch
from latentcode.tasks.pairs import Pair

SAMPLED = Pair("query->key", "a token of a text, and one up to it")
LABELS = ("text", "query_position", "key_position", "distance", "query_token", "key_token", "kind",
          "drawn", "context")
"""What is known of a pair."""
WINDOW = 8
"""Tokens on either side of query and key that are kept as text."""
PURPOSE = 0x70616972
"""Sets the random numbers of pairs apart from others that are drawn from the same seed."""


@dataclass(frozen=True)
class HeadSample:
    """The codes of some (text, query, key) over all heads, and their texts.

    Attributes:
        codes: `LatentCodes` with the pair `query->key` and the labels `LABELS`: `text` is its
            number, `kind` that of the key (`first` token, the query it`self` or `other`), `drawn`
            how (`uniform` or `attended`), `context` the tokens around <<query>> and [[key]].
        rows: int64 [N], the row of each pair (`TextBatch.rows`): a document can have several.
        tokens: By row its ids, int32, up to the last query that was drawn.
    """

    codes: LatentCodes
    rows: np.ndarray
    tokens: Mapping[int, np.ndarray]

    def __len__(self) -> int:
        return len(self.codes)


class PairSampler:
    """Takes batches, one after the other, and keeps the codes of at most n pairs.

    Which pairs are drawn depends on the seed and on the numbers of the rows, not on how they come
    in batches: of all queries those are kept whose random numbers are the lowest. The share
    `attended` has keys that are drawn in proportion to the attention that they get. Memory: the
    pattern of one layer and one batch, [B, T, T] numbers more, and 2n codes; it does not grow with
    the number of texts.
    """

    def __init__(
        self, model: Any, *, n: int = 5_000, attended: float = 0.5, seed: int = 0
    ) -> None:
        self.language = as_language_model(model)
        self.model = self.language.model
        self.layout = layout(self.model)
        self.layers = self.layout.layers
        self.n, self.attended, self.seed = n, attended, checked_seed(seed)
        self.n_texts = self.n_tokens = 0
        self._device = next(self.model.parameters()).device
        self._tokens: dict[int, np.ndarray] = {}
        self._pairs = pd.DataFrame()
        self._codes = np.empty((0, len(self.layers), self.layout.n_heads), np.float32)

    def add(self, batch: TextBatch) -> None:
        """Read a batch: at most two passes over those of its rows that have a pair to keep."""
        drawn = self._draw(batch)
        if drawn.empty:
            return
        rows, at = np.unique(drawn["row"], return_inverse=True)
        some = batch[torch.from_numpy(rows)].to(self._device)
        query, uniform, attended = (
            drawn[name].to_numpy() for name in ("query", "uniform", "attended"))
        key = np.minimum((uniform * (query + 1)).astype(np.int64), query)
        if attended.any():
            size = some.tokens.shape[1]
            given = torch.zeros(len(some), size, size, device=self._device)

            def add(pattern: Tensor, hook: object, place: int) -> None:
                given.add_(pattern.abs().sum(dim=1, dtype=torch.float32))

            self._look(some, add)
            total = given.cpu().double().numpy()
            for i in np.flatnonzero(attended):
                key[i] = attended_key(total[at[i], query[i], 1:query[i] + 1], uniform[i])
        codes = np.empty((len(at), len(self.layers), self.layout.n_heads), np.float32)
        b, q, k = (torch.tensor(x, device=self._device) for x in (at, query, key))

        def read(pattern: Tensor, hook: object, place: int) -> None:
            codes[:, place] = pattern[b, :, q, k].float().cpu().numpy()

        self._look(some, read)
        self._keep(some, drawn.assign(key=key), codes)

    def finish(self) -> HeadSample:
        """Return what was kept, in the order of the texts; `ProbeError` where there is nothing."""
        check(len(self._codes) > 0, f"no pair could be drawn from {self.n_texts:,} texts of "
              f"{self.n_tokens:,} tokens; expected a text of at least two tokens", ProbeError)
        self._keep_lowest()
        pairs = self._pairs.sort_values(["text", "number", "query"])
        number, query, key = (pairs[name].to_numpy() for name in ("number", "query", "key"))
        ids = [self._tokens[row] for row in number.tolist()]
        labels = pd.DataFrame({"text": pairs["text"].to_numpy(), "query_position": query,
                               "key_position": key, "distance": query - key})
        for role, position in (("query", query), ("key", key)):
            labels[f"{role}_token"] = self.language.texts(
                [int(row[t]) for row, t in zip(ids, position, strict=True)])
        labels["kind"] = np.where(key == 0, "first", np.where(key == query, "self", "other"))
        labels["drawn"] = np.where(pairs["attended"], "attended", "uniform")
        labels["context"] = [_context(self.language, row, int(q), int(k))
                             for row, q, k in zip(ids, query, key, strict=True)]
        codes = LatentCodes(
            self._codes[pairs.index][:, :, None], labels, (SAMPLED,), self.layers, {
                **self.language.settings, "split": "texts", "seed": self.seed, "n": self.n,
                "attended": self.attended, "texts": self.n_texts, "tokens": self.n_tokens,
                "latentcode_version": package_version("latentcode")})
        last = dict(zip(number.tolist(), query.tolist(), strict=True))  # queries are in order
        return HeadSample(codes, number, {row: self._tokens[row][:q + 1]
                                          for row, q in last.items()})

    def _draw(self, batch: TextBatch) -> pd.DataFrame:
        """Return the queries of a batch that may be kept; `uniform` draws their keys."""
        numbers, lengths = batch.rows.tolist(), batch.lengths.tolist()
        self.n_texts += len(lengths)
        self.n_tokens += sum(lengths)
        n_queries = [max(length - 1, 0) for length in lengths]
        row = np.repeat(np.arange(len(lengths)), n_queries)
        random = np.concatenate([
            np.random.default_rng([self.seed, PURPOSE, number]).random((3, n))
            for number, n in zip(numbers, n_queries, strict=True)], axis=1)
        drawn = pd.DataFrame({
            "priority": random[0], "row": row, "text": batch.text.cpu().numpy()[row],
            "number": np.array(numbers)[row],
            "query": np.concatenate([np.arange(1, n + 1) for n in n_queries]),
            "attended": random[1] < self.attended, "uniform": random[2]})
        if len(self._pairs) >= self.n:
            drawn = drawn[drawn["priority"] < self._pairs["priority"].nsmallest(self.n).max()]
        return drawn.nsmallest(self.n, "priority").sort_index()

    def _look(self, batch: TextBatch, hook: Callable[..., None]) -> None:
        """Pass a batch, with a hook at each layer's pattern that is told the layer's place."""
        look(self.model, batch.tokens, [
            (self.layout.pattern_hooks[layer], partial(hook, place=place))
            for place, layer in enumerate(self.layers)], batch.padding)

    def _keep(self, batch: TextBatch, pairs: pd.DataFrame, codes: np.ndarray) -> None:
        """Keep pairs of a batch, with their codes [N, L, H]."""
        for row, ids, length in zip(batch.rows.tolist(), batch.tokens.cpu().numpy(),
                                    batch.lengths.tolist(), strict=True):
            self._tokens[row] = ids[:length].astype(np.int32)
        self._pairs = pd.concat([self._pairs, pairs], ignore_index=True)
        self._codes = np.concatenate([self._codes, codes])
        if len(self._codes) > 2 * self.n:
            self._keep_lowest()

    def _keep_lowest(self) -> None:
        """Let go of all pairs but the n with the lowest numbers, and of rows that have none."""
        lowest = self._pairs["priority"].nsmallest(self.n).index
        self._pairs = self._pairs.loc[lowest].reset_index(drop=True)
        self._codes = self._codes[lowest]
        left = set(self._pairs["number"].tolist())
        self._tokens = {row: ids for row, ids in self._tokens.items() if row in left}


def sample_codes(model: Any, batches: Iterable[TextBatch], **options: Any) -> HeadSample:
    """Read batches of texts once, and keep the codes of some pairs; options as in `PairSampler`."""
    sampler = PairSampler(model, **options)
    for batch in batches:
        sampler.add(batch)
    return sampler.finish()


def attended_key(weights: np.ndarray, uniform: float) -> int:
    """Return a key in proportion to the attention [q] that keys 1 to q get; `uniform` in [0, 1)."""
    # Where all of it goes to the first token, one key is as good as another.
    edges = np.cumsum(weights if weights.any() else np.ones_like(weights))
    return 1 + min(int(np.searchsorted(edges, uniform * edges[-1], side="right")),
                   len(weights) - 1)


def _context(model: LanguageModel, ids: np.ndarray, query: int, key: int) -> str:
    """Return the tokens around a query and a key as text: `the [[ cat]] sat … and<< it>> ran`."""
    near = [t for t in range(len(ids)) if min(abs(t - query), abs(t - key)) <= WINDOW]
    texts = model.texts([int(ids[t]) for t in near])
    shown = "… " if near[0] > 0 else ""
    for i, (t, text) in enumerate(zip(near, texts, strict=True)):
        shown += " … " if i and t > near[i - 1] + 1 else ""
        text = f"[[{text}]]" if t == key else text
        shown += f"<<{text}>>" if t == query else text
    return shown + (" …" if near[-1] < len(ids) - 1 else "")
