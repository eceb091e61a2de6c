"""What else is there to read of a prompt than one code? The features of `read_rows`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from latentcode.codes.rows import RowBatch, Rows, gather_rows
from latentcode.errors import check, check_choice
from latentcode.files.provenance import package_version
from latentcode.models.pretrained import layout
from latentcode.prompts import Prompts, Tokens, as_language_model, as_prompts


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
    """As `read_rows`, of a language model on prompts that have equally many tokens.

    model     as in `as_language_model`
    pair      whose query and code are read; default: the first. Of several, `row.pairs` are the
              codes of the query over the keys of all

    Raises what `Prompts.tokenize` and `gather_rows` raise, `UnknownNameError` for a pair,
    and `ConfigError` for prompts of different lengths,
    whose features have different sizes, and for a key after its query in a causal model.
    """
    asked, prompts = as_language_model(model), as_prompts(prompts)
    names = [each.name for each in prompts.pairs]
    pair = names[0] if pair is None else pair
    check_choice("pair", pair, names)
    tokens = prompts.tokenize(asked, prepend_bos)
    if layout(asked.model).causal:
        tokens.check_causal(prompts)
    lengths = sorted({len(ids) for ids in tokens.ids})
    check(len(lengths) == 1, f"prompts have {', '.join(map(str, lengths[:5]))}"
          f"{' and other' if len(lengths) > 5 else ''} tokens; expected as many in each: features "
          "of rows have a number for every token")
    device = next(asked.model.parameters()).device
    batches = _batches(prompts, tokens, names.index(pair), batch_size, device)
    return gather_rows(asked.model, batches, n=len(prompts), layers=layers, features=features,
                       batch_size=batch_size, meta={
                           **asked.settings, "split": "prompts", "pair": pair,
                           "prompts": prompts.digest(),
                           "prepend_bos": asked.begins(prepend_bos),
                           "latentcode_version": package_version("latentcode"), **(meta or {})})


def _batches(
    prompts: Prompts, tokens: Tokens, p: int, batch_size: int, device: torch.device
) -> Iterator[RowBatch]:
    """Yield prompts of equally many tokens, to be read at their pair p."""
    for start in range(0, len(prompts), batch_size):
        part = slice(start, start + batch_size)
        query, key = (torch.from_numpy(positions[part]).to(device)
                      for positions in (tokens.query, tokens.key))
        yield RowBatch(
            torch.tensor(tokens.ids[part], device=device), query[:, p], key[:, p],
            prompts.labels.iloc[part].reset_index(drop=True),
            {"pairs": key} if key.shape[1] > 1 else {})


__all__ = ["read_prompt_rows"]
