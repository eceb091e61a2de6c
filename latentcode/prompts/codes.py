"""Reads the codes of prompts out of a language model, only those that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from latentcode.codes.reader import Hooks, Reader, Sink, from_pattern, from_residual
from latentcode.errors import check
from latentcode.files.provenance import package_version
from latentcode.models.modes import evaluating
from latentcode.models.pretrained import layout
from latentcode.models.read_out import read_out_hook
from latentcode.progress import Progress
from latentcode.prompts import Prompts, as_language_model

PATTERN_BYTES = 2**28
"""Bytes of one layer's pattern beyond which a batch takes fewer prompts, at least one."""
BLOCK = 4_096
"""Prompts whose codes gather before they move on; a power of two, and fewer where they are large.
"""


class PromptReader(Reader):
    """One language model, one set of prompts, and what of the activations is wanted.

    The rows keep the order of the prompts. Beside the prompts' columns, the labels hold position
    and text of the query's and the key's token (`query_token`; of several pairs `query_token_0`
    and so on), and `next_token`, what the model says comes after the prompt. Prompts of similar
    length share a batch, padded on the right under a mask. Memory: the pattern of one layer and
    one batch, what is asked for, and nothing else.

    Raises what `Prompts.tokenize` raises, `UnknownNameError` for a layer, `ConfigError` for a model
    without a pattern, for a key after its query, which a causal model gives no score, and for a
    causal model that is seen to give it one, such as in a padded batch, or whose weights or codes
    are not finite.
    """

    def __init__(
        self,
        model: Any,
        prompts: Prompts,
        *,
        layers: Sequence[int] | int | None = None,
        residuals: bool = False,
        batch_size: int = 32,
        prepend_bos: bool | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.asked = as_language_model(model)
        self.tokens = prompts.tokenize(self.asked, prepend_bos)
        self.prompts = prompts = prompts.same_tokens(self.tokens.ids)
        self.layout = layout(self.asked.model)
        if self.layout.causal:
            self.tokens.check_causal(prompts)
        self.read_out = read_out_hook(self.asked.model)
        super().__init__(
            self.asked.model, prompts.pairs, n=len(prompts), layers=layers, residuals=residuals,
            batch_size=batch_size, meta={
                **self.asked.settings, "split": "prompts", "prompts": prompts.digest(),
                **self.asked.beginning(prepend_bos),
                "latentcode_version": package_version("latentcode"), **(meta or {})})

    def _queries(self) -> Tensor:
        return torch.from_numpy(self.tokens.query)

    def _source(self) -> dict[str, Any]:
        return {"dtype": str(next(self.model.parameters()).dtype)}

    def _read_into(self, sink: Sink, done: int, progress: Progress | None) -> None:
        block = min(BLOCK, 2 ** (self._fitting().bit_length() - 1))
        with evaluating(self.model):
            for begin in range(done, self.n, block):
                self._read_block(np.arange(begin, min(begin + block, self.n)), sink, progress)

    def _read_block(self, rows: np.ndarray, sink: Sink, progress: Progress | None) -> None:
        begin = int(rows[0])
        values = self._room(len(rows))
        answers = torch.empty(len(rows), dtype=torch.int64)
        n_read = 0
        for batch in self._batches(rows):
            place = {name: array.new_empty((*array.shape[:2], len(batch), array.shape[3]))
                     for name, array in values.items()}
            logits = self._run(batch, place)
            within = torch.from_numpy(batch - begin)
            answers[within] = logits[:, -1].argmax(dim=-1).cpu()
            for name, array in values.items():
                array[:, :, within.to(self.device)] = place[name]
            n_read += len(batch)
            if progress is not None:
                progress(begin + n_read, self.n)
        for name, array in values.items():
            sink.write(name, begin, array.cpu().numpy())
        sink.add(self._labels(rows).assign(next_token=self.asked.texts(answers.tolist())))

    def _batches(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the rows in batches of similar length."""
        lengths = np.asarray([len(self.tokens.ids[row]) for row in rows])
        order = np.argsort(lengths, kind="stable")
        batch: list[int] = []
        for i in order:
            size = 4 * self.layout.n_heads * int(lengths[i]) ** 2 * (len(batch) + 1)
            if batch and (len(batch) == self.batch_size or size > PATTERN_BYTES):
                yield rows[batch]
                batch = []
            batch.append(int(i))
        yield rows[batch]

    def _run(self, batch: np.ndarray, place: dict[str, Tensor]) -> Tensor:
        """Put what a batch of prompts shows into `place`; return logits [B, 1, V] after each."""
        ids = [torch.tensor(self.tokens.ids[row]) for row in batch]
        lengths = torch.tensor([len(row) for row in ids], device=self.device)
        padded = torch.nn.utils.rnn.pad_sequence(
            ids, batch_first=True, padding_value=self.asked.padding)
        mask = torch.arange(padded.shape[1], device=self.device) < lengths[:, None]
        padding = self.asked.padded(mask)

        def last_only(stream: Tensor, hook: object) -> Tensor:
            # The logits of all tokens of a batch would be larger than everything else.
            return stream[torch.arange(len(lengths), device=self.device), lengths - 1][:, None]

        ahead: dict[int, Tensor] = {}
        logits: Tensor = self.model.run_with_hooks(
            padded.to(self.device), **padding,
            fwd_hooks=[*self._hooks(batch, place), (self.read_out, last_only),
                       *self._look_ahead(ahead)])
        at_fault = [str(layer) for layer, seen in ahead.items() if bool(seen != 0)]
        if at_fault:
            self._check_weights()
        broken = [str(layer) for layer, seen in ahead.items() if bool(seen.isnan())]
        check(not broken, f"layer {', '.join(broken)} of model {self.meta['run']!r} "
              f"({self.meta['architecture']}, {self._source()['dtype']}) gives codes that are NaN, "
              "though its weights are finite; expected numbers: they overflow, perhaps in a type "
              "that is too narrow")
        check(not at_fault, f"layer {', '.join(at_fault)} of model {self.meta['run']!r} "
              f"({self.meta['architecture']}) lets tokens attend to later ones"
              f"{' in a padded batch' if padding else ''}; expected "
              f"{'batch_size=1, or ' if padding else ''}a model in which latentcode zoo check "
              "finds no such fault")
        return logits

    def _check_weights(self) -> None:
        """Raise `ConfigError` that names the first weight of the model that is not finite."""
        for name, weight in self.model.named_parameters():
            check(bool(weight.isfinite().all()), f"model {self.meta['run']!r} has weights that are "
                  f"NaN or infinite, {name} among them; expected finite ones")

    def _look_ahead(self, ahead: dict[int, Tensor]) -> Hooks:
        """Return what notes of each layer how much the first token, which may see none but itself,
        attends to others; a number that is not 0 (NaN, too) is a fault."""
        def note(layer: int) -> Callable[..., None]:
            def store(pattern: Tensor, hook: object) -> None:
                ahead[layer] = pattern[:, :, 0, 1:].abs().sum()
            return store

        return [(self.layout.pattern_hooks[layer], note(layer))
                for layer in self.layers if self.layout.causal]

    def _hooks(self, batch: np.ndarray, place: dict[str, Tensor]) -> Hooks:
        query, key = (torch.from_numpy(positions[batch]).to(self.device)
                      for positions in (self.tokens.query, self.tokens.key))
        hooks: Hooks = [
            (self.layout.pattern_hooks[layer], from_pattern(codes, query, key))
            for layer, codes in zip(self.layers, place["scores"], strict=True)]
        if self.residuals:
            hooks += [
                (self.layout.residual_hooks[layer], from_residual(streams, query[:, self.columns]))
                for layer, streams in zip(self.layers, place["residuals"], strict=True)]
        return hooks

    def _labels(self, rows: np.ndarray) -> pd.DataFrame:
        labels = self.prompts.labels.iloc[rows].reset_index(drop=True)
        for p in range(len(self.pairs)):
            suffix = "" if len(self.pairs) == 1 else f"_{p}"
            for role, positions in (("query", self.tokens.query), ("key", self.tokens.key)):
                at = positions[rows, p]
                labels[f"{role}_position{suffix}"] = at
                labels[f"{role}_token{suffix}"] = self.asked.texts(
                    [self.tokens.ids[row][t] for row, t in zip(rows, at, strict=True)])
        return labels
