"""A dataset that is too large to keep: its tokens, shard by shard, the next one being fetched."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from latentcode.errors import ArtifactError, check
from latentcode.files.storage import read_json, replace_file, write_json
from latentcode.tasks.text.cache import making
from latentcode.tasks.text.packing import check_same_text, integer_type

if TYPE_CHECKING:
    from latentcode.tasks.text.hub import HubText, Place

SHARD = 2**24
"""Tokens of a shard, about."""
KEPT = 4
"""Shards that stay on disk; any other is made again from the place where it begins."""


class Abandoned(Exception):
    """The process ends while a shard is being fetched."""


class ShardStream:
    """The documents of a dataset in their order, epoch after epoch; see the protocol `Stream`.

    Shard s holds S successive sequences of the packed text, which are read in an order that
    (seed, s) determines. Beside the shards lie the places where they begin, each found when the
    shard before it was made. Processes of one machine share them: one makes a shard, others wait.

    folder  for the shards of this text, whatever the seed
    """

    def __init__(self, text: HubText, folder: Path, n_tokens: int, seed: int) -> None:
        self.text, self.n_tokens, self.seed = text, n_tokens, seed
        self.per_shard = max(1, SHARD // n_tokens)
        self.step = self.per_shard * n_tokens
        """Tokens from the beginning of one shard to that of the next, which share one."""
        self.folder = folder / str(self.step)
        self._type = integer_type(text.tokenizer.n_tokens)
        self._open: tuple[int, np.ndarray, np.ndarray] | None = None
        self._next: threading.Thread | None = None

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
        shard, place = self._known(sequence // self.per_shard)
        return {"revision": self.text.revision, "step": self.step, "shard": shard, "place": place}

    def go_to(self, cursor: Mapping[str, Any]) -> None:
        check_same_text(cursor, self.text.revision)
        shard, place = cursor.get("shard"), cursor.get("place")
        fits = (cursor.get("step") == self.step and type(shard) is int and shard >= 0
                and isinstance(place, dict)
                and {"epoch", "documents", "state", "used"} <= set(place))
        check(fits, f"the place in the text is {str(cursor)[:120]}; expected one of shards of "
              f"{self.step} tokens", ArtifactError)
        assert isinstance(shard, int)
        assert isinstance(place, dict)
        if shard and not self._place_file(shard).is_file():
            self._write_place(shard, place)

    def _shard(self, shard: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a shard, mapped, and the order of its sequences."""
        if self._open is None or self._open[0] != shard:
            order = np.random.default_rng([self.seed, shard]).permutation(self.per_shard)
            self._open = shard, self._map(shard), order
            self._fetch(shard + 1)
        return self._open[1:]

    def _fetch(self, shard: int) -> None:
        """Begin to make a shard in the background.

        What fails there is tried again, and told, when the shard is needed.
        """
        if (self._next is None or not self._next.is_alive()) and not self._file(shard).exists():
            self._next = threading.Thread(target=self._quietly, args=(shard,), name="next shard")
            self._next.start()

    def _quietly(self, shard: int) -> None:
        try:
            self._map(shard, may_end=True)
        except Exception:  # the foreground meets it again, if it lasts
            return

    def _map(self, shard: int, *, may_end: bool = False) -> np.ndarray:
        file = self._file(shard)
        try:
            return self._mapped(file)
        except FileNotFoundError:
            with making(self.folder):  # nobody deletes a shard meanwhile
                first, _ = self._known(shard)
                for missing in range(first, shard + 1):
                    if missing == shard and file.exists():
                        break  # made while this process waited
                    self._make(missing, may_end=may_end)
                return self._mapped(file)

    def _mapped(self, file: Path) -> np.ndarray:
        tokens: np.ndarray = np.memmap(file, self._type, mode="r")
        check(len(tokens) == self.step + 1, f"{file} holds {len(tokens)} tokens; expected "
              f"{self.step + 1}", ArtifactError)
        return tokens

    def _make(self, shard: int, *, may_end: bool) -> None:
        """Write a shard, the place where the next one begins, and delete the oldest ones."""
        _, place = self._known(shard)
        used, parts, missing = place["used"], [], self.step + 1
        for start, tokens in self.text.token_batches(place):
            if may_end and not threading.main_thread().is_alive():
                raise Abandoned
            part = tokens[used:used + missing]
            parts.append(part)
            missing -= len(part)
            if not missing:
                # The last token of a shard is the first one of the next.
                following = {**start, "used": used + len(part) - 1}
                break
            used = 0
        self.folder.mkdir(parents=True, exist_ok=True)
        self._delete_oldest()
        with replace_file(self._file(shard)) as temporary:
            np.concatenate(parts).astype(self._type).tofile(temporary)
        self._write_place(shard + 1, following)

    def _delete_oldest(self) -> None:
        shards = sorted(self.folder.glob("*.bin"), key=lambda file: file.stat().st_mtime)
        for file in shards[:max(0, len(shards) - KEPT + 1)]:
            file.unlink()

    def _known(self, shard: int) -> tuple[int, Place]:
        """Return the newest shard up to this one whose place is known, and the place."""
        from latentcode.tasks.text.hub import START

        for known in range(shard, 0, -1):
            if self._place_file(known).is_file():
                return known, read_json(self._place_file(known))
        return 0, {**START, "used": 0}

    def _write_place(self, shard: int, place: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._place_file(shard), place)

    def _file(self, shard: int) -> Path:
        return self.folder / f"{shard:07}.bin"

    def _place_file(self, shard: int) -> Path:
        return self.folder / f"{shard:07}.json"
