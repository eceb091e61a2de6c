"""A text that is too large to keep: its tokens shard by shard, the next one being read meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from latentcode.errors import ArtifactError, check
from latentcode.tasks.text.source import check_same_text

SHARD = 2**24
"""Tokens of a shard, about."""
Place = Mapping[str, Any]
"""Where reading goes on, as plain JSON: `epoch`, `documents` read in it, `state` of the dataset;
and for the beginning of a shard `used`, the tokens after that place that are of the one before."""
START: Place = {"epoch": 0, "documents": 0, "state": None}
Batches = Callable[[Place], Iterator[tuple[Place, np.ndarray]]]
"""A place -> the tokens from there on, without end, in parts, each with the place it begins at."""


class Abandoned(Exception):
    """The process ends while a shard is being read."""


class ShardStream:
    """The documents of a dataset in their order, epoch after epoch; see the protocol `Stream`.

    Shard s holds S successive sequences of the packed text, which are read in an order that
    (seed, s) determines. The present shard and the next are in memory. A shard is read from the
    newest known place at which one begins: places are found in reading, and are in checkpoints.
    """

    def __init__(self, batches: Batches, n_tokens: int, seed: int, revision: str) -> None:
        self.batches, self.n_tokens, self.seed, self.revision = batches, n_tokens, seed, revision
        self.per_shard = max(1, SHARD // n_tokens)
        self.step = self.per_shard * n_tokens
        """Tokens from the beginning of one shard to that of the next, which share one."""
        self._places: dict[int, Place] = {0: {**START, "used": 0}}
        self._open: tuple[int, np.ndarray, np.ndarray] | None = None
        self._next: tuple[int, threading.Thread] | None = None
        self._read_ahead: dict[int, np.ndarray] = {}

    def __getitem__(self, sequences: slice) -> Int[Tensor, "n S"]:
        wanted = np.arange(sequences.start, sequences.stop)
        found = []
        for shard in np.unique(wanted // self.per_shard).tolist():
            tokens, order = self._shard(shard)
            place = order[wanted[wanted // self.per_shard == shard] % self.per_shard]
            found.append(tokens[place[:, None] * self.n_tokens + np.arange(self.n_tokens + 1)])
        return torch.from_numpy(np.concatenate(found).astype(np.int64))

    def cursor(self, sequence: int) -> Mapping[str, Any]:
        """Return the newest known place at which a shard begins, up to that of a sequence."""
        shard = self._known(sequence // self.per_shard)
        return {"revision": self.revision, "step": self.step, "shard": shard,
                "place": self._places[shard]}

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        check_same_text(cursor, self.revision)
        shard, place = cursor.get("shard"), cursor.get("place")
        fits = (cursor.get("step") == self.step and type(shard) is int and shard >= 0
                and isinstance(place, dict) and {*START, "used"} <= set(place))
        check(fits, f"the place in the text is {str(cursor)[:120]}; expected one of shards of "
              f"{self.step} tokens", ArtifactError)
        assert isinstance(shard, int)
        assert isinstance(place, dict)
        self._places.setdefault(shard, place)

    def _known(self, shard: int) -> int:
        """Return the newest shard up to this one whose place is known."""
        return max(known for known in list(self._places) if known <= shard)

    def _shard(self, shard: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a shard, and the order of its sequences."""
        if self._open is None or self._open[0] != shard:
            order = np.random.default_rng([self.seed, shard]).permutation(self.per_shard)
            self._open = shard, self._ready(shard), order
            self._begin(shard + 1)
        return self._open[1:]

    def _begin(self, shard: int) -> None:
        """Begin to read a shard in the background, where nothing is being read there."""
        def read() -> None:
            with suppress(Exception):  # tried again, and told, when the shard is needed
                self._read_ahead[shard] = self._read(shard, may_end=True)

        if self._next is None or not self._next[1].is_alive():
            # No executor, which would be waited for while the main thread still counts as alive.
            self._next = shard, threading.Thread(target=read, name="next shard")
            self._next[1].start()

    def _ready(self, shard: int) -> np.ndarray:
        """Return the tokens of a shard, which may have been read in the background."""
        if self._next is not None and self._next[0] == shard:
            self._next[1].join()
        ready = self._read_ahead.pop(shard, None)
        self._read_ahead.clear()
        return self._read(shard) if ready is None else ready

    def _read(self, shard: int, *, may_end: bool = False) -> np.ndarray:
        for number in range(self._known(shard), shard + 1):
            place = self._places[number]
            used, parts, missing = place["used"], [], self.step + 1
            for start, tokens in self.batches(place):
                if may_end and not threading.main_thread().is_alive():
                    raise Abandoned
                part = tokens[used:used + missing]
                parts.append(part)
                missing -= len(part)
                if not missing:
                    # The last token of a shard is the first one of the next.
                    self._places[number + 1] = {**start, "used": used + len(part) - 1}
                    break
                used = 0
        return np.concatenate(parts)
