"""The one reader: activations of a model at (query, key), as they come out of its hooks.

A `Source` says which problems there are and where to read them: those of a task (`TaskSource`) or
prompts (`latentcode.prompts.codes`). The `Reader` passes them through a model in batches and keeps
what its hooks show: codes and residual streams, in memory or streamed to a folder that an
interrupted call resumes. Memory holds one layer's pattern and what is asked for. Other features of
one pair are read by `latentcode.codes.features`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentcode.codes import LatentCodes
from latentcode.codes.resume import partial_codes
from latentcode.config import TaskConfig
from latentcode.devices import checked_seed, make_generator, resolve_device
from latentcode.errors import as_tuple, check, check_count, check_distinct, chosen, listed
from latentcode.files.provenance import software
from latentcode.models.hooks import attention_layers, check_layer, evaluating
from latentcode.progress import Progress
from latentcode.runs import Run
from latentcode.runs.run import load_run
from latentcode.tasks import Batch, Task, as_task, try_task
from latentcode.tasks.base import DRAW
from latentcode.tasks.pairs import Pair

BLOCK_BYTES = 2**28
"""Bytes of codes and residual streams that gather on the device before they move to the host."""
LOGIT_BYTES = 2**28
"""Bytes of the logits of all tokens beyond which a forward pass takes fewer instances."""

Hook = Callable[[Tensor, object], None]
Hooks = list[tuple[str, Callable[..., Any]]]
Place = tuple[str, str]
"""Features and their layer, a number as text or `ALL_LAYERS`."""


@dataclass(frozen=True)
class Instances:
    """B instances that pass through a model together, and where to read them.

    inputs      token ids [B, T], or vectors [B, T, d_input]
    query, key  positions of the P pairs, [B, P]
    rows        their numbers within the block, a slice or int64 [B]
    padding     arguments that tell the model where tokens are padding
    hooks       further hooks of this pass, such as one that leaves the tokens that have logits
    key_sets    name -> keys [B, n], the columns of `row.NAME`
    places      name -> tokens [B, n] of `codes.NAME`, `values.NAME` and `tokens.NAME`
    """

    inputs: Tensor
    query: Int[Tensor, "B P"]
    key: Int[Tensor, "B P"]
    rows: slice | Tensor
    padding: Mapping[str, Tensor] = field(default_factory=dict)
    hooks: Sequence[tuple[str, Callable[..., Any]]] = ()
    key_sets: Mapping[str, Tensor] = field(default_factory=dict)
    places: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Block:
    """Instances that follow each other, whose codes leave the device together.

    query    positions of the queries, [n, P]
    measure  (logits, batch) -> what the model says of each instance, by name, [B] each
    labels   these values, [n] each -> the labels of the block, a row per instance
    """

    query: Int[Tensor, "n P"]
    batches: Iterator[Instances]
    measure: Callable[[Tensor, Instances], Mapping[str, Tensor]]
    labels: Callable[[Mapping[str, Tensor]], pd.DataFrame]
    measured: dict[str, Tensor] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """How many instances."""
        return len(self.query)

    def note(self, logits: Tensor, batch: Instances) -> None:
        """Keep what the model says of the instances of a batch."""
        for name, values in self.measure(logits, batch).items():
            if name not in self.measured:
                self.measured[name] = values.new_empty(self.n)
            self.measured[name][batch.rows] = values


class Source(ABC):
    """Problems that can be read: n of them, at named pairs."""

    pairs: tuple[Pair, ...]
    n: int

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """Which problems they are, as JSON, by which an interrupted extraction knows them."""

    @abstractmethod
    def queries(self) -> Int[Tensor, "B P"]:
        """Return queries of some instances that tell which pairs share one."""

    @abstractmethod
    def blocks(
        self, done: int, *, layers: Sequence[int], most: int, batch_size: int
    ) -> Iterator[Block]:
        """Yield all instances but the first `done`, in order, in blocks of about `most`.

        layers  those that are read
        """


class Reader:
    """A model, a source of problems, and the layers that are read.

    Raises `UnknownNameError` for a layer that the model lacks.
    """

    def __init__(
        self, model: Any, source: Source, *, layers: Sequence[int] | int | None = None,
        residuals: bool = False, batch_size: int, meta: Mapping[str, Any],
    ) -> None:
        for layer in () if layers is None else as_tuple(layers):
            check_layer(model, layer)
        kept = chosen("layer", layers, attention_layers(model))
        for name, number in (("n", source.n), ("batch_size", batch_size)):
            check_count(name, number)
        check(len(source.pairs) > 0, "pairs is empty; expected at least one")
        check_distinct("pairs", [pair.name for pair in source.pairs])
        self.model, self.source, self.n = model, source, source.n
        self.layers, self.batch_size, self.residuals = kept, batch_size, residuals
        self.pairs, self.meta = source.pairs, dict(meta)
        self.device = next(model.parameters()).device
        self.columns, self.row_of_pair = distinct_queries(source.queries())
        self.shapes: dict[str, tuple[int, ...]] = {
            "scores": (len(kept), len(self.pairs), self.n, model.cfg.n_heads)}
        if residuals:
            self.shapes["residuals"] = (len(kept), len(self.columns), self.n, model.cfg.d_model)

    def read(
        self, out: str | Path | None = None, *, overwrite: bool = False,
        progress: Progress | None = None,
    ) -> LatentCodes:
        """Return the codes: in memory or, with `out`, from the folder they are written to while
        they are read, in memory that does not grow with their number."""
        with nullcontext(Memory(self.shapes)) if out is None else partial_codes(
                Path(out), self.shapes, self._settings(), overwrite=overwrite) as sink:
            done = sink.n_done
            with evaluating(self.model):
                for block in self.blocks(done):
                    room = {name: torch.empty((a, b, block.n, c), device=self.device)
                            for name, (a, b, _, c) in self.shapes.items()}
                    distinct = self._distinct(block.query)
                    n_read = 0
                    for batch in block.batches:
                        logits = self.model.run_with_hooks(
                            batch.inputs, **batch.padding,
                            fwd_hooks=[*self._hooks(batch, room, distinct), *batch.hooks])
                        block.note(logits, batch)
                        n_read += len(batch)
                        if progress is not None:
                            progress(done + n_read, self.n)
                    labels = block.labels(block.measured)  # while a GPU is still busy
                    for name, array in room.items():
                        sink.write(name, done, array.cpu().numpy())
                    sink.add(labels)
                    done += block.n
            return sink.finish(self.pairs, self.layers,
                               self.row_of_pair if self.residuals else (), self.meta)

    def _settings(self) -> dict[str, Any]:
        """Return all that the numbers depend on, by which an interrupted extraction is resumed."""
        weights = hashlib.sha256()
        for name, weight in self.model.named_parameters():
            weights.update(name.encode())
            weights.update(weight.detach().cpu().flatten().contiguous().view(torch.uint8).numpy())
        return {
            **self.meta, **self.source.settings, "n": self.n, "pairs": [p.name for p in self.pairs],
            "layers": self.layers, "residuals": self.residuals, "batch_size": self.batch_size,
            "device": self.device.type, "weights": weights.hexdigest(), "software": software()}

    def inputs_and_keys(self) -> Iterator[tuple[Tensor, Int[Tensor, "B P"]]]:
        """Yield the inputs of all instances, and the positions of the pairs' keys in each."""
        for block in self.blocks(0):
            for batch in block.batches:
                yield batch.inputs, batch.key

    def _distinct(
        self, query: Int[Tensor, "n P"]
    ) -> tuple[Int[Tensor, "n Q"], Int[Tensor, "n P"]]:
        """Return the distinct queries of instances, and which of them is a pair's."""
        queries = query[:, self.columns]
        row_of_pair = torch.tensor(self.row_of_pair, device=query.device).expand_as(query)
        check(torch.equal(queries.gather(1, row_of_pair), query), f"pairs of "
              f"{[pair.name for pair in self.pairs]} share a query in the first instances and not "
              "in later ones; expected pairs whose queries are always or never the same")
        return queries, row_of_pair

    def _hooks(
        self, batch: Instances, room: Mapping[str, Tensor], distinct: tuple[Tensor, Tensor]
    ) -> Hooks:
        """Return hooks that put what a batch shows into `room`, name -> [L, P or Q, n, ...].

        distinct  what `_distinct` returns of the block; here, so that nothing waits for a GPU
        """
        queries, row_of_pair = (x[batch.rows] for x in distinct)
        each = torch.arange(len(batch), device=self.device)[:, None]

        def store(to: Tensor, values: Float[Tensor, "B P D"]) -> None:
            to[:, batch.rows] = values.transpose(0, 1).to(to.dtype)

        def store_codes(to: Tensor, pattern: Tensor, hook: object) -> None:
            store(to, pattern[each, :, batch.query, batch.key])

        def store_few_rows(
            to: Tensor, attention: Any, seen: list[Tensor], k: Tensor, hook: object
        ) -> None:
            rows = attention.code_rows(seen.pop(), k, queries)
            store(to, rows[each, :, row_of_pair, batch.key])

        def store_streams(to: Tensor, stream: Tensor, hook: object) -> None:
            store(to, stream[each, queries])

        hooks: Hooks = []
        for layer, codes in zip(self.layers, room["scores"], strict=True):
            name = f"blocks.{layer}.attn"
            attention = few_rows_attention(self.model, layer)
            if attention is None:
                hooks.append((f"{name}.hook_pattern", partial(store_codes, codes)))
            else:
                seen: list[Tensor] = []  # the layer computes its queries before its keys
                hooks += [(f"{name}.hook_q", partial(_keep, seen)),
                          (f"{name}.hook_k", partial(store_few_rows, codes, attention, seen))]
        for layer, streams in zip(self.layers, room.get("residuals", ()), strict=self.residuals):
            hooks.append((f"blocks.{layer}.hook_resid_pre", partial(store_streams, streams)))
        return hooks

    def blocks(self, done: int) -> Iterator[Block]:
        """Yield all instances but the first `done`, in blocks whose values fit the device."""
        numbers = sum(a * b * c for a, b, _, c in self.shapes.values())
        return self.source.blocks(done, layers=self.layers, most=max(
            BLOCK_BYTES // (4 * numbers), 1), batch_size=self.batch_size)


def _keep(seen: list[Tensor], q: Tensor, hook: object) -> None:
    seen.append(q)


def few_rows_attention(model: Any, layer: int) -> Any:
    """Return the attention whose code a few rows of queries and keys determine: that of our own
    models, unless a hook of the user's writes the pattern; else None."""
    from latentcode.models.blocks import Attention
    from latentcode.models.hooks import is_hooked
    from latentcode.models.transformer import HookedTransformer

    if not isinstance(model, HookedTransformer):
        return None
    attention = model.layer(layer).attn
    written = is_hooked(attention.hook_attn_scores) or is_hooked(attention.hook_pattern)
    return attention if type(attention) is Attention and not written else None


class Memory:
    """Codes that are kept in memory, in the place of `PartialCodes` on the disk."""

    n_done = 0

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.arrays = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
        self.tables: list[pd.DataFrame] = []

    def write(self, name: str, start: int, values: np.ndarray) -> None:
        """Put the values [A, B, m, C] of an array at its instances start to start + m - 1."""
        self.arrays[name][:, :, start:start + values.shape[2]] = values

    def add(self, labels: pd.DataFrame) -> None:
        """Add the labels of the next instances."""
        self.tables.append(labels)

    def finish(
        self, pairs: tuple[Pair, ...], layers: tuple[int, ...], query_of_pair: tuple[int, ...],
        meta: Mapping[str, Any],
    ) -> LatentCodes:
        """Return the codes that were written."""
        arrays = {name: array.transpose(2, 0, 1, 3) for name, array in self.arrays.items()}
        return LatentCodes(arrays["scores"], pd.concat(self.tables, ignore_index=True), pairs,
                           layers, meta, arrays.get("residuals"), query_of_pair)


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


@dataclass(frozen=True)
class Rows:
    """N instances, read at one pair's query.

    values  place -> float32 [N, d], or [N, WIDEST] where d is larger
    sizes   place -> d, the numbers that the features have
    labels  of the instances (`Task.labels`)
    meta    which model, task and instances
    query   key that pairs have in common whose query is the same; None where it is not known
    codes   what the features were taken from, where that is codes
    """

    values: dict[Place, np.ndarray]
    sizes: Mapping[Place, int]
    labels: pd.DataFrame
    meta: Mapping[str, Any]
    query: Hashable = None
    codes: LatentCodes | None = None

    @classmethod
    def of_codes(cls, codes: LatentCodes, pair: str, features: Sequence[str]) -> Rows:
        """Return code and residual stream of a pair, as far as they are among the features."""
        select = {"code": codes.select, "residual": codes.select_residual}
        values = {(name, str(layer)): select[name](layer=layer, pair=pair)
                  for name in features for layer in codes.layers}
        index = [each.name for each in codes.pairs].index(pair)
        return cls(values, {place: x.shape[1] for place, x in values.items()}, codes.labels,
                   codes.meta, (codes.query_of_pair[index], codes.pairs[index].token)
                   if codes.query_of_pair else None, codes)

    def __len__(self) -> int:
        return len(self.labels)


def is_code(features: Iterable[str]) -> bool:
    """Whether features are the code and the residual stream, which are read of many pairs."""
    return set(features) <= {"code", "residual"}


def instances(
    run_or_task: Run | str | Path | Task | TaskConfig,
    split: str = "ood",
    n: int | np.integer | Sequence[int] | np.ndarray | Tensor = 4_096,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Batch:
    """Which problems are the rows of `extract(run, split=split, n=n, seed=seed)` the codes of?

    run_or_task  what they are drawn from: a run, its folder or a name of the zoo, which stand for
                 the run's own task; or a task, or its configuration. `decode` and the other verbs
                 draw from `make_task(run.config.task).probe_config`
    n            how many; or the numbers of the instances, from 0, in any order
    device       where the codes were extracted, as a GPU draws other numbers from the same seed

    Fewer are the first of more. `SplitError` for a split that the task does not offer.
    """
    given = n.tolist() if hasattr(n, "tolist") else n  # an array, a tensor, or a number of numpy
    rows = range(given) if type(given) is int else as_tuple(given)
    wrong = [row for row in rows if not isinstance(row, Integral) or int(row) < 0]
    check(len(rows) > 0 and not wrong, f"n is {listed(wrong) if wrong else n!r}; expected at least "
          "1, or numbers of instances, from 0")
    task = (as_task(load_run(run_or_task).config.task)
            if isinstance(run_or_task, Run | str | Path) else as_task(run_or_task))
    try_task(task, split)
    place = resolve_device(str(device))
    blocks = sorted({row // DRAW for row in rows})
    start = {block: i * DRAW for i, block in enumerate(blocks)}
    together = Batch.cat([drawn(task, split, block, seed, place) for block in blocks])
    chosen = [start[row // DRAW] + row % DRAW for row in rows]
    return together[torch.tensor(chosen, device=together.inputs.device)]


def drawn(task: Task, split: str, block: int, seed: int, device: torch.device | str) -> Batch:
    """Return the instances of a split from number `block` * DRAW on, DRAW of them."""
    return task.sample(split, DRAW, make_generator(seed, f"extract {split} {block}", device))


class TaskSource(Source):
    """n instances of a split of a task.

    They are drawn DRAW at a time from a generator of their own, so that which they are depends
    neither on n nor on the batch size.

    pairs  default: the paper's, the first of the task's
    """

    def __init__(
        self, task: Task, split: str, *, n: int = 4_096, pairs: Sequence[str] | None = None,
        seed: int = 0, device: torch.device | str = "cpu",
    ) -> None:
        seed = checked_seed(seed)
        try_task(task, split)
        self.names = tuple(task.pairs)[:1] if pairs is None else as_tuple(pairs)
        task.check_pairs(self.names)
        self.task, self.split, self.seed, self.n, self.device = task, split, seed, n, device
        self.pairs = tuple(task.pairs[name] for name in self.names)
        self._first: Batch | None = None

    @property
    def settings(self) -> dict[str, Any]:
        return {"split": self.split, "seed": self.seed}

    def queries(self) -> Tensor:
        self._first = drawn(self.task, self.split, 0, self.seed, self.device)
        return self.task.positions(self.names, self._first)[0]

    def blocks(
        self, done: int, *, layers: Sequence[int], most: int, batch_size: int
    ) -> Iterator[Block]:
        logits = 4 * self.task.config.n_tokens * self.task.config.d_output
        batch_size = min(batch_size, max(LOGIT_BYTES // logits, 1))
        size = min(max(most, batch_size), DRAW)
        for index in range(-(-done // DRAW), -(-self.n // DRAW)):
            batch, self._first = self._first, None  # drawn already, for its queries
            if index > 0 or batch is None:
                batch = drawn(self.task, self.split, index, self.seed, self.device)
            batch = batch[:self.n - index * DRAW]
            # Copies to a GPU wait for what it is doing: these are made before the forward passes.
            query, key = self.task.positions(self.names, batch)
            host = batch.to("cpu")
            for first in range(0, len(batch), size):
                part = slice(first, min(first + size, len(batch)))
                yield Block(
                    query[part],
                    self._batches(batch[part], query[part], key[part], batch_size),
                    partial(self._measure, batch[part]), partial(self._labels, host[part]))

    def _batches(
        self, batch: Batch, query: Tensor, key: Tensor, batch_size: int
    ) -> Iterator[Instances]:
        sets, places = self.task.key_sets(batch), self.task.places(batch)
        for start in range(0, len(batch), batch_size):
            rows = slice(start, min(start + batch_size, len(batch)))
            yield Instances(
                batch.inputs[rows], query[rows], key[rows], rows,
                key_sets={name: keys[rows] for name, keys in sets.items()},
                places={name: tokens[rows] for name, tokens in places.items()})

    def _measure(
        self, batch: Batch, logits: Tensor, instances: Instances
    ) -> Mapping[str, Tensor]:
        return self.task.measures(logits, batch[instances.rows])

    def _labels(self, batch: Batch, measured: Mapping[str, Tensor]) -> pd.DataFrame:
        labels = self.task.labels(batch)
        for name, values in measured.items():
            labels[name] = values.float().cpu().numpy()
        return labels
