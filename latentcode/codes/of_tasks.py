"""Reads latent codes out of a model through its hooks, only those that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from latentcode.arguments import as_tuple
from latentcode.codes.instances import at_once, drawn
from latentcode.codes.reader import (
    Hooks,
    Reader,
    Sink,
    from_pattern,
    from_residual,
    gather_codes,
)
from latentcode.errors import check
from latentcode.models.modes import evaluating
from latentcode.progress import Progress
from latentcode.seeds import checked_seed
from latentcode.tasks import Batch, Task, try_task
from latentcode.tasks.base import DRAW


class CodeReader(Reader):
    """One model, one stream of instances, and what of their activations is wanted.

    Instances are drawn DRAW at a time from a generator of their own, so that which they are
    depends neither on n nor on the batch size. In our own models only the rows of the pattern that
    belong to the pairs' queries are computed, unless a hook of the user's writes the pattern.
    """

    def __init__(
        self,
        model: Any,
        task: Task,
        split: str,
        *,
        n: int = 4_096,
        pairs: Sequence[str] | None = None,
        layers: Sequence[int] | int | None = None,
        residuals: bool = False,
        seed: int = 0,
        batch_size: int = 512,
        meta: dict[str, Any] | None = None,
    ) -> None:
        seed = checked_seed(seed)
        try_task(task, split)
        names = tuple(task.pairs)[:1] if pairs is None else as_tuple(pairs)
        task.check_pairs(names)
        self.task, self.split, self.seed, self.names = task, split, seed, names
        self._first: Batch | None = None
        super().__init__(
            model, [task.pairs[p] for p in names], n=n, layers=layers, residuals=residuals,
            batch_size=batch_size, meta=meta or {"split": split, "seed": seed})

    def _queries(self) -> Tensor:
        self._first = self._draw(0)
        return self.task.positions(self.names, self._first)[0]

    def _source(self) -> dict[str, Any]:
        return {"split": self.split, "seed": self.seed}

    def _read_into(self, sink: Sink, done: int, progress: Progress | None) -> None:
        with evaluating(self.model):
            for index in range(-(-done // DRAW), -(-self.n // DRAW)):
                self._read_draw(index, sink, progress)

    def _draw(self, index: int) -> Batch:
        if index == 0 and self._first is not None:  # drawn already, for its queries
            batch, self._first = self._first, None
            return batch
        return drawn(self.task, self.split, index, self.seed, self.device)

    def _read_draw(self, index: int, sink: Sink, progress: Progress | None) -> None:
        begin = index * DRAW
        batch = self._draw(index)[:self.n - begin]
        query, key = self.task.positions(self.names, batch)
        # Copies to a GPU wait for what it is doing: these are made before the forward passes.
        queries = query[:, self.columns]
        row_of_pair = torch.tensor(self.row_of_pair, device=query.device).expand_as(query)
        check(torch.equal(queries.gather(1, row_of_pair), query), f"pairs of "
              f"{self.names} share a query in the first {DRAW} instances and not in later ones; "
              "expected pairs whose queries are always or never the same")
        host = batch.to("cpu")  # now, because later it would wait for the forward passes
        labels: pd.DataFrame | None = None
        measures: dict[str, list[Tensor]] = {}
        batch_size = at_once(self.task, self.batch_size)
        block = min(max(self._fitting(), batch_size), DRAW)
        for first in range(0, len(batch), block):
            last = min(first + block, len(batch))
            values = self._room(last - first)
            for start in range(first, last, batch_size):
                rows = slice(start, min(start + batch_size, last))
                place = {name: array[:, :, rows.start - first:rows.stop - first]
                         for name, array in values.items()}
                logits = self.model.run_with_hooks(batch.inputs[rows], fwd_hooks=self._hooks(
                    place, query[rows], key[rows], queries[rows], row_of_pair[rows]))
                for name, of_instance in self.task.measures(logits, batch[rows]).items():
                    measures.setdefault(name, []).append(of_instance)
                if progress is not None:
                    progress(begin + rows.stop, self.n)
            if labels is None:
                labels = self.task.labels(host)  # while a GPU is still busy
            for name, array in values.items():
                sink.write(name, begin + first, array.cpu().numpy())
        assert labels is not None
        for name, parts in measures.items():
            labels[name] = torch.cat(parts).float().cpu().numpy()
        sink.add(labels)

    def _hooks(
        self, place: dict[str, Tensor], query: Tensor, key: Tensor, rows: Tensor,
        row_of_pair: Tensor,
    ) -> Hooks:
        """Return hooks that put what one batch shows into `place`, name -> [L, P, B, ...].

        query, key   positions of the pairs, [B, P]
        rows         the different ones among the queries, [B, R]
        row_of_pair  which of them is a pair's, [B, P]
        """
        hooks: Hooks = []
        for layer, codes in zip(self.layers, place["scores"], strict=True):
            name = f"blocks.{layer}.attn"
            attention = self._attention(layer)
            if attention is None:
                hooks.append((f"{name}.hook_pattern", from_pattern(codes, query, key)))
            else:
                hooks += _from_rows(name, attention, codes, rows, row_of_pair, key)
        if self.residuals:
            hooks += [(f"blocks.{layer}.hook_resid_pre", from_residual(streams, rows))
                      for layer, streams in zip(self.layers, place["residuals"], strict=True)]
        return hooks

    def _attention(self, layer: int) -> Any:
        """Return the attention whose code a few rows of queries and keys determine, or None."""
        from latentcode.models.blocks import Attention
        from latentcode.models.hooks import is_hooked
        from latentcode.models.transformer import HookedTransformer

        if not isinstance(self.model, HookedTransformer):
            return None
        attention = self.model.layer(layer).attn
        written = is_hooked(attention.hook_attn_scores) or is_hooked(attention.hook_pattern)
        return attention if type(attention) is Attention and not written else None


def _from_rows(
    name: str, attention: Any, codes: Tensor, rows: Tensor, row_of_pair: Tensor, key: Tensor
) -> Hooks:
    seen: list[Tensor] = []

    def keep(q: Tensor, hook: object) -> None:
        seen.append(q)

    def store(k: Tensor, hook: object) -> None:  # the layer computes its queries first
        pattern = attention.code_rows(seen.pop(), k, rows)
        codes.copy_(gather_codes(pattern, row_of_pair, key).transpose(0, 1))

    return [(f"{name}.hook_q", keep), (f"{name}.hook_k", store)]


__all__ = ["CodeReader", "gather_codes"]
