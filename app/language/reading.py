"""Attention of a language model on texts, read in one pass, and kept for another start."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentcode.app.language.given import PAIRS, Given
from latentcode.codes import LatentCodes
from latentcode.codes.reader import Hooks
from latentcode.errors import ArtifactError, check
from latentcode.files.provenance import package_version
from latentcode.files.storage import (
    check_checksum,
    checksum,
    default_cache,
    read_json,
    read_tensors,
    replace_folder,
    write_json,
    write_tensors,
)
from latentcode.probes.heads.codes import PairSampler, attended_key
from latentcode.probes.heads.metrics import Observer, Sums, as_shares
from latentcode.prompts.texts import TextBatch, Texts

BATCH = 256
"""Tokens of a batch: so few that a prompt that was typed meanwhile does not wait for long."""
ROW_BYTES = 2**26
"""Bytes of the rows of codes of a batch that are kept until their keys are drawn."""
FILE, ARRAYS, CODES = "read.json", "read.safetensors", "codes"


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


def folder_of(given: Given) -> Path:
    """Return where it is kept what was read of the model that was given.

    It is known by the model, the texts, and the version that read them.
    """
    known = {"model": given.model.identity, "texts": given.digest, "n": given.n,
             "longest": given.longest, "pairs": PAIRS, "version": package_version("latentcode")}
    digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    return default_cache() / "language" / digest[:24]


def keep(read: Read, folder: Path) -> None:
    """Write what was read; `ArtifactError` where that cannot be."""
    with replace_folder(folder, overwrite=True, marker=FILE) as temporary:
        read.codes.save(temporary / CODES)
        write_tensors(temporary / ARRAYS, {
            "rows": read.rows, "tokens": np.concatenate(read.tokens),
            "lengths": np.array([len(ids) for ids in read.tokens]), "sums": read.sums.sums,
            "n": read.sums.n, "maxima": read.maxima, "query": read.query, "key": read.key})
        write_json(temporary / FILE, {
            "notes": list(read.notes), "whole": read.whole,
            "sha256": checksum(temporary / ARRAYS)})


def kept(folder: Path) -> Read | None:
    """Return what was kept; None where nothing was, `ArtifactError` where it is damaged."""
    if not (folder / FILE).is_file():
        return None
    said = read_json(folder / FILE)
    check(isinstance(said, dict) and {"notes", "whole", "sha256"} <= set(said),
          f"{folder / FILE} does not describe what was read", ArtifactError)
    check_checksum(folder / ARRAYS, said["sha256"])
    arrays = read_tensors(folder / ARRAYS)
    ends = np.cumsum(arrays["lengths"])[:-1]
    return Read(LatentCodes.load(folder / CODES), arrays["rows"],
                tuple(np.split(arrays["tokens"], ends)), Sums(arrays["sums"], arrays["n"]),
                tuple(said["notes"]), arrays["maxima"], arrays["query"], arrays["key"],
                bool(said["whole"]))
