"""What everything that reads codes has in common: hooks that gather, and where it is kept."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.codes import LatentCodes
from latentcode.codes.resume import partial_codes
from latentcode.errors import check, check_count
from latentcode.files.provenance import software
from latentcode.models.layers import attention_layers, check_layer
from latentcode.progress import Progress
from latentcode.tasks.pairs import Pair

BLOCK_BYTES = 2**28
"""Bytes of codes and residual streams that gather on the device before they move to the host."""

Hooks = list[tuple[str, Callable[..., None]]]


def gather_codes(
    pattern: Float[Tensor, "B H Q K"], query: Int[Tensor, "B P"], key: Int[Tensor, "B P"]
) -> Float[Tensor, "B P H"]:
    """code[b, p] = pattern[b, :, query[b, p], key[b, p]], the code of each pair."""
    batch = torch.arange(len(pattern), device=pattern.device)[:, None]
    return pattern[batch, :, query, key]


class Reader(ABC):
    """One model, n instances, and what of their activations is wanted.

    Raises `UnknownNameError` for a layer that the model lacks.
    """

    def __init__(
        self,
        model: Any,
        pairs: Sequence[Pair],
        *,
        n: int,
        layers: Sequence[int] | int | None,
        residuals: bool,
        batch_size: int,
        meta: Mapping[str, Any],
    ) -> None:
        kept = attention_layers(model) if layers is None else as_tuple(layers)
        for layer in kept:
            check_layer(model, layer)
        for name, number in (("n", n), ("batch_size", batch_size)):
            check_count(name, number)
        for name, chosen in (("pairs", pairs), ("layers", kept)):
            check(len(chosen) > 0, f"{name} is empty; expected at least one")
        self.model, self.n, self.layers, self.batch_size = model, n, kept, batch_size
        self.residuals, self.pairs, self.meta = residuals, tuple(pairs), dict(meta)
        self.device = next(model.parameters()).device
        query = self._queries()
        self.columns, self.row_of_pair = distinct_queries(query)
        self.shapes: dict[str, tuple[int, ...]] = {
            "scores": (len(kept), len(pairs), n, model.cfg.n_heads)}
        if residuals:
            self.shapes["residuals"] = (len(kept), len(self.columns), n, model.cfg.d_model)

    @abstractmethod
    def _queries(self) -> Int[Tensor, "B P"]:
        """Return the query positions of instances that tell which pairs share their query."""

    @abstractmethod
    def _source(self) -> Mapping[str, Any]:
        """Return what says which instances are read, as JSON."""

    @abstractmethod
    def _read_into(self, sink: Sink, done: int, progress: Progress | None) -> None:
        """Give `sink` all instances but the first `done`, in order."""

    def read(
        self, out: str | Path | None = None, *, overwrite: bool = False,
        progress: Progress | None = None,
    ) -> LatentCodes:
        """Return the codes: in memory or, with `out`, from the folder they are written to."""
        if out is not None:
            folder = self.to_folder(out, overwrite=overwrite, progress=progress)
            return LatentCodes.load(folder, verify=False)
        memory = Memory(self.shapes)
        self._read_into(memory, 0, progress)
        arrays = {name: array.transpose(2, 0, 1, 3) for name, array in memory.arrays.items()}
        return LatentCodes(
            arrays["scores"], pd.concat(memory.tables, ignore_index=True), self.pairs, self.layers,
            self.meta, arrays.get("residuals"), self._query_of_pair())

    def to_folder(
        self, out: str | Path, *, overwrite: bool = False, progress: Progress | None = None
    ) -> Path:
        """Write the codes to a folder while they are read, in memory that does not grow with n."""
        settings = {
            **self.meta, **self._source(), "n": self.n, "pairs": [p.name for p in self.pairs],
            "layers": self.layers, "residuals": self.residuals, "batch_size": self.batch_size,
            "device": self.device.type, "weights": weights_digest(self.model),
            "software": software()}
        with partial_codes(Path(out), self.shapes, settings, overwrite=overwrite) as work:
            self._read_into(work, work.n_done, progress)
            return work.finish(self.pairs, self.layers, self._query_of_pair(), self.meta)

    def _fitting(self) -> int:
        """Return how many instances have values of `BLOCK_BYTES`, at least one."""
        return max(BLOCK_BYTES // (4 * sum(a * b * c for a, b, _, c in self.shapes.values())), 1)

    def _room(self, n: int) -> dict[str, Tensor]:
        """Return room on the device for the values of n instances."""
        return {name: torch.empty((a, b, n, c), device=self.device)
                for name, (a, b, _, c) in self.shapes.items()}

    def _query_of_pair(self) -> tuple[int, ...]:
        return self.row_of_pair if self.residuals else ()


class Sink(Protocol):
    """Takes the values of instances, then their labels; instances come in order."""

    def write(self, name: str, start: int, values: np.ndarray) -> None: ...

    def add(self, labels: pd.DataFrame) -> None: ...


class Memory:
    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.arrays = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
        self.tables: list[pd.DataFrame] = []

    def write(self, name: str, start: int, values: np.ndarray) -> None:
        self.arrays[name][:, :, start:start + values.shape[2]] = values

    def add(self, labels: pd.DataFrame) -> None:
        self.tables.append(labels)


def from_pattern(codes: Tensor, query: Tensor, key: Tensor) -> Callable[..., None]:
    def store(pattern: Tensor, hook: object) -> None:
        codes.copy_(gather_codes(pattern, query, key).transpose(0, 1))
    return store


def from_residual(streams: Tensor, rows: Tensor) -> Callable[..., None]:
    def store(residual: Tensor, hook: object) -> None:
        batch = torch.arange(len(residual), device=residual.device)[:, None]
        streams.copy_(residual[batch, rows].transpose(0, 1))
    return store


def distinct_queries(query: Tensor) -> tuple[list[int], tuple[int, ...]]:
    """Return the columns of `query` [B, P] that are distinct, and each pair's place in them."""
    columns: list[int] = []
    of_pair: list[int] = []
    for p in range(query.shape[1]):
        same = [i for i, c in enumerate(columns) if torch.equal(query[:, c], query[:, p])]
        if not same:
            columns.append(p)
        of_pair.append(same[0] if same else len(columns) - 1)
    return columns, tuple(of_pair)


def weights_digest(model: Any) -> str:
    """Return the SHA-256 of all weights, by which an interrupted extraction knows its model."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(name.encode())
        digest.update(weight.detach().cpu().flatten().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()
