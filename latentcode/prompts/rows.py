"""What else is there to read of a prompt than one code? The features of `read_rows`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.arguments import as_tuple
from latentcode.codes.aggregates import check_tokens
from latentcode.codes.rows import RowBatch, Rows, gather_rows, sized_by_tokens
from latentcode.errors import check, check_choice
from latentcode.files.provenance import package_version
from latentcode.models.pretrained import layout
from latentcode.prompts import Prompts, Tokens, as_language_model, as_prompts
from latentcode.prompts.codes import PATTERN_BYTES
from latentcode.prompts.prompts import row_name


def read_prompt_rows(
    model: Any,
    prompts: Prompts | pd.DataFrame | str | Path,
    *,
    pair: str | None = None,
    layers: Sequence[int] | int | None = None,
    features: Sequence[str] | None = None,
    batch_size: int = 32,
    prepend_bos: bool | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Rows:
    """As `read_rows`, of a language model on prompts.

    model     as in `as_language_model`
    pair      whose query and code are read; default: the first. Of several, `row.pairs` are the
              codes of the query over the keys of all
    features  those that have a number for every token are read of prompts that have equally many.
              Default: all of these

    Only prompts of equally many tokens share a batch, so that none is padded: features of a whole
    pattern are those of the prompt alone. Memory: the pattern of one layer and one batch.

    Raises what `Prompts.tokenize` and `gather_rows` raise, `UnknownNameError` for a pair,
    and `ConfigError` for prompts of different lengths, where features have different sizes then,
    for one that is too short for a feature, and for a key after its query in a causal model.
    """
    asked, prompts = as_language_model(model), as_prompts(prompts)
    names = [each.name for each in prompts.pairs]
    pair = names[0] if pair is None else pair
    check_choice("pair", pair, names)
    tokens = prompts.tokenize(asked, prepend_bos)
    prompts = prompts.same_tokens(tokens.ids)
    shape = layout(asked.model)
    if shape.causal:
        tokens.check_causal(prompts)
    lengths = np.asarray([len(ids) for ids in tokens.ids])
    several = [str(length) for length in np.unique(lengths)]
    sized = ("row",) if features is None else tuple(sized_by_tokens(as_tuple(features)))
    check(len(several) == 1 or not sized, f"prompts have {', '.join(several[:5])}"
          f"{' and other' if len(several) > 5 else ''} tokens; expected as many in each: features "
          "of rows have a number for every token")
    device = next(asked.model.parameters()).device
    order = np.argsort(lengths, kind="stable")
    first = int(order[0])
    for name in () if features is None else as_tuple(features):
        check_tokens(name, int(lengths[first]),
                     of=row_name(first, str(prompts.labels["prompt"].iloc[first])))
    batches = _batches(prompts, tokens, names.index(pair), order, batch_size, shape.n_heads, device)
    rows = gather_rows(asked.model, batches, n=len(prompts), layers=layers, features=features,
                       batch_size=batch_size, meta={
                           **asked.settings, "split": "prompts", "pair": pair,
                           "prompts": prompts.digest(),
                           **asked.beginning(prepend_bos),
                           "latentcode_version": package_version("latentcode"), **(meta or {})})
    back = np.argsort(order)
    return replace(rows, labels=rows.labels.iloc[back].reset_index(drop=True),
                   values={place: values[back] for place, values in rows.values.items()})


def _batches(
    prompts: Prompts, tokens: Tokens, p: int, order: np.ndarray, batch_size: int, n_heads: int,
    device: torch.device,
) -> Iterator[RowBatch]:
    """Yield prompts in an order by length, to be read at their pair p: of equally many tokens in
    each batch, and fewer where the pattern of a layer would be large."""
    lengths = np.asarray([len(tokens.ids[row]) for row in order])
    start = 0
    while start < len(order):
        most = max(min(batch_size, PATTERN_BYTES // (4 * n_heads * int(lengths[start]) ** 2)), 1)
        end = min(start + most, int(np.searchsorted(lengths, lengths[start], side="right")))
        part, start = order[start:end], end
        query, key = (torch.from_numpy(positions[part]).to(device)
                      for positions in (tokens.query, tokens.key))
        yield RowBatch(
            torch.tensor([list(tokens.ids[row]) for row in part], device=device),
            query[:, p], key[:, p], prompts.labels.iloc[part].reset_index(drop=True),
            {"pairs": key} if key.shape[1] > 1 else {})
