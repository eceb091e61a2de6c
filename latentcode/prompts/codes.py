"""Prompts as a source of problems: the tokens, batches and labels that the reader asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.codes.features import check_tokens, sized_by_tokens
from latentcode.codes.reader import Block, Hooks, Instances, Source
from latentcode.errors import check
from latentcode.models.hooks import read_out_hook
from latentcode.models.pretrained import layout
from latentcode.prompts import Prompts, as_language_model

PATTERN_BYTES = 2**28
"""Bytes of one layer's pattern beyond which a batch takes fewer prompts, at least one."""
BLOCK = 4_096
"""Prompts whose codes gather before they move on; a power of two, and fewer where they are large.
"""


class PromptSource(Source):
    """A set of prompts, for one language model.

    The rows keep the order of the prompts. Beside the prompts' columns, the labels hold position
    and text of the query's and the key's token (`query_token`; of several pairs `query_token_0`
    and so on), and `next_token`, what the model says comes after the prompt.

    pair      read this one alone; of several, `row.pairs` are the codes of its query over the keys
              of all
    features  what will be read. Codes and residual streams are read of batches of similar length,
              padded on the right under a mask; features of a whole pattern of batches of equal
              length, so that none is padded

    Raises what `Prompts.tokenize` raises, and `ConfigError` for a model without a pattern, for a
    causal one that attends to later tokens, as in a padded batch, or whose weights or codes are not
    finite, and for prompts whose lengths differ or are too short for a feature.
    """

    def __init__(
        self, model: Any, prompts: Prompts, *, prepend_bos: bool | None = None,
        pair: str | None = None, features: Sequence[str] = ("code",),
    ) -> None:
        self.model = as_language_model(model)
        self.tokens = prompts.tokenize(self.model, prepend_bos)
        self.prompts = prompts = prompts.same_tokens(self.tokens.ids)
        self.layout = layout(self.model.model)
        names = [each.name for each in prompts.pairs]
        self.places = list(range(len(names))) if pair is None else [names.index(pair)]
        self.pairs, self.n = tuple(prompts.pairs[p] for p in self.places), len(prompts)
        self.beginning = self.model.beginning(prepend_bos)
        self.device = next(self.model.model.parameters()).device
        self.lengths = np.asarray([len(ids) for ids in self.tokens.ids])
        self.padded = set(features) <= {"code", "residual"}
        several = [str(length) for length in np.unique(self.lengths)]
        check(len(several) == 1 or not any(sized_by_tokens(features)), f"prompts have "
              f"{', '.join(several[:5])}{' and other' if len(several) > 5 else ''} tokens; "
              "expected as many in each: features of rows have a number for every token")
        shortest = int(np.argmin(self.lengths))
        for name in features:
            check_tokens(name, int(self.lengths[shortest]), text=prompts.names[shortest])

    @property
    def settings(self) -> dict[str, Any]:
        return {"dtype": str(next(self.model.model.parameters()).dtype)}

    def queries(self) -> Tensor:
        return torch.from_numpy(self.tokens.query[:, self.places])

    def blocks(
        self, done: int, *, layers: Sequence[int], most: int, batch_size: int
    ) -> Iterator[Block]:
        size = min(BLOCK, 2 ** (most.bit_length() - 1))
        for begin in range(done, self.n, size):
            rows = np.arange(begin, min(begin + size, self.n))
            query = torch.from_numpy(self.tokens.query[rows][:, self.places]).to(self.device)
            yield Block(query, self._batches(rows, layers, batch_size), self._measure,
                        partial(self._labels, rows))

    def _batches(
        self, rows: np.ndarray, layers: Sequence[int], batch_size: int
    ) -> Iterator[Instances]:
        """Yield the rows in batches of similar, or of equal, length."""
        batch: list[int] = []
        for i in np.argsort(self.lengths[rows], kind="stable"):
            length = int(self.lengths[rows[i]])
            size = 4 * self.layout.n_heads * length**2 * (len(batch) + 1)
            if batch and (len(batch) == batch_size or size > PATTERN_BYTES
                          or not (self.padded or length == self.lengths[rows[batch[0]]])):
                yield self._batch(rows[batch], torch.tensor(batch), layers)
                batch = []
            batch.append(int(i))
        yield self._batch(rows[batch], torch.tensor(batch), layers)

    def _batch(self, rows: np.ndarray, within: Tensor, layers: Sequence[int]) -> Instances:
        ids = [torch.tensor(self.tokens.ids[row]) for row in rows]
        last = torch.from_numpy(self.lengths[rows] - 1).to(self.device)
        padded = torch.nn.utils.rnn.pad_sequence(
            ids, batch_first=True, padding_value=self.model.padding)
        mask = torch.arange(padded.shape[1], device=self.device) <= last[:, None]
        padding = self.model.padded(mask)
        query, key = (torch.from_numpy(positions[rows]).to(self.device)
                      for positions in (self.tokens.query, self.tokens.key))

        def last_only(stream: Tensor, hook: object) -> Tensor:
            # The logits of all tokens of a batch would be larger than everything else.
            return stream[torch.arange(len(last), device=self.device), last][:, None]

        hooks: Hooks = [(read_out_hook(self.model.model), last_only)]
        if self.layout.causal:
            hooks += [(self.layout.pattern_hooks[layer],
                       partial(self._check_causal, layer, bool(padding)))
                      for layer in layers]
        return Instances(
            padded.to(self.device), query[:, self.places], key[:, self.places], within, padding,
            hooks, {"pairs": key} if key.shape[1] > 1 and len(self.places) == 1 else {})

    def _check_causal(self, layer: int, padded: bool, pattern: Tensor, hook: object) -> None:
        """Raise `ConfigError` where the first token, which may see none but itself, attends to
        others, or codes are NaN."""
        ahead = pattern[:, :, 0, 1:].abs().sum()
        if bool(ahead == 0):
            return
        name, model = self.model.settings["run"], self.model.model
        for weight_name, weight in model.named_parameters():
            check(bool(weight.isfinite().all()), f"model {name!r} has weights that are NaN or "
                  f"infinite, {weight_name} among them; expected finite ones")
        where = f"layer {layer} of model {name!r} ({self.model.settings['architecture']}"
        check(not bool(ahead.isnan()), f"{where}, {self.settings['dtype']}) gives codes that are "
              "NaN, though its weights are finite; expected numbers: they overflow, perhaps in a "
              "type that is too narrow")
        check(False, f"{where}) lets tokens attend to later ones"
              f"{' in a padded batch' if padded else ''}; expected "
              f"{'batch_size=1, or ' if padded else ''}a model in which latentcode zoo check "
              "finds no such fault")

    def _measure(self, logits: Tensor, batch: Instances) -> Mapping[str, Tensor]:
        return {"next_token": logits[:, -1].argmax(dim=-1)}

    def _labels(self, rows: np.ndarray, measured: Mapping[str, Tensor]) -> pd.DataFrame:
        labels = self.prompts.labels.iloc[rows].reset_index(drop=True)
        for number, p in enumerate(self.places):
            suffix = "" if len(self.pairs) == 1 else f"_{number}"
            for role, positions in (("query", self.tokens.query), ("key", self.tokens.key)):
                at = positions[rows, p]
                labels[f"{role}_position{suffix}"] = at
                labels[f"{role}_token{suffix}"] = self.model.texts(
                    [self.tokens.ids[row][t] for row, t in zip(rows, at, strict=True)])
        return labels.assign(next_token=self.model.texts(measured["next_token"].tolist()))
