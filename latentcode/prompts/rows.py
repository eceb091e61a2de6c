"""What else is there to read of a prompt than one code? The features of `read_rows`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.codes.rows import RowBatch, Rows, gather_rows
from latentcode.errors import SplitError, UnknownNameError, check
from latentcode.files.provenance import package_version
from latentcode.models.pretrained import layout
from latentcode.prompts import Prompts, Tokens, as_language_model, as_prompts


def read_prompt_rows(
    model: Any,
    prompts: Prompts | pd.DataFrame | str | Path,
    *,
    split: str | None = None,
    pair: str | None = None,
    layers: Sequence[int] | int | None = None,
    features: Sequence[str] | None = None,
    batch_size: int = 32,
    prepend_bos: bool | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Rows:
    """As `read_rows`, of a language model on prompts that have equally many tokens.

    model     as in `as_language_model`
    split     read the prompts of this split alone, `train` or `ood`; default: all
    pair      whose query and code are read; default: the first. Of several, `row.pairs` are the
              codes of the query over the keys of all

    Raises what `Prompts.tokenize` and `gather_rows` raise, `UnknownNameError` for a pair,
    `SplitError` for a split without prompts, and `ConfigError` for prompts of different lengths,
    whose features have different sizes, and for a key after its query in a causal model.
    """
    asked, prompts = as_language_model(model), as_prompts(prompts)
    names = [each.name for each in prompts.pairs]
    pair = names[0] if pair is None else pair
    if pair not in names:
        raise UnknownNameError("pair", pair, names)
    rows = list(range(len(prompts)))
    if split is not None:
        check("split" in prompts.labels, f"split is {split!r}, but the prompts have no column "
              "'split'; expected None, or prompts.split()", SplitError)
        rows = np.flatnonzero(prompts.labels["split"] == split).tolist()
        check(len(rows) > 0, f"no prompt is of split {split!r}; they are of "
              f"{', '.join(sorted(set(prompts.labels['split'])))}", SplitError)
    tokens = prompts.tokenize(asked, prepend_bos)
    if layout(asked.model).causal:
        tokens.check_causal(prompts)
    lengths = sorted({len(tokens.ids[row]) for row in rows})
    check(len(lengths) == 1, f"prompts have {', '.join(map(str, lengths[:5]))}"
          f"{' and other' if len(lengths) > 5 else ''} tokens; expected as many in each: features "
          "of rows have a number for every token")
    device = next(asked.model.parameters()).device
    batches = _batches(prompts, tokens, names.index(pair), rows, batch_size, device)
    return gather_rows(asked.model, batches, n=len(rows), layers=layers, features=features,
                       batch_size=batch_size, meta={
                           **asked.settings, "split": "prompts" if split is None else split,
                           "pair": pair, "prompts": prompts.digest(),
                           "prepend_bos": asked.begins(prepend_bos),
                           "latentcode_version": package_version("latentcode"), **(meta or {})})


def _batches(
    prompts: Prompts, tokens: Tokens, p: int, rows: list[int], batch_size: int,
    device: torch.device,
) -> Iterator[RowBatch]:
    """Yield prompts of equally many tokens, to be read at their pair p."""
    for start in range(0, len(rows), batch_size):
        part = rows[start:start + batch_size]
        query, key = (torch.from_numpy(positions[part]).to(device)
                      for positions in (tokens.query, tokens.key))
        yield RowBatch(
            torch.tensor([tokens.ids[row] for row in part], device=device), query[:, p], key[:, p],
            prompts.labels.iloc[part].reset_index(drop=True),
            {"pairs": key} if key.shape[1] > 1 else {})


__all__ = ["read_prompt_rows"]
