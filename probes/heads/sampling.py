"""Which codes does a model compute over texts? A bounded sample of (text, query, key).

A pair is drawn in two steps. Its query is one of all tokens that have an earlier one, each as
likely as any other. Its key is, of half the pairs,

    uniform    any token up to the query, the first and the query itself among them
    attended   token k with probability  sum_lh |a_lh,qk| / sum_k' sum_lh |a_lh,qk'|,  0 < k <= q,
               what all heads give it; the first token, at which heads leave what they have no use
               for, is left out

Which pairs are drawn depends on the seed and on the numbers of the rows, not on how they come in
batches: of all queries those are kept whose random numbers are the lowest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.codes import LatentCodes
from latentcode.errors import ProbeError, check, check_count
from latentcode.files.provenance import package_version
from latentcode.models.layers import check_layer
from latentcode.models.pretrained import layout
from latentcode.models.read_out import look
from latentcode.probes.heads.batches import TextBatch
from latentcode.prompts import LanguageModel, as_language_model
from latentcode.seeds import checked_seed
from latentcode.tasks.pairs import Pair

SAMPLED = Pair("query->key", "a token of a text, and one up to it")
WINDOW = 8
"""Tokens on either side of query and key that are kept as text."""
KINDS = ("first", "self", "other")
"""What the key of a pair is: the first token, the query itself, or neither."""
PURPOSE = 0x70616972
"""Sets the random numbers of pairs apart from those that others draw from the same seed."""


@dataclass(frozen=True)
class HeadSample:
    """The codes of some (text, query, key) over all heads, and the texts that they are of.

    codes   a `LatentCodes` with the pair `query->key`; labels: `text` (its number),
            `query_position`, `key_position`, `distance`, `query_token`, `key_token`, `kind` (of
            `KINDS`), `drawn` (`uniform` or `attended`) and `context`, the tokens around both, the
            query as <<query>>, the key as [[key]]
    rows    int64 [N], the row of each pair (`TextBatch.rows`): a document can have several
    tokens  row -> its ids, int32, up to the last query that was drawn

    Rows and tokens are not saved with the codes.
    """

    codes: LatentCodes
    rows: np.ndarray
    tokens: Mapping[int, np.ndarray]

    def __len__(self) -> int:
        return len(self.codes)


class PairSampler:
    """Takes batches, one after the other, and keeps the codes of at most n pairs.

    model     what `as_language_model` takes
    n         pairs to keep
    attended  share of them whose key is drawn in proportion to the attention that it gets
    layers    default: all
    window    tokens on either side that are kept as text

    Memory: the pattern of one layer and one batch, [B, T, T] numbers more, and 2n codes; it does
    not grow with the number of texts. Raises what `layout` and `check_layer` raise, and
    `ConfigError` for codes that are not finite.
    """

    def __init__(
        self, model: Any, *, n: int = 5_000, attended: float = 0.5,
        layers: Sequence[int] | int | None = None, window: int = WINDOW, seed: int = 0,
    ) -> None:
        check_count("n", n)
        check_count("window", window)
        check(0.0 <= attended <= 1.0, f"attended is {attended}; expected a share, 0 to 1")
        self.asked: LanguageModel = as_language_model(model)
        self.model = self.asked.model
        self.layout = layout(self.model)
        self.layers = self.layout.layers if layers is None else as_tuple(layers)
        for layer in self.layers:
            check_layer(self.model, layer)
        self.n, self.attended, self.window, self.seed = n, attended, window, checked_seed(seed)
        self.n_texts = self.n_tokens = 0
        self._tokens: dict[int, np.ndarray] = {}
        self._columns = {name: np.empty(0, kind) for name, kind in (
            ("priority", np.float64), ("text", np.int64), ("number", np.int64), ("query", np.int64),
            ("key", np.int64), ("attended", bool))}
        self._codes = np.empty((0, len(self.layers), self.layout.n_heads), np.float32)

    def add(self, batch: TextBatch) -> None:
        """Read a batch: at most two passes over those of its rows that have a pair to keep."""
        drawn = self._draw(batch)
        if not len(drawn["row"]):
            return
        rows, at = np.unique(drawn["row"], return_inverse=True)
        some = batch[torch.from_numpy(rows)].to(self._device)
        key = self._keys(some, drawn, at)
        self._keep(some, at, drawn, key, self._read(some, at, drawn["query"], key))

    def _keep(
        self, batch: TextBatch, at: np.ndarray, drawn: Mapping[str, np.ndarray], key: np.ndarray,
        codes: np.ndarray,
    ) -> None:
        """Keep what was drawn of a batch, the rows of pairs being `at`, with codes [N, L, H]."""
        number = batch.rows.cpu().numpy()
        for one, ids, length in zip(number.tolist(), batch.tokens.cpu().numpy(),
                                    batch.lengths.tolist(), strict=True):
            self._tokens[one] = ids[:length].astype(np.int32)
        further = {**drawn, "key": key, "text": batch.text.cpu().numpy()[at], "number": number[at]}
        self._columns = {name: np.concatenate([kept, further[name]])
                         for name, kept in self._columns.items()}
        self._codes = np.concatenate([self._codes, codes])
        if len(self._codes) > 2 * self.n:
            self._keep_lowest()

    def finish(self) -> HeadSample:
        """Return what was kept, in the order of the texts; `ProbeError` where there is nothing."""
        self._keep_lowest()
        check(len(self._codes) > 0, f"no pair could be drawn from {self.n_texts:,} texts of "
              f"{self.n_tokens:,} tokens; expected a text of at least two tokens", ProbeError)
        order = np.lexsort(tuple(self._columns[name] for name in ("query", "number", "text")))
        text, number, query, key, attended = (
            self._columns[name][order] for name in ("text", "number", "query", "key", "attended"))
        labels = pd.DataFrame({"text": text, "query_position": query, "key_position": key,
                               "distance": query - key})
        ids = [self._tokens[one] for one in number.tolist()]
        for role, position in (("query", query), ("key", key)):
            labels[f"{role}_token"] = self.asked.texts(
                [int(one[t]) for one, t in zip(ids, position, strict=True)])
        labels["kind"] = np.where(key == 0, "first", np.where(key == query, "self", "other"))
        labels["drawn"] = np.where(attended, "attended", "uniform")
        labels["context"] = [
            context(self.asked, one, int(q), int(k), self.window)
            for one, q, k in zip(ids, query, key, strict=True)]
        codes = LatentCodes(
            self._codes[order][:, :, None], labels, (SAMPLED,), self.layers, {
                **self.asked.settings, "split": "texts", "seed": self.seed, "n": self.n,
                "attended": self.attended, "texts": self.n_texts, "tokens": self.n_tokens,
                "latentcode_version": package_version("latentcode")})
        last = dict(zip(number.tolist(), query.tolist(), strict=True))  # of a row the last is left
        return HeadSample(codes, number, {one: self._tokens[one][:q + 1]
                                          for one, q in last.items()})

    def _draw(self, batch: TextBatch) -> dict[str, np.ndarray]:
        """Return the queries of a batch that may be kept; `uniform` is what their key is drawn by.
        """
        parts: dict[str, list[np.ndarray]] = {
            name: [] for name in ("priority", "row", "query", "attended", "uniform")}
        limit = np.inf if len(self._codes) < self.n else float(
            np.partition(self._columns["priority"], self.n - 1)[self.n - 1])
        for row, (number, length) in enumerate(zip(batch.rows.tolist(), batch.lengths.tolist(),
                                                   strict=True)):
            rng = np.random.default_rng([self.seed, PURPOSE, number])
            priority, coin, uniform = rng.random((3, max(length - 1, 0)))
            kept = np.flatnonzero(priority < limit)
            for name, values in (("priority", priority), ("attended", coin < self.attended),
                                 ("uniform", uniform)):
                parts[name].append(values[kept])
            parts["query"].append(kept + 1)
            parts["row"].append(np.full(len(kept), row))
            self.n_texts += 1
            self.n_tokens += length
        drawn = {name: np.concatenate(values) for name, values in parts.items()}
        lowest = np.sort(np.argsort(drawn["priority"], kind="stable")[:self.n])
        return {name: values[lowest] for name, values in drawn.items()}

    def _keys(
        self, batch: TextBatch, drawn: Mapping[str, np.ndarray], at: np.ndarray
    ) -> np.ndarray:
        """Return the key of each query; `at` is its row of the batch."""
        query, uniform, attended = (drawn[name] for name in ("query", "uniform", "attended"))
        key = np.minimum((uniform * (query + 1)).astype(np.int64), query)
        if not attended.any():
            return key
        size = batch.tokens.shape[1]
        given = torch.zeros(len(batch), size, size, device=self._device)

        def add(pattern: Tensor, hook: object) -> None:
            given.add_(pattern.abs().sum(dim=1, dtype=torch.float32))

        look(self.model, batch.tokens, ((self.layout.pattern_hooks[layer], add)
                                        for layer in self.layers), batch.padding)
        total = given.cpu().double().numpy()
        check(bool(np.isfinite(total).all()), f"model {self.asked.settings.get('run')!r} computes "
              "codes that are not finite; expected numbers")
        for i in np.flatnonzero(attended):
            key[i] = attended_key(total[at[i], query[i], 1:query[i] + 1], uniform[i])
        return key

    def _read(
        self, batch: TextBatch, at: np.ndarray, query: np.ndarray, key: np.ndarray
    ) -> np.ndarray:
        """Return the codes [m, L, H] of m pairs."""
        b, q, k = (torch.from_numpy(x).to(self._device) for x in (at, query, key))
        found = np.empty((len(at), len(self.layers), self.layout.n_heads), np.float32)

        def keep(place: int) -> Callable[..., None]:
            def store(pattern: Tensor, hook: object) -> None:
                found[:, place] = pattern[b, :, q, k].float().cpu().numpy()
            return store

        look(self.model, batch.tokens, ((self.layout.pattern_hooks[layer], keep(i))
                                        for i, layer in enumerate(self.layers)), batch.padding)
        broken = [str(layer) for i, layer in enumerate(self.layers)
                  if not np.isfinite(found[:, i]).all()]
        check(not broken, f"layer {', '.join(broken)} of model {self.asked.settings.get('run')!r} "
              "computes codes that are not finite; expected numbers")
        return found

    def _keep_lowest(self) -> None:
        """Let go of all pairs but the n with the lowest numbers, and of rows that have none."""
        lowest = np.argsort(self._columns["priority"], kind="stable")[:self.n]
        self._columns = {name: values[lowest] for name, values in self._columns.items()}
        self._codes = self._codes[lowest]
        left = set(self._columns["number"].tolist())
        self._tokens = {row: ids for row, ids in self._tokens.items() if row in left}

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


def sample_codes(
    model: Any, batches: Iterable[TextBatch], *, n: int = 5_000, attended: float = 0.5,
    layers: Sequence[int] | int | None = None, window: int = WINDOW, seed: int = 0,
) -> HeadSample:
    """Read batches of texts once, and keep the codes of at most n pairs; see `PairSampler`."""
    sampler = PairSampler(model, n=n, attended=attended, layers=layers, window=window, seed=seed)
    for batch in batches:
        sampler.add(batch)
    return sampler.finish()


def attended_key(weights: np.ndarray, uniform: float) -> int:
    """Return a key in proportion to the attention [q] that keys 1 to q get; `uniform` in [0, 1)."""
    if not weights.any():  # all of it goes to the first token: one is as good as another
        weights = np.ones_like(weights)
    edges = np.cumsum(weights)
    return 1 + min(int(np.searchsorted(edges, uniform * edges[-1], side="right")),
                   len(weights) - 1)


def context(asked: LanguageModel, ids: np.ndarray, query: int, key: int, window: int) -> str:
    """Return the tokens around a query and a key as text: `the [[ cat]] sat … and<< it>> ran`.

    What lies between the two windows is left out as `…`, as is what lies before and after them.
    """
    near = [t for t in range(len(ids)) if min(abs(t - query), abs(t - key)) <= window]
    texts = asked.texts([int(ids[t]) for t in near])
    said = "… " if near[0] > 0 else ""
    for i, (t, text) in enumerate(zip(near, texts, strict=True)):
        said += " … " if i and t > near[i - 1] + 1 else ""
        text = f"[[{text}]]" if t == key else text
        said += f"<<{text}>>" if t == query else text
    return said + (" …" if near[-1] < len(ids) - 1 else "")


def flat_codes(codes: LatentCodes, layer: int | None = None) -> np.ndarray:
    """Return the codes [instance, head] of one layer, or [instance, layer x head] of all."""
    if layer is not None:
        return codes.select(layer=layer, pair=codes.pairs[0].name).astype(np.float64)
    return codes.scores[:, :, 0].reshape(len(codes), -1).astype(np.float64)


def heads_of(codes: LatentCodes, layer: int | None = None) -> list[tuple[int, int]]:
    """Return (layer, head) of each column of `flat_codes`."""
    layers = codes.layers if layer is None else (layer,)
    return [(of, head) for of in layers for head in range(codes.n_heads)]
