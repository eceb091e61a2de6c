"""Texts as prompts: pairs found by pattern, labels that the text gives.

The same is asked of a model as of excerpts of its own text (`latentcode.tasks.text`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from latentcode.devices import checked_seed
from latentcode.errors import check, check_count
from latentcode.prompts import Prompts, as_language_model
from latentcode.prompts.whole_texts import documents_of
from latentcode.tasks.text.classes import TokenTable, token_labels
from latentcode.tasks.text.patterns import PATTERNS, keys_at, possible_queries


def pattern_prompts(
    model: Any,
    texts: Sequence[str] | pd.DataFrame,
    *,
    pairs: Sequence[str] | None = None,
    per_text: int = 4,
    longest: int = 256,
    seed: int = 0,
    prepend_bos: bool | None = None,
) -> Prompts:
    """Which codes has a language model where a token was seen before? Prompts to ask it.

    model     as in `as_language_model`; its tokenizer is used alone
    texts     the texts, or a DataFrame with a column `text`, whose other columns (such as `kind`
              and `source`) become labels; texts of one `document`, and those that are the same
              tokens up to `longest`, or the same but for white space, are one combination
    pairs     names of patterns (`latentcode.tasks.text.patterns.PATTERNS`); default: all
    per_text  prompts made of one text at most, which are one combination, too
    longest   tokens of a text that are read at most
    prepend_bos  as in `subject`, to be given there, too

    A prompt is a text up to a token, drawn at random among those for which every pattern has a
    key and no two the same, and which the tokenizer still ends with that token when the rest is
    left out; of texts that begin alike, a prompt that both have is taken of the first alone.
    Labels are those of `token_labels`, and `target`, the text of the token that comes next in fact.

    `ConfigError` for texts none of which has such a token; `UnknownNameError` for a pattern.
    """
    frame = (texts if isinstance(texts, pd.DataFrame) else pd.DataFrame({"text": list(texts)}))
    check("text" in frame, f"texts have no column 'text'; they have {list(frame.columns)}")
    check_count("per_text", per_text)
    asked = as_language_model(model)
    frame = frame.reset_index(drop=True)
    names = tuple(PATTERNS) if pairs is None else tuple(pairs)
    table = asked.table
    most = min(longest, asked.context or longest)
    encoded = [asked.encode(text, prepend_bos) for text in frame["text"]]
    documents = documents_of(frame, [ids[:most] for ids, _ in encoded])
    tokens = [torch.tensor([ids[:most + 1]], dtype=torch.int64) for ids, _ in encoded]
    document_of: dict[tuple[int, ...], Any] = {}
    rng = np.random.default_rng(checked_seed(seed))
    found: list[pd.DataFrame] = []
    for row, (ids, (_, spans)) in enumerate(zip(tokens, encoded, strict=True)):
        text = str(frame.at[row, "text"])
        possible = possible_queries(ids[:, :-1])[0].nonzero()[:, 0].numpy()
        chosen: list[int] = []
        for query in rng.permutation(possible).tolist():
            if len(chosen) == per_text:
                break
            shorter, _ = asked.encode(text[:spans[query][1]], prepend_bos)
            if shorter == ids[0, :query + 1].tolist() and (
                    document_of.setdefault(tuple(shorter), documents[row]) == documents[row]):
                chosen.append(query)
        if chosen:
            given = {str(name): value for name, value in frame.loc[row].items() if name != "text"}
            queries = sorted(chosen)
            following = asked.texts([int(ids[0, query + 1]) for query in queries])
            found.append(_prompts(text, ids, queries, spans, names, table).assign(
                target=following, **{"combination": documents[row], **given}))
    check(len(found) > 0, f"none of {len(frame)} texts has a token with a key of every pattern "
          f"({', '.join(PATTERNS)}); expected longer ones")
    return Prompts.from_frame(pd.concat(found, ignore_index=True))


def _prompts(
    text: str, ids: torch.Tensor, queries: list[int], spans: Sequence[tuple[int, int]],
    names: Sequence[str], table: TokenTable,
) -> pd.DataFrame:
    """Return a row for every query of a text [1, T]."""
    several, query = ids.expand(len(queries), -1), torch.tensor(queries)
    keys = keys_at(several, query, names).tolist()
    pairs: list[Any] = [{name: (q, key) for name, key in zip(names, row, strict=True)}
                        for q, row in zip(queries, keys, strict=True)]
    return token_labels(several, query, table).assign(
        prompt=[text[:spans[q][1]] for q in queries], pairs=pairs)
